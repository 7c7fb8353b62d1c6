/* Memory pools of this process, and reservations beside them. */
#ifndef BALLAST_POOLS_H
#define BALLAST_POOLS_H

#include <stdbool.h>
#include <stdint.h>

/* As `account_take`; pools may hold more than they use, so all are settled before a request is
 * refused. */
bool pools_take(int card, uint64_t bytes);

/* Charge every pool with its current size. */
void pools_settle(void);

/* The same for the current device's memory for graphs, after a launch on this card. */
void pools_settle_graphs(int card);

/* Drop a block and give it back, or settle its pool. */
void pools_free(uint64_t at, uint64_t number);

/* A call of the driver that frees a block. */
#define FREE(at, call)                                                    \
    do {                                                                  \
        uint64_t number = account_number(ACCOUNT_BLOCK, at);              \
        int status = (call);                                              \
        if (!status)                                                      \
            pools_free(at, number);                                       \
        return status;                                                    \
    } while (0)

#endif
