/* Many threads at once load the driver, look entries up and initialise; all get the same. */
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "cu.h"

enum { THREADS = 16 };

static pthread_barrier_t together;
static struct seen {
    void *library, *alloc, *alloc_by_get, *release;
    CUresult init, retain, allocated, freed;
} seen[THREADS];

static void *first(void *data)
{
    struct seen *mine = data;
    CUresult (*init)(unsigned) = NULL, (*retain)(CUcontext *, CUdevice) = NULL;
    CUresult (*set)(CUcontext) = NULL, (*alloc)(CUdeviceptr *, size_t) = NULL;
    CUresult (*release)(CUdeviceptr) = NULL;
    __typeof__(&cuGetProcAddress) get = NULL;
    CUdriverProcAddressQueryResult status;
    CUcontext context = NULL;
    CUdeviceptr p = 0;

    pthread_barrier_wait(&together);
    void *library = mine->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    /* Whoever loaded it is done with it everywhere. */
    pthread_barrier_wait(&together);
    if (library == NULL)
        return NULL;
    mine->alloc = dlsym(library, "cuMemAlloc_v2");
    *(void **)&get = dlsym(library, "cuGetProcAddress_v2");
    *(void **)&init = dlsym(library, "cuInit");
    get("cuMemAlloc", &mine->alloc_by_get, 12000, 0, &status);
    mine->init = init(0);
    *(void **)&retain = dlsym(library, "cuDevicePrimaryCtxRetain");
    *(void **)&set = dlsym(library, "cuCtxSetCurrent");
    *(void **)&alloc = mine->alloc_by_get;
    *(void **)&release = mine->release = dlsym(library, "cuMemFree_v2");
    mine->retain = retain(&context, 0);
    set(context);
    mine->allocated = alloc(&p, 4096);
    mine->freed = release(p);
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    bool same = true, well = true;

    pthread_barrier_init(&together, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, first, &seen[i]) != 0)
            return 1;
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++) {
        const struct seen *one = &seen[i];
        same = same && one->library == seen[0].library && one->alloc == seen[0].alloc &&
               one->release == seen[0].release && one->alloc == one->alloc_by_get;
        well = well && one->init == CUDA_SUCCESS && one->retain == CUDA_SUCCESS &&
               one->allocated == CUDA_SUCCESS && one->freed == CUDA_SUCCESS;
    }
    FACT(seen[0].library != NULL && seen[0].alloc != NULL);
    FACT(same);
    FACT(well);
    pthread_barrier_destroy(&together);
    return cu_end();
}
