/* Tracks the creation and end of contexts: the gate drains them, and their memory ends with
 * them. */
#include "account.h"
#include "client.h"
#include "drain.h"
#include "driver.h"
#include "gate.h"
#include "names.h"

#include <stdatomic.h>

static _Atomic(void *) primaries[MAX_DEVICES];

static int made(int status, void **context, int device)
{
    if (!status && context && client_ready()) {
        drain_add_context(*context, gate_card_of(device));
        account_add_context((uint64_t)(uintptr_t)*context, gate_card_of(device));
    }
    return status;
}

/* Headers since CUDA 3.2 turn this name into the next; programs that look it up as text get it. */
HOOK(cuCtxCreate)(void **context, unsigned flags, int device)
{
    return made(REAL(cuCtxCreate)(context, flags, device), context, device);
}

HOOK(cuCtxCreate_v2)(void **context, unsigned flags, int device)
{
    return made(REAL(cuCtxCreate_v2)(context, flags, device), context, device);
}

HOOK(cuCtxCreate_v3)(void **context, void *affinities, int n, unsigned flags, int device)
{
    return made(REAL(cuCtxCreate_v3)(context, affinities, n, flags, device), context, device);
}

HOOK(cuCtxCreate_v4)(void **context, void *how, unsigned flags, int device)
{
    return made(REAL(cuCtxCreate_v4)(context, how, flags, device), context, device);
}

HOOK(cuDevicePrimaryCtxRetain)(void **context, int device)
{
    int status = made(REAL(cuDevicePrimaryCtxRetain)(context, device), context, device);
    if (!status && context && device >= 0 && device < MAX_DEVICES)
        primaries[device] = *context;
    return status;
}

/* Removed before the driver destroys it, so that the helper thread does not wait for it
 * afterwards. */
HOOK(cuCtxDestroy_v2)(void *context)
{
    drain_remove_context(context);
    int status = REAL(cuCtxDestroy_v2)(context);
    if (!status && client_ready())
        account_drop_context((uint64_t)(uintptr_t)context);
    return status;
}

HOOK(cuCtxAttach)(void **context, unsigned flags)
{
    int status = REAL(cuCtxAttach)(context, flags);
    if (!status && context)
        drain_attach_context(*context);
    return status;
}

/* Ends a use of a context, and with the last one the context. The first version of cuCtxDestroy
 * succeeds only at the last use. */
static int detached(int status, void *context)
{
    if (!status && drain_detach_context(context)) {
        drain_remove_context(context);
        if (client_ready())
            account_drop_context((uint64_t)(uintptr_t)context);
    }
    return status;
}

HOOK(cuCtxDestroy)(void *context)
{
    drain_hold_contexts();
    int status = detached(REAL(cuCtxDestroy)(context), context);
    drain_release_contexts();
    return status;
}

HOOK(cuCtxDetach)(void *context)
{
    drain_hold_contexts();
    int status = detached(REAL(cuCtxDetach)(context), context);
    drain_release_contexts();
    return status;
}

/* A primary context and its memory end with its last release or with a reset. Meanwhile the
 * helper thread must not touch it. */
static int left(int status, int device)
{
    unsigned flags;
    int is_active = 1;
    if (status || device < 0 || device >= MAX_DEVICES || !client_ready())
        return status;
    if (!REAL(cuDevicePrimaryCtxGetState)(device, &flags, &is_active) && !is_active) {
        void *context = primaries[device];
        primaries[device] = NULL;
        drain_remove_context(context);
        account_drop_context((uint64_t)(uintptr_t)context);
    }
    return status;
}

HOOK(cuDevicePrimaryCtxRelease)(int device)
{
    drain_hold_contexts();
    int status = left(REAL(cuDevicePrimaryCtxRelease)(device), device);
    drain_release_contexts();
    return status;
}

HOOK(cuDevicePrimaryCtxRelease_v2)(int device)
{
    drain_hold_contexts();
    int status = left(REAL(cuDevicePrimaryCtxRelease_v2)(device), device);
    drain_release_contexts();
    return status;
}

HOOK(cuDevicePrimaryCtxReset)(int device)
{
    drain_hold_contexts();
    int status = left(REAL(cuDevicePrimaryCtxReset)(device), device);
    drain_release_contexts();
    return status;
}

HOOK(cuDevicePrimaryCtxReset_v2)(int device)
{
    drain_hold_contexts();
    int status = left(REAL(cuDevicePrimaryCtxReset_v2)(device), device);
    drain_release_contexts();
    return status;
}
