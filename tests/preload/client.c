/*
 * A scriptable CUDA program: each argument is a step. The preload tests compose their subjects from
 * these steps; the program itself knows nothing of the shim.
 *
 * Driver entry points come from dlopen and dlsym (default), from cuGetProcAddress ("proc"), or from
 * a direct link (when built with -DDIRECT). Steps that fail unexpectedly end the program with
 * status 9 and a line on stdout; "may:" before a step prints its result instead.
 */
#include <cuda.h>

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ENTRIES(X)                                                                                 \
    X(cuInit)                                                                                      \
    X(cuDeviceGet)                                                                                 \
    X(cuDevicePrimaryCtxRetain)                                                                    \
    X(cuDevicePrimaryCtxRelease_v2)                                                                \
    X(cuDevicePrimaryCtxReset_v2)                                                                  \
    X(cuCtxSetCurrent)                                                                             \
    X(cuMemAlloc_v2)                                                                               \
    X(cuMemAllocPitch_v2)                                                                          \
    X(cuMemAllocManaged)                                                                           \
    X(cuMemAllocAsync)                                                                             \
    X(cuMemFreeAsync)                                                                              \
    X(cuMemFree_v2)

#define POINTER(name) static __typeof__(&name) p_##name;
ENTRIES(POINTER)

static CUdeviceptr blocks[4096];
static int block_count;
static bool free_in_destructor;
static bool lenient;
static CUcontext context;

static void fail(const char *what, long result)
{
    printf("client: %s gave %ld\n", what, result);
    fflush(stdout);
    _exit(9);
}

static void check(const char *what, CUresult result)
{
    if (lenient) {
        printf("%s %d\n", what, (int)result);
        fflush(stdout);
    } else if (result != CUDA_SUCCESS) {
        fail(what, result);
    }
}

enum way { BY_NAME, BY_DRIVER, BY_DRIVER_PER_THREAD };

static void load(enum way way)
{
#ifdef DIRECT
    (void)way;
#define DIRECTLY(name) p_##name = name;
    ENTRIES(DIRECTLY)
#else
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);

    if (driver == NULL) {
        printf("no driver\n");
        exit(0);
    }
#define BY_DLSYM(name) p_##name = (__typeof__(&name))dlsym(driver, #name);
    ENTRIES(BY_DLSYM)
    if (way != BY_NAME) {
        cuuint64_t flags = way == BY_DRIVER ? 0 : CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
        __typeof__(&cuGetProcAddress_v2) get =
            (__typeof__(&cuGetProcAddress_v2))dlsym(driver, "cuGetProcAddress_v2");
        CUdriverProcAddressQueryResult status;
        void *found = NULL;
        char base[64];

#define BY_PROC(name)                                                                              \
    snprintf(base, sizeof(base), "%s", #name);                                                     \
    if (strstr(base, "_v2") != NULL)                                                               \
        *strstr(base, "_v2") = '\0';                                                               \
    if (get(base, &found, 13000, flags, &status) != CUDA_SUCCESS || found == NULL)                 \
        fail("cuGetProcAddress", (long)status);                                                    \
    p_##name = (__typeof__(&name))found;
        ENTRIES(BY_PROC)
    }
#endif
}

static void use_device(int index)
{
    CUdevice device;

    check("cuDeviceGet", p_cuDeviceGet(&device, index));
    check("cuDevicePrimaryCtxRetain", p_cuDevicePrimaryCtxRetain(&context, device));
    check("cuCtxSetCurrent", p_cuCtxSetCurrent(context));
}

static void free_all(void)
{
    while (block_count > 0) {
        p_cuMemFree_v2(blocks[--block_count]);
    }
}

__attribute__((destructor)) static void at_unload(void)
{
    if (free_in_destructor) {
        free_all();
    }
}

struct work {
    int rounds;
    size_t bytes;
};

static void *churn(void *arg)
{
    const struct work *work = arg;
    CUdeviceptr p;

    check("cuCtxSetCurrent", p_cuCtxSetCurrent(context));
    for (int i = 0; i < work->rounds; i++) {
        check("cuMemAlloc", p_cuMemAlloc_v2(&p, work->bytes));
        check("cuMemFree", p_cuMemFree_v2(p));
    }
    return NULL;
}

static void *churn_forever(void *arg)
{
    (void)arg;
    p_cuCtxSetCurrent(context);
    for (;;) {
        CUdeviceptr p;

        if (p_cuMemAlloc_v2(&p, 4096) == CUDA_SUCCESS) {
            p_cuMemFree_v2(p);
        }
    }
    return NULL;
}

static void threads(int count, int rounds)
{
    struct work work = {.rounds = rounds, .bytes = 4096};
    pthread_t thread[64];

    for (int i = 0; i < count; i++) {
        pthread_create(&thread[i], NULL, churn, &work);
    }
    for (int i = 0; i < count; i++) {
        pthread_join(thread[i], NULL);
    }
}

static int reap(pid_t pid)
{
    int status = 0;

    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* A library that takes memory itself: "plugin:PATH" (dlopen), "deep:PATH", "apart:PATH" (dlmopen).
 */
static void plugin(const char *path, int how)
{
    void *library = how == 2 ? dlmopen(LM_ID_NEWLM, path, RTLD_NOW)
                             : dlopen(path, RTLD_NOW | (how == 1 ? RTLD_DEEPBIND : 0));
    int (*take)(size_t) = NULL;

    if (library == NULL) {
        printf("client: %s\n", dlerror());
        exit(9);
    }
    take = (int (*)(size_t))dlsym(library, "plugin_take");
    check("plugin", (CUresult)take(12345));
}

static void on_term(int signal)
{
    (void)signal;
    _exit(15);
}

static const char *after(const char *step, const char *prefix)
{
    size_t length = strlen(prefix);

    return strncmp(step, prefix, length) == 0 ? step + length : NULL;
}

/* The rest of the steps, for a child that runs them instead of us. */
static char **rest;

static bool end(const char *step)
{
    const char *value;

    if ((value = after(step, "exit:")) != NULL) {
        exit(atoi(value));
    } else if ((value = after(step, "_exit:")) != NULL) {
        _exit(atoi(value));
    } else if ((value = after(step, "_Exit:")) != NULL) {
        _Exit(atoi(value));
    } else if ((value = after(step, "quick_exit:")) != NULL) {
        quick_exit(atoi(value));
    } else if (strcmp(step, "abort") == 0) {
        abort();
    } else if (strcmp(step, "kill9") == 0) {
        raise(SIGKILL);
    } else if (strcmp(step, "exec") == 0) {
        execvp(rest[0], rest);
        fail("exec", errno);
    } else if (strcmp(step, "execl") == 0) {
        execl(rest[0], rest[0], rest[1], (char *)NULL);
        fail("execl", errno);
    } else if (strcmp(step, "badexec") == 0) {
        if (execlp("/nonexistent/program", "program", "argument", (char *)NULL) != -1) {
            fail("execlp", 0);
        }
        printf("exec failed: %s\n", strerror(errno));
        fflush(stdout);
    } else {
        return false;
    }
    return true;
}

static bool process_step(const char *step)
{
    const char *value;
    pid_t pid;

    if (strcmp(step, "fork") == 0) { /* the child runs the rest, the parent waits and goes too */
        pid = fork();
        if (pid != 0) {
            printf("child %d\n", reap(pid));
            fflush(stdout);
            exit(0);
        }
    } else if ((value = after(step, "forkexit:")) !=
               NULL) { /* child ends at once; parent goes on */
        pid = fork();
        if (pid == 0) {
            exit(atoi(value));
        }
        printf("child %d\n", reap(pid));
    } else if (strcmp(step, "vfork") ==
               0) { /* a vfork child whose exec fails, and one that works */
        pid = vfork();
        if (pid == 0) {
            execl("/nonexistent/program", "program", (char *)NULL);
            _exit(127);
        }
        printf("vfork %d\n", reap(pid));
        pid = vfork();
        if (pid == 0) {
            execlp("true", "true", (char *)NULL);
            _exit(127);
        }
        printf("vfork %d\n", reap(pid));
    } else if (strcmp(step, "system") == 0) {
        printf("system %d\n", system("true"));
    } else if (strcmp(step, "close2") == 0) {
        close(2);
    } else if ((value = after(step, "file2:")) != NULL) {
        int fd = open(value, O_CREAT | O_RDWR | O_TRUNC, 0600);

        dup2(fd, 2);
    } else if (strcmp(step, "closeall") == 0) {
        for (int fd = 3; fd < 4096; fd++) {
            close(fd);
        }
    } else if (strcmp(step, "reuse") == 0) { /* fill every low descriptor with sockets of our own */
        for (int i = 0; i < 1100; i++) {
            if (socket(AF_UNIX, SOCK_STREAM, 0) < 0) {
                break;
            }
        }
    } else if ((value = after(step, "sleep:")) != NULL) {
        usleep((useconds_t)atoi(value) * 1000);
    } else if ((value = after(step, "wait:")) != NULL) { /* until a file appears */
        while (access(value, F_OK) != 0) {
            usleep(1000);
        }
    } else if ((value = after(step, "touch:")) != NULL) {
        close(open(value, O_CREAT | O_WRONLY, 0600));
    } else if ((value = after(step, "chdir:")) != NULL) {
        if (chdir(value) != 0) {
            fail("chdir", errno);
        }
    } else if ((value = after(step, "setenv:")) != NULL) {
        putenv((char *)(uintptr_t)value);
    } else if ((value = after(step, "print:")) != NULL) {
        printf("%s\n", value);
        fflush(stdout);
    } else if (strcmp(step, "term") == 0) {
        signal(SIGTERM, on_term);
        raise(SIGTERM);
    } else {
        return end(step);
    }
    return true;
}

static bool memory_step(const char *step)
{
    const char *value;
    CUdeviceptr p = 0;
    size_t pitch;
    unsigned width, height;
    int index, rounds;

    if ((value = after(step, "alloc:")) != NULL) {
        check("cuMemAlloc", p_cuMemAlloc_v2(&p, strtoull(value, NULL, 0)));
    } else if ((value = after(step, "managed:")) != NULL) {
        check("cuMemAllocManaged",
              p_cuMemAllocManaged(&p, strtoull(value, NULL, 0), CU_MEM_ATTACH_GLOBAL));
    } else if ((value = after(step, "async:")) != NULL) {
        check("cuMemAllocAsync", p_cuMemAllocAsync(&p, strtoull(value, NULL, 0), NULL));
    } else if ((value = after(step, "pitch:")) != NULL &&
               sscanf(value, "%ux%u", &width, &height) == 2) {
        check("cuMemAllocPitch", p_cuMemAllocPitch_v2(&p, &pitch, width, height, 4));
        printf("pitch %zu\n", pitch);
    } else if ((value = after(step, "free:")) != NULL) {
        check("cuMemFree", p_cuMemFree_v2(blocks[atoi(value)]));
        return true;
    } else if ((value = after(step, "freeasync:")) != NULL) {
        check("cuMemFreeAsync", p_cuMemFreeAsync(blocks[atoi(value)], NULL));
        return true;
    } else if (strcmp(step, "freeall") == 0) {
        free_all();
        return true;
    } else if (strcmp(step, "atexit") == 0) {
        atexit(free_all);
        return true;
    } else if (strcmp(step, "destructor") == 0) {
        free_in_destructor = true;
        return true;
    } else if ((value = after(step, "threads:")) != NULL &&
               sscanf(value, "%dx%d", &index, &rounds) == 2) {
        threads(index, rounds);
        return true;
    } else if (strcmp(step, "daemon") == 0) { /* threads that never stop */
        pthread_t thread;

        for (int i = 0; i < 4; i++) {
            pthread_create(&thread, NULL, churn_forever, NULL);
        }
        return true;
    } else if ((value = after(step, "plugin:")) != NULL) {
        plugin(value, 0);
        return true;
    } else if ((value = after(step, "deep:")) != NULL) {
        plugin(value, 1);
        return true;
    } else if ((value = after(step, "apart:")) != NULL) {
        plugin(value, 2);
        return true;
    } else {
        return false;
    }
    if (p != 0) {
        blocks[block_count++] = p;
    }
    return true;
}

static bool driver_step(const char *step)
{
    const char *value;

    if (strcmp(step, "init") == 0) {
        check("cuInit", p_cuInit(0));
    } else if ((value = after(step, "device:")) != NULL) {
        use_device(atoi(value));
    } else if ((value = after(step, "reset:")) != NULL) {
        check("cuDevicePrimaryCtxReset", p_cuDevicePrimaryCtxReset_v2(atoi(value)));
    } else if ((value = after(step, "release:")) != NULL) {
        check("cuDevicePrimaryCtxRelease", p_cuDevicePrimaryCtxRelease_v2(atoi(value)));
    } else {
        return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strncmp(argv[1], "proc", 4) == 0) {
        load(strcmp(argv[1], "proc") == 0 ? BY_DRIVER : BY_DRIVER_PER_THREAD);
        argv++;
        argc--;
    } else {
        load(BY_NAME);
    }
    for (int i = 1; i < argc; i++) {
        const char *step = argv[i];

        rest = argv + i + 1;
        lenient = after(step, "may:") != NULL;
        step = lenient ? after(step, "may:") : step;
        if (!driver_step(step) && !memory_step(step) && !process_step(step)) {
            printf("client: unknown step %s\n", step);
            return 9;
        }
    }
    return 0;
}
