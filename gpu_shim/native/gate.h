/* The gate before every launch, and a bound on what a program has queued when it closes.
 *
 * gate.c lets launches through, pace.c bounds the queue while other containers want the card,
 * drain.c tells whether a card is empty, and tracks contexts and captures.
 */
#ifndef BALLAST_GATE_H
#define BALLAST_GATE_H

#include <stdbool.h>
#include <stdint.h>

/* Wait until this process may use the current card, then count a launch in; returns the card, or
 * -1 if not gated. `what` is the launched function or graph, which identifies its run time;
 * NULL: a copy or fill. */
int gate_enter(void *stream, const void *what);

/* The launch has been handed to the driver. */
void gate_leave(int card, void *stream, const void *what);

/* A hook whose only driver call is gated; returns its status. */
#define GATED(stream, what, call)            \
    do {                                     \
        int card = gate_enter(stream, what); \
        int status = (call);                 \
        gate_leave(card, stream, what);      \
        return status;                       \
    } while (0)

/* Stream 0 is shared by all threads in the plain variant of a function, and is the calling
 * thread's own in a variant that ends in _ptsz or _ptds; the driver's name for the latter is 2. */
#define SHARED(stream) (stream)
#define OWN(stream) ((stream) ? (stream) : (void *)2)

/* The container's card of the current context, or -1. */
int gate_current_card(void);
/* The container's card of a device of the driver, or -1. */
int gate_card_of(int device);

/* How long a launching thread waits at most for its program's queue: one plan. */
uint64_t gate_longest_hold_ns(void);

/* -- pace.c ---------------------------------------------------------------------------------- */

/* Wait, for one plan at most, until the card's queue is short enough for `what`. */
void pace_before(int card, const void *what);
/* Count a launch, and mark its end. */
void pace_after(int card, void *stream, const void *what);
/* Whether all marked launches have ended. */
bool pace_is_empty(int card);
/* Drop the marks in this context. */
void pace_forget(const void *context);

/* -- drain.c --------------------------------------------------------------------------------- */

/* Track the creation and end of contexts. While they are held, the helper thread touches none. */
void drain_add_context(void *context, int card);
void drain_remove_context(void *context);

/* One use of a context more, and one less: true if that was the last. */
void drain_attach_context(void *context);
bool drain_detach_context(void *context);

void drain_hold_contexts(void);
void drain_release_contexts(void);

/* A capture is about to begin in the driver, or has ended. Launches into a capturing stream do
 * not run and are not gated. */
void drain_begin_capture(void);
void drain_end_capture(void);
bool drain_is_capturing(void);

/* Mark everything that this process has launched on the card; tell whether all of it has ended.
 * Only for the helper thread; neither waits, unless the driver is older than CUDA 12.5. */
void drain_mark(int card);
bool drain_is_done(int card);

/* After a fork: contexts and marks are the parent's. */
void drain_forget_all(void);
void pace_forget_all(void);

#endif
