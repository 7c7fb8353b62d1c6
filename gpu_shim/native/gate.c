/* The launch gate. An open gate costs two atomic adds and a read of a page. At a closed gate the
 * program's thread waits here, before it enters the driver and without our locks, so it can
 * deadlock with nothing but a plan's length.
 *
 * A lease ends in three steps: the gate closes, launches that have passed it enter the driver,
 * and once all of them have ended the helper thread sends DRAINED.
 */
#define _GNU_SOURCE
#include "gate.h"
#include "client.h"
#include "drain.h"
#include "driver.h"
#include "names.h"
#include "pace.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MS UINT64_C(1000000)
/* Idle: two checks without a launch, and then two, a millisecond apart, with nothing left to
 * run. One would not suffice: a program that waits for its kernels launches the next a moment
 * later. */
#define TICK (5 * MS)
#define N_QUIET 2
#define N_EMPTY 2
#define SHORTEST_PAUSE (10 * UINT64_C(1000))
/* A thread that has passed the gate enters the driver at once, unless it was stopped in between. */
#define LONGEST_ENTRY (5000 * MS)

static struct gate {
    _Atomic uint32_t n_inside, n_waiting;
    _Atomic uint64_t n_launches;
    _Atomic bool is_wanting, has_told;
    _Atomic uint32_t drained;
    /* Only for the helper thread. `closing` is the generation that it drains, since
     * `closing_ns`; `is_marked`: all launches have been marked, and none came since. */
    uint64_t seen, closing_ns;
    uint32_t closing;
    int n_quiet, n_empty;
    bool is_marked;
} gates[BALLAST_MAX_CARDS];

static _Atomic int card_of[MAX_DEVICES]; /* 0: not looked up yet; else the card + 2 */

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
        /* Before cuInit the driver does not say: ask again later. */
        if (status)
            return -1;
        card_of[device] = client_card(uuid) + 2;
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
        /* Not sent: retry later, or this thread would wait for ever. */
        if (!client_send(BALLAST_WANT, card, 0))
            gate->is_wanting = false;
    }
}

static void count_wait(uint64_t took_ns)
{
    struct ballast_slot *slot = &client.table->slots[client.slot];
    atomic_fetch_add(&slot->n_gate_waits, 1);
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
            /* The helper may sleep for long, and has to notice when the use ends. */
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

static bool is_contended(int card)
{
    struct ballast_grants *grants = atomic_load_explicit(&client.grants, memory_order_relaxed);
    return atomic_load_explicit(&grants->cards[card].state, memory_order_relaxed) != BALLAST_OPEN;
}

int gate_enter(void *stream, const void *what)
{
    struct ballast_grants *grants = atomic_load_explicit(&client.grants, memory_order_acquire);
    if (!grants || (drain_is_capturing() && is_capturing(stream)))
        return -1;
    int card = client.n_cards == 1 && card_of[0] == 2 ? 0 : gate_current_card();
    if (card < 0)
        return -1;
    if (is_contended(card))
        pace_before(card, what, drain_is_capturing());
    struct gate *gate = &gates[card];
    atomic_fetch_add(&gate->n_inside, 1);
    while (!is_open(grants, card) && !client_is_orphan(grants, client_now_ns())) {
        atomic_fetch_sub(&gate->n_inside, 1);
        wait_for_turn(gate, card);
        atomic_fetch_add(&gate->n_inside, 1);
        grants = atomic_load(&client.grants);
    }
    /* A closing gate waits only for processes that are known to use the card: send WANT first,
     * because the helper thread may run too late. */
    if (!gate->has_told)
        want(gate, card);
    atomic_fetch_add_explicit(&gate->n_launches, 1, memory_order_relaxed);
    return card;
}

void gate_leave(int card, void *stream, const void *what)
{
    if (card < 0)
        return;
    /* Marked before it counts as handed over, so that the helper thread sees the mark. */
    if (is_contended(card))
        pace_after(card, stream, what, drain_is_capturing());
    atomic_fetch_sub(&gates[card].n_inside, 1);
}

/* -- the helper thread ----------------------------------------------------------------------- */

static bool is_quiet(struct gate *gate)
{
    return gate->n_launches == gate->seen && !gate->n_waiting && !gate->n_inside;
}

/* The gate was closed: whether all earlier launches have ended, and DRAINED was sent. */
static bool finish(struct gate *gate, int card, uint32_t generation, uint64_t now_ns)
{
    if (gate->closing != generation) {
        gate->closing = generation;
        gate->closing_ns = now_ns;
        gate->is_marked = false;
    }
    if (gate->n_inside && now_ns - gate->closing_ns < LONGEST_ENTRY)
        return false;
    if (gate->n_launches != gate->seen || gate->is_wanting) {
        if (!gate->is_marked)
            drain_mark(card);
        gate->is_marked = true;
        if (!drain_is_done(card))
            return false;
    }
    gate->drained = generation;
    client_send(BALLAST_DRAINED, card, generation);
    return true;
}

/* No launch lately: whether all launches have ended, and none came since. */
static bool is_idle(struct gate *gate, int card)
{
    if (!gate->is_marked)
        drain_mark(card);
    gate->is_marked = true;
    return drain_is_done(card) && is_quiet(gate);
}

/* One card's turn of the helper thread; returns how long the thread may sleep. */
static uint64_t serve(struct gate *gate, int card, struct ballast_grants *grants)
{
    struct ballast_grant *grant = &grants->cards[card];
    uint32_t generation = atomic_load(&grant->generation), state = atomic_load(&grant->state);
    uint64_t now_ns = client_now_ns(), pause = 100 * MS;
    if (state == BALLAST_CLOSED && gate->has_told && gate->drained != generation &&
        !finish(gate, card, generation, now_ns)) {
        /* Another container waits for this: check again after about a hundredth of the time so
         * far. */
        pause = (now_ns - gate->closing_ns) / 64;
        pause = pause < SHORTEST_PAUSE ? SHORTEST_PAUSE : pause > MS ? MS : pause;
    }
    if (!is_quiet(gate)) {
        gate->seen = gate->n_launches;
        gate->n_quiet = gate->n_empty = 0;
        if (gate->drained == generation || state != BALLAST_CLOSED)
            gate->is_marked = false;
        want(gate, card);
    } else if (gate->is_wanting && ++gate->n_quiet >= N_QUIET && is_idle(gate, card) &&
               ++gate->n_empty >= N_EMPTY) {
        gate->is_wanting = false;
        client_send(BALLAST_YIELD, card, generation);
    }
    /* If no other container wants the card, idleness may be noticed later. */
    uint64_t tick = state == BALLAST_OPEN ? 2 * TICK : gate->n_quiet >= N_QUIET ? MS : TICK;
    return pause > tick && (gate->is_wanting || state != BALLAST_CLOSED) ? tick : pause;
}

uint64_t gate_service(void)
{
    struct ballast_grants *grants = atomic_load(&client.grants);
    uint64_t pause = 100 * MS;
    if (!grants || client_is_orphan(grants, client_now_ns()))
        return pause;
    for (int card = 0; card < client.n_cards; card++) {
        uint64_t own = serve(&gates[card], card, grants);
        pause = own < pause ? own : pause;
    }
    return pause;
}

void gate_forget(void)
{
    for (int card = 0; card < BALLAST_MAX_CARDS; card++) {
        gates[card].is_wanting = false;
        gates[card].has_told = false;
        gates[card].drained = 0;
    }
}

void gate_forget_all(void)
{
    gate_forget();
    for (int card = 0; card < BALLAST_MAX_CARDS; card++)
        gates[card].n_inside = gates[card].n_waiting = 0;
}
