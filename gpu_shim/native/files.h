/* stat and fstat as system calls: glibc exports them as functions only since 2.33. */
#ifndef BALLAST_FILES_H
#define BALLAST_FILES_H

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static inline int file_at(const char *path, struct stat *about)
{
    return (int)syscall(SYS_newfstatat, AT_FDCWD, path, about, 0);
}

static inline int file_of(int file, struct stat *about)
{
    return (int)syscall(SYS_fstat, file, about);
}

#endif
