/* Captures in a loop while the helper thread answers the arbiter: `capture N`. Prints how many
 * captures were broken.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuModuleLoadData(void **, const void *);
int cuModuleGetFunction(void **, void *, const char *);
int cuStreamCreate(void **, unsigned);
int cuStreamSynchronize(void *);
int cuStreamBeginCapture_v2(void *, int);
int cuStreamEndCapture(void *, void **);
int cuGraphInstantiateWithFlags(void **, void *, unsigned long long);
int cuGraphLaunch(void *, void *);
int cuGraphDestroy(void *);
int cuGraphExecDestroy(void *);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   void *, void **, void **);

enum { LAUNCH_EVERY = 200 };

static void must(int status, const char *what)
{
    if (!status)
        return;
    fprintf(stderr, "%s: %d\n", what, status);
    exit(2);
}

int main(int n_arguments, char **arguments)
{
    long n = n_arguments > 1 ? atol(arguments[1]) : 0, n_broken = 0;
    void *context, *module, *kernel, *stream, *graph, *instance;
    must(cuInit(0), "init");
    must(cuDevicePrimaryCtxRetain(&context, 0), "context");
    must(cuModuleLoadData(&module, NULL), "module");
    must(cuModuleGetFunction(&kernel, module, "spin_20"), "kernel");
    must(cuStreamCreate(&stream, 1), "stream");
    for (long at = 0; at < n; at++) {
        must(cuStreamBeginCapture_v2(stream, 0), "begin");
        must(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL), "launch");
        if (cuStreamEndCapture(stream, &graph)) {
            n_broken++;
            continue;
        }
        if (at % LAUNCH_EVERY == 0) {
            must(cuGraphInstantiateWithFlags(&instance, graph, 0), "instantiate");
            must(cuGraphLaunch(instance, stream), "launch of the graph");
            must(cuStreamSynchronize(stream), "wait");
            must(cuGraphExecDestroy(instance), "destroy");
        }
        must(cuGraphDestroy(graph), "destroy");
    }
    printf("broken %ld of %ld\n", n_broken, n);
    return 0;
}
