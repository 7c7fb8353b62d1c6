/* The memory table: what a container has reserved of each card, exact over all its processes. */
#ifndef BALLAST_TABLE_H
#define BALLAST_TABLE_H

#include "../protocol/layout.h"

#include <stdbool.h>

/* Take bytes of a card for a slot, or nothing where that would pass the cap. */
bool table_reserve(struct ballast_table *table, int slot, int card, uint64_t bytes);

/* The same past the cap: for what the driver has taken already. */
void table_charge(struct ballast_table *table, int slot, int card, uint64_t bytes);

void table_give_back(struct ballast_table *table, int slot, int card, uint64_t bytes);

/* Bytes reserved of a card, overhead not included. */
uint64_t table_used(struct ballast_table *table, int card);
/* The same with overhead; never below 0. */
uint64_t table_charged(struct ballast_table *table, int card);

/* Free what a process that is gone had. Called by the arbiter, whose table has so many slots. False:
 * something moved all the time, call table_reconcile later. */
bool table_forget(struct ballast_table *table, int slot, int n_slots);

/* Make the accounts the sum of the slots, if nothing moves meanwhile. */
bool table_reconcile(struct ballast_table *table, int n_slots);

/* Bytes as they are charged: from 1 MiB on the driver takes whole pages of 2 MiB. */
static inline uint64_t table_rounded(uint64_t bytes)
{
    const uint64_t page = (uint64_t)2 << 20;
    if (bytes > UINT64_MAX / 2)
        return bytes;
    return bytes < page / 2 ? (bytes + 511) / 512 * 512 : (bytes + page - 1) / page * page;
}

/* The most that one allocation can be where so much is left: an odd MiB would be charged as two. */
static inline uint64_t table_rounded_down(uint64_t left)
{
    const uint64_t page = (uint64_t)2 << 20;
    uint64_t below = left < page / 2 ? left : page / 2 - 512;
    return left < page ? below / 512 * 512 : left / page * page;
}

#endif
