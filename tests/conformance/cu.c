/*
 * The loader, the printer and the gate of the conformance programs; see cu.h.
 *
 * stdout holds facts only, one per line; everything else goes to stderr. Every program ends with
 * the number of facts. Nothing here is thread-safe except gates.
 */
#include "cu.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COPIED ((size_t)256 << 10) /* bytes that are looked at at once */

static unsigned facts;

static CUresult CUDAAPI no_entry(void)
{
    return CUDA_ERROR_STUB_LIBRARY;
}

void *const cu_no_entry = (void *)no_entry;

#ifndef CU_DIRECT
struct cu_api cu_api;
#endif

void *cu_library(void)
{
    static void *library;
    if (library == NULL)
        library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return library;
}

#ifndef CU_DIRECT
/* The symbol of an entry: its name as cuda.h's macros spell it. */
#define CU_SPELLED_(name) #name
#define CU_SPELLED(name) CU_SPELLED_(name)
#define CU_ROW(name) {(void **)&cu_api.name, CU_SPELLED(name)},

static const struct row {
    void **pointer;
    const char *symbol;
} rows[] = {CU_ENTRIES(CU_ROW)};

/* cuGetProcAddress takes a symbol's name without its suffixes, and a version that decides which ABI
 * of that name is meant. The name is not always the one that cuda.h offers: it calls
 * cuGraphInstantiateWithFlags cuGraphInstantiate, and by that name the driver finds an older
 * function with more parameters. */
static void base_of(const char *symbol, char base[CU_NAME_MAX])
{
    size_t length = strlen(symbol);
    if (length >= CU_NAME_MAX)
        abort();
    if (length > 5 &&
        (strcmp(symbol + length - 5, "_ptsz") == 0 || strcmp(symbol + length - 5, "_ptds") == 0))
        length -= 5;
    if (length > 3 && strncmp(symbol + length - 3, "_v", 2) == 0 && symbol[length - 1] >= '2' &&
        symbol[length - 1] <= '9')
        length -= 3;
    memcpy(base, symbol, length);
    base[length] = '\0';
}

/* The version to ask for: that of cuda.h, but for symbols that are not their name's newest ABI. */
static int version_of(const char *symbol)
{
    static const struct {
        const char *symbol;
        int version;
    } older[] = {{"cuCtxSynchronize", 2000},
                 {"cuCtxGetDevice", 2000},
                 {"cuStreamGetCtx", 9020},
                 {"cuStreamGetCtx_ptsz", 9020}};

    for (size_t i = 0; i < sizeof older / sizeof older[0]; i++) {
        if (strcmp(symbol, older[i].symbol) == 0)
            return older[i].version;
    }
    return CUDA_VERSION;
}

void *cu_by_version(const char *symbol)
{
    __typeof__(&cuGetProcAddress) get = NULL;
    CUdriverProcAddressQueryResult status;
    char base[CU_NAME_MAX];
    void *found = NULL;

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
    const cuuint64_t flags = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
#else
    const cuuint64_t flags = CU_GET_PROC_ADDRESS_DEFAULT;
#endif

    base_of(symbol, base);
    *(void **)&get = dlsym(cu_library(), "cuGetProcAddress_v2");
    if (get == NULL || get(base, &found, version_of(symbol), flags, &status) != CUDA_SUCCESS)
        return NULL;
    return found;
}

const char *cu_symbol(size_t index)
{
    return index < sizeof rows / sizeof rows[0] ? rows[index].symbol : NULL;
}

static void look_up(bool by_proc_address)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        *rows[i].pointer =
            by_proc_address ? cu_by_version(rows[i].symbol) : dlsym(cu_library(), rows[i].symbol);
        if (*rows[i].pointer == NULL)
            *rows[i].pointer = cu_no_entry;
    }
}
#endif

void cu_load(int argc, char **argv)
{
    /* Line by line, so that a forked child or a crash cannot repeat or lose what was said. */
    setvbuf(stdout, NULL, _IOLBF, 0);
#ifdef CU_DIRECT
    (void)argc;
    (void)argv;
#else
    if (cu_library() == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(3);
    }
    look_up(argc > 1 && strcmp(argv[1], "getproc") == 0);
#endif
}

void cu_start(int argc, char **argv)
{
    CUdevice device;
    CUcontext context;

    cu_load(argc, argv);
    MUST(cuInit, 0);
    MUST(cuDeviceGet, &device, 0);
    MUST(cuDevicePrimaryCtxRetain, &context, device);
    MUST(cuCtxSetCurrent, context);
}

int cu_end(void)
{
    printf("%u facts\n", facts);
    fflush(stdout);
    return 0;
}

const char *cu_result_name(CUresult result)
{
    static char other[32];
    switch (result) {
#define NAME(code)                                                                                 \
    case CUDA_ERROR_##code:                                                                        \
        return #code;
        NAME(INVALID_VALUE)
        NAME(OUT_OF_MEMORY)
        NAME(NOT_INITIALIZED)
        NAME(DEINITIALIZED)
        NAME(NO_DEVICE)
        NAME(INVALID_DEVICE)
        NAME(INVALID_IMAGE)
        NAME(INVALID_CONTEXT)
        NAME(ALREADY_MAPPED)
        NAME(ALREADY_ACQUIRED)
        NAME(NOT_MAPPED)
        NAME(INVALID_PTX)
        NAME(INVALID_HANDLE)
        NAME(ILLEGAL_STATE)
        NAME(NOT_FOUND)
        NAME(NOT_READY)
        NAME(ILLEGAL_ADDRESS)
        NAME(PRIMARY_CONTEXT_ACTIVE)
        NAME(CONTEXT_IS_DESTROYED)
        NAME(HOST_MEMORY_ALREADY_REGISTERED)
        NAME(HOST_MEMORY_NOT_REGISTERED)
        NAME(LAUNCH_FAILED)
        NAME(NOT_PERMITTED)
        NAME(NOT_SUPPORTED)
        NAME(STREAM_CAPTURE_UNSUPPORTED)
        NAME(STREAM_CAPTURE_INVALIDATED)
        NAME(STREAM_CAPTURE_MERGE)
        NAME(STREAM_CAPTURE_UNMATCHED)
        NAME(STREAM_CAPTURE_UNJOINED)
        NAME(STREAM_CAPTURE_ISOLATION)
        NAME(STREAM_CAPTURE_IMPLICIT)
        NAME(CAPTURED_EVENT)
        NAME(STREAM_CAPTURE_WRONG_THREAD)
        NAME(GRAPH_EXEC_UPDATE_FAILURE)
        NAME(INVALID_RESOURCE_TYPE)
        NAME(INVALID_RESOURCE_CONFIGURATION)
        NAME(PEER_ACCESS_ALREADY_ENABLED)
        NAME(PEER_ACCESS_NOT_ENABLED)
        NAME(UNKNOWN)
#undef NAME
    case CUDA_SUCCESS:
        return "success";
    case CUDA_ERROR_STUB_LIBRARY:
        return "absent";
    default:
        snprintf(other, sizeof other, "error %d", (int)result);
        return other;
    }
}

CUresult cu_told(const char *text, CUresult result)
{
    facts++;
    printf("%s: %s\n", text, cu_result_name(result));
    return result;
}

void cu_say(const char *format, ...)
{
    va_list values;

    facts++;
    va_start(values, format);
    vprintf(format, values);
    va_end(values);
    putchar('\n');
}

void cu_must(const char *text, CUresult result)
{
    if (result == CUDA_SUCCESS)
        return;
    printf("gave up at %s: %s\n", text, cu_result_name(result));
    fflush(stdout);
    exit(1);
}

void cu_absent(const char *what)
{
    printf("not here: %s\n", what);
    fflush(stdout);
    exit(0);
}

struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open, passed;
    pthread_t opener;
    bool has_opener;
};

struct gate *gate_new(void)
{
    struct gate *gate = calloc(1, sizeof *gate);
    if (gate == NULL)
        abort();
    pthread_mutex_init(&gate->lock, NULL);
    pthread_cond_init(&gate->changed, NULL);
    return gate;
}

static void CUDA_CB stop_here(void *data)
{
    struct gate *gate = data;
    pthread_mutex_lock(&gate->lock);
    while (!gate->open)
        pthread_cond_wait(&gate->changed, &gate->lock);
    gate->passed = true;
    pthread_mutex_unlock(&gate->lock);
}

void gate_wait(struct gate *gate, CUstream stream)
{
    MUST(cuLaunchHostFunc, stream, stop_here, gate);
}

void gate_open(struct gate *gate)
{
    pthread_mutex_lock(&gate->lock);
    gate->open = true;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
}

static void *open_later(void *data)
{
    nanosleep(&(struct timespec){.tv_nsec = 100 * 1000 * 1000}, NULL);
    gate_open(data);
    return NULL;
}

void gate_open_later(struct gate *gate)
{
    if (pthread_create(&gate->opener, NULL, open_later, gate) != 0)
        abort();
    gate->has_opener = true;
}

bool gate_passed(struct gate *gate)
{
    pthread_mutex_lock(&gate->lock);
    bool passed = gate->passed;
    pthread_mutex_unlock(&gate->lock);
    return passed;
}

void gate_free(struct gate *gate)
{
    if (gate->has_opener)
        pthread_join(gate->opener, NULL);
    pthread_cond_destroy(&gate->changed);
    pthread_mutex_destroy(&gate->lock);
    free(gate);
}

bool cu_all_bytes(CUdeviceptr p, size_t n, unsigned char value)
{
    unsigned char *copy = malloc(n < COPIED ? n : COPIED);
    bool all = copy != NULL;
    /* Piece by piece, and then each byte with the next one: simulators and sanitizers are slow. */
    for (size_t at = 0; all && at < n; at += COPIED) {
        size_t length = n - at < COPIED ? n - at : COPIED;
        MUST(cuMemcpyDtoH, copy, p + at, length);
        all = copy[0] == value && memcmp(copy, copy + 1, length - 1) == 0;
    }
    free(copy);
    return all;
}
