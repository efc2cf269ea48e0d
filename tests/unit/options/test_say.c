/*
 * What reaches descriptor 2: whole lines in single writes, nothing above the level, nothing into a
 * descriptor that is no longer stderr, no signal, no errno.
 */
#include "tests/unit/options/cases.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "report/quiet.h"
#include "shim/say.h"

/* Descriptor 2 is a packet-mode pipe while saying: one read returns one write. */
static int saved_stderr, reader;

static int redirect(void **state)
{
    int ends[2];

    (void)state;
    saved_stderr = dup(STDERR_FILENO);
    if (saved_stderr < 0 || pipe2(ends, O_DIRECT | O_NONBLOCK) != 0)
        return -1;
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    reader = ends[0];
    vs_say_set_level(0);
    vs_quiet_remember_stderr();
    return 0;
}

static int restore(void **state)
{
    (void)state;
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    close(reader);
    return 0;
}

/* The next packet, "" if there is none. */
static const char *next(void)
{
    static char packet[4096 + 1];
    ssize_t got = read(reader, packet, sizeof(packet) - 1);

    packet[got > 0 ? got : 0] = '\0';
    return packet;
}

static void says_a_line_in_one_write(void **state)
{
    char wanted[64];

    (void)state;
    errno = E2BIG;
    vs_say(VS_SAY_ERROR, "%s is %d", "that", 7);
    assert_int_equal(errno, E2BIG);
    snprintf(wanted, sizeof(wanted), "vramshim[%d]: that is 7\n", (int)getpid());
    assert_string_equal(next(), wanted);
    assert_string_equal(next(), "");
}

static void keeps_to_the_level(void **state)
{
    (void)state;
    vs_say(VS_SAY_RESOLVED, "no");
    assert_string_equal(next(), "");
    vs_say_set_level(1);
    vs_say(VS_SAY_DECISION, "no");
    vs_say(VS_SAY_RESOLVED, "yes");
    assert_non_null(strstr(next(), "yes\n"));
    assert_string_equal(next(), "");
}

static void keeps_a_line_a_line(void **state)
{
    char text[3000];
    const char *line;

    (void)state;
    vs_say(VS_SAY_ERROR, "a\nb\033c");
    assert_non_null(strstr(next(), ": a?b?c\n"));
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    vs_say(VS_SAY_ERROR, "%s", text);
    line = next();
    assert_int_equal(strlen(line), VS_SAY_MAX);
    assert_string_equal(line + strlen(line) - 5, "x...\n");
    assert_string_equal(next(), "");
}

static void say_it(int level)
{
    VS_SAY_ONCE(level, "once");
}

static void says_once(void **state)
{
    (void)state;
    say_it(VS_SAY_RESOLVED); /* not shown: does not count */
    say_it(VS_SAY_ERROR);
    say_it(VS_SAY_ERROR);
    assert_non_null(strstr(next(), "once\n"));
    assert_string_equal(next(), "");
}

static void leaves_a_reused_descriptor_alone(void **state)
{
    char name[] = "/tmp/vramshim-say-XXXXXX";
    int file = mkstemp(name);

    (void)state;
    assert_true(file >= 0);
    unlink(name);
    dup2(file, STDERR_FILENO);
    errno = 0;
    vs_say(VS_SAY_ERROR, "into a database");
    assert_int_equal(errno, 0);
    assert_int_equal(lseek(file, 0, SEEK_END), 0);
    /* A program that starts with descriptor 2 closed has no stderr, whatever comes there later. */
    close(STDERR_FILENO);
    vs_quiet_remember_stderr();
    dup2(file, STDERR_FILENO);
    vs_say(VS_SAY_ERROR, "into a database");
    assert_int_equal(lseek(file, 0, SEEK_END), 0);
    vs_quiet_remember_stderr();
    vs_say(VS_SAY_ERROR, "now");
    assert_true(lseek(file, 0, SEEK_END) > 0);
    close(file);
}

static void raises_no_signal(void **state)
{
    sigset_t before, after, pending;

    (void)state;
    close(reader);
    reader = -1;
    sigprocmask(SIG_SETMASK, NULL, &before);
    errno = 0;
    vs_say(VS_SAY_ERROR, "to nobody"); /* SIGPIPE would end the test */
    assert_int_equal(errno, 0);
    sigpending(&pending);
    assert_false(sigismember(&pending, SIGPIPE));
    sigprocmask(SIG_SETMASK, NULL, &after);
    assert_int_equal(sigismember(&before, SIGPIPE), sigismember(&after, SIGPIPE));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(says_a_line_in_one_write, redirect, restore),
        cmocka_unit_test_setup_teardown(keeps_to_the_level, redirect, restore),
        cmocka_unit_test_setup_teardown(keeps_a_line_a_line, redirect, restore),
        cmocka_unit_test_setup_teardown(says_once, redirect, restore),
        cmocka_unit_test_setup_teardown(leaves_a_reused_descriptor_alone, redirect, restore),
        cmocka_unit_test_setup_teardown(raises_no_signal, redirect, restore),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
