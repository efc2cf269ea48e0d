/* Attacks on the counting and on look-ups (see attack.h). Linked directly against the driver. */
#include "attack.h"

/* Two threads free the same memory: the driver lets one of them. */

static pthread_barrier_t barrier;
enum { RACES = 3000 };
static CUdeviceptr shared_block[RACES];
static atomic_int freed;

static void *race_to_free(void *arg)
{
    (void)arg;
    CHECK(cuCtxSetCurrent(context));
    for (int i = 0; i < RACES; i++) {
        pthread_barrier_wait(&barrier);
        if (cuMemFree_v2(shared_block[i]) == CUDA_SUCCESS) {
            atomic_fetch_add(&freed, 1);
        }
    }
    return NULL;
}

static void double_free_race(void)
{
    start();
    for (int i = 0; i < RACES; i++) {
        shared_block[i] = take(4096);
    }
    pthread_barrier_init(&barrier, NULL, 2);
    together(2, race_to_free, NULL);
    printf("freed %d\n", atomic_load(&freed));
}

/* Contexts come and go in all threads, and the driver uses their handles and addresses again. */

static void *churn_contexts(void *arg)
{
    bool leak = arg != NULL;

    for (int i = 0; i < 300; i++) {
        CUcontext mine;
        CUdeviceptr p;

        CHECK(cuCtxCreate_v2(&mine, 0, 0));
        p = take(512);
        if (!leak) {
            CHECK(cuMemFree_v2(p));
        }
        CHECK(cuCtxDestroy_v2(mine));
    }
    return NULL;
}

static void context_churn(void)
{
    CHECK(cuInit(0));
    together(8, churn_contexts, NULL);
}

static void context_churn_leak(void)
{
    CHECK(cuInit(0));
    together(8, churn_contexts, arguments);
}

/* Random allocations of all kinds, freed by other threads: the program keeps books of its own. */

static atomic_long allocs_done, frees_done;

enum { SLOTS = 512 };
static struct {
    pthread_mutex_t lock;
    CUdeviceptr p;
    size_t bytes;
    bool any, plain_only; /* managed memory has no stream-ordered free */
} slot[SLOTS];
static atomic_long live_bytes, live_count;

static void *random_work(void *arg)
{
    static atomic_uint seeds = 1;
    unsigned seed = atomic_fetch_add(&seeds, 1);

    (void)arg;
    CHECK(cuCtxSetCurrent(context));
    for (int i = 0; i < 2000; i++) {
        unsigned r = (unsigned)rand_r(&seed);
        unsigned at = r % SLOTS, how = (r >> 12) % 5;

        pthread_mutex_lock(&slot[at].lock);
        if (slot[at].any) {
            if (how % 2 == 0 || slot[at].plain_only) {
                CHECK(cuCtxSynchronize()); /* it may be stream-ordered */
                CHECK(cuMemFree_v2(slot[at].p));
            } else {
                CHECK(cuMemFreeAsync(slot[at].p, NULL));
            }
            atomic_fetch_sub(&live_bytes, (long)slot[at].bytes);
            atomic_fetch_sub(&live_count, 1);
            atomic_fetch_add(&frees_done, 1);
            slot[at].any = false;
        } else {
            size_t bytes = 1 + (r >> 8) % 5000, pitch = 0;

            switch (how) {
            case 0:
                CHECK(cuMemAlloc_v2(&slot[at].p, bytes));
                break;
            case 1:
                CHECK(cuMemAllocManaged(&slot[at].p, bytes, CU_MEM_ATTACH_GLOBAL));
                break;
            case 2:
                CHECK(cuMemAllocAsync(&slot[at].p, bytes, NULL));
                break;
            case 3:
                CHECK(cuMemAllocAsync(&slot[at].p, bytes, CU_STREAM_PER_THREAD));
                break;
            default:
                CHECK(cuMemAllocPitch_v2(&slot[at].p, &pitch, 1 + bytes % 100, 7, 4));
                bytes = pitch * 7;
            }
            slot[at].bytes = bytes;
            slot[at].plain_only = how == 1;
            slot[at].any = true;
            atomic_fetch_add(&live_bytes, (long)bytes);
            atomic_fetch_add(&live_count, 1);
            atomic_fetch_add(&allocs_done, 1);
        }
        pthread_mutex_unlock(&slot[at].lock);
    }
    return NULL;
}

static void tally(void)
{
    start();
    for (int i = 0; i < SLOTS; i++) {
        pthread_mutex_init(&slot[i].lock, NULL);
    }
    together(32, random_work, NULL);
    printf("tally %ld %ld %ld %ld\n", atomic_load(&live_bytes), atomic_load(&live_count),
           atomic_load(&allocs_done), atomic_load(&frees_done));
}

/* Devices: what belongs where. */

static void devices(void)
{
    CUcontext other, mine;
    CUstream stream;
    CUmemoryPool pool;
    CUdeviceptr p;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 2}};

    start();
    take(100);
    use(1);
    other = context;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    take(200);
    use(0);
    mine = context;
    CHECK(cuMemAllocAsync(&p, 1000, stream)); /* device 1 */
    CHECK(cuMemAllocAsync(&p, 50, NULL));     /* device 0 */
    CHECK(cuMemAllocAsync(&p, 2000, stream)); /* device 1 */
    CHECK(cuMemPoolCreate(&pool, &props));
    CHECK(cuMemAllocFromPoolAsync(&p, 30000, pool, NULL)); /* device 2 */
    (void)other;
    (void)mine;
}

/* A failure on another device's stream belongs to that device. */
static void failure_elsewhere(void)
{
    CUstream stream;
    CUdeviceptr p;

    start();
    use(1);
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    use(0);
    printf("failed %d\n", (int)cuMemAllocAsync(&p, (size_t)1 << 40, stream));
}

static void null_pointers(void)
{
    CUstream stream;

    printf("%d ", (int)cuMemAlloc_v2(NULL, 100));
    start();
    CHECK(cuStreamCreate(&stream, 0));
    printf("%d ", (int)cuMemAlloc_v2(NULL, 100));
    printf("%d ", (int)cuMemAllocPitch_v2(NULL, NULL, 4, 4, 4));
    printf("%d ", (int)cuMemAllocManaged(NULL, 100, CU_MEM_ATTACH_GLOBAL));
    printf("%d ", (int)cuMemAllocAsync(NULL, 100, NULL));
    printf("%d ", (int)cuMemAllocAsync(NULL, 100, stream));
    printf("%d ", (int)cuDevicePrimaryCtxRetain(NULL, 0));
    printf("%d ", (int)cuDevicePrimaryCtxRetain(NULL, 77));
    printf("%d ", (int)cuDevicePrimaryCtxRelease_v2(77));
    printf("%d ", (int)cuDevicePrimaryCtxReset_v2(-1));
    printf("%d ", (int)cuCtxDestroy_v2(NULL));
    printf("%d ", (int)cuStreamDestroy_v2(NULL));
    printf("%d ", (int)cuStreamEndCapture(stream, NULL));
    printf("%d ", (int)cuStreamEndCapture(NULL, NULL));
    printf("%d ", (int)cuGetProcAddress_v2(NULL, NULL, 13000, 0, NULL));
    printf("%d ", (int)cuGetProcAddress_v2("cuMemAlloc", NULL, 13000, 0, NULL));
    printf("%d ", (int)cuMemFree_v2(0));
    printf("%d ", (int)cuMemFree_v2(~(CUdeviceptr)0));
    printf("%d ", (int)cuMemFree_v2(~(CUdeviceptr)1));
    printf("%d ", (int)cuMemFreeAsync(0, NULL));
    printf("%d ", (int)cuMemFreeAsync(~(CUdeviceptr)0, NULL));
    CUdeviceptr p;
    size_t pitch;
    printf("%d ", (int)cuMemAlloc_v2(&p, SIZE_MAX));
    printf("%d ", (int)cuMemAllocManaged(&p, SIZE_MAX, CU_MEM_ATTACH_GLOBAL));
    printf("%d ", (int)cuMemAllocAsync(&p, SIZE_MAX, NULL));
    printf("%d ", (int)cuMemAllocPitch_v2(&p, &pitch, SIZE_MAX, SIZE_MAX, 4));
    printf("%d\n", (int)cuMemAllocPitch_v2(&p, &pitch, SIZE_MAX / 2, 8, 4));
}

/* Every call that can be told to fail fails, with output pointers that must not be touched. */
static void faults(void)
{
    char *wall = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CUdeviceptr *p = (CUdeviceptr *)wall;
    size_t *size = (size_t *)wall;
    CUstream stream = NULL;
    CUdeviceptr block;

    start();
    block = take(64);
    CHECK(cuStreamCreate(&stream, 0));
    printf("%d ", (int)cuMemAlloc_v2(p, 100));
    printf("%d ", (int)cuMemAllocPitch_v2(p, size, 4, 4, 4));
    printf("%d ", (int)cuMemAllocManaged(p, 100, CU_MEM_ATTACH_GLOBAL));
    printf("%d ", (int)cuMemAllocAsync(p, 100, NULL));
    printf("%d ", (int)cuMemAllocAsync(p, 100, stream));
    printf("%d ", (int)cuMemAllocFromPoolAsync(p, 100, (CUmemoryPool)wall, stream));
    printf("%d ", (int)cuDevicePrimaryCtxRetain((CUcontext *)wall, 0));
    printf("%d ", (int)cuStreamEndCapture(stream, (CUgraph *)wall));
    printf("%d ", (int)cuMemFree_v2(block));
    printf("%d ", (int)cuMemFreeAsync(block, stream));
    printf("%d ", (int)cuCtxDestroy_v2(context));
    printf("%d ", (int)cuDevicePrimaryCtxReset_v2(0));
    printf("%d ", (int)cuDevicePrimaryCtxRelease_v2(0));
    printf("%d ", (int)cuStreamDestroy_v2(stream));
    printf("%d\n", (int)cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
}

/* Stream-ordered calls on a capturing stream become nodes of a graph. */
static void capture(void)
{
    CUstream stream, other;
    CUgraph graph;
    CUdeviceptr p, kept, q;

    start();
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAllocAsync(&kept, 777, other));
    CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuMemAllocAsync(&p, 4096, stream));
    CHECK(cuMemAllocAsync(&q, 333, other));
    CHECK(cuMemFreeAsync(p, stream));
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuMemAllocAsync(&p, 111, stream));
    /* A capture whose stream is destroyed. */
    CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuMemAllocAsync(&p, 4096, stream));
    CHECK(cuStreamDestroy_v2(stream));
    CHECK(cuMemAllocAsync(&p, 5, other));
}

/* What a look-up left for dlerror is still there after CUDA calls. */
static void dlerror_is_kept(void)
{
    dlerror();
    dlsym(RTLD_DEFAULT, "no_such_name");
    CHECK(cuInit(0));
    const char *error = dlerror();
    printf("%s\n", error != NULL && strstr(error, "no_such_name") != NULL ? "kept" : "lost");
}

static void through_rtld_default(void)
{
    CUresult (*alloc)(CUdeviceptr *, size_t) =
        (CUresult(*)(CUdeviceptr *, size_t))dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
    CUdeviceptr p;

    start();
    CHECK(alloc(&p, 400));
}

#ifdef OWN
/* A program that exports a driver function itself: its own is the first in the global scope. */
__attribute__((visibility("default"))) CUresult cuMemAllocManaged(CUdeviceptr *p, size_t bytes,
                                                                  unsigned flags)
{
    CUresult (*real)(CUdeviceptr *, size_t, unsigned) =
        (CUresult(*)(CUdeviceptr *, size_t, unsigned))dlsym(RTLD_NEXT, "cuMemAllocManaged");

    return real(p, bytes, flags);
}

static void own_entry(void)
{
    CUdeviceptr p;

    start();
    CHECK(cuMemAllocManaged(&p, 10, CU_MEM_ATTACH_GLOBAL));
    printf("same %d\n", dlsym(RTLD_DEFAULT, "cuMemAllocManaged") == (void *)cuMemAllocManaged);
}
#endif

/* Opens, closes and looks up in many threads. */

static atomic_bool stop;

static void *open_and_close(void *arg)
{
    const char *path = arg;

    while (!atomic_load(&stop)) {
        void *library = dlopen(path, RTLD_NOW);

        if (library != NULL) {
            dlsym(library, "cuMemAlloc_v2");
            dlsym(library, "nothing_of_the_kind");
            dlclose(library);
        }
    }
    return NULL;
}

static void look_up_meanwhile(void)
{
    pthread_t thread[4];
    static const char *const other[] = {"libcuda.so.1", "libm.so.6", "libutil.so.1",
                                        "libresolv.so.2"};

    for (int i = 0; i < 4; i++) {
        pthread_create(&thread[i], NULL, open_and_close, (void *)(uintptr_t)other[i]);
    }
    for (int i = 0; i < 20000; i++) {
        dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
        dlsym(RTLD_NEXT, "cuMemFree_v2");
        dlsym(RTLD_NEXT, "cuMemFromNowhere");
        dlsym(RTLD_DEFAULT, "malloc");
        dlvsym(RTLD_DEFAULT, "cuInit", "GLIBC_2.2.5");
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
    }
    start();
    take(64);
}

int main(int argc, char **argv)
{
    static const struct mode modes[] = {
        MODE(double_free_race),
        MODE(context_churn),
        MODE(context_churn_leak),
        MODE(tally),
        MODE(devices),
        MODE(failure_elsewhere),
        MODE(null_pointers),
        MODE(faults),
        MODE(capture),
        MODE(dlerror_is_kept),
        MODE(look_up_meanwhile),
        MODE(through_rtld_default),
#ifdef OWN
        MODE(own_entry),
#endif
        {NULL, NULL},
    };

    return run_mode(argc, argv, modes);
}
