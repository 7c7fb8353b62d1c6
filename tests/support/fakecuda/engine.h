/* What runs on the cards, and when: the execution model that all processes share.
 *
 * A stream runs its kernels in order, one at a time. All kernels that run on a card at a moment, of
 * whatever process, divide it equally: of two that each need 5 ms and begin together, both end after
 * 10 ms. A kernel that waits (for the peers of a collective, for a flag of the host) takes its part
 * of the card all the same, as a spinning kernel does.
 *
 * Whoever calls brings the state up to the present; nothing happens in between. Only its own process
 * takes a kernel that has ended off the list, since what a kernel writes is in that process's memory.
 */
#ifndef FAKECUDA_ENGINE_H
#define FAKECUDA_ENGINE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define FAKE_MAX_WORK 8192
#define FAKE_MAX_CARDS 2

enum fake_work_state { WORK_FREE, WORK_QUEUED, WORK_RUNS, WORK_ENDED };

/* One kernel. `before` is what its stream runs before it, 0 if that has ended. `n_peers` of one
 * `group` and `turn` must run at once before any of them begins to compute. */
struct fake_work {
    uint64_t number, before;
    uint32_t state, pid, space;
    uint16_t tag, card;
    uint32_t group, n_peers, turn;
    uint32_t is_waiting;
    uint64_t left_ns;
    uint64_t start_ns, end_ns;
    uint64_t flag_at, log_at; /* addresses in its process; 0: none */
};

struct fake_engine {
    _Atomic uint32_t is_ready;
    pthread_mutex_t lock;
    uint64_t now_ns, buried_ns, last_number;
    uint32_t n_slots; /* slots that were ever in use */
    struct fake_work work[FAKE_MAX_WORK];
};

/* What a launch asks for. */
struct fake_order {
    uint64_t took_ns;
    uint64_t *log;
    const volatile uint32_t *flag;
    uint32_t group, n_peers;
};

/* Queue work of this process on a card behind `before`; its number, which counts up. */
uint64_t fake_queue(int card, uint64_t before, const struct fake_order *order);

/* Whether work of this process has ended: this one, or with `is_all` everything up to it on `card`. */
bool fake_is_done(int card, uint64_t number, bool is_all);

/* Wait for that; a driver told to spin ($FAKECUDA_SPIN) takes a processor meanwhile. */
void fake_wait(int card, uint64_t number, bool is_all, bool is_blocking);

#endif
