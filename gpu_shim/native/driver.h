/* The driver's own library behind ours: where it is, and its functions by index.
 *
 * `driver_functions[IX_name]` is filled at the first call of the name, by trampolines and hooks
 * alike. The tables are in a generated file; its header has the indices.
 */
#ifndef BALLAST_DRIVER_H
#define BALLAST_DRIVER_H

#include <stdint.h>

/* Defines an entry point of the driver that we answer ourselves. */
#define HOOK(name) __attribute__((visibility("default"))) int name

/* The driver's function itself. Arguments must have just the types that the driver declares. */
#define REAL(name) ((int (*)())driver_at(IX_##name))

struct driver_name {
    const char *name;
    void (*ours)(void);
    int is_hook;
};

extern const struct driver_name driver_names[];
extern const int driver_n_names;
extern void *driver_functions[];

/* What the library shadows, and what its functions return where there is no driver or the driver
 * has no such function. */
struct driver_kind {
    const char *soname;
    const char *plain_name;
    int no_driver;
    int no_function;
};

extern const struct driver_kind driver_kind;

/* The driver's function, never NULL: one that returns an error stands for what is missing. */
void *driver_function(int index);

/* Its handle, opened at the first call; NULL where there is none. */
void *driver_handle(void);

/* The index of a name, or -1. */
int driver_index(const char *name);

/* The directory above the one this library lies in: the mount that holds its configuration. */
const char *driver_home(void);

/* The path of this library itself. */
const char *driver_own_path(void);

/* libc's, whatever our own definitions of these names are. */
void *libc_dlsym(void *handle, const char *name);
void *libc_dlopen(const char *path, int flags);

static inline void *driver_at(int index)
{
    void *function = __atomic_load_n(&driver_functions[index], __ATOMIC_RELAXED);
    return function ? function : driver_function(index);
}

#endif
