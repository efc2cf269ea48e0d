/*
 * Hooks: the ends of a process.
 *
 * The report is due at the last moment: after the program's own destructors and atexit handlers. An
 * on_exit handler registered by a preloaded library's constructor is that moment, for it is
 * registered before all others and so runs after them; it also hears the status. quick_exit has a
 * list of its own, with the same order. _exit and _Exit run no handlers, so they are hooked; the C
 * library's own calls of _exit do not come by here.
 *
 * exec ends a program as well, and so does daemon() in the parent; both may fail: then the program
 * goes on and so do we. An exec that can be seen to fail (nothing runnable there) is not reported
 * at all.
 *
 * A main thread that leaves by pthread_exit (or C11's thrd_exit) ends nothing: the process goes on,
 * and the handlers run when the last of the other threads is through. No thread of ours may keep it
 * from that.
 *
 * A constructor must cost nothing: it registers two handlers and reads the end of the loader's
 * list.
 */
#include "report/sys.h"
#include "shim/arena.h"
#include "shim/elf.h"
#include "shim/final.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* Part of every glibc since 2.10, without a header of its own. */
int __cxa_at_quick_exit(void (*function)(void *), void *dso);

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

/* No header of old C libraries has it. */
_Noreturn void thrd_exit(int result);

/* Older C libraries have it twice, and the one in libc passes it on to libpthread. */
EXPORT _Noreturn void pthread_exit(void *value)
{
    void (*next)(void *) = (void (*)(void *))vs_elf_next("pthread_exit");

    vs_decay_thread_leaves();
    if (next != NULL) {
        next(value);
    }
    for (;;) {
        syscall(SYS_exit, 0);
    }
}

EXPORT _Noreturn void thrd_exit(int result)
{
    void (*next)(int) = (void (*)(int))vs_elf_next("thrd_exit");

    vs_decay_thread_leaves();
    if (next != NULL) {
        next(result);
    }
    pthread_exit((void *)(intptr_t)result); /* NOLINT(performance-no-int-to-ptr) */
}

static bool runnable(const char *path)
{
    struct stat st;

    return path != NULL && vs_sys_stat(path, &st) == 0 && S_ISREG(st.st_mode) &&
           access(path, X_OK) == 0;
}

/* As execvp searches. A candidate too long for the buffer is not looked at. */
static bool runnable_in_path(const char *file)
{
    const char *folders = getenv("PATH");
    char path[4096];

    if (file == NULL || strchr(file, '/') != NULL) {
        return runnable(file);
    }
    if (folders == NULL) {
        folders = "/bin:/usr/bin";
    }
    for (;;) {
        size_t length = strcspn(folders, ":"), name = strlen(file);

        if (length + 1 + name < sizeof(path)) {
            memcpy(path, folders, length);
            path[length] = '/';
            memcpy(path + length + 1, file, name + 1);
            if (runnable(length == 0 ? file : path)) {
                return true;
            }
        }
        if (folders[length] == '\0') {
            return false;
        }
        folders += length + 1;
    }
}

/* A descriptor is not looked into. */
static bool open_file(const char *name)
{
    (void)name;
    return true;
}

/* What is to be run can be seen to fail? Then there is nothing to report. */
static void before_exec(bool (*can_run)(const char *), const char *name)
{
    int error = errno;

    if (vs_final_due() && can_run(name)) {
        vs_final_attempt(VS_END_EXEC, -1);
    }
    errno = error;
}

/* It came back: for an exec that means it failed, and after daemon() we are the child or it failed.
 */
static int after_attempt(int result)
{
    int error = errno;

    vs_final_resume();
    errno = error;
    return result;
}

/* The exec family, called behind us in the chain (execveat, which old C libraries lack, by its
 * number). */
#define NEXT(name)                                                                                 \
    __typeof__(name) *next = (__typeof__(name) *)vs_elf_next(#name);                               \
    if (next == NULL) {                                                                            \
        errno = ENOSYS;                                                                            \
        return -1;                                                                                 \
    }

EXPORT int execve(const char *path, char *const argv[], char *const envp[])
{
    NEXT(execve)
    before_exec(runnable, path);
    return after_attempt(next(path, argv, envp));
}

EXPORT int execv(const char *path, char *const argv[])
{
    NEXT(execv)
    before_exec(runnable, path);
    return after_attempt(next(path, argv));
}

EXPORT int execvp(const char *file, char *const argv[])
{
    NEXT(execvp)
    before_exec(runnable_in_path, file);
    return after_attempt(next(file, argv));
}

EXPORT int execvpe(const char *file, char *const argv[], char *const envp[])
{
    NEXT(execvpe)
    before_exec(runnable_in_path, file);
    return after_attempt(next(file, argv, envp));
}

EXPORT int fexecve(int fd, char *const argv[], char *const envp[])
{
    NEXT(fexecve)
    before_exec(open_file, NULL);
    return after_attempt(next(fd, argv, envp));
}

EXPORT int execveat(int fd, const char *path, char *const argv[], char *const envp[], int flags)
{
    before_exec(open_file, NULL);
    return after_attempt((int)syscall(SYS_execveat, fd, path, argv, envp, flags));
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

/* The C library ends the parent in here without coming by our _exit. */
EXPORT int daemon(int nochdir, int noclose)
{
    NEXT(daemon)
    if (vs_final_due()) {
        vs_final_attempt(VS_END__EXIT, 0);
    }
    return after_attempt(next(nochdir, noclose));
}
