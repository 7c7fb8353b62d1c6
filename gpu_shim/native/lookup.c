/* Redirects every way in which programs find the driver's functions to ours.
 *
 * A program that links libcuda.so.1, or opens it by that name, gets our library, because the
 * loader knows it by this SONAME. Other programs open the driver by path (dlopen: redirected to
 * us), hold the real driver's handle (dlsym: returns our function), or ask the driver
 * (cuGetProcAddress: returns our pointer). dlopen and dlsym inspect their caller, so our
 * versions end in a jump, with nothing of ours on the stack.
 */
#define _GNU_SOURCE
#include "client.h"
#include "driver.h"
#include "names.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* Called from assembler below. */
#define CALLED __attribute__((used, noinline))

/* The real driver is dlopened from within driver.c; before that, no program can have its handle. */
static void *opened_driver;

__attribute__((visibility("default"))) const int ballast_is_cuda = 1;

/* From our NVML library; absent if only this library was loaded. */
__attribute__((weak)) void *ballast_nvml_driver(void);

/* Whether the symbol of our library, and what was found, are in one library. */
static bool is_of(const void *ours, const void *found)
{
    Dl_info one, other;
    return dladdr(ours, &one) && dladdr(found, &other) && one.dli_fbase == other.dli_fbase;
}

/* For a handle that is ours or the whole program's, the answer is the driver's: a program finds a
 * symbol of a newer driver that we do not export, and does not find one that an older driver lacks.
 * In the latter case `asked` becomes the driver's handle, for libc to answer that there is none. */
static void *drivers_own(const char *name, void **asked)
{
    bool is_nvml = name[0] == 'n';
    void *found = libc_dlsym(*asked, name), *driver = NULL;
    const void *ours = is_nvml ? (void *)(uintptr_t)ballast_nvml_driver : &ballast_is_cuda;
    if (!ours || (found && !is_of(ours, found)))
        return NULL;
    if (!found && !libc_dlsym(*asked, is_nvml ? "ballast_nvml_driver" : "ballast_is_cuda"))
        return NULL;
    driver = is_nvml ? ballast_nvml_driver() : driver_handle();
    void *own = driver ? libc_dlsym(driver, name) : NULL;
    if (found && driver && !own)
        *asked = driver;
    if (found || !own)
        return NULL;
    dlerror();
    return own;
}

CALLED void *lookup_symbol(void *handle, const char *name, void **asked)
{
    /* Searches that depend on their caller are left to the loader. */
    if (!name || (strncmp(name, "cu", 2) && strncmp(name, "nvml", 4)) || handle == RTLD_NEXT)
        return NULL;
    int index = name[0] == 'c' ? driver_index(name) : -1;
    if (!opened_driver && driver_functions[IX_cuInit])
        opened_driver = driver_handle();
    if (!opened_driver || handle != opened_driver)
        return drivers_own(name, asked);
    if (index < 0 || !libc_dlsym(handle, name))
        return NULL;
    return (void *)(uintptr_t)driver_names[index].ours;
}

/* The path to open in place of `path`: our own library for any path to the driver's. */
CALLED const char *lookup_path(const char *path)
{
    static const char *const names[] = {"libcuda.so", "libnvidia-ml.so"};
    static char sibling[4200];
    const char *slash = path ? strrchr(path, '/') : NULL;
    const char *base = slash ? slash + 1 : path;
    for (int i = 0; base && i < 2; i++) {
        size_t length = strlen(names[i]);
        if (strncmp(base, names[i], length) || (base[length] && base[length] != '.'))
            continue;
        if (i == 0)
            return driver_own_path();
        snprintf(sibling, sizeof sibling, "%s/lib/libnvidia-ml.so.1", driver_home());
        return sibling;
    }
    return path;
}

CALLED void *lookup_libc_dlsym(void)
{
    static void *found;
    if (!found)
        found = libc_dlsym(RTLD_NEXT, "dlsym");
    return found;
}

CALLED void *lookup_libc_dlopen(void)
{
    static void *found;
    if (!found)
        found = libc_dlsym(RTLD_NEXT, "dlopen");
    return found;
}

#ifdef __x86_64__
__asm__(".text\n"
        ".globl dlsym\n.type dlsym,@function\n"
        "dlsym:\n"
        "  push %rdi; push %rsi; sub $8, %rsp\n"
        "  lea 16(%rsp), %rdx\n"
        "  call lookup_symbol@PLT\n"
        "  test %rax, %rax\n"
        "  jnz 1f\n"
        "  call lookup_libc_dlsym@PLT\n"
        "  add $8, %rsp; pop %rsi; pop %rdi\n"
        "  jmp *%rax\n"
        "1: add $24, %rsp\n"
        "  ret\n"
        ".globl dlopen\n.type dlopen,@function\n"
        "dlopen:\n"
        "  push %rdi; push %rsi; sub $8, %rsp\n"
        "  call lookup_path@PLT\n"
        "  mov %rax, 16(%rsp)\n"
        "  call lookup_libc_dlopen@PLT\n"
        "  add $8, %rsp; pop %rsi; pop %rdi\n"
        "  jmp *%rax\n");
#elif defined(__aarch64__)
__asm__(".text\n"
        ".globl dlsym\n.type dlsym,%function\n"
        "dlsym:\n"
        "  stp x29, x30, [sp, #-32]!\n"
        "  stp x0, x1, [sp, #16]\n"
        "  add x2, sp, #16\n"
        "  bl lookup_symbol\n"
        "  cbnz x0, 1f\n"
        "  bl lookup_libc_dlsym\n"
        "  mov x16, x0\n"
        "  ldp x0, x1, [sp, #16]\n"
        "  ldp x29, x30, [sp], #32\n"
        "  br x16\n"
        "1: ldp x29, x30, [sp], #32\n"
        "  ret\n"
        ".globl dlopen\n.type dlopen,%function\n"
        "dlopen:\n"
        "  stp x29, x30, [sp, #-32]!\n"
        "  str x1, [sp, #24]\n"
        "  bl lookup_path\n"
        "  str x0, [sp, #16]\n"
        "  bl lookup_libc_dlopen\n"
        "  mov x16, x0\n"
        "  ldp x0, x1, [sp, #16]\n"
        "  ldp x29, x30, [sp], #32\n"
        "  br x16\n");
#endif

/* Our function for the pointer that the driver found under a base name, or that pointer if we
 * have none. The pointer tells which variant the driver chose; if the driver does not export it,
 * the flags tell: 2 requests the variant of per-thread default streams. */
static void *ours_for(const char *base, void *found, uint64_t flags)
{
    static const char *const endings[] = {"", "_v2", "_v3", "_v4", "_ptsz", "_v2_ptsz",
                                          "_ptds", "_v2_ptds", "_v3_ptsz"};
    char full[160];
    void *guess = NULL;
    int is_known = 0;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        snprintf(full, sizeof full, "%s%s", base, endings[i]);
        int index = driver_index(full);
        if (index < 0)
            continue;
        is_known = 1;
        void *ours = (void *)(uintptr_t)driver_names[index].ours;
        if (libc_dlsym(driver_handle(), full) == found)
            return ours;
        int is_per_thread = strstr(endings[i], "_pt") != NULL;
        if (driver_names[index].is_hook && is_per_thread == ((flags & 2) != 0))
            guess = ours;
    }
    if (!is_known)
        client_count_unknown();
    return guess ? guess : found;
}

HOOK(cuGetProcAddress_v2)(const char *name, void **found, int version, uint64_t flags, int *status)
{
    int result = REAL(cuGetProcAddress_v2)(name, found, version, flags, status);
    if (!result && name && found && *found)
        *found = ours_for(name, *found, flags);
    return result;
}

HOOK(cuGetProcAddress)(const char *name, void **found, int version, uint64_t flags)
{
    int result = REAL(cuGetProcAddress)(name, found, version, flags);
    if (!result && name && found && *found)
        *found = ours_for(name, *found, flags);
    return result;
}
