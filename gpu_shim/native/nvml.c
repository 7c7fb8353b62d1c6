/* Our libnvidia-ml.so.1: it reports the container's cap as the size of a card, and the container's
 * use as its use. All other answers are the driver's.
 *
 * Caps and use come from our libcuda, which the same preload put into the process.
 */
#define _GNU_SOURCE
#include "driver.h"
#include "names.h"

#include <stddef.h>
#include <stdint.h>

const struct driver_kind driver_kind = {
    .soname = "libnvidia-ml.so.1",
    .plain_name = "libnvidia-ml.so",
    .no_driver = 9,
    .no_function = 13,
};

/* -1 if the card has no cap; absent if only this library was loaded. */
__attribute__((weak)) int ballast_view(const char *uuid, uint64_t *cap, uint64_t *used);

/* The driver's own library, for dlsym in our libcuda; NULL if there is none. */
__attribute__((visibility("default"))) void *ballast_nvml_driver(void)
{
    return driver_handle();
}

struct memory {
    unsigned long long total, free, used;
};

struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

static int view(void *device, uint64_t *cap, uint64_t *used)
{
    char uuid[96];
    return ballast_view && !REAL(nvmlDeviceGetUUID)(device, uuid, (unsigned)sizeof uuid) &&
           !ballast_view(uuid, cap, used);
}

HOOK(nvmlDeviceGetMemoryInfo)(void *device, struct memory *memory)
{
    uint64_t cap, used;
    int status = REAL(nvmlDeviceGetMemoryInfo)(device, memory);
    if (!status && view(device, &cap, &used) && cap < memory->total) {
        used = used < cap ? used : cap;
        *memory = (struct memory){cap, cap - used, used};
    }
    return status;
}

HOOK(nvmlDeviceGetMemoryInfo_v2)(void *device, struct memory_v2 *memory)
{
    uint64_t cap, used;
    int status = REAL(nvmlDeviceGetMemoryInfo_v2)(device, memory);
    if (!status && view(device, &cap, &used) && cap < memory->total) {
        used = used < cap ? used : cap;
        *memory = (struct memory_v2){memory->version, cap, 0, cap - used, used};
    }
    return status;
}
