/* What this process has allocated: which address stands for how many bytes of which card. */
#ifndef BALLAST_ACCOUNT_H
#define BALLAST_ACCOUNT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CUDA_OUT_OF_MEMORY = 2, CUDA_NOT_SUPPORTED = 801 };

/* What an address or handle is; each kind has keys of its own. */
enum account_kind { ACCOUNT_BLOCK, ACCOUNT_POOL, ACCOUNT_PHYSICAL, ACCOUNT_MAPPING, ACCOUNT_CONTEXT };

/* Reserve bytes of a card; true too where the card has no cap (-1). Give back what was reserved. */
bool account_take(int card, uint64_t bytes);
void account_give(int card, uint64_t bytes);

/* Charge every pool with what it has now; called before a request is refused. */
void pools_settle(void);

/* The card of a key, or -1. */
int account_card(enum account_kind kind, uint64_t key);

/* Keep, find and drop what a key stands for. `link` is free for the caller. What is kept as a
 * block belongs to the current context. */
void account_keep(enum account_kind kind, uint64_t key, int card, uint64_t bytes, uint64_t link);
bool account_drop(enum account_kind kind, uint64_t key, int *card, uint64_t *bytes, uint64_t *link);

/* Charge a context that was made on a card, once: the driver takes its memory at once, and the
 * arbiter sees that only when it next looks. */
void account_add_context(uint64_t context, int card);

/* Give back a context, and every block of it: with it they are gone without being freed. */
void account_drop_context(uint64_t context);

/* Add to the link of a key (made where it is not there yet); what it is then. */
uint64_t account_count(enum account_kind kind, uint64_t key, int64_t change);

/* Charge a key with just so many bytes: the difference is taken, even past the cap, or given. */
void account_settle(enum account_kind kind, uint64_t key, int card, uint64_t bytes);

/* Cap and use of a card with everything charged, all processes together; false without a cap. */
bool account_view(int card, uint64_t *cap, uint64_t *used);

/* The lowest key of a kind from `from` on; false when there is none. */
bool account_lowest(enum account_kind kind, uint64_t from, uint64_t *key);

#endif
