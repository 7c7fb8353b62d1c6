/* Threads that reserve and give back as processes do, each in a slot of its own; one thread plays
 * the arbiter and now and then forgets a slot that has stopped. Exit status 0: never above the
 * cap, and nothing left at the end.
 */
#include "table.h"

#include <pthread.h>
#include <stdio.h>

enum { N_THREADS = 8, N_TURNS = 20000, CAP = 64 };

static struct ballast_table table;
static _Atomic int n_refused, n_over;

static void look(void)
{
    if (table_used(&table, 0) > CAP)
        n_over++;
}

static void *play(void *which)
{
    int slot = (int)(long)which;
    uint64_t held = 0, random = (uint64_t)slot * 2654435761u + 1;
    for (int turn = 0; turn < N_TURNS; turn++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint64_t bytes = 1 + (random >> 33) % 12;
        if (held && (random >> 62)) {
            table_give_back(&table, slot, 0, held);
            held = 0;
        } else if (table_reserve(&table, slot, 0, bytes)) {
            held += bytes;
        } else {
            n_refused++;
        }
        look();
    }
    /* Every other one dies with what it has. */
    if (slot % 2)
        table_forget(&table, slot, BALLAST_MAX_SLOTS);
    else
        table_give_back(&table, slot, 0, held);
    return NULL;
}

int main(void)
{
    pthread_t threads[N_THREADS];
    table.cards[0].cap_bytes = CAP;
    for (long at = 0; at < N_THREADS; at++)
        pthread_create(&threads[at], NULL, play, (void *)at);
    for (int at = 0; at < N_THREADS; at++)
        pthread_join(threads[at], NULL);
    /* A process that was killed in a change: the account has it, the slot does not. */
    table.cards[0].word += 5;
    table.slots[0].n_pending = 1;
    bool is_settled = table_forget(&table, 0, BALLAST_MAX_SLOTS);
    printf("refused %d, over %d, left %llu\n", n_refused, n_over,
           (unsigned long long)table_used(&table, 0));
    return !n_refused || n_over || !is_settled || table_used(&table, 0);
}
