/* A reservation is one compare-and-swap of the account: an add that is checked and undone
 * afterwards could briefly make another process's smaller request fail, though it fits.
 */
#include "table.h"

#define BYTES ((UINT64_C(1) << 48) - 1)
#define CHANGE (UINT64_C(1) << 48)

static int known(int card)
{
    return card >= 0 && card < BALLAST_MAX_CARDS;
}

/* The account word with `bytes` in place of its old amount, and one change more. */
static uint64_t moved(uint64_t word, uint64_t bytes)
{
    return ((word & ~BYTES) + CHANGE) | (bytes & BYTES);
}

/* The charged bytes of a card: reservations and overhead; never below 0. */
static uint64_t charged(const struct ballast_account *account, uint64_t word)
{
    int64_t sum = (int64_t)(word & BYTES) +
                  atomic_load(&((struct ballast_account *)account)->overhead_bytes);
    return sum > 0 ? (uint64_t)sum : 0;
}

static bool add(struct ballast_table *table, int slot, int card, uint64_t bytes, bool is_capped)
{
    struct ballast_account *account = &table->cards[card];
    struct ballast_slot *own = &table->slots[slot];
    atomic_fetch_add(&own->n_pending, 1);
    uint64_t word = atomic_load(&account->word);
    bool fits;
    do {
        uint64_t cap = atomic_load(&account->cap_bytes);
        uint64_t used = charged(account, word);
        fits = !is_capped || (used <= cap && bytes <= cap - used);
    } while (fits && !atomic_compare_exchange_weak(&account->word, &word,
                                                   moved(word, (word & BYTES) + bytes)));
    if (fits)
        atomic_fetch_add(&own->used_bytes[card], bytes);
    atomic_fetch_sub(&own->n_pending, 1);
    return fits;
}

bool table_reserve(struct ballast_table *table, int slot, int card, uint64_t bytes)
{
    return !known(card) || (bytes <= BYTES && add(table, slot, card, bytes, true));
}

void table_charge(struct ballast_table *table, int slot, int card, uint64_t bytes)
{
    if (known(card) && bytes <= BYTES)
        add(table, slot, card, bytes, false);
}

/* Never below zero: a negative account would read as a full one. */
static void subtract(struct ballast_account *account, uint64_t bytes)
{
    uint64_t word = atomic_load(&account->word);
    uint64_t left;
    do {
        left = (word & BYTES) > bytes ? (word & BYTES) - bytes : 0;
    } while (!atomic_compare_exchange_weak(&account->word, &word, moved(word, left)));
}

void table_give_back(struct ballast_table *table, int slot, int card, uint64_t bytes)
{
    if (!known(card))
        return;
    struct ballast_slot *own = &table->slots[slot];
    atomic_fetch_add(&own->n_pending, 1);
    subtract(&table->cards[card], bytes);
    atomic_fetch_sub(&own->used_bytes[card], bytes);
    atomic_fetch_sub(&own->n_pending, 1);
}

uint64_t table_used(struct ballast_table *table, int card)
{
    return known(card) ? atomic_load(&table->cards[card].word) & BYTES : 0;
}

uint64_t table_charged(struct ballast_table *table, int card)
{
    struct ballast_account *account = &table->cards[card];
    return known(card) ? charged(account, atomic_load(&account->word)) : 0;
}

bool table_reconcile(struct ballast_table *table, int n_slots)
{
    for (int card = 0; card < BALLAST_MAX_CARDS; card++) {
        bool is_settled = false;
        for (int attempt = 0; attempt < 1000 && !is_settled; attempt++) {
            uint64_t word = atomic_load(&table->cards[card].word), sum = 0;
            uint32_t n_pending = 0;
            for (int slot = 0; slot < n_slots; slot++) {
                /* In this order: a change that begins after the first line moves the word. */
                n_pending += atomic_load(&table->slots[slot].n_pending);
                sum += atomic_load(&table->slots[slot].used_bytes[card]);
            }
            is_settled = !n_pending && atomic_compare_exchange_strong(&table->cards[card].word,
                                                                      &word, moved(word, sum));
        }
        if (!is_settled)
            return false;
    }
    return true;
}

bool table_forget(struct ballast_table *table, int slot, int n_slots)
{
    struct ballast_slot *gone = &table->slots[slot];
    bool was_changing = atomic_exchange(&gone->n_pending, 0) != 0;
    for (int card = 0; card < BALLAST_MAX_CARDS; card++) {
        uint64_t used = atomic_exchange(&gone->used_bytes[card], 0);
        if (!was_changing && used)
            subtract(&table->cards[card], used);
    }
    atomic_store(&gone->pid, 0);
    return !was_changing || table_reconcile(table, n_slots);
}
