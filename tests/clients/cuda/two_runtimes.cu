/*
 * Two CUDA runtimes in one process: the shared one of this program and the static one inside the
 * library named by the first argument. Memory of one is freed by the other; an error of one is not
 * the other's. Prints facts and its tally.
 */
#include <cstdio>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include "tally.h"

int main(int argc, char **argv)
{
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library == NULL) {
        printf("cannot open the library: %s\n", argc > 1 ? dlerror() : "no name given");
        return 2;
    }
    int (*lib_malloc)(void **, size_t) = (int (*)(void **, size_t))dlsym(library, "lib_malloc");
    int (*lib_free)(void *) = (int (*)(void *))dlsym(library, "lib_free");
    int (*lib_last_error)(void) = (int (*)(void))dlsym(library, "lib_last_error");
    void *mine = NULL, *theirs = NULL, *none = NULL;

    printf("ours allocates: %d\n", (int)cudaMalloc(&mine, 1000000));
    tally_alloc(TALLY_PLAIN, 1000000);
    printf("theirs allocates: %d\n", lib_malloc(&theirs, 2000000));
    tally_alloc(TALLY_PLAIN, 2000000);

    printf("theirs fails: %d\n", lib_malloc(&none, (size_t)1 << 50));
    tally_failed();
    printf("our last error: %d\n", (int)cudaGetLastError());
    printf("their last error: %d\n", lib_last_error());
    printf("their last error again: %d\n", lib_last_error());
    printf("ours fails: %d\n", (int)cudaMalloc(&none, (size_t)1 << 50));
    tally_failed();
    printf("their last error: %d\n", lib_last_error());
    printf("our last error: %d\n", (int)cudaGetLastError());

    printf("copy between them: %d\n", (int)cudaMemcpy(mine, theirs, 1000000, cudaMemcpyDefault));
    printf("theirs frees ours: %d\n", lib_free(mine));
    tally_free(TALLY_PLAIN, 1000000);
    printf("ours frees theirs: %d\n", (int)cudaFree(theirs));
    tally_free(TALLY_PLAIN, 2000000);
    for (int i = 0; i < 8; i++) {
        void *p = NULL;
        int got = i % 2 ? lib_malloc(&p, 4096) : (int)cudaMalloc(&p, 4096);
        printf("alloc %d: %d\n", i, got);
        tally_alloc(TALLY_PLAIN, 4096);
    }
    tally_print();
    return 0;
}
