/* A program without a runtime of its own, for tools that watch every byte: takes memory in every
 * way, launches, forks (without an argument), and gives everything back. Exit status 0: every call did as it should.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuDevicePrimaryCtxReset_v2(int);
int cuMemAlloc_v2(uint64_t *, size_t);
int cuMemFree_v2(uint64_t);
int cuMemAllocAsync(uint64_t *, size_t, void *);
int cuMemFreeAsync(uint64_t, void *);
int cuMemCreate(uint64_t *, size_t, const void *, unsigned long long);
int cuMemRelease(uint64_t);
int cuMemGetInfo_v2(size_t *, size_t *);
int cuModuleLoadData(void **, const void *);
int cuModuleGetFunction(void **, void *, const char *);
int cuStreamSynchronize(void *);
int cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);
typedef int launcher(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                     void *, void **, void **);

#define MUST(call)        \
    do {                  \
        if (call)         \
            exit(__LINE__ % 256); \
    } while (0)

static void use(void)
{
    void *context, *module, *kernel, *launch;
    uint64_t at[3];
    size_t free_bytes, total;
    const int properties[16] = {1, 0, 1, 0};
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuModuleLoadData(&module, NULL));
    MUST(cuModuleGetFunction(&kernel, module, "spin_10"));
    MUST(cuGetProcAddress_v2("cuLaunchKernel", &launch, 12000, 0, NULL));
    for (int turn = 0; turn < 200; turn++) {
        MUST(cuMemAlloc_v2(&at[0], 1 << 20));
        MUST(cuMemAllocAsync(&at[1], 1 << 20, NULL));
        MUST(cuMemCreate(&at[2], 2 << 20, properties, 0));
        MUST(((launcher *)(uintptr_t)launch)(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
        MUST(cuStreamSynchronize(NULL));
        MUST(cuMemGetInfo_v2(&free_bytes, &total));
        MUST(total != 64 << 20);
        MUST(cuMemFree_v2(at[0]));
        MUST(cuMemFreeAsync(at[1], NULL));
        MUST(cuMemRelease(at[2]));
    }
    MUST(cuDevicePrimaryCtxReset_v2(0));
}

int main(int n_arguments, char **arguments)
{
    int status = 1;
    (void)arguments;
    use();
    /* An emulator may not survive a fork in a program with threads. */
    if (n_arguments > 1)
        return 0;
    pid_t child = fork();
    if (!child) {
        use();
        exit(0);
    }
    waitpid(child, &status, 0);
    return status != 0;
}
