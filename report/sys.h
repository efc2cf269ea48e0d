/*
 * The few system calls of report/, made directly.
 *
 * Why not libc's wrappers: fstat and fstatat carry a symbol version (2.33) that old glibc lacks,
 * fcntl becomes fcntl64 (2.28) under _FILE_OFFSET_BITS=64, and other preloaded libraries hook open
 * and write. All return the result, or -errno; errno is left as it was found.
 */
#ifndef VS_REPORT_SYS_H
#define VS_REPORT_SYS_H

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define VS_SYS(...)                                                                                \
    ({                                                                                             \
        int vs_sys_saved = errno;                                                                  \
        long vs_sys_result = syscall(__VA_ARGS__);                                                 \
        if (vs_sys_result < 0)                                                                     \
            vs_sys_result = -errno;                                                                \
        errno = vs_sys_saved;                                                                      \
        vs_sys_result;                                                                             \
    })

static inline int vs_sys_open(const char *path, int flags, unsigned mode)
{
    return (int)VS_SYS(SYS_openat, AT_FDCWD, path, flags, mode);
}

static inline int vs_sys_close(int fd)
{
    return (int)VS_SYS(SYS_close, fd);
}

static inline long vs_sys_read(int fd, void *to, size_t bytes)
{
    return VS_SYS(SYS_read, fd, to, bytes);
}

static inline long vs_sys_write(int fd, const void *from, size_t bytes)
{
    return VS_SYS(SYS_write, fd, from, bytes);
}

static inline int vs_sys_fcntl(int fd, int command, long argument)
{
    return (int)VS_SYS(SYS_fcntl, fd, command, argument);
}

static inline int vs_sys_fstat(int fd, struct stat *st)
{
    return (int)VS_SYS(SYS_fstat, fd, st);
}

/* Does not follow a symbolic link at the end of path. */
static inline int vs_sys_lstat(const char *path, struct stat *st)
{
    return (int)VS_SYS(SYS_newfstatat, AT_FDCWD, path, st, AT_SYMLINK_NOFOLLOW);
}

static inline int vs_sys_stat(const char *path, struct stat *st)
{
    return (int)VS_SYS(SYS_newfstatat, AT_FDCWD, path, st, 0);
}

static inline int vs_sys_rewind_empty(int fd)
{
    long rc = VS_SYS(SYS_ftruncate, fd, 0L);
    if (rc == 0) {
        rc = VS_SYS(SYS_lseek, fd, 0L, SEEK_SET);
    }
    return (int)rc;
}

static inline int vs_sys_rename(const char *from, const char *to)
{
    return (int)VS_SYS(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to);
}

static inline int vs_sys_unlink(const char *path)
{
    return (int)VS_SYS(SYS_unlinkat, AT_FDCWD, path, 0);
}

/* Result counts the closing NUL. */
static inline long vs_sys_getcwd(char *to, size_t bytes)
{
    return VS_SYS(SYS_getcwd, to, bytes);
}

/* Not closed by a NUL. */
static inline long vs_sys_readlink(const char *path, char *to, size_t bytes)
{
    return VS_SYS(SYS_readlinkat, AT_FDCWD, path, to, bytes);
}

/* The pid as the kernel has it now: no cache that a raw clone could have left stale. */
static inline int vs_sys_getpid(void)
{
    return (int)VS_SYS(SYS_getpid);
}

/* Of a clock that every kernel has, so that it cannot fail, and errno is not touched. */
static inline uint64_t vs_sys_clock(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Zeroed memory of our own, or NULL. */
static inline void *vs_sys_map(size_t bytes)
{
    int saved = errno;
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    errno = saved;
    return at == MAP_FAILED ? NULL : at;
}

static inline void vs_sys_unmap(void *at, size_t bytes)
{
    int saved = errno;
    if (munmap(at, bytes) != 0) {
        errno = saved;
    }
}

#endif
