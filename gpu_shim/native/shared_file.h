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

static inline bool is_same_file(int one, int other)
{
    struct stat a, b;
    return !file_of(one, &a) && !file_of(other, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

#endif
