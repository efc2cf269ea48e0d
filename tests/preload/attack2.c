/*
 * More attacks (see attack.h): places that change, ends that are cut short, descriptors that are
 * slow. Linked directly against the driver.
 */
#include "attack.h"

/* More contexts than are known by identity, each with memory of its own. */
static void many_contexts(void)
{
    enum { COUNT = 1100 };
    static CUcontext made[COUNT];

    CHECK(cuInit(0));
    for (int i = 0; i < COUNT; i++) {
        CUcontext popped;

        CHECK(cuCtxCreate_v2(&made[i], 0, 0));
        take(512);
        CHECK(cuCtxPopCurrent_v2(&popped));
    }
    /* There is room again for identities: those that had none must not change. */
    CHECK(cuCtxDestroy_v2(made[0]));
    for (int i = COUNT - 1; i > 0; i -= 7) {
        CHECK(cuCtxSetCurrent(made[i]));
        take(512);
    }
    for (int i = 1; i < COUNT; i++) {
        CHECK(cuCtxDestroy_v2(made[i]));
    }
}

/* Stream and pool handles that come back on another device, destroyed by another thread. */

static void *destroy_stream(void *arg)
{
    CHECK(cuStreamDestroy_v2(*(CUstream *)arg));
    return NULL;
}

static void *destroy_pool(void *arg)
{
    CHECK(cuMemPoolDestroy(*(CUmemoryPool *)arg));
    return NULL;
}

static void handles_come_back(void)
{
    CUstream before = NULL;
    CUmemoryPool pool_before = NULL;
    int same = 0, same_pool = 0;

    start();
    use(1);
    for (int i = 0; i < 200; i++) {
        CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = i % 2}};
        CUstream stream;
        CUmemoryPool pool;
        CUdeviceptr p;

        use(i % 2);
        CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        use((i / 2) % 2);
        CHECK(cuMemAllocAsync(&p, i % 2 == 0 ? 1000 : 10, stream));
        CHECK(cuMemPoolCreate(&pool, &props));
        CHECK(cuMemAllocFromPoolAsync(&p, i % 2 == 0 ? 1000 : 10, pool, NULL));
        CHECK(cuMemFreeAsync(p, NULL));
        CHECK(cuStreamSynchronize(NULL));
        same += stream == before;
        same_pool += pool == pool_before;
        together(1, destroy_stream, &stream);
        together(1, destroy_pool, &pool);
        before = stream;
        pool_before = pool;
    }
    printf("same %d %d\n", same, same_pool);
}

/* The primary context comes and goes while others allocate in it. */

static atomic_bool stop;

static void *allocate_whatever(void *arg)
{
    static atomic_uint seeds = 1;
    unsigned seed = atomic_fetch_add(&seeds, 1);

    (void)arg;
    while (!atomic_load(&stop)) {
        CUdeviceptr p = 0;
        CUcontext mine;

        if (cuDevicePrimaryCtxRetain(&mine, 0) != CUDA_SUCCESS) {
            continue;
        }
        cuCtxSetCurrent(mine);
        for (int i = 0; i < 20; i++) {
            if (cuMemAlloc_v2(&p, 100 + (unsigned)rand_r(&seed) % 3 * 4000) == CUDA_SUCCESS) {
                cuMemFree_v2(p);
            }
        }
        cuDevicePrimaryCtxRelease_v2(0);
    }
    return NULL;
}

static void *reset_whatever(void *arg)
{
    for (int i = 0; i < 3000; i++) {
        if (arg != NULL) {
            cuDevicePrimaryCtxReset_v2(0);
        } else {
            CUcontext mine;

            cuDevicePrimaryCtxRetain(&mine, 0);
            cuDevicePrimaryCtxRelease_v2(0);
        }
        sched_yield();
    }
    atomic_store(&stop, true);
    return NULL;
}

static void primary_churn(void)
{
    pthread_t thread;

    CHECK(cuInit(0));
    pthread_create(&thread, NULL, reset_whatever,
                   strcmp(arguments[0], "reset") == 0 ? arguments : NULL);
    together(4, allocate_whatever, NULL);
    pthread_join(thread, NULL);
}

/* Every thread frees what it took before it lets go of the primary context: nothing is ever lost.
 */

static atomic_long good_allocs, good_frees;

static void *retain_take_free_release(void *arg)
{
    (void)arg;
    for (int i = 0; i < 4000; i++) {
        CUcontext mine;
        CUdeviceptr p;

        CHECK(cuDevicePrimaryCtxRetain(&mine, 0));
        CHECK(cuCtxSetCurrent(mine));
        CHECK(cuMemAlloc_v2(&p, 512));
        atomic_fetch_add(&good_allocs, 1);
        CHECK(cuMemFree_v2(p));
        atomic_fetch_add(&good_frees, 1);
        CHECK(cuDevicePrimaryCtxRelease_v2(0));
    }
    return NULL;
}

static void primary_tidy(void)
{
    CHECK(cuInit(0));
    together(4, retain_take_free_release, NULL);
    printf("tally %ld %ld\n", atomic_load(&good_allocs), atomic_load(&good_frees));
}

/* The last release dawdles on its way back (attack2_slow_release.c), and another thread has the
 * context anew meanwhile: what was in the old one is gone, what is in the new one lives. */

static void *release(void *arg)
{
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return arg;
}

static void release_meets_retain(void)
{
    pthread_t thread;

    start();
    take(1000);
    pthread_create(&thread, NULL, release, NULL);
    usleep(100000);
    use(0);
    take(64);
    pthread_join(thread, NULL);
}

/* Ends that are cut short by a handler. */

static void on_timer(int signal)
{
    (void)signal;
    _exit(17);
}

static void arm_timer(void)
{
    struct itimerval timer = {.it_value = {.tv_usec = atoi(arguments[0])}};

    signal(SIGALRM, on_timer);
    setitimer(ITIMER_REAL, &timer, NULL);
}

static void leaves_while_leaving(void)
{
    start();
    for (int i = 0; i < 3000; i++) {
        take(512 * (1 + (size_t)i % 7));
    }
    arm_timer();
    exit(17);
}

static void leaves_while_a_context_goes(void)
{
    start();
    for (int i = 0; i < 100000; i++) {
        take(256);
    }
    arm_timer();
    cuDevicePrimaryCtxReset_v2(0);
    for (;;) {
        pause();
    }
}

/* One thread leaves, another one runs a program. */

static void *run_true(void *arg)
{
    usleep((useconds_t)atoi(arguments[0]));
    execl("/bin/true", "true", (char *)NULL);
    return arg;
}

static void exit_against_exec(void)
{
    pthread_t thread;

    start();
    for (int i = 0; i < 3000; i++) {
        take(512 * (1 + (size_t)i % 7));
    }
    pthread_create(&thread, NULL, run_true, NULL);
    usleep(1000);
    exit(0);
}

/* Execs that fail at the last moment, then one that does not. */
static void execs_fail_then_work(void)
{
    start();
    take(111);
    for (int i = 0; i < 20; i++) {
        execl(arguments[0], "nothing runnable", (char *)NULL); /* executable, but no program */
        if (errno != ENOEXEC) {
            exit(9);
        }
        take(1);
    }
    execlp("true", "true", (char *)NULL);
}

static void becomes_daemon_for(void)
{
    start();
    take(64);
    if (daemon(arguments[0][0] == '1', arguments[0][1] == '1') != 0) {
        exit(9);
    }
    usleep(100000);
}

/* Standard error: nearly full, and served by a slow reader while a timer ticks. */

static void tick(int signal)
{
    (void)signal;
}

/* A process of its own, which reads what is left when we are gone. */
static void read_slowly(int from, const char *to)
{
    char part[4096];
    int file = open(to, O_CREAT | O_WRONLY, 0600);
    ssize_t got;

    usleep(400000);
    while ((got = read(from, part, sizeof(part))) > 0) {
        if (write(file, part, (size_t)got) != got) {
            break;
        }
    }
    _exit(0);
}

static void slow_reader_and_timer(void)
{
    int ends[2];
    char junk[4096] = {0};
    struct itimerval timer = {.it_value = {.tv_usec = 2000}, .it_interval = {.tv_usec = 2000}};
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};

    if (pipe(ends) != 0 || dup2(ends[1], 2) < 0) {
        exit(9);
    }
    fcntl(2, F_SETFL, O_NONBLOCK);
    while (write(2, junk, sizeof(junk)) > 0) {
    }
    fcntl(2, F_SETFL, 0);
    if (fork() == 0) {
        close(2);
        close(ends[1]);
        read_slowly(ends[0], arguments[0]);
    }
    start();
    take(64);
    sigaction(SIGALRM, &action, NULL);
    if (strcmp(arguments[1], "ticking") == 0) {
        setitimer(ITIMER_REAL, &timer, NULL);
    }
}

static void narrow_terminal(void)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    char junk[4096], name[64];
    int slave, room = atoi(arguments[0]);
    ssize_t got;

    memset(junk, 'x', sizeof(junk));
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0 ||
        ptsname_r(master, name, sizeof(name)) != 0 || (slave = open(name, O_RDWR | O_NOCTTY)) < 0) {
        exit(9);
    }
    fcntl(slave, F_SETFL, O_NONBLOCK);
    while (write(slave, junk, sizeof(junk)) > 0) {
    }
    while (write(slave, junk, 1) > 0) {
    }
    fcntl(slave, F_SETFL, 0);
    while (room > 0 && (got = read(master, junk, (size_t)(room < 4096 ? room : 4096))) > 0) {
        room -= (int)got;
    }
    usleep(50000);
    dup2(slave, 2);
    alarm(20);
    start();
    take(64);
    for (int i = 0; i < 40; i++) {
        take(512 + (size_t)i);
    }
}

/* Children of an armed process, by every end. */
static void children_end(void)
{
    start();
    take(64);
    for (int i = 0; i < 9; i++) {
        pid_t pid = fork();
        int status;

        if (pid == 0) {
            alarm(10);
            switch (i) {
            case 0:
                exit(0);
            case 1:
                _exit(0);
            case 2:
                _Exit(0);
            case 3:
                quick_exit(0);
            case 4:
                execl("/bin/true", "true", (char *)NULL);
                exit(1);
            case 5:
                execl("/nonexistent", "true", (char *)NULL);
                exit(0);
            case 6:
                exit(daemon(0, 0) == 0 ? 0 : 1);
            case 7:
                pthread_exit(NULL);
            default:
                raise(SIGKILL);
            }
        }
        waitpid(pid, &status, 0);
        printf("%x ", (unsigned)status);
        fflush(stdout);
    }
    printf("\n");
    usleep(50000);
    take(36);
}

int main(int argc, char **argv)
{
    static const struct mode modes[] = {
        MODE(many_contexts),
        MODE(handles_come_back),
        MODE(primary_churn),
        MODE(primary_tidy),
        MODE(release_meets_retain),
        MODE(leaves_while_leaving),
        MODE(leaves_while_a_context_goes),
        MODE(exit_against_exec),
        MODE(execs_fail_then_work),
        MODE(becomes_daemon_for),
        MODE(slow_reader_and_timer),
        MODE(narrow_terminal),
        MODE(children_end),
        {NULL, NULL},
    };

    return run_mode(argc, argv, modes);
}
