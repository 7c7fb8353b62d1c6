/* Writes of the arbiter to shared pages, for its native part. */
#ifndef BALLAST_PAGES_H
#define BALLAST_PAGES_H

#include "../protocol/layout.h"

uint32_t pages_set_gate(struct ballast_grants *grants, int card, uint32_t state,
                        uint64_t deadline_ns);

#endif
