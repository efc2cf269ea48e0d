/* Memory calls from a thread that has no current context. */
#include <pthread.h>

#include "cu.h"

static CUdeviceptr left;

static void *without(void *data)
{
    CUcontext now = (CUcontext)8;
    CUdeviceptr p = 0, base = 0;
    size_t size = 0, total = 0;
    void *host = NULL;

    (void)data;
    TELL(cuCtxGetCurrent, &now);
    FACT(now == NULL);
    TELL(cuMemAlloc, &p, 4096);
    TELL(cuMemAllocPitch, &p, &size, 100, 10, 4);
    TELL(cuMemAllocManaged, &p, 4096, CU_MEM_ATTACH_GLOBAL);
    TELL(cuMemAllocAsync, &p, 4096, NULL);
    TELL(cuMemAllocHost, &host, 4096);
    TELL(cuMemGetInfo, &size, &total);
    TELL(cuMemGetAddressRange, &base, &size, left + 7);
    TELL(cuMemFree, 0);
    TELL(cuMemFree, left + 1);
    TELL(cuMemFree, left);
    TELL(cuMemFree, left);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread;

    cu_start(argc, argv);
    MUST(cuMemAlloc, &left, 1 << 20);
    if (pthread_create(&thread, NULL, without, NULL) != 0)
        return 1;
    pthread_join(thread, NULL);
    cu_say("back in the thread with one");
    TELL(cuMemFree, left);
    return cu_end();
}
