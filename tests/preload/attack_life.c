/* Attacks by the life of processes and by their surroundings (see attack.h). Linked directly
 * against the driver. */
#include "attack.h"

/* An exec that fails ends nothing: what other threads do meanwhile counts. */

static atomic_bool stop;
static atomic_long allocs_done, frees_done;

static void *churn(void *arg)
{
    (void)arg;
    CHECK(cuCtxSetCurrent(context));
    while (!atomic_load(&stop)) {
        CUdeviceptr p[8];

        for (int i = 0; i < 8; i++) {
            p[i] = take(1000);
        }
        for (int i = 0; i < 8; i++) {
            CHECK(cuMemFree_v2(p[i]));
        }
        atomic_fetch_add(&allocs_done, 8);
        atomic_fetch_add(&frees_done, 8);
    }
    return NULL;
}

static void *failing_execs(void *arg)
{
    (void)arg;
    for (int i = 0; i < 50; i++) {
        execl("/nonexistent/program", "program", (char *)NULL);
        usleep(1000);
    }
    atomic_store(&stop, true);
    return NULL;
}

static void exec_fails_meanwhile(void)
{
    pthread_t thread;

    start();
    pthread_create(&thread, NULL, failing_execs, NULL);
    together(3, churn, NULL);
    pthread_join(thread, NULL);
    printf("tally %ld %ld\n", atomic_load(&allocs_done), atomic_load(&frees_done));
}

/* Small stacks. */

static void on_segv(int signal)
{
    (void)signal;
    _exit(3);
}

static void small_signal_stack(void)
{
    size_t bytes = strtoul(arguments[0], NULL, 0);
    char *memory = mmap(NULL, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t stack = {.ss_sp = memory + (1 << 19), .ss_size = bytes};
    struct sigaction action = {.sa_handler = on_segv, .sa_flags = SA_ONSTACK};

    mprotect(stack.ss_sp, bytes, PROT_READ | PROT_WRITE);
    start();
    take(64);
    sigaltstack(&stack, NULL);
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
}

static void on_timer(int signal)
{
    (void)signal;
    _exit(17);
}

/* A handler leaves from wherever the thread happens to be. */
static void leaves_at_a_random_moment(void)
{
    struct itimerval timer = {.it_value = {.tv_usec = atoi(arguments[0])}};

    start();
    signal(SIGALRM, on_timer);
    setitimer(ITIMER_REAL, &timer, NULL);
    for (;;) {
        CHECK(cuMemFree_v2(take(512)));
    }
}

/* Execs that fail: the program goes on under its name. */
static void failing_execs_keep_the_name(void)
{
    start();
    take(111);
    execl("/nonexistent/program", "program", (char *)NULL);
    execlp("no-such-program-anywhere", "program", (char *)NULL);
    close(open(arguments[0], O_CREAT | O_WRONLY, 0600));
    while (access(arguments[1], F_OK) != 0) {
        usleep(1000);
    }
}

/* Ends. */

static void *exit_here(void *arg)
{
    (void)arg;
    exit(21);
}

static void exit_in_thread(void)
{
    start();
    take(64);
    together(1, exit_here, NULL);
}

static void *finish_later(void *arg)
{
    (void)arg;
    usleep(20000);
    CHECK(cuCtxSetCurrent(context));
    take(36);
    return NULL;
}

static void main_thread_leaves(void)
{
    pthread_t thread;

    start();
    take(64);
    pthread_create(&thread, NULL, finish_later, NULL);
    pthread_exit(NULL);
}

/* Nobody is left but, perhaps, threads that the program does not know of. */
static void main_thread_leaves_alone(void)
{
    start();
    CHECK(cuMemFree_v2(take(64)));
    take(100);
    usleep(300000);
    pthread_exit(NULL);
}

static void main_thread_leaves_by_thrd_exit(void)
{
    void (*leave)(int) = (void (*)(int))dlsym(RTLD_DEFAULT, "thrd_exit");

    start();
    take(100);
    usleep(300000);
    leave(0);
}

static void *begin_later(void *arg)
{
    (void)arg;
    usleep(100000);
    start();
    take(100);
    usleep(100000);
    return NULL;
}

/* Everything is begun by others, after that. */
static void main_thread_leaves_first(void)
{
    pthread_t thread;

    pthread_create(&thread, NULL, begin_later, NULL);
    pthread_exit(NULL);
}

static void exit_again(void)
{
    exit(22);
}

static void exit_in_atexit(void)
{
    start();
    take(64);
    atexit(exit_again);
    exit(1);
}

static void fork_at_end(void)
{
    pid_t pid = fork();

    if (pid == 0) {
        exit(0);
    }
    waitpid(pid, NULL, 0);
}

static void fork_in_atexit(void)
{
    start();
    take(64);
    atexit(fork_at_end);
    exit(0);
}

static pthread_barrier_t barrier;

static void *leave(void *arg)
{
    (void)arg;
    pthread_barrier_wait(&barrier);
    _exit(23);
}

static void two_leave_at_once(void)
{
    start();
    take(64);
    pthread_barrier_init(&barrier, NULL, 8);
    together(8, leave, NULL);
}

static void becomes_daemon(void)
{
    start();
    take(64);
    if (daemon(1, 1) != 0) {
        exit(9);
    }
}

static void raw_clone(void)
{
    long pid;

    start();
    take(64);
    pid = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0) {
        exit(0);
    }
    waitpid((pid_t)pid, NULL, 0);
    take(36);
}

/* Children of a process with many busy threads. */
static void forks_among_threads(void)
{
    pthread_t thread[4];

    start();
    for (int i = 0; i < 4; i++) {
        pthread_create(&thread[i], NULL, churn, NULL);
    }
    for (int i = 0; i < 60; i++) {
        pid_t pid = fork();

        if (pid == 0) {
            alarm(20);
            if (i % 4 == 0) {
                execlp("true", "true", (char *)NULL);
                _exit(1);
            } else if (i % 4 == 1) {
                _exit(0);
            } else if (i % 4 == 2) {
                pid_t deeper = fork();

                if (deeper == 0) {
                    exit(0);
                }
                waitpid(deeper, NULL, 0);
                exit(0);
            }
            CUdeviceptr p;
            cuInit(0);
            cuMemAlloc_v2(&p, 100);
            exit(0);
        }
        int status = 0;
        waitpid(pid, &status, 0);
        if (status != 0) {
            printf("child %d: status %x\n", i, (unsigned)status);
        }
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
    }
    printf("tally %ld %ld\n", atomic_load(&allocs_done), atomic_load(&frees_done));
}

/* Standard error is a pipe with no room left, and nobody reads it. */
static void full_stderr(void)
{
    int ends[2];
    char junk[4096] = {0};

    if (pipe(ends) != 0 || dup2(ends[1], 2) < 0) {
        exit(9);
    }
    fcntl(2, F_SETFL, O_NONBLOCK);
    while (write(2, junk, sizeof(junk)) > 0) {
    }
    if (strcmp(arguments[0], "blocking") == 0) {
        fcntl(2, F_SETFL, 0);
    }
    alarm(20);
    start();
    take(64);
}

/* Standard error is a pipe that nobody has open for reading. */
static void dead_stderr(void)
{
    int ends[2];

    if (pipe(ends) != 0 || dup2(ends[1], 2) < 0) {
        exit(9);
    }
    close(ends[0]);
    start();
    take(64);
}

static void no_environment(void)
{
    clearenv();
    start();
    take(64);
}

static void late_settings(void)
{
    char *value = malloc(1 << 20);

    memset(value, 'x', (1 << 20) - 1);
    value[(1 << 20) - 1] = '\0';
    setenv(arguments[0], value, 1);
    printf("%d ", (int)cuInit(0));
}

int main(int argc, char **argv)
{
    static const struct mode modes[] = {
        MODE(exec_fails_meanwhile),
        MODE(small_signal_stack),
        MODE(leaves_at_a_random_moment),
        MODE(failing_execs_keep_the_name),
        MODE(exit_in_thread),
        MODE(main_thread_leaves),
        MODE(main_thread_leaves_alone),
        MODE(main_thread_leaves_by_thrd_exit),
        MODE(main_thread_leaves_first),
        MODE(exit_in_atexit),
        MODE(fork_in_atexit),
        MODE(two_leave_at_once),
        MODE(becomes_daemon),
        MODE(raw_clone),
        MODE(forks_among_threads),
        MODE(full_stderr),
        MODE(dead_stderr),
        MODE(no_environment),
        MODE(late_settings),
        {NULL, NULL},
    };

    return run_mode(argc, argv, modes);
}
