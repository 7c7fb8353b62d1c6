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
/* Both sides speak all versions from OLDEST on: running containers keep their library when the
 * agent is upgraded or downgraded by one release. Since version 1 the table has `context_bytes`
 * in place of a reserved field, and `overhead_bytes` may be negative; since 2 it has more slots
 * than FEW_SLOTS. */
#define BALLAST_VERSION 3u
#define BALLAST_OLDEST 1u
#define BALLAST_MAX_CARDS 16
#define BALLAST_MAX_SLOTS 2048
#define BALLAST_FEW_SLOTS 256
#define BALLAST_FEW_SLOTS_UNTIL 2u

/* One card of the container. The lower 48 bits of `word` are the bytes that all its processes
 * have reserved; the upper bits count changes, so that a reader can detect a concurrent one. */
struct ballast_account {
    char uuid[48];
    _Atomic uint64_t word;
    _Atomic uint64_t cap_bytes;
    /* The excess in NVML's figures: modules, and calls without a hook. Negative where contexts
     * are smaller than `context_bytes`, with which each new context of a process is charged. */
    _Atomic int64_t overhead_bytes;
    _Atomic uint64_t context_bytes;
};

/* One process. `n_pending` counts its unfinished changes; if the process is killed during one,
 * it stays above 0, and the arbiter recomputes the accounts. */
struct ballast_slot {
    _Atomic uint32_t pid;
    _Atomic uint32_t n_pending;
    _Atomic uint64_t used_bytes[BALLAST_MAX_CARDS];
    _Atomic uint64_t n_gate_waits;
    uint64_t unused; /* older libraries add the length of each wait */
    _Atomic uint64_t longest_wait_ns;
    _Atomic uint64_t n_unknown; /* lookups of entry points that no table lists */
    uint64_t reserved[3];
};

/* The table of an arbiter of version 1 or 2 ends after FEW_SLOTS slots. */
struct ballast_table {
    uint32_t magic, version, n_cards, n_slots;
    uint64_t reserved[6];
    struct ballast_account cards[BALLAST_MAX_CARDS];
    struct ballast_slot slots[BALLAST_MAX_SLOTS];
};

/* OPEN: no other container wants the card. LEASED: open until the deadline. CLOSED: send WANT,
 * and wait. */
enum ballast_state { BALLAST_CLOSED = 0, BALLAST_OPEN = 1, BALLAST_LEASED = 2 };

struct ballast_grant {
    _Atomic uint32_t state;
    _Atomic uint32_t generation; /* counts the times that this gate was closed or opened */
    _Atomic uint64_t deadline_ns;
    uint64_t reserved[6];
};

/* Threads that wait for a change of grants. Helper threads wait for closings, and for a thread
 * of their process that begins to want a card; launching threads wait for openings. A helper
 * that were woken then too could take the processor from the thread that has something to
 * launch. */
#define BALLAST_HELPER 1u
#define BALLAST_IN_TURN 2u

/* `changes` is the futex: it is incremented with every change of a grant. A heartbeat older than
 * a second means that no arbiter is there to open gates, so they count as open. */
struct ballast_grants {
    uint32_t magic, version, n_cards;
    _Atomic uint32_t changes;
    _Atomic uint64_t heartbeat_ns;
    uint64_t plan_ns; /* length of a plan; 0: unknown */
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

/* `value` is the version in HELLO, the slot in WELCOME, else the grant's generation. A HELLO
 * with a table has the process's slot there in `slot`, up to version 2 in `card`. */
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
