/*
 * Where a report goes when it can't go where it should: descriptor 2 and what the program made of
 * it, paths that can't be claimed or written, processes that have not claimed.
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(stderr_only_if_unchanged), TEST(cannot_be_claimed), TEST(cannot_be_written),
        TEST(bad_spec_goes_to_stderr),  TEST(without_a_claim),   TEST(claimed_again),
    };
    return cmocka_run_group_tests_name("targets", tests, NULL, NULL);
}
