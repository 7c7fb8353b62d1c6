/* The gate before every launch, and the contexts that must be empty when it closes. */
#ifndef BALLAST_GATE_H
#define BALLAST_GATE_H

#include <stdbool.h>

/* Wait until the current card is ours, then count a launch in; the card, or -1: not gated. */
int gate_enter(void *stream);

/* The launch has been handed to the driver. While others want the card, also bounds how much may
 * be queued on it. */
void gate_leave(int card, void *stream);

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
