/* See processes.h. */
#include "processes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "report/ledger.h"
#include "report/report.h"

static char folder[64], home[4096];
char said[8192];

int make_folder(void **unused)
{
    (void)unused;
    strcpy(folder, "/tmp/vs-report-XXXXXX");
    return !getcwd(home, sizeof home) || !mkdtemp(folder) || chdir(folder) != 0;
}

int remove_folder(void **unused)
{
    (void)unused;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return chdir(home) != 0 || system(command) != 0;
}

static void say(const char *line)
{
    strncat(said, line, sizeof said - strlen(said) - 2);
    strcat(said, "\n");
}

/* A new process's ledger, with one leak of the given size. */
void begin(const char *spec, uint64_t bytes)
{
    said[0] = '\0';
    if (vs_ledger_open(1) != 0)
        _exit(100);
    vs_ledger_alloc(&(struct vs_alloc){.address = 0x1000, .bytes = bytes, .context = 1});
    vs_report_claim(spec, say);
}

void finish(void)
{
    vs_report_write(VS_END_EXIT, 0, NULL, 0);
}

void expect_success(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

char content[1 << 20];

const char *read_file(const char *path)
{
    content[0] = '\0';
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        return NULL;
    ssize_t got = read(fd, content, sizeof content - 1);
    content[got > 0 ? got : 0] = '\0';
    close(fd);
    return content;
}

void expect_leak(const char *path, unsigned long long bytes)
{
    char want[64];
    const char *have = read_file(path);
    if (!have)
        fail_msg("%s is missing", path);
    snprintf(want, sizeof want, "\"bytes\": %llu,", bytes);
    if (!strstr(have, want) || strcmp(have + strlen(have) - 2, "}\n") != 0)
        fail_msg("%s: no %s in %s", path, want, have);
}

int files(void)
{
    int count = 0;
    DIR *dir = opendir(".");
    for (struct dirent *entry; (entry = readdir(dir));)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(dir);
    return count;
}

struct other start_other(const char *spec, uint64_t bytes)
{
    int down[2], up[2];
    char byte = 0;
    assert_int_equal(pipe(down) | pipe(up), 0);
    struct other other = {fork(), down[1], up[0]};
    if (other.pid == 0) {
        close(down[1]);
        begin(spec, bytes);
        NEED(write(up[1], "c", 1) == 1);
        if (read(down[0], &byte, 1) == 1)
            finish();
        _exit(0);
    }
    close(down[0]);
    close(up[1]);
    assert_int_equal(read(other.hear, &byte, 1), 1);
    return other;
}

void let_finish(struct other *other)
{
    assert_int_equal(write(other->tell, "g", 1), 1);
    expect_success(other->pid);
    close(other->tell);
    close(other->hear);
}

void let_die(struct other *other)
{
    kill(other->pid, SIGKILL);
    waitpid(other->pid, NULL, 0);
    close(other->tell);
    close(other->hear);
}

const char *with_pid(const char *path, pid_t pid)
{
    static char name[256];
    snprintf(name, sizeof name, "%s.%d", path, (int)pid);
    return name;
}

void run(const char *spec, uint64_t bytes)
{
    struct other other = start_other(spec, bytes);
    let_finish(&other);
}
