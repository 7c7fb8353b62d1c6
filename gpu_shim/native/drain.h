/* Whether a card has unfinished work of this process; its contexts and captures. */
#ifndef BALLAST_DRAIN_H
#define BALLAST_DRAIN_H

#include <stdbool.h>

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

/* After a fork: contexts and captures are the parent's. */
void drain_forget_all(void);

#endif
