/* Claiming and writing report files (see sink.h). */
#include "report/sink.h"

#include <string.h>

#include "report/emit.h"
#include "report/sys.h"

#define HIGH_DESCRIPTOR 100 /* out of the way of programs that count on low numbers */
#define RACES 16
#define NAMES 100
#define MOST_LINKS 40
#define LONGEST_NAME 210 /* of 255, for what goes around it */

static struct vs_sink_file file_of(const struct stat *st)
{
    return (struct vs_sink_file){(uint64_t)st->st_dev, (uint64_t)st->st_ino};
}

static bool same(struct vs_sink_file a, struct vs_sink_file b)
{
    return a.device == b.device && a.inode == b.inode;
}

static bool still_ours(const struct vs_sink *sink)
{
    struct stat st;
    return sink->fd >= 0 && vs_sys_fstat(sink->fd, &st) == 0 && same(file_of(&st), sink->file);
}

static bool name_is(const char *path, struct vs_sink_file file)
{
    struct stat st;
    return vs_sys_lstat(path, &st) == 0 && same(file_of(&st), file);
}

/* DIR/.NAME.vramshim, or DIR/.NAME.PID.N.vramshim with a number (not 0). Of a NAME so long that
 * this would be too long for a name, its hash. */
static int name_temporary(struct vs_sink *sink, int pid, unsigned number)
{
    struct vs_out out;
    const char *name = strrchr(sink->path, '/') + 1;
    vs_out_to_memory(&out, sink->temporary, sizeof sink->temporary - 1);
    vs_out_raw(&out, sink->path, (size_t)(name - sink->path));
    vs_out_char(&out, '.');
    if (strlen(name) <= LONGEST_NAME) {
        vs_out_str(&out, name);
    } else {
        uint64_t hash = UINT64_C(14695981039346656037);
        for (const char *c = name; *c; c++) {
            hash = (hash ^ (unsigned char)*c) * UINT64_C(1099511628211);
        }
        vs_out_u64(&out, hash);
    }
    if (number) {
        vs_out_char(&out, '.');
        vs_out_u64(&out, (uint64_t)pid);
        vs_out_char(&out, '.');
        vs_out_u64(&out, number);
    }
    vs_out_str(&out, ".vramshim");
    return out.error ? -ENAMETOOLONG : 0;
}

/* Moves to a high number where the limit allows. The original is closed, and with it any lock on
 * the file: so before locking. */
static int lift(int fd)
{
    int high = vs_sys_fcntl(fd, F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR);
    if (high < 0) {
        return fd;
    }
    vs_sys_close(fd);
    return high;
}

static int lock(int fd)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return vs_sys_fcntl(fd, F_SETLK, (long)(uintptr_t)&whole);
}

/* A file of ours and nobody else's: what a hostile neighbour may have put there is not. */
static int check_file(int fd, struct vs_sink_file *file)
{
    struct stat st;
    int rc = vs_sys_fstat(fd, &st);
    if (rc < 0) {
        return rc;
    }
    if (!S_ISREG(st.st_mode) || st.st_uid != (uid_t)VS_SYS(SYS_geteuid) || st.st_nlink > 1) {
        return -EACCES;
    }
    *file = file_of(&st);
    return 0;
}

/* more: O_CREAT | O_EXCL for a fresh one. The kernel applies the program's umask, or the folder's
 * default ACL, to the final mode; where that would keep the owner out, it has to wait. */
static int open_temporary(struct vs_sink *sink, int more)
{
    struct stat st;
    int fd =
        vs_sys_open(sink->temporary, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | more, 0666);
    sink->final_mode = 0;
    if (fd >= 0 && more && vs_sys_fstat(fd, &st) == 0 && (st.st_mode & 0600) != 0600) {
        sink->final_mode = S_IFREG | (st.st_mode & 0777);
        VS_SYS(SYS_fchmod, fd, (st.st_mode & 0777) | 0600);
    }
    return fd < 0 ? fd : lift(fd);
}

/* A fresh temporary with a name that only this process uses. */
static int open_private(struct vs_sink *sink, int pid)
{
    int rc = -EEXIST;
    for (unsigned number = 1; number < NAMES && rc == -EEXIST; number++) {
        rc = name_temporary(sink, pid, number);
        if (rc == 0) {
            rc = open_temporary(sink, O_CREAT | O_EXCL);
        }
    }
    if (rc < 0) {
        return rc;
    }
    sink->fd = rc;
    rc = check_file(sink->fd, &sink->file);
    if (rc < 0) {
        vs_sink_abandon(sink);
    }
    return rc;
}

static bool held_here(struct vs_sink_file file, struct vs_sink *others, size_t other_count)
{
    for (size_t i = 0; i < other_count; i++) {
        if (others[i].fd >= 0 && same(others[i].file, file)) {
            return true;
        }
    }
    return false;
}

/* 0 if a file can take the place of what is at the path: nothing, or a regular file. */
static int check_target(const char *path)
{
    struct stat st;
    if (vs_sys_lstat(path, &st) < 0 || S_ISREG(st.st_mode) || S_ISLNK(st.st_mode)) {
        return 0;
    }
    return S_ISDIR(st.st_mode) ? -EISDIR : -ENXIO;
}

/* One try under the present path. -EBUSY: another process has it; -EAGAIN: a race, try again. */
static int try_claim(struct vs_sink *sink, int pid, struct vs_sink *others, size_t other_count)
{
    struct vs_sink_file file;
    struct stat st;
    int rc = check_target(sink->path);
    if (rc == 0) {
        rc = name_temporary(sink, pid, 0);
    }
    if (rc < 0) {
        return rc;
    }
    /* Looked at before it is opened: opening and closing a file that we hold would drop its lock.
     */
    if (vs_sys_lstat(sink->temporary, &st) == 0 && held_here(file_of(&st), others, other_count)) {
        return 1;
    }
    int fd = open_temporary(sink, O_CREAT | O_EXCL);
    bool fresh = fd >= 0, existed = fd == -EEXIST;
    if (fd == -EEXIST) {
        fd = open_temporary(sink, 0);
    }
    if (fd == -ENOENT && existed) {
        return -EAGAIN; /* its owner has just renamed it or taken it away */
    }
    if (fd < 0) { /* one that is there but not ours to open belongs to somebody else */
        return vs_sys_lstat(sink->temporary, &st) == 0 ? -EBUSY : fd;
    }
    rc = check_file(fd, &file);
    if (rc < 0) {
        if (fresh) { /* files here are not ours even when we make them */
            vs_sys_unlink(sink->temporary);
        }
        vs_sys_close(fd);
        return fresh ? rc : -EBUSY;
    }
    rc = lock(fd);
    if (rc == -EACCES || rc == -EAGAIN) {
        rc = -EBUSY;
    } else if (rc == 0 && !name_is(sink->temporary, file)) {
        rc = -EAGAIN; /* its owner has just renamed it */
    }
    if (rc == 0) {
        sink->fd = fd;
        sink->file = file;
        return 0;
    }
    vs_sys_close(fd);
    if (rc == -EBUSY || rc == -EAGAIN) {
        return rc;
    }
    return open_private(sink, pid); /* no locks on this file system */
}

static int append_pid(struct vs_sink *sink, size_t length, int pid, unsigned number)
{
    struct vs_out out;
    vs_out_to_memory(&out, sink->path + length, sizeof sink->path - 1 - length);
    vs_out_char(&out, '.');
    vs_out_u64(&out, (uint64_t)pid);
    if (number > 1) { /* the same pid in another container */
        vs_out_char(&out, '.');
        vs_out_u64(&out, number);
    }
    return out.error ? -ENAMETOOLONG : 0;
}

/* Replaces a path that ends in symbolic links by the path they lead to, there or not: a rename
 * would replace the link. A link of /proc (/dev/stderr leads there) is somebody's open file and not
 * a name: what it names must not be replaced. */
static int follow_links(char path[VS_PATTERN_PATH])
{
    static char target[VS_PATTERN_PATH];
    struct stat st, proc;
    bool has_proc = vs_sys_lstat("/proc/self", &proc) == 0;
    for (int links = 0; vs_sys_lstat(path, &st) == 0 && S_ISLNK(st.st_mode); links++) {
        long length = VS_SYS(SYS_readlinkat, AT_FDCWD, path, target, sizeof target - 1);
        size_t folder;
        if (length < 0) {
            return (int)length;
        }
        if (has_proc && st.st_dev == proc.st_dev) {
            return -ENXIO;
        }
        if (links == MOST_LINKS) {
            return -ELOOP;
        }
        target[length] = '\0';
        folder = target[0] == '/' ? 0 : (size_t)(strrchr(path, '/') + 1 - path);
        if (folder + (size_t)length >= VS_PATTERN_PATH) {
            return -ENAMETOOLONG;
        }
        memcpy(path + folder, target, (size_t)length + 1);
    }
    return 0;
}

int vs_sink_claim(struct vs_sink *sink, int pid, struct vs_sink *others, size_t other_count)
{
    sink->fd = -1;
    int rc = follow_links(sink->path);
    size_t length = strlen(sink->path);
    if (rc < 0) {
        return rc;
    }
    rc = -EBUSY;
    for (unsigned name = 0; name < NAMES; name++) {
        if (name > 0 && (rc = append_pid(sink, length, pid, name)) < 0) {
            break;
        }
        rc = -EAGAIN;
        for (int race = 0; race < RACES && rc == -EAGAIN; race++) {
            rc = try_claim(sink, pid, others, other_count);
        }
        if (rc != -EBUSY && rc != -EAGAIN) {
            break;
        }
    }
    return rc;
}

/* After the program closed our descriptor: the temporary is ours again unless somebody has taken it
 * over since. */
static bool regain(struct vs_sink *sink)
{
    struct vs_sink_file file;
    if (!name_is(sink->temporary, sink->file)) {
        return false;
    }
    int fd = open_temporary(sink, 0);
    if (fd < 0) {
        return false;
    }
    if (check_file(fd, &file) < 0 || !same(file, sink->file) || lock(fd) < 0 ||
        !name_is(sink->temporary, file)) {
        vs_sys_close(fd);
        return false;
    }
    sink->fd = fd;
    return true;
}

int vs_sink_begin(struct vs_sink *sink, int pid)
{
    bool held = still_ours(sink) ? name_is(sink->temporary, sink->file) : regain(sink);
    if (!held) {
        int rc = open_private(sink, pid);
        if (rc < 0) {
            return rc;
        }
    }
    int rc = vs_sys_rewind_empty(sink->fd);
    return rc < 0 ? rc : sink->fd;
}

void vs_sink_release(struct vs_sink *sink, bool remove)
{
    if (!still_ours(sink)) {
        sink->fd = -1;
        return;
    }
    if (remove && name_is(sink->temporary, sink->file)) {
        vs_sys_unlink(sink->temporary);
    }
    vs_sys_close(sink->fd);
    sink->fd = -1;
}

void vs_sink_abandon(struct vs_sink *sink)
{
    vs_sink_release(sink, true);
}

int vs_sink_commit(struct vs_sink *sink)
{
    int rc = check_target(sink->path);
    if (rc == 0 && sink->final_mode) {
        VS_SYS(SYS_fchmod, sink->fd, sink->final_mode & 0777);
    }
    if (rc == 0) {
        rc = vs_sys_rename(sink->temporary, sink->path);
    }
    vs_sink_release(sink, true); /* after a failed rename the temporary still has its name */
    return rc;
}

const char *vs_sink_error(int error)
{
    switch (error < 0 ? -error : error) {
    case ENOENT:
        return "no such folder";
    case ENOTDIR:
        return "a part of the path is not a folder";
    case EISDIR:
        return "it is a folder";
    case ENXIO:
        return "it is no regular file";
    case EACCES:
    case EPERM:
        return "permission denied";
    case EROFS:
        return "the file system is read-only";
    case ENOSPC:
    case EDQUOT:
        return "no space left";
    case EFBIG:
        return "the file would be too large";
    case ENAMETOOLONG:
        return "the path is too long";
    case ELOOP:
        return "too many symbolic links";
    case EMFILE:
    case ENFILE:
        return "too many open files";
    case EBUSY:
    case EAGAIN:
        return "other processes have taken the name";
    default:
        return "input/output error";
    }
}
