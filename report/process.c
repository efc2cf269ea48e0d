/* Facts about this process (see process.h), from /proc, uname and the launchers' variables. */
#include "report/process.h"

#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "report/sys.h"

/* By launcher: torchrun and friends, Open MPI, MPICH and Intel MPI, Slurm. */
static const char *const rank_variables[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK",
                                             "SLURM_PROCID"};

static void copy(char *to, size_t size, const char *from)
{
    size_t length = strnlen(from, size - 1);
    memcpy(to, from, length);
    to[length] = '\0';
}

static void collect_argv(struct vs_process *process)
{
    size_t have = 0;
    int fd = vs_sys_open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) {
        return;
    }
    while (have < sizeof process->argv) {
        long got = vs_sys_read(fd, process->argv + have, sizeof process->argv - have);
        if (got == -EINTR) {
            continue;
        }
        if (got <= 0) {
            break;
        }
        have += (size_t)got;
    }
    if (have == sizeof process->argv) {
        char more;
        process->argv_cut = vs_sys_read(fd, &more, 1) == 1;
        if (process->argv[have - 1] != '\0') {
            process->argv_cut = 1;
        }
    }
    vs_sys_close(fd);
    if (have > 0 && process->argv[have - 1] != '\0') {
        have -= have == sizeof process->argv;
        process->argv[have++] = '\0';
    }
    process->argv_bytes = (uint32_t)have;
}

void vs_process_collect(struct vs_process *process)
{
    memset(process, 0, sizeof *process);
    process->pid = vs_sys_getpid();
    process->ppid = (int32_t)VS_SYS(SYS_getppid);
    long length =
        vs_sys_readlink("/proc/self/exe", process->executable, sizeof process->executable - 1);
    process->executable[length > 0 ? length : 0] = '\0';
    static struct utsname name; /* 390 bytes; collected once per process, by one thread */
    if (VS_SYS(SYS_uname, &name) == 0) {
        copy(process->host, sizeof process->host, name.nodename);
    }
    for (size_t i = 0; i < sizeof rank_variables / sizeof *rank_variables; i++) {
        const char *value = getenv(rank_variables[i]);
        if (value && *value) {
            copy(process->rank, sizeof process->rank, value);
            break;
        }
    }
    collect_argv(process);
}

uint64_t vs_process_start_ns(void)
{
    char text[1024];
    uint64_t now = vs_sys_clock(CLOCK_MONOTONIC), boot = vs_sys_clock(CLOCK_BOOTTIME);
    uint64_t ticks = 0, started;
    long length = -1;
    int fd = vs_sys_open("/proc/self/stat", O_RDONLY | O_CLOEXEC, 0);

    if (fd >= 0) {
        length = vs_sys_read(fd, text, sizeof(text) - 1);
        vs_sys_close(fd);
    }
    if (length <= 0) {
        return now;
    }
    text[length] = '\0';
    /* Field 2 is the name in parentheses and may hold anything; count from its end. */
    const char *at = strrchr(text, ')');
    for (unsigned field = 2; at != NULL && field < 22; field++) {
        at = strchr(at + 1, ' ');
    }
    if (at == NULL) {
        return now;
    }
    for (at++; *at >= '0' && *at <= '9'; at++) {
        ticks = ticks * 10 + (uint64_t)(*at - '0');
    }
    started = ticks * (1000000000U / (uint64_t)sysconf(_SC_CLK_TCK)); /* since boot */
    if (started > boot) {
        return now;
    }
    return boot - started < now ? now - (boot - started) : 0;
}
