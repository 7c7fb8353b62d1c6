/* The real driver library behind ours: where it is, and its functions by index.
 *
 * `driver_functions[IX_name]` is filled at the first call of the name, by trampolines and hooks
 * alike. The tables are in a generated file; its header has the indices.
 */
#ifndef BALLAST_DRIVER_H
#define BALLAST_DRIVER_H

#include <stdint.h>

/* Defines a driver entry point that we implement ourselves. */
#define HOOK(name) __attribute__((visibility("default"))) int name

/* The driver's own function. Arguments must have exactly the types that the driver declares. */
#define REAL(name) ((int (*)())driver_at(IX_##name))

struct driver_name {
    const char *name;
    void (*ours)(void);
    int is_hook;
};

extern const struct driver_name driver_names[];
extern const int driver_n_names;
extern void *driver_functions[];

/* The library that ours shadows, and the status of its functions if there is no driver, or if
 * the driver lacks the function. */
struct driver_kind {
    const char *soname;
    const char *plain_name;
    int no_driver;
    int no_function;
};

extern const struct driver_kind driver_kind;

/* The driver's function, never NULL: a missing one is replaced by one that returns an error. */
void *driver_function(int index);

/* The driver's handle, opened at the first call; NULL if there is none, and while it is being
 * opened by this thread. */
void *driver_handle(void);

/* The index of a name, or -1. */
int driver_index(const char *name);

/* The parent of this library's directory: the mount that holds its configuration. */
const char *driver_home(void);

/* The path of this library itself. */
const char *driver_own_path(void);

/* libc's own functions, which our definitions of these names shadow. */
void *libc_dlsym(void *handle, const char *name);
void *libc_dlopen(const char *path, int flags);

static inline void *driver_at(int index)
{
    void *function = __atomic_load_n(&driver_functions[index], __ATOMIC_RELAXED);
    return function ? function : driver_function(index);
}

#endif
