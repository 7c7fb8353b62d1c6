/* How symbols of the fake libcuda are looked up, as the driver does it. */
#define _GNU_SOURCE
#include "cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *own(const char *name)
{
    for (int i = 0; i < fake_n_symbols; i++) {
        if (!strcmp(fake_symbols[i].name, name))
            return (void *)(uintptr_t)fake_symbols[i].function;
    }
    return NULL;
}

/* What a newer driver has and no table of ours knows. */
static int from_the_future(void) { return 0; }

int cuOnlyTheDriver(void) { return 0; }

/* Where $FAKECUDA_ASKED names a file: each name that was asked for, and by which library. */
static void note(const char *name, uint64_t flags, void *asker)
{
    Dl_info info;
    const char *path = getenv("FAKECUDA_ASKED");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (!file)
        return;
    fprintf(file, "%s %u %s\n", name, (unsigned)flags,
            dladdr(asker, &info) ? info.dli_fname : "unknown");
    fclose(file);
}

/* As the driver does it: by base name, version and flags; here the newest variant there is. */
int cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags, int *status)
{
    char full[128];
    static const char *const endings[] = {"_v3", "_v2", ""};
    (void)version;
    note(name, flags, __builtin_return_address(0));
    *found = NULL;
    for (int i = 0; !*found && i < 6; i++) {
        int is_per_thread = i < 3;
        if (is_per_thread && !(flags & 2))
            continue;
        snprintf(full, sizeof full, "%s%s%s", name, endings[i % 3], is_per_thread ? "_ptsz" : "");
        *found = own(full);
    }
    if (!strcmp(name, "cuFromTheFuture"))
        *found = (void *)(uintptr_t)from_the_future;
    if (status)
        *status = *found ? 0 : 1;
    return *found ? 0 : NOT_FOUND;
}

int cuGetProcAddress(const char *name, void **found, int version, uint64_t flags)
{
    return cuGetProcAddress_v2(name, found, version, flags, NULL);
}

/* Five arguments, to see that trampolines pass them on. */
int cuMemcpyPeer(uint64_t to, void *to_context, uint64_t from, void *from_context, size_t bytes)
{
    return (int)(to + (uintptr_t)to_context + from + (uintptr_t)from_context + bytes);
}
