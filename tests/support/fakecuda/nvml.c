/* A libnvidia-ml.so.1 for tests: one card, its memory, and who has how much of it. */
#include "device.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

struct memory {
    unsigned long long total, free, used;
};

struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

struct process {
    unsigned pid;
    unsigned long long bytes;
    unsigned instance, compute;
};

int nvmlInit_v2(void) { return fake_card() ? 0 : 9; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    *device = fake_card();
    return index ? 2 : 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
    *device = fake_card();
    return strcmp(uuid, FAKE_UUID) ? 6 : 0;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length)
{
    (void)device;
    return snprintf(uuid, length, "%s", FAKE_UUID) < (int)length ? 0 : 7;
}

int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory)
{
    struct fake_card *card = device;
    uint64_t used = fake_used();
    *memory = (struct memory){card->total_bytes, card->total_bytes - used, used};
    return 0;
}

int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_v2 *memory)
{
    struct memory plain;
    nvmlDeviceGetMemoryInfo(device, &plain);
    *memory = (struct memory_v2){memory->version, plain.total, 0, plain.free, plain.used};
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *found)
{
    struct fake_card *card = device;
    unsigned n = 0, room = *count;
    fake_used();
    for (int i = 0; i < FAKE_MAX_PROCESSES; i++) {
        unsigned pid = card->processes[i].pid;
        if (!pid || !card->processes[i].bytes)
            continue;
        if (n < room)
            found[n] = (struct process){pid, card->processes[i].bytes, ~0u, ~0u};
        n++;
    }
    *count = n;
    return n > room ? 7 : 0;
}
