/*
 * The life of the process (see process.h): constructor, exits, exec.
 *
 * The report is due at the last moment: after the program's own destructors and atexit handlers. An
 * on_exit handler registered by a preloaded library's constructor is that moment, for it is
 * registered before all others and so runs after them; it also hears the status. quick_exit has a
 * list of its own, with the same order. _exit and _Exit run no handlers, so they are hooked; the C
 * library's own calls of _exit do not come by here. exec ends a program as well; if it fails, the
 * program goes on and so do we.
 *
 * A constructor must cost nothing: it registers two handlers and reads the end of the loader's
 * list.
 */
#include "shim/process.h"

#include "report/sys.h"
#include "shim/elf.h"
#include "shim/final.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* Part of every glibc since 2.10, without a header of its own. */
int __cxa_at_quick_exit(void (*function)(void *), void *dso);

static struct vs_process_page before_cuda; /* never written */
struct vs_process_page *vs_process_current = &before_cuda;

static void child_after_fork(void)
{
    struct vs_process_page *page = vs_process_page();

    if (page != &before_cuda) {
        *page = (struct vs_process_page){0};
    }
}

int vs_process_prepare(void)
{
    struct vs_process_page *expected = &before_cuda;
    struct vs_process_page *page;
    size_t size = (size_t)getpagesize();

    _Static_assert(sizeof(struct vs_process_page) <= 4096, "one page holds it");
    if (vs_process_page() != &before_cuda) {
        return 0;
    }
    page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        return -errno;
    }
    madvise(page, size, MADV_WIPEONFORK); /* where this fails the handler below stands in */
    if (!__atomic_compare_exchange_n(&vs_process_current, &expected, page, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED)) {
        munmap(page, size);
        return 0;
    }
    pthread_atfork(NULL, NULL, child_after_fork);
    return 0;
}

bool vs_process_is_owner(void)
{
    return vs_process_page()->owner == vs_sys_getpid();
}

static void at_exit(int status, void *arg)
{
    (void)arg;
    vs_final_report(VS_END_EXIT, status & 0xff);
}

static void at_quick_exit_(void *arg)
{
    (void)arg;
    /* The status is not passed on; 0 by far the most often, but not known. */
    vs_final_report(VS_END_QUICK_EXIT, -1);
}

__attribute__((constructor)) static void start(void)
{
    on_exit(at_exit, NULL);
    __cxa_at_quick_exit(at_quick_exit_, NULL);
    vs_elf_remember_startup();
}

EXPORT _Noreturn void _exit(int status)
{
    void (*next)(int) = (void (*)(int))vs_elf_next("_exit");

    vs_final_report(VS_END__EXIT, status & 0xff);
    if (next != NULL) {
        next(status);
    }
    for (;;) {
        syscall(SYS_exit_group, status);
    }
}

EXPORT _Noreturn void _Exit(int status)
{
    _exit(status);
}

/*
 * The exec family, called behind us in the chain (execveat, which old C libraries lack, by its
 * number). The report is written before the call and, should the call come back, taken as a report
 * in between.
 */
#define NEXT(name)                                                                                 \
    __typeof__(name) *next = (__typeof__(name) *)vs_elf_next(#name);                               \
    if (next == NULL) {                                                                            \
        errno = ENOSYS;                                                                            \
        return -1;                                                                                 \
    }                                                                                              \
    vs_final_report(VS_END_EXEC, -1)

static int after_failed_exec(int result)
{
    int error = errno;

    vs_final_resume();
    errno = error;
    return result;
}

EXPORT int execve(const char *path, char *const argv[], char *const envp[])
{
    NEXT(execve);
    return after_failed_exec(next(path, argv, envp));
}

EXPORT int execv(const char *path, char *const argv[])
{
    NEXT(execv);
    return after_failed_exec(next(path, argv));
}

EXPORT int execvp(const char *file, char *const argv[])
{
    NEXT(execvp);
    return after_failed_exec(next(file, argv));
}

EXPORT int execvpe(const char *file, char *const argv[], char *const envp[])
{
    NEXT(execvpe);
    return after_failed_exec(next(file, argv, envp));
}

EXPORT int fexecve(int fd, char *const argv[], char *const envp[])
{
    NEXT(fexecve);
    return after_failed_exec(next(fd, argv, envp));
}

EXPORT int execveat(int fd, const char *path, char *const argv[], char *const envp[], int flags)
{
    vs_final_report(VS_END_EXEC, -1);
    return after_failed_exec((int)syscall(SYS_execveat, fd, path, argv, envp, flags));
}

/* The variadic ones collect their arguments on the stack, as the C library does: they may run in a
 * vfork child, where malloc is out of the question. */
static size_t count(va_list args)
{
    size_t n = 1;

    while (va_arg(args, char *) != NULL) {
        n++;
    }
    return n;
}

#define COLLECT(first)                                                                             \
    va_list args;                                                                                  \
    va_start(args, first);                                                                         \
    size_t n = count(args) + 1;                                                                    \
    va_end(args);                                                                                  \
    char **argv = __builtin_alloca(n * sizeof(*argv));                                             \
    argv[0] = (char *)(uintptr_t)first;                                                            \
    va_start(args, first);                                                                         \
    for (size_t i = 1; i < n; i++) {                                                               \
        argv[i] = va_arg(args, char *);                                                            \
    }

EXPORT int execl(const char *path, const char *arg, ...)
{
    COLLECT(arg)
    va_end(args);
    return execv(path, argv);
}

EXPORT int execlp(const char *file, const char *arg, ...)
{
    COLLECT(arg)
    va_end(args);
    return execvp(file, argv);
}

EXPORT int execle(const char *path, const char *arg, ...)
{
    COLLECT(arg)
    char **envp = va_arg(args, char **);
    va_end(args);
    return execve(path, argv, envp);
}
