/*
 * Claiming and writing with real processes: who gets which path, what a killed process leaves, what
 * happens when the program does things to our descriptors.
 */
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
    };
    return cmocka_run_group_tests_name("report", tests, NULL, NULL);
}
