/* The gate before every launch, and which card a launch is for. */
#ifndef BALLAST_GATE_H
#define BALLAST_GATE_H

#include <stdint.h>

enum { MAX_DEVICES = 64 };

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

/* The helper thread looks after every gate; returns how long it may sleep, in nanoseconds. */
uint64_t gate_service(void);
/* A new arbiter knows nothing of this process. */
void gate_forget(void);
/* After a fork: nothing waits or launches. */
void gate_forget_all(void);

#endif
