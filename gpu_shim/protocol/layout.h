/* What a container's processes and the arbiter share: the memory table, the grants, the messages.
 *
 * A process connects to its container's socket and says HELLO; the arbiter answers WELCOME with
 * two descriptors: the table (both write) and the grants (sealed: only the arbiter writes). From
 * then on the arbiter speaks by writing grants and waking their futex, the process by 16-byte
 * messages:
 *
 *   process                          arbiter
 *     HELLO [table it had before] ->
 *                                  <- WELCOME slot, table, grants
 *     WANT card                   ->   it has something to launch and may not
 *                                  <- grant: OPEN, or LEASED until a deadline
 *     YIELD card                  ->   nothing is queued or running any more
 *                                  <- grant: CLOSED
 *     DRAINED card                ->   what was launched before the gate closed has ended
 *
 * The end of the connection is the end of the process. Times are CLOCK_MONOTONIC nanoseconds.
 * `gpu_shim.protocol.wire` is the same in Python; a test compares the two.
 */
#ifndef BALLAST_LAYOUT_H
#define BALLAST_LAYOUT_H

#include <stdatomic.h>
#include <stdint.h>

#define BALLAST_MAGIC 0x53414c42u
/* Both sides speak all versions from OLDEST on: running containers keep their library when the agent
 * is upgraded, or goes back to the release before. Since 1 the table has `context_bytes`, which was
 * reserved, and `overhead_bytes` may be negative; since 2 it has more slots than FEW_SLOTS. */
#define BALLAST_VERSION 3u
#define BALLAST_OLDEST 1u
#define BALLAST_MAX_CARDS 16
#define BALLAST_MAX_SLOTS 2048
#define BALLAST_FEW_SLOTS 256
#define BALLAST_FEW_SLOTS_UNTIL 2u

/* One card of the container. `word` is what all its processes have reserved, in the lower 48 bits,
 * and above them a count of changes, so that a reader sees whether anything moved meanwhile. */
struct ballast_account {
    char uuid[48];
    _Atomic uint64_t word;
    _Atomic uint64_t cap_bytes;
    /* What NVML shows beyond that: modules, and calls that no hook saw. Below 0 where contexts are
     * smaller than `context_bytes`, which a process is charged for each context that it makes. */
    _Atomic int64_t overhead_bytes;
    _Atomic uint64_t context_bytes;
};

/* One process. `n_pending` changes of its figures are under way; a process that is killed in one
 * leaves it above 0, and the arbiter then counts anew. */
struct ballast_slot {
    _Atomic uint32_t pid;
    _Atomic uint32_t n_pending;
    _Atomic uint64_t used_bytes[BALLAST_MAX_CARDS];
    _Atomic uint64_t n_gate_waits;
    _Atomic uint64_t gate_wait_ns;
    _Atomic uint64_t longest_wait_ns;
    _Atomic uint64_t n_unknown; /* calls of entry points that no table names */
    uint64_t reserved[3];
};

/* One that an arbiter of version 1 or 2 made ends after FEW_SLOTS slots. */
struct ballast_table {
    uint32_t magic, version, n_cards, n_slots;
    uint64_t reserved[6];
    struct ballast_account cards[BALLAST_MAX_CARDS];
    struct ballast_slot slots[BALLAST_MAX_SLOTS];
};

/* OPEN: no other container wants the card. LEASED: until the deadline. CLOSED: ask, and wait. */
enum ballast_state { BALLAST_CLOSED = 0, BALLAST_OPEN = 1, BALLAST_LEASED = 2 };

struct ballast_grant {
    _Atomic uint32_t state;
    _Atomic uint32_t generation; /* counts the times this gate was closed or opened */
    _Atomic uint64_t deadline_ns;
    uint64_t reserved[6];
};

/* Threads that wait for a change of grants: helper threads for closings, and for a thread of their process that
 * begins to want a card; threads that wait for their turn for openings. A helper that were woken then
 * too could have the processor before the thread that has something to launch. */
#define BALLAST_HELPER 1u
#define BALLAST_IN_TURN 2u

/* `changes` is the futex: it moves whenever any grant does. A heartbeat older than a second means
 * that no arbiter is there to open gates, so they are open. */
struct ballast_grants {
    uint32_t magic, version, n_cards;
    _Atomic uint32_t changes;
    _Atomic uint64_t heartbeat_ns;
    uint64_t plan_ns; /* length of a plan; 0: not said */
    uint64_t reserved[4];
    struct ballast_grant cards[BALLAST_MAX_CARDS];
};

enum ballast_kind {
    BALLAST_HELLO = 1,
    BALLAST_WELCOME = 2,
    BALLAST_WANT = 3,
    BALLAST_YIELD = 4,
    BALLAST_DRAINED = 5,
};

/* `value` is the version in HELLO, the slot in WELCOME, else the grant's generation. A HELLO that
 * brings a table says in `slot` which one the process had there, up to version 2 in `card`. */
struct ballast_message {
    uint8_t kind, card;
    uint16_t slot;
    uint32_t value;
    uint64_t pid;
};

_Static_assert(sizeof(struct ballast_account) == 80, "layout");
_Static_assert(sizeof(struct ballast_slot) == 192, "layout");
_Static_assert(sizeof(struct ballast_grant) == 64, "layout");
_Static_assert(sizeof(struct ballast_grants) == 64 + 16 * 64, "layout");
_Static_assert(sizeof(struct ballast_message) == 16, "layout");

#endif
