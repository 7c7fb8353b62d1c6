/* The memory table: the bytes that a container has reserved of each card, exact over all its
 * processes. */
#ifndef BALLAST_TABLE_H
#define BALLAST_TABLE_H

#include "../protocol/layout.h"

#include <stdbool.h>

/* Reserve bytes of a card for a slot; false, without a change, if that would exceed the cap. */
bool table_reserve(struct ballast_table *table, int slot, int card, uint64_t bytes);

/* The same past the cap: for bytes that the driver has already taken. */
void table_charge(struct ballast_table *table, int slot, int card, uint64_t bytes);

void table_give_back(struct ballast_table *table, int slot, int card, uint64_t bytes);

/* Bytes reserved of a card, without overhead. */
uint64_t table_used(struct ballast_table *table, int card);
/* The same with overhead; never below 0. */
uint64_t table_charged(struct ballast_table *table, int card);

/* Free the reservations of a process that has ended. Called by the arbiter, whose table has
 * `n_slots` slots. False: the figures changed all the time; call table_reconcile later. */
bool table_forget(struct ballast_table *table, int slot, int n_slots);

/* Set each account to the sum of the slots, if nothing changes meanwhile. */
bool table_reconcile(struct ballast_table *table, int n_slots);

/* Bytes as they are charged: from 1 MiB on the driver takes whole pages of 2 MiB. */
static inline uint64_t table_rounded(uint64_t bytes)
{
    const uint64_t page = (uint64_t)2 << 20;
    if (bytes > UINT64_MAX / 2)
        return bytes;
    return bytes < page / 2 ? (bytes + 511) / 512 * 512 : (bytes + page - 1) / page * page;
}

/* The largest allocation that fits into `left` bytes: an odd MiB would be charged as two. */
static inline uint64_t table_rounded_down(uint64_t left)
{
    const uint64_t page = (uint64_t)2 << 20;
    uint64_t below = left < page / 2 ? left : page / 2 - 512;
    return left < page ? below / 512 * 512 : left / page * page;
}

#endif
