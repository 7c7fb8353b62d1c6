/* The gate before every launch, and what a program may have queued when it closes.
 *
 * gate.c lets launches through, pace.c bounds how much is queued while others want the card, drain.c
 * tells whether a card is empty, and knows contexts and captures.
 */
#ifndef BALLAST_GATE_H
#define BALLAST_GATE_H

#include <stdbool.h>
#include <stdint.h>

/* Wait until the current card is ours, then count a launch in; the card, or -1: not gated. `what` is
 * the function or graph that is launched, by which its time is known again; NULL: a copy or fill. */
int gate_enter(void *stream, const void *what);

/* The launch has been handed to the driver. */
void gate_leave(int card, void *stream, const void *what);

/* One call between the two, in a hook of its own: its status is what the hook returns. */
#define GATED(stream, what, call)            \
    do {                                     \
        int card = gate_enter(stream, what); \
        int status = (call);                 \
        gate_leave(card, stream, what);      \
        return status;                       \
    } while (0)

/* Stream 0 is all threads' in the plain variant of a function, the calling thread's own in the one
 * with a name that ends in _ptsz or _ptds; the driver names that one 2. */
#define SHARED(stream) (stream)
#define OWN(stream) ((stream) ? (stream) : (void *)2)

/* The container's card of the current context, or -1. */
int gate_current_card(void);
/* The container's card of a device of the driver, or -1. */
int gate_card_of(int device);

/* How long a launching thread waits at most for what its program has queued: one plan. */
uint64_t gate_longest_hold_ns(void);

/* -- pace.c ---------------------------------------------------------------------------------- */

/* Wait, for one plan at most, until so little is queued on the card that `what` may follow. */
void pace_before(int card, const void *what);
/* Count a launch, and mark where it ends. */
void pace_after(int card, void *stream, const void *what);
/* Whether all marked launches have ended. */
bool pace_is_empty(int card);
/* Marks in this context are no more. */
void pace_forget(const void *context);

/* -- drain.c --------------------------------------------------------------------------------- */

/* Contexts as they come and go. While they are held, the helper thread touches none. */
void drain_add_context(void *context, int card);
void drain_remove_context(void *context);
void drain_hold_contexts(void);
void drain_release_contexts(void);

/* A capture is about to begin (before the driver begins it), or has ended. Launches into a stream
 * that captures do not run and are not gated. */
void drain_begin_capture(void);
void drain_end_capture(void);
bool drain_is_capturing(void);

/* Mark everything that this process has launched on the card; whether all of it has ended. The helper
 * thread's; neither waits, unless the driver is older than CUDA 12.5. */
void drain_mark(int card);
bool drain_is_done(int card);

/* The process was forked: contexts and marks are its parent's. */
void drain_forget_all(void);
void pace_forget_all(void);

#endif
