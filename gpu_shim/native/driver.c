/* Finds the driver in the loader's order (LD_LIBRARY_PATH, the loader's cache, the default
 * directories), since the loader answers its SONAME with our library. The order matters: a
 * forward-compatibility libcuda in the image must take precedence over the host's.
 */
#define _GNU_SOURCE
#include "driver.h"
#include "files.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef __aarch64__
#define MULTIARCH "aarch64-linux-gnu"
#else
#define MULTIARCH "x86_64-linux-gnu"
#endif

static const char *const default_directories[] = {
    "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/lib/" MULTIARCH,
    "/usr/lib/" MULTIARCH, "/lib64", "/usr/lib64", "/lib", "/usr/lib",
};

static pthread_once_t found_once = PTHREAD_ONCE_INIT, self_once = PTHREAD_ONCE_INIT;
static void *handle;
/* The driver's own constructors look up symbols while this thread opens it. */
static __thread bool is_opening;
static char own_path[PATH_MAX], home[PATH_MAX];
static struct stat own_file;

static void *libc_function(const char *name)
{
    void *found = dlvsym(RTLD_NEXT, name, OLDEST);
    return found ? found : dlvsym(RTLD_NEXT, name, "GLIBC_2.34");
}

void *libc_dlsym(void *from, const char *name)
{
    static void *(*function)(void *, const char *);
    if (!function)
        function = (void *(*)(void *, const char *))(uintptr_t)libc_function("dlsym");
    return function(from, name);
}

void *libc_dlopen(const char *path, int flags)
{
    static void *(*function)(const char *, int);
    if (!function)
        function = (void *(*)(const char *, int))(uintptr_t)libc_function("dlopen");
    return function(path, flags);
}

static void find_self(void)
{
    Dl_info info;
    if (!dladdr((void *)(uintptr_t)driver_function, &info) || !realpath(info.dli_fname, own_path))
        return;
    if (file_at(own_path, &own_file))
        own_file.st_ino = 0;
    strcpy(home, own_path);
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(home, '/');
        if (slash)
            *slash = '\0';
    }
}

const char *driver_home(void)
{
    pthread_once(&self_once, find_self);
    return home;
}

const char *driver_own_path(void)
{
    pthread_once(&self_once, find_self);
    return own_path;
}

/* Open a candidate; a copy of our own library under another path is recognised by a symbol. */
static void *open_driver(const char *path)
{
    struct stat file;
    if (file_at(path, &file) || (file.st_ino == own_file.st_ino && file.st_dev == own_file.st_dev))
        return NULL;
    void *opened = libc_dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (opened && libc_dlsym(opened, "ballast_is_shadow")) {
        dlclose(opened);
        return NULL;
    }
    return opened;
}

static void *look_in(const char *directory, size_t length)
{
    char path[PATH_MAX];
    const char *const names[] = {driver_kind.soname, driver_kind.plain_name};
    for (int i = 0; length && i < 2; i++) {
        int n = snprintf(path, sizeof path, "%.*s/%s", (int)length, directory, names[i]);
        void *opened = n < (int)sizeof path ? open_driver(path) : NULL;
        if (opened)
            return opened;
    }
    return NULL;
}

static void *look_in_list(const char *list)
{
    void *opened = NULL;
    while (list && *list && !opened) {
        size_t length = strcspn(list, ":;");
        opened = look_in(list, length);
        list += length + (list[length] != '\0');
    }
    return opened;
}

/* /etc/ld.so.cache: a header, entries with offsets of name and path, strings. Some caches begin
 * with a part in the old format. */
static void *look_in_cache(void)
{
    struct entry {
        int32_t flags;
        uint32_t key, value, os_version;
        uint64_t hwcap;
    };
    static const char magic[] = "glibc-ld.so.cache1.1";
    void *opened = NULL;
    struct stat file;
    int fd = open("/etc/ld.so.cache", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    if (!file_of(fd, &file) && file.st_size > 48) {
        size_t size = (size_t)file.st_size;
        char *at = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
        char *head = at == MAP_FAILED ? NULL : memmem(at, size, magic, sizeof magic - 1);
        size_t room = head ? size - (size_t)(head - at) : 0;
        uint32_t n = room > 48 ? *(uint32_t *)(void *)(head + 20) : 0;
        const struct entry *entries = (const void *)(head + 48);
        for (uint32_t i = 0; !opened && i < n && 48 + (i + 1) * sizeof *entries < room; i++) {
            if (entries[i].key >= room || entries[i].value >= room)
                continue;
            if (!strncmp(head + entries[i].key, driver_kind.soname, room - entries[i].key))
                opened = open_driver(head + entries[i].value);
        }
        if (at != MAP_FAILED)
            munmap(at, size);
    }
    close(fd);
    return opened;
}

static void find_driver(void)
{
    driver_own_path();
    is_opening = true;
    handle = look_in_list(getenv("LD_LIBRARY_PATH"));
    if (!handle)
        handle = look_in_cache();
    for (size_t i = 0; !handle && i < sizeof default_directories / sizeof(char *); i++)
        handle = look_in(default_directories[i], strlen(default_directories[i]));
    is_opening = false;
}

void *driver_handle(void)
{
    if (is_opening)
        return NULL;
    pthread_once(&found_once, find_driver);
    return handle;
}

/* A program that only checks for a driver continues without one. */
static int no_driver(void)
{
    return driver_kind.no_driver;
}

static int no_function(void)
{
    return driver_kind.no_function;
}

void *driver_function(int index)
{
    void *driver = driver_handle();
    void *function = driver ? libc_dlsym(driver, driver_names[index].name) : NULL;
    if (!function)
        function = (void *)(uintptr_t)(driver ? no_function : no_driver);
    if (!is_opening)
        __atomic_store_n(&driver_functions[index], function, __ATOMIC_RELEASE);
    return function;
}

int driver_index(const char *name)
{
    int low = 0, high = driver_n_names;
    while (low < high) {
        int middle = (low + high) / 2, order = strcmp(name, driver_names[middle].name);
        if (!order)
            return middle;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return -1;
}

/* Tells our libraries from the driver's, whatever their paths. */
__attribute__((visibility("default"))) const int ballast_is_shadow = 1;
