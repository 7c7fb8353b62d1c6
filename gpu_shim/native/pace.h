/* A bound on what a program has queued on a card while other containers want it. */
#ifndef BALLAST_PACE_H
#define BALLAST_PACE_H

#include <stdbool.h>

/* Capture mode, event flags, and status of the driver. */
enum { RELAXED = 2, BLOCKING_WITHOUT_TIME = 3, NOT_READY = 600 };

/* Wait, for one plan at most, until the card's queue is short enough for `what`, which is as in
 * `gate_enter`. `is_capturing`: a stream of this process captures. */
void pace_before(int card, const void *what, bool is_capturing);

/* Count a launch, and mark its end. */
void pace_after(int card, void *stream, const void *what, bool is_capturing);

/* Whether all marked launches have ended. */
bool pace_is_empty(int card);

/* Drop the marks in this context. */
void pace_forget(const void *context);

/* After a fork: marks are the parent's. */
void pace_forget_all(void);

#endif
