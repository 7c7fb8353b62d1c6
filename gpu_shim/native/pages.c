/* Writes of the arbiter to shared pages: Python has neither atomic writes nor futexes. */
#define _GNU_SOURCE
#include "pages.h"
#include "table.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

static void wake(struct ballast_grants *grants, uint32_t kinds)
{
    syscall(SYS_futex, &grants->changes, FUTEX_WAKE_BITSET, INT_MAX, NULL, NULL, kinds);
}

/* Set a gate and wake the threads that wait for it; returns the new generation. The deadline is
 * written first, so that no thread sees a lease with the previous deadline. */
EXPORTED uint32_t pages_set_gate(struct ballast_grants *grants, int card, uint32_t state,
                                 uint64_t deadline_ns)
{
    struct ballast_grant *grant = &grants->cards[card];
    atomic_store(&grant->deadline_ns, deadline_ns);
    atomic_store(&grant->state, state);
    uint32_t generation = atomic_fetch_add(&grant->generation, 1) + 1;
    atomic_fetch_add(&grants->changes, 1);
    wake(grants, state == BALLAST_CLOSED ? BALLAST_HELPER : BALLAST_IN_TURN);
    return generation;
}

EXPORTED int pages_forget(struct ballast_table *table, int slot, int n_slots)
{
    return table_forget(table, slot, n_slots);
}

EXPORTED int pages_reconcile(struct ballast_table *table, int n_slots)
{
    return table_reconcile(table, n_slots);
}

EXPORTED uint64_t pages_used(struct ballast_table *table, int card)
{
    return table_used(table, card);
}

/* Bytes that programs hold by the driver's figures, including modules and calls without a hook. */
EXPORTED uint64_t pages_held(struct ballast_table *table, int card)
{
    return table_charged(table, card);
}

EXPORTED void pages_set_cap(struct ballast_table *table, int card, uint64_t bytes)
{
    atomic_store(&table->cards[card].cap_bytes, bytes);
}

EXPORTED void pages_set_overhead(struct ballast_table *table, int card, int64_t bytes)
{
    atomic_store(&table->cards[card].overhead_bytes, bytes);
}

EXPORTED void pages_set_context(struct ballast_table *table, int card, uint64_t bytes)
{
    atomic_store(&table->cards[card].context_bytes, bytes);
}

EXPORTED int pages_reserve(struct ballast_table *table, int slot, int card, uint64_t bytes)
{
    return table_reserve(table, slot, card, bytes);
}

EXPORTED void pages_give_back(struct ballast_table *table, int slot, int card, uint64_t bytes)
{
    table_give_back(table, slot, card, bytes);
}
