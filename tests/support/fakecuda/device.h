/* The virtual card that all test processes share, and what two fake libraries say about it.
 *
 * The card is a file that $FAKECUDA_STATE names, mapped by every process: its memory, which
 * process has how much of it, a log of everything that ran, with start and end, and what runs now
 * (engine.h). There is one clock, CLOCK_MONOTONIC. Nothing keeps two processes apart: their kernels
 * contend for the card, so whatever order the log shows is the shim's doing.
 */
#ifndef FAKECUDA_DEVICE_H
#define FAKECUDA_DEVICE_H

#include "engine.h"

#include <stdatomic.h>
#include <stdint.h>

#define FAKE_MAX_PROCESSES 256
#define FAKE_MAX_RUNS 262144
#define FAKE_UUID "GPU-00112233-4455-6677-8899-aabbccddeeff"

/* Parts of `health`: an error that is told once, what the driver asks for, and silence. */
#define FAKE_XID(health) ((unsigned)((health) & 0xffff))
#define FAKE_RECOVERY(health) ((unsigned)((health) >> 16 & 0xff))
#define FAKE_IS_LOST(health) ((health) >> 31 & 1)

/* `space` tells the process's own namespace of numbers, since `pid` is only one there. */
struct fake_process {
    _Atomic uint32_t pid;
    _Atomic uint32_t space;
    _Atomic uint64_t bytes;
};

/* One thing that ran: `tag` is $FAKECUDA_TAG of its process, a small number. There may be two
 * cards ($FAKECUDA_CARDS); the second has the first's memory and a UUID that ends in 01. */
struct fake_run {
    uint32_t pid;
    uint16_t tag;
    uint16_t card;
    uint64_t start_ns;
    uint64_t end_ns;
};

struct fake_card {
    uint64_t total_bytes;   /* set by the test */
    uint64_t context_bytes; /* what a process takes with its first context; set by the test */
    _Atomic uint64_t health; /* what NVML says of it: see FAKE_XID; set by the test */
    _Atomic uint64_t n_runs;
    struct fake_process processes[FAKE_MAX_PROCESSES];
    struct fake_run runs[FAKE_MAX_RUNS];
    struct fake_engine engine;
};

/* The card, mapped at first use; NULL where there is none. */
struct fake_card *fake_card(void);

/* Take bytes of the card for this process, or 0 where they are not there. */
int fake_take(uint64_t bytes);
void fake_give(uint64_t bytes);

/* What all processes that live have of it. */
uint64_t fake_used(void);

/* The number that we see the process under; 0 where we do not see it. */
uint32_t fake_seen_pid(const struct fake_process *process);

uint64_t fake_now_ns(void);
void fake_sleep_until(uint64_t until_ns, bool is_exact);
void fake_log(uint32_t pid, uint16_t tag, int card, uint64_t start_ns, uint64_t end_ns);
uint16_t fake_tag(void);
uint32_t fake_own_space(void);
int fake_n_cards(void);

#endif
