/*
 * Claiming and writing with real processes: who gets which path, what a killed process leaves, what
 * happens when the program does things to our descriptors.
 *
 * Each test has a fresh folder as its working directory; each process of a test is forked, claims,
 * and answers by its exit status.
 */
#include "testing.h"

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
static char said[8192];

static int make_folder(void **unused)
{
    (void)unused;
    strcpy(folder, "/tmp/vs-report-XXXXXX");
    return !getcwd(home, sizeof home) || !mkdtemp(folder) || chdir(folder) != 0;
}

static int remove_folder(void **unused)
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
static void begin(const char *spec, uint64_t bytes)
{
    said[0] = '\0';
    if (vs_ledger_open(1) != 0)
        _exit(100);
    vs_ledger_alloc(&(struct vs_alloc){.address = 0x1000, .bytes = bytes, .context = 1});
    vs_report_claim(spec, say);
}

static void finish(void)
{
    vs_report_write(VS_END_EXIT, 0, NULL, 0);
}

/* In a forked process: the test's own failures must not look like success. */
#define NEED(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            dprintf(1, "line %d: %s (%s)\n", __LINE__, #condition, said);                          \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static void expect_success(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static char content[1 << 20];

static const char *read_file(const char *path)
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

static void expect_leak(const char *path, unsigned long long bytes)
{
    char want[64];
    const char *have = read_file(path);
    if (!have)
        fail_msg("%s is missing", path);
    snprintf(want, sizeof want, "\"bytes\": %llu,", bytes);
    if (!strstr(have, want) || strcmp(have + strlen(have) - 2, "}\n") != 0)
        fail_msg("%s: no %s in %s", path, want, have);
}

static int files(void)
{
    int count = 0;
    DIR *dir = opendir(".");
    for (struct dirent *entry; (entry = readdir(dir));)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(dir);
    return count;
}

/* A process that claims, tells so, and waits to be told to go on. */
struct other {
    pid_t pid;
    int tell, hear;
};

static struct other start_other(const char *spec, uint64_t bytes)
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

static void let_finish(struct other *other)
{
    assert_int_equal(write(other->tell, "g", 1), 1);
    expect_success(other->pid);
    close(other->tell);
    close(other->hear);
}

static void let_die(struct other *other)
{
    kill(other->pid, SIGKILL);
    waitpid(other->pid, NULL, 0);
    close(other->tell);
    close(other->hear);
}

static const char *with_pid(const char *path, pid_t pid)
{
    static char name[256];
    snprintf(name, sizeof name, "%s.%d", path, (int)pid);
    return name;
}

static void run(const char *spec, uint64_t bytes)
{
    struct other other = start_other(spec, bytes);
    let_finish(&other);
}

static void files_of_both_kinds(void **unused)
{
    (void)unused;
    run("a.json,b.txt,%p.json", 77);
    expect_leak("a.json", 77);
    assert_non_null(strstr(read_file("b.txt"), "1 \xc3\x97 77 B never freed on GPU 0"));
    assert_int_equal(files(), 3);
    run("a.json", 78); /* an earlier run's file is replaced */
    expect_leak("a.json", 78);
    assert_int_equal(files(), 3);
}

static void nothing_asked(void **unused)
{
    (void)unused;
    run("none", 77);
    assert_int_equal(files(), 0);
}

static void taken_path(void **unused)
{
    (void)unused;
    struct other one = start_other("a.json", 1);
    struct other two = start_other("a.json", 2);
    struct other three = start_other("./a.json", 3);
    let_finish(&two);
    expect_leak(with_pid("a.json", two.pid), 2);
    assert_null(read_file("a.json"));
    let_finish(&one);
    expect_leak("a.json", 1);
    let_finish(&three);
    expect_leak(with_pid("a.json", three.pid), 3);
    expect_leak("a.json", 1);
    assert_int_equal(files(), 3);
}

static void killed(void **unused)
{
    (void)unused;
    struct other one = start_other("a.json", 1);
    let_die(&one);
    assert_null(read_file("a.json"));
    assert_int_equal(files(), 1); /* the hidden temporary */
    run("a.json", 2);
    expect_leak("a.json", 2);
    assert_int_equal(files(), 1);
}

static void many_at_once(void **unused)
{
    (void)unused;
    enum { COUNT = 12 };
    pid_t pid[COUNT];
    int gate[2], ready[2], plain = 0;
    char byte;
    assert_int_equal(pipe(gate) | pipe(ready), 0);
    for (int i = 0; i < COUNT; i++)
        if ((pid[i] = fork()) == 0) {
            close(gate[1]);
            begin("a.json", (uint64_t)i + 1000);
            NEED(write(ready[1], "r", 1) == 1);
            NEED(read(gate[0], &byte, 1) == 0);
            finish();
            _exit(said[0] != '\0');
        }
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(read(ready[0], &byte, 1), 1);
    close(gate[1]);
    for (int i = 0; i < COUNT; i++)
        expect_success(pid[i]);
    assert_int_equal(files(), COUNT);
    for (int i = 0; i < COUNT; i++) {
        const char *own = with_pid("a.json", pid[i]);
        if (access(own, F_OK) == 0)
            expect_leak(own, 1000ull + (unsigned)i);
        else
            plain++;
    }
    assert_int_equal(plain, 1);
}

static void forked_child(void **unused)
{
    (void)unused;
    pid_t parent = fork();
    if (parent == 0) {
        int status;
        begin("a.json,b.json", 1);
        pid_t child = fork();
        if (child == 0) {
            finish(); /* not claimed by this process: nothing */
            NEED(files() == 2);
            begin("a.json", 2);
            finish();
            NEED(access(with_pid("a.json", getpid()), F_OK) == 0);
            NEED(access("a.json", F_OK) != 0);
            _exit(0);
        }
        NEED(waitpid(child, &status, 0) == child && status == 0);
        child = fork();
        if (child == 0) /* its parent still holds the claim after a child has come and gone */
            _exit(0);
        NEED(waitpid(child, &status, 0) == child && status == 0);
        child = fork();
        if (child == 0) {
            begin("b.json", 3);
            finish();
            NEED(access("b.json", F_OK) != 0);
            _exit(0);
        }
        NEED(waitpid(child, &status, 0) == child && status == 0);
        finish();
        _exit(0);
    }
    expect_success(parent);
    expect_leak("a.json", 1);
    expect_leak("b.json", 1);
    assert_int_equal(files(), 4);
}

static void folder_of_the_claim(void **unused)
{
    (void)unused;
    assert_int_equal(mkdir("deep", 0700), 0);
    pid_t child = fork();
    if (child == 0) {
        begin("a.json", 5);
        NEED(chdir("deep") == 0);
        finish();
        _exit(0);
    }
    expect_success(child);
    expect_leak("a.json", 5);
}

static void descriptors_closed(void **unused)
{
    (void)unused;
    pid_t child = fork();
    if (child == 0) {
        begin("a.json", 6);
        for (int fd = 3; fd < 1024; fd++)
            close(fd);
        finish();
        NEED(said[0] == '\0');
        _exit(0);
    }
    expect_success(child);
    expect_leak("a.json", 6);
    assert_int_equal(files(), 1);
}

/* With the descriptor, the lock is lost: another process may take the claim over and keeps it. */
static void descriptors_closed_and_taken_over(void **unused)
{
    (void)unused;
    int gone[2], go[2];
    char byte;
    assert_int_equal(pipe(gone) | pipe(go), 0);
    pid_t child = fork();
    if (child == 0) {
        begin("a.json", 6);
        for (int fd = 3; fd < 1024; fd++)
            if (fd != gone[1] && fd != go[0])
                close(fd);
        NEED(write(gone[1], "c", 1) == 1);
        NEED(read(go[0], &byte, 1) == 1);
        finish();
        NEED(said[0] == '\0');
        _exit(0);
    }
    assert_int_equal(read(gone[0], &byte, 1), 1);
    struct other next = start_other("a.json", 7);
    assert_int_equal(write(go[1], "g", 1), 1);
    expect_success(child);
    expect_leak("a.json", 6);
    let_finish(&next);
    expect_leak("a.json", 7);
    assert_int_equal(files(), 1);
}

/* Every descriptor is now something of the program's: none of it may be written to. */
static void descriptors_reused(void **unused)
{
    (void)unused;
    pid_t child = fork();
    if (child == 0) {
        begin("a.json", 8);
        int mine = open("mine", O_CREAT | O_RDWR, 0600);
        NEED(write(mine, "precious", 8) == 8);
        for (int fd = 3; fd < 512; fd++)
            dup2(mine, fd);
        finish();
        _exit(0);
    }
    expect_success(child);
    assert_string_equal(read_file("mine"), "precious");
    expect_leak("a.json", 8);
    assert_int_equal(files(), 2);
}

/* Programs count on the lowest number being free: the claim takes none of the low ones. */
static void low_descriptors_stay_free(void **unused)
{
    (void)unused;
    pid_t child = fork();
    if (child == 0) {
        int lowest = dup(0), next = dup(0);
        close(lowest);
        close(next);
        begin("a.json,b.json", 6);
        NEED(dup(0) == lowest);
        NEED(dup(0) == next);
        struct rlimit limit = {50, 50}; /* no high numbers: low ones do */
        setrlimit(RLIMIT_NOFILE, &limit);
        begin("c.json", 6);
        finish();
        _exit(said[0] != '\0');
    }
    expect_success(child);
    expect_leak("c.json", 6);
}

/* Killed while it wrote: the next one's report must not end in the rest of it. */
static void half_written_temporary(void **unused)
{
    (void)unused;
    static char junk[100000];
    int left = open(".a.json.vramshim", O_CREAT | O_RDWR, 0600);
    memset(junk, 'j', sizeof junk);
    assert_int_equal(write(left, junk, sizeof junk), sizeof junk);
    close(left);
    run("a.json", 6);
    expect_leak("a.json", 6);
    assert_null(strstr(content, "jjjj"));
    assert_int_equal(files(), 1);
}

static void temporary_removed(void **unused)
{
    (void)unused;
    pid_t child = fork();
    if (child == 0) {
        begin("a.json", 9);
        NEED(unlink(".a.json.vramshim") == 0);
        finish();
        _exit(0);
    }
    expect_success(child);
    expect_leak("a.json", 9);
    assert_int_equal(files(), 1);
}

static void written_again(void **unused)
{
    (void)unused;
    pid_t child = fork();
    if (child == 0) {
        begin("a.json", 10);
        vs_report_write(VS_END_EXEC, -1, NULL, 0);
        NEED(strstr(read_file("a.json"), "\"end\": \"exec\""));
        vs_ledger_alloc(&(struct vs_alloc){.address = 0x9000, .bytes = 11, .context = 1});
        finish();
        NEED(strstr(read_file("a.json"), "\"end\": \"exit\""));
        _exit(0);
    }
    expect_success(child);
    expect_leak("a.json", 11);
    assert_int_equal(files(), 1);
}

static void umask_is_kept(void **unused)
{
    (void)unused;
    struct stat st;
    pid_t child = fork();
    if (child == 0) {
        umask(027);
        begin("a.json", 12);
        finish();
        NEED(umask(0) == 027);
        _exit(0);
    }
    expect_success(child);
    assert_int_equal(stat("a.json", &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
}

/* One file under several names: written once, and still held. */
static void same_file_twice(void **unused)
{
    (void)unused;
    assert_int_equal(mkdir("deep", 0700) | symlink("deep", "alias"), 0);
    struct other one = start_other("deep/a.json,deep/a.json,./deep/a.json,alias/a.json", 13);
    run("deep/a.json", 14);
    let_finish(&one);
    expect_leak("deep/a.json", 13);
    assert_int_equal(chdir("deep"), 0);
    assert_int_equal(files(), 2);
}

/* What somebody put in the temporary's place is neither followed nor written to. */
static void hostile_temporary(void **unused)
{
    (void)unused;
    int victim = open("victim", O_CREAT | O_RDWR, 0600);
    assert_int_equal(write(victim, "precious", 8), 8);
    close(victim);
    close(open("other", O_CREAT | O_RDWR, 0600));
    assert_int_equal(symlink("other", ".a.json.vramshim"), 0);
    assert_int_equal(mkfifo(".b.json.vramshim", 0600), 0);
    assert_int_equal(link("victim", ".c.json.vramshim"), 0);
    pid_t child = fork();
    if (child == 0) {
        begin("a.json,b.json,c.json", 15);
        finish();
        _exit(said[0] != '\0');
    }
    expect_success(child);
    assert_string_equal(read_file("victim"), "precious");
    assert_string_equal(read_file("other"), "");
    expect_leak(with_pid("a.json", child), 15);
    expect_leak(with_pid("b.json", child), 15);
    expect_leak(with_pid("c.json", child), 15);
}

/* Runs with descriptor 2 on the file "err". after: what the program does to it meanwhile. */
static void run_with_stderr(const char *spec, void (*after)(void), const char *must_say)
{
    pid_t child = fork();
    if (child == 0) {
        int err = open("err", O_CREAT | O_RDWR | O_TRUNC, 0600);
        dup2(err, 2);
        begin(spec, 16);
        if (after)
            after();
        finish();
        NEED(must_say ? strstr(said, must_say) != NULL : said[0] == '\0');
        _exit(0);
    }
    expect_success(child);
}

static void expect_stand_in(void)
{
    assert_non_null(strstr(read_file("err"), "never freed on GPU 0"));
}

static void replace_stderr(void)
{
    int other = open("other", O_CREAT | O_RDWR, 0600);
    dup2(other, 2);
}

static void close_stderr(void)
{
    close(2);
}

static void stderr_only_if_unchanged(void **unused)
{
    (void)unused;
    run_with_stderr("stderr", NULL, NULL);
    expect_stand_in();
    run_with_stderr("stderr", replace_stderr, NULL);
    assert_string_equal(read_file("other"), "");
    assert_string_equal(read_file("err"), "");
    run_with_stderr("stderr", close_stderr, NULL);
    assert_string_equal(read_file("err"), "");
    run_with_stderr("stderr,a.json", replace_stderr, NULL);
    expect_leak("a.json", 16);
    assert_string_equal(read_file("other"), "");
}

static void cannot_be_claimed(void **unused)
{
    (void)unused;
    run_with_stderr("missing/a.json", NULL,
                    "/missing/a.json: no such folder; the report goes to stderr instead\n");
    expect_stand_in();
    assert_int_equal(mkdir("b.json", 0700), 0);
    pid_t child = fork();
    if (child == 0) {
        begin("b.json", 16);
        _exit(strstr(said, "it is a folder") ? 0 : 1); /* at once, not at the end */
    }
    expect_success(child);
    run_with_stderr("b.json", NULL, "it is a folder");
    expect_stand_in();
    run_with_stderr("err/a.json", NULL, "not a folder");
    expect_stand_in();
    run_with_stderr("/proc/a.json,good.json", NULL, "cannot write /proc/a.json");
    expect_stand_in();
    expect_leak("good.json", 16); /* one bad path does not spoil the others */
}

static void small_files_only(void)
{
    struct rlimit limit = {1000, 1000}; /* room for the text on stderr, not for the JSON */
    setrlimit(RLIMIT_FSIZE, &limit);
}

static void remove_the_folder(void)
{
    NEED(unlink("deep/.a.json.vramshim") == 0 && rmdir("deep") == 0);
}

static void cannot_be_written(void **unused)
{
    (void)unused;
    run("a.json", 1);
    run_with_stderr("a.json", small_files_only, "a.json: the file would be too large");
    expect_stand_in();
    expect_leak("a.json", 1); /* the earlier run's */
    assert_int_equal(files(), 2);
    assert_int_equal(mkdir("deep", 0700), 0);
    run_with_stderr("deep/a.json", remove_the_folder, "no such folder");
    expect_stand_in();
}

static void bad_spec_goes_to_stderr(void **unused)
{
    (void)unused;
    run_with_stderr("a.html", NULL, NULL);
    expect_stand_in();
}

static void without_a_claim(void **unused)
{
    (void)unused;
    pid_t child = fork();
    if (child == 0) {
        finish();
        _exit(0);
    }
    expect_success(child);
    assert_int_equal(files(), 0);
}

static void claimed_again(void **unused)
{
    (void)unused;
    pid_t child = fork();
    if (child == 0) {
        begin("a.json", 1);
        begin("b.json", 2); /* the first claim is given up without a trace */
        finish();
        _exit(0);
    }
    expect_success(child);
    expect_leak("b.json", 2);
    assert_int_equal(files(), 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(files_of_both_kinds),
        TEST(nothing_asked),
        TEST(taken_path),
        TEST(killed),
        TEST(many_at_once),
        TEST(forked_child),
        TEST(folder_of_the_claim),
        TEST(descriptors_closed),
        TEST(descriptors_closed_and_taken_over),
        TEST(descriptors_reused),
        TEST(low_descriptors_stay_free),
        TEST(half_written_temporary),
        TEST(temporary_removed),
        TEST(written_again),
        TEST(umask_is_kept),
        TEST(same_file_twice),
        TEST(hostile_temporary),
        TEST(stderr_only_if_unchanged),
        TEST(cannot_be_claimed),
        TEST(cannot_be_written),
        TEST(bad_spec_goes_to_stderr),
        TEST(without_a_claim),
        TEST(claimed_again),
    };
    return cmocka_run_group_tests_name("report", tests, NULL, NULL);
}
