/* The launch gate. Open, it costs two atomic adds and a look at a page; shut, the program's thread
 * waits here, before it has entered the driver, with none of our locks held: so it can't deadlock
 * with anything but the time it waits for.
 *
 * A lease ends in three steps: the gate shuts, launches that were past it are let into the driver,
 * and the helper thread waits until all contexts are empty and says DRAINED.
 */
#define _GNU_SOURCE
#include "gate.h"
#include "client.h"
#include "driver.h"
#include "names.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MS UINT64_C(1000000)
#define RELAXED 2
#define MAX_CONTEXTS 32
#define MAX_DEVICES 64
/* Two looks without a launch, and nothing left to run: idle. */
#define TICK (5 * MS)
#define N_QUIET 2
/* A thread that is past the gate is in the driver at once, unless it was stopped there. */
#define LONGEST_ENTRY (5000 * MS)
/* A thread that launches waits no longer than this for what it has queued: its kernel may need the
 * thread to end, by a flag that the host writes or by work on another stream. */
#define LONGEST_PACING (250 * MS)
#define NOT_READY 600

static struct gate {
    _Atomic uint32_t n_inside, n_waiting;
    _Atomic uint64_t n_launches;
    _Atomic bool is_wanting, has_told;
    uint32_t drained;
    uint64_t seen;
    int n_quiet;
} gates[BALLAST_MAX_CARDS];

/* While contended, on each card: an event after every `every` launches, and no more than two of them
 * ahead. Events are of the context that the first was made in, and end with it. */
static struct pace {
    pthread_mutex_t lock;
    _Atomic uint32_t n_launches, every;
    uint32_t at;
    void *context;
    uint64_t free_until_ns; /* launches are not paced: the last wait was given up */
    struct {
        void *event;
        bool is_recorded;
        uint64_t recorded_ns;
    } ring[2];
} paces[BALLAST_MAX_CARDS] = {
    [0 ... BALLAST_MAX_CARDS - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER, .every = 1},
};

static _Atomic int n_captures;
static _Atomic(void *) contexts[MAX_CONTEXTS];
static _Atomic int card_of[MAX_DEVICES]; /* 0: not looked up yet; else 2 above the card */

/* -- where a launch goes --------------------------------------------------------------------- */

int gate_card_of(int device)
{
    if (device < 0 || device >= MAX_DEVICES)
        return -1;
    if (!card_of[device]) {
        unsigned char raw[16] = {0};
        char uuid[48];
        int at = 4, status = REAL(cuDeviceGetUuid_v2)(raw, device);
        if (status)
            status = REAL(cuDeviceGetUuid)(raw, device);
        strcpy(uuid, "GPU-");
        for (int i = 0; i < 16; i++) {
            const char *dash = i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "";
            at += snprintf(uuid + at, sizeof uuid - (size_t)at, "%s%02x", dash, raw[i]);
        }
        card_of[device] = status ? 1 : client_card(uuid) + 2;
    }
    return card_of[device] - 2;
}

int gate_current_card(void)
{
    int device = 0;
    if (!client_ready() || REAL(cuCtxGetDevice)(&device))
        return -1;
    return gate_card_of(device);
}

/* -- the gate -------------------------------------------------------------------------------- */

static bool is_open(const struct ballast_grants *grants, int card)
{
    struct ballast_grant *grant = &((struct ballast_grants *)grants)->cards[card];
    uint32_t state = atomic_load_explicit(&grant->state, memory_order_acquire);
    if (state == BALLAST_LEASED)
        return client_now_ns() < atomic_load_explicit(&grant->deadline_ns, memory_order_relaxed);
    return state == BALLAST_OPEN;
}

static void want(struct gate *gate, int card)
{
    if (!atomic_exchange(&gate->is_wanting, true)) {
        gate->has_told = true;
        /* It was not sent: say it again, or this thread would wait for ever. */
        if (!client_send(BALLAST_WANT, card, 0))
            gate->is_wanting = false;
    }
}

static void count_wait(uint64_t took_ns)
{
    struct ballast_slot *slot = &client.table->slots[client.slot];
    atomic_fetch_add(&slot->n_gate_waits, 1);
    atomic_fetch_add(&slot->gate_wait_ns, took_ns);
    uint64_t longest = slot->longest_wait_ns;
    while (took_ns > longest &&
           !atomic_compare_exchange_weak(&slot->longest_wait_ns, &longest, took_ns))
        continue;
}

/* Wait until the gate opens or no arbiter is there to open it. */
static void wait_for_turn(struct gate *gate, int card)
{
    uint64_t began = client_now_ns();
    atomic_fetch_add(&gate->n_waiting, 1);
    for (;;) {
        struct ballast_grants *grants = atomic_load(&client.grants);
        uint32_t changes = atomic_load(&grants->changes);
        if (is_open(grants, card) || client_is_orphan(grants, client_now_ns()))
            break;
        if (!gate->is_wanting) {
            want(gate, card);
            /* It may sleep for long, and is to see when this ends. */
            client_wake_helpers(grants);
        }
        client_wait(grants, BALLAST_IN_TURN, changes, 100 * MS);
    }
    atomic_fetch_sub(&gate->n_waiting, 1);
    count_wait(client_now_ns() - began);
}

static bool is_capturing(void *stream)
{
    int status = 0;
    return REAL(cuStreamIsCapturing)(stream, &status) || status;
}

int gate_enter(void *stream)
{
    struct ballast_grants *grants = atomic_load_explicit(&client.grants, memory_order_acquire);
    if (!grants || (n_captures && is_capturing(stream)))
        return -1;
    int card = client.n_cards == 1 && card_of[0] == 2 ? 0 : gate_current_card();
    if (card < 0)
        return -1;
    struct gate *gate = &gates[card];
    atomic_fetch_add(&gate->n_inside, 1);
    while (!is_open(grants, card) && !client_is_orphan(grants, client_now_ns())) {
        atomic_fetch_sub(&gate->n_inside, 1);
        wait_for_turn(gate, card);
        atomic_fetch_add(&gate->n_inside, 1);
        grants = atomic_load(&client.grants);
    }
    /* Only processes that are known to use the card are waited for when the gate shuts: say so first,
     * for the helper thread may look too late. */
    if (!gate->has_told)
        want(gate, card);
    atomic_fetch_add_explicit(&gate->n_launches, 1, memory_order_relaxed);
    return card;
}

/* -- bounding what is queued ----------------------------------------------------------------- */

/* Whether the event came in time. */
static bool wait_for(void *event)
{
    uint64_t began = client_now_ns(), waited = 0;
    while (REAL(cuEventQuery)(event) == NOT_READY) {
        if (waited > LONGEST_PACING)
            return false;
        usleep(waited < 4 * MS ? 50 : 500);
        waited = client_now_ns() - began;
    }
    return true;
}

static void follow(struct pace *pace, void *stream)
{
    int at = pace->at % 2;
    void *context = NULL;
    if (REAL(cuCtxGetCurrent)(&context) || (pace->context && pace->context != context))
        return;
    pace->context = context;
    if (client_now_ns() < pace->free_until_ns)
        return;
    if (pace->ring[at].is_recorded) {
        if (!wait_for(pace->ring[at].event)) {
            pace->free_until_ns = client_now_ns() + LONGEST_PACING;
            return;
        }
        uint64_t took = client_now_ns() - pace->ring[at].recorded_ns;
        if (took > 5 * MS && pace->every > 1)
            pace->every /= 2;
        else if (took < 2 * MS && pace->every < 1024)
            pace->every *= 2;
        pace->ring[at].is_recorded = false;
    }
    /* Without timing, and such that waiting for it sleeps. */
    if (!pace->ring[at].event && REAL(cuEventCreate)(&pace->ring[at].event, 3))
        return;
    if (!REAL(cuEventRecord)(pace->ring[at].event, stream)) {
        pace->ring[at].is_recorded = true;
        pace->ring[at].recorded_ns = client_now_ns();
        pace->at++;
    }
}

void gate_leave(int card, void *stream)
{
    if (card < 0)
        return;
    atomic_fetch_sub(&gates[card].n_inside, 1);
    struct ballast_grants *grants = atomic_load_explicit(&client.grants, memory_order_relaxed);
    if (atomic_load_explicit(&grants->cards[card].state, memory_order_relaxed) == BALLAST_OPEN)
        return;
    struct pace *pace = &paces[card];
    if (++pace->n_launches % pace->every && !n_captures)
        return;
    if (pthread_mutex_trylock(&pace->lock))
        return;
    int mode = RELAXED;
    REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    follow(pace, stream);
    REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    pthread_mutex_unlock(&pace->lock);
}

/* -- draining: the helper thread ------------------------------------------------------------- */

void gate_capture(int change)
{
    /* Never below none: an end without a beginning that we saw is not counted. */
    int before = n_captures;
    while (before + change >= 0 &&
           !atomic_compare_exchange_weak(&n_captures, &before, before + change))
        continue;
}

void gate_add_context(void *context)
{
    for (int i = 0; i < MAX_CONTEXTS; i++) {
        if (contexts[i] == context)
            return;
    }
    for (int i = 0; i < MAX_CONTEXTS; i++) {
        void *nothing = NULL;
        if (atomic_compare_exchange_strong(&contexts[i], &nothing, context))
            return;
    }
}

void gate_remove_context(void *context)
{
    for (int i = 0; i < MAX_CONTEXTS; i++) {
        void *found = context;
        atomic_compare_exchange_strong(&contexts[i], &found, NULL);
    }
    for (int card = 0; card < BALLAST_MAX_CARDS; card++) {
        struct pace *pace = &paces[card];
        pthread_mutex_lock(&pace->lock);
        if (pace->context == context) {
            pace->context = NULL;
            memset(pace->ring, 0, sizeof pace->ring);
        }
        pthread_mutex_unlock(&pace->lock);
    }
}

static void wait_for_events(struct pace *pace)
{
    pthread_mutex_lock(&pace->lock);
    for (int i = 0; i < 2; i++) {
        if (pace->ring[i].is_recorded)
            REAL(cuEventSynchronize)(pace->ring[i].event);
    }
    pthread_mutex_unlock(&pace->lock);
}

/* Wait until nothing of this process runs. While a stream captures, a wait for a whole context
 * would break the capture; then every launch has an event after it, and those are waited for. */
static void drain(void)
{
    int mode = RELAXED;
    REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    for (int card = 0; card < BALLAST_MAX_CARDS && n_captures; card++)
        wait_for_events(&paces[card]);
    for (int i = 0; i < MAX_CONTEXTS && !n_captures; i++) {
        void *context = contexts[i];
        if (!context || REAL(cuCtxPushCurrent_v2)(context))
            continue;
        REAL(cuCtxSynchronize)();
        REAL(cuCtxPopCurrent_v2)(&context);
    }
    REAL(cuThreadExchangeStreamCaptureMode)(&mode);
}

static void finish(struct gate *gate, int card, uint32_t generation)
{
    uint64_t began = client_now_ns();
    while (gate->n_inside && client_now_ns() - began < LONGEST_ENTRY)
        usleep(50);
    if (gate->n_launches != gate->seen || gate->is_wanting)
        drain();
    gate->drained = generation;
    client_send(BALLAST_DRAINED, card, generation);
}

static bool is_quiet(struct gate *gate)
{
    return gate->n_launches == gate->seen && !gate->n_waiting && !gate->n_inside;
}

/* One card's turn of the helper thread; whether there is anything to watch closely. */
static bool serve(struct gate *gate, int card, struct ballast_grants *grants)
{
    struct ballast_grant *grant = &grants->cards[card];
    uint32_t generation = atomic_load(&grant->generation), state = atomic_load(&grant->state);
    if (state == BALLAST_CLOSED && gate->has_told && gate->drained != generation)
        finish(gate, card, generation);
    if (!is_quiet(gate)) {
        gate->seen = gate->n_launches;
        gate->n_quiet = 0;
        want(gate, card);
    } else if (gate->is_wanting && ++gate->n_quiet >= N_QUIET) {
        drain();
        if (is_quiet(gate)) {
            gate->is_wanting = false;
            client_send(BALLAST_YIELD, card, generation);
        }
    }
    return gate->is_wanting || state != BALLAST_CLOSED;
}

static uint64_t service(void)
{
    struct ballast_grants *grants = atomic_load(&client.grants);
    bool is_close = false;
    if (!grants || client_is_orphan(grants, client_now_ns()))
        return 100 * MS;
    for (int card = 0; card < client.n_cards; card++)
        is_close |= serve(&gates[card], card, grants);
    return is_close ? TICK : 100 * MS;
}

static void forget(void)
{
    for (int card = 0; card < BALLAST_MAX_CARDS; card++) {
        gates[card].is_wanting = false;
        gates[card].has_told = false;
        gates[card].drained = 0;
    }
}

__attribute__((constructor)) static void register_hooks(void)
{
    client_set_hooks((struct client_hooks){service, forget});
}
