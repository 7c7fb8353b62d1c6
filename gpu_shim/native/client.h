/* This process's end of the arbiter's socket, and what came over it.
 *
 * Nothing happens before the program's first driver call, and nothing at all where the mount holds
 * no configuration. Without an arbiter the caps of the configuration hold for this process alone,
 * and launches are free.
 */
#ifndef BALLAST_CLIENT_H
#define BALLAST_CLIENT_H

#include "../protocol/layout.h"
#include "table.h"

#include <stdbool.h>
#include <stddef.h>

struct client {
    int n_cards;                                   /* cards of this container that have a cap */
    char uuids[BALLAST_MAX_CARDS][48];
    struct ballast_table *table;                   /* the container's, or one of our own */
    int slot;
    struct ballast_grants *_Atomic grants;         /* NULL where there never was an arbiter */
};

extern struct client client;

/* Read the configuration and connect, once. */
void client_join(void);

/* The same, and from now on the arbiter is answered: the program is about to use a card. True where
 * there is anything to enforce. */
bool client_ready(void);

/* Tell the arbiter; false if there is none. */
bool client_send(enum ballast_kind kind, int card, uint32_t value);

/* Whether the arbiter has been silent for so long that gates are open. */
bool client_is_orphan(const struct ballast_grants *grants, uint64_t now_ns);

/* The container's card with this UUID, or -1. */
int client_card(const char *uuid);

/* A program asked for an entry point that our tables do not have: it passes, and is counted. */
void client_count_unknown(void);

uint64_t client_now_ns(void);

/* Wait until a grant changes from what `seen` says, for at most so long; `kind` is BALLAST_HELPER or
 * BALLAST_IN_TURN. */
void client_wait(const struct ballast_grants *grants, uint32_t kind, uint32_t seen,
                 uint64_t at_most_ns);

/* Have helper threads look at the gates now. */
void client_wake_helpers(const struct ballast_grants *grants);

/* Guards the table's pointer and every figure that must move with it; not the launch path. */
void client_lock(void);
void client_unlock(void);

/* What the gates have the client do: `service` is called by the helper thread whenever it wakes and
 * returns how long it may sleep then; `forget` after a new connection, of which the arbiter knows
 * nothing yet; `start_anew` in a forked child. Set once, when the library is loaded. */
struct client_hooks {
    uint64_t (*service)(void);
    void (*forget)(void);
    void (*start_anew)(void);
};
void client_set_hooks(struct client_hooks hooks);

#endif
