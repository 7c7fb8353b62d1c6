/* The gate before every launch, and the contexts that must be empty when it closes. */
#ifndef BALLAST_GATE_H
#define BALLAST_GATE_H

#include <stdbool.h>

/* Wait until the current card is ours, then count a launch in; the card, or -1: not gated. */
int gate_enter(void *stream);

/* The launch has been handed to the driver. While others want the card, also bounds how much may
 * be queued on it. */
void gate_leave(int card, void *stream);

/* One call between the two, in a hook of its own: its status is what the hook returns. */
#define GATED(stream, call)            \
    do {                               \
        int card = gate_enter(stream); \
        int status = (call);           \
        gate_leave(card, stream);      \
        return status;                 \
    } while (0)

/* Stream 0 is all threads' in the plain variant of a function, the calling thread's own in the one
 * with a name that ends in _ptsz or _ptds; the driver names that one 2. */
#define SHARED(stream) (stream)
#define OWN(stream) ((stream) ? (stream) : (void *)2)

/* A stream began or ended a capture; launches into one do not run and are not gated. */
void gate_capture(int change);

/* Contexts as they come and go. */
void gate_add_context(void *context);
void gate_remove_context(void *context);

/* The container's card of the current context, or -1. */
int gate_current_card(void);
/* The container's card of a device of the driver, or -1. */
int gate_card_of(int device);

#endif
