/* This process's connection to the arbiter, and the pages that it received.
 *
 * Nothing happens before the program's first driver call, and nothing at all if the mount holds
 * no configuration. Without an arbiter the configured caps apply to this process alone, and
 * launches are not gated.
 */
#ifndef BALLAST_CLIENT_H
#define BALLAST_CLIENT_H

#include "../protocol/layout.h"
#include "table.h"

#include <stdbool.h>
#include <stddef.h>

struct client {
    int n_cards;                                   /* capped cards of this container */
    char uuids[BALLAST_MAX_CARDS][48];
    struct ballast_table *table;                   /* the container's, or a private one */
    int slot;
    uint64_t charged[BALLAST_MAX_CARDS];           /* what this process has charged to each card */
    struct ballast_grants *_Atomic grants;         /* NULL if there never was an arbiter */
};

extern struct client client;

/* Read the configuration and connect, once. */
void client_join(void);

/* The same, and start to answer the arbiter: the program is about to use a card. True if there
 * is anything to enforce. */
bool client_ready(void);

/* Send a message to the arbiter; false if there is none. */
bool client_send(enum ballast_kind kind, int card, uint32_t value);

/* Whether the arbiter has been silent for so long that gates are open. */
bool client_is_orphan(const struct ballast_grants *grants, uint64_t now_ns);

/* The container's card with this UUID, or -1. */
int client_card(const char *uuid);

/* Count a request for an entry point that our tables lack; the call passes through. */
void client_count_unknown(void);

uint64_t client_now_ns(void);

/* How long a launching thread waits at most for its program's queue: one plan. */
uint64_t client_longest_hold_ns(void);

/* Wait until the change count of the grants is no longer `seen`, at most `at_most_ns`; `kind` is
 * BALLAST_HELPER or BALLAST_IN_TURN. */
void client_wait(const struct ballast_grants *grants, uint32_t kind, uint32_t seen,
                 uint64_t at_most_ns);

/* Wake the helper threads to check the gates. */
void client_wake_helpers(const struct ballast_grants *grants);

/* Guards the table's pointer and the figures that must change with it; not used on the launch
 * path. */
void client_lock(void);
void client_unlock(void);

/* Callbacks of the gates: the helper thread calls `service` whenever it wakes, and may then
 * sleep for the returned time; `forget` follows a new connection, whose arbiter knows nothing
 * yet; `start_anew` runs in a forked child. Set once, when the library is loaded. */
struct client_hooks {
    uint64_t (*service)(void);
    void (*forget)(void);
    void (*start_anew)(void);
};
void client_set_hooks(struct client_hooks hooks);

#endif
