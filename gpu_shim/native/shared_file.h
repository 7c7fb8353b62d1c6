/* Maps the files that the arbiter hands over. */
#ifndef BALLAST_SHARED_FILE_H
#define BALLAST_SHARED_FILE_H

#include "../protocol/layout.h"
#include "files.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>

/* Map `size` bytes of a file, or all of it if it is shorter, but at least `least`; `size` is
 * then the mapped length. NULL: not a page of ours. */
static inline void *map_checked(int file, size_t least, size_t *size, int protection)
{
    struct stat about;
    if (file_of(file, &about) || (size_t)about.st_size < least)
        return NULL;
    if ((size_t)about.st_size < *size)
        *size = (size_t)about.st_size;
    void *at = mmap(NULL, *size, protection, MAP_SHARED, file, 0);
    if (at != MAP_FAILED && *(uint32_t *)at == BALLAST_MAGIC)
        return at;
    if (at != MAP_FAILED)
        munmap(at, *size);
    return NULL;
}

/* The size of a table with this many slots. */
static inline size_t table_end(int n_slots)
{
    return offsetof(struct ballast_table, slots) + (size_t)n_slots * sizeof(struct ballast_slot);
}

/* A file that the program can close; its number is then that of a file of the program. */
struct own_file {
    int fd;
    dev_t device;
    ino_t number;
};

static inline bool own_file_is_open(const struct own_file *file)
{
    struct stat about;
    return file->fd >= 0 && !file_of(file->fd, &about) && about.st_dev == file->device &&
           about.st_ino == file->number;
}

/* Close the file, and keep another one, or none (-1), in its place. */
static inline void own_file_set(struct own_file *file, int fd)
{
    struct stat about = {0};
    if (own_file_is_open(file))
        close(file->fd);
    if (fd >= 0)
        file_of(fd, &about);
    *file = (struct own_file){fd, about.st_dev, about.st_ino};
}

#endif
