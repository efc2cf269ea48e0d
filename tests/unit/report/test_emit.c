/* The emitter: numbers, sizes, dates, JSON strings (read back by jansson), and writing. */
#include "testing.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "report/emit.h"
#include "report/utf8.h"

static char memory[4096];
static struct vs_out out;

static void start(void)
{
    vs_out_to_memory(&out, memory, sizeof memory - 1);
}

#define SAYS(call, text)                                                                           \
    do {                                                                                           \
        start();                                                                                   \
        call;                                                                                      \
        assert_string_equal(memory, text);                                                         \
    } while (0)

static void numbers(void **unused)
{
    (void)unused;
    SAYS(vs_out_u64(&out, 0), "0");
    SAYS(vs_out_u64(&out, UINT64_MAX), "18446744073709551615");
    SAYS(vs_out_padded(&out, 7, 3), "007");
    SAYS(vs_out_padded(&out, 1234, 3), "1234");
    SAYS(vs_out_grouped(&out, 0), "0");
    SAYS(vs_out_grouped(&out, 999), "999");
    SAYS(vs_out_grouped(&out, 1000), "1,000");
    SAYS(vs_out_grouped(&out, UINT64_MAX), "18,446,744,073,709,551,615");
    SAYS(vs_out_ratio(&out, 1, 3, 4), "0.3333");
    SAYS(vs_out_ratio(&out, 2, 3, 4), "0.6667");
    SAYS(vs_out_ratio(&out, 99999, 100000, 4), "1.0000");
    SAYS(vs_out_ratio(&out, 1, 2, 0), "1");
    SAYS(vs_out_ratio(&out, UINT64_MAX, UINT64_MAX, 9), "1.000000000");
    SAYS(vs_out_ratio(&out, UINT64_MAX - 1, UINT64_MAX, 4), "1.0000");
    SAYS(vs_out_ratio(&out, 5, UINT64_MAX, 4), "0.0000");
}

static void sizes(void **unused)
{
    (void)unused;
    SAYS(vs_out_bytes(&out, 0), "0 B");
    SAYS(vs_out_bytes(&out, 1023), "1023 B");
    SAYS(vs_out_bytes(&out, 1024), "1.00 KiB");
    SAYS(vs_out_bytes(&out, 40u << 20), "40.0 MiB");
    SAYS(vs_out_bytes(&out, 512u << 20), "512 MiB");
    SAYS(vs_out_bytes(&out, 1023u << 20), "1023 MiB");
    SAYS(vs_out_bytes(&out, (UINT64_C(1) << 30) - 1), "1.00 GiB");
    SAYS(vs_out_bytes(&out, UINT64_C(5) << 28), "1.25 GiB");
    SAYS(vs_out_bytes(&out, 10475274), "9.99 MiB");
    SAYS(vs_out_bytes(&out, 10485759), "10.0 MiB");
    SAYS(vs_out_bytes(&out, UINT64_MAX), "16.0 EiB");
    assert_true(vs_bytes_exact(0));
    assert_true(vs_bytes_exact(1 << 20));
    assert_true(vs_bytes_exact((1 << 20) + (1 << 19)));
    assert_false(vs_bytes_exact((1 << 20) + 1));
    assert_true(vs_bytes_exact(1023));
    assert_false(vs_bytes_exact(1025));
}

static void times(void **unused)
{
    (void)unused;
    SAYS(vs_out_duration(&out, 0), "0.0 ms");
    SAYS(vs_out_duration(&out, 999999999), "999.9 ms");
    SAYS(vs_out_duration(&out, 1000000000), "1.0 s");
    SAYS(vs_out_duration(&out, 59999999999), "59.9 s");
    SAYS(vs_out_duration(&out, 306000000000), "5 min 06 s");
    SAYS(vs_out_duration(&out, UINT64_C(25680000000000)), "7 h 08 min");
    SAYS(vs_out_utc(&out, 0), "1970-01-01T00:00:00.000Z");
    SAYS(vs_out_utc(&out, UINT64_C(951782400000000000)), "2000-02-29T00:00:00.000Z");
    SAYS(vs_out_utc(&out, UINT64_C(4107542399999999999)), "2100-02-28T23:59:59.999Z");
    SAYS(vs_out_utc(&out, UINT64_C(4107542400000000000)), "2100-03-01T00:00:00.000Z");
}

/* Every day of four centuries, against libc. */
static void dates(void **unused)
{
    (void)unused;
    for (time_t day = 0; day < 146097; day++) {
        char want[64];
        struct tm tm;
        time_t at = day * 86400 + 3723;
        gmtime_r(&at, &tm);
        strftime(want, sizeof want, "%Y-%m-%dT%H:%M:%S.000Z", &tm);
        if (at > INT64_C(18000000000)) /* beyond 2540, 64-bit nanoseconds end */
            break;
        SAYS(vs_out_utc(&out, (uint64_t)at * 1000000000u), want);
    }
}

static void json_of(const char *text)
{
    struct vs_json json;
    start();
    vs_json_init(&json, &out);
    vs_json_object(&json, NULL, false);
    vs_json_str(&json, "s", text);
    vs_json_end(&json);
}

static void json_says(const char *text, const char *want)
{
    json_error_t error;
    json_of(text);
    json_t *root = json_loads(memory, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        fail_msg("%s in %s", error.text, memory);
    assert_string_equal(json_string_value(json_object_get(root, "s")), want);
    json_decref(root);
}

static void json_strings(void **unused)
{
    (void)unused;
    char all[40] = {0};
    for (int c = 1; c < 0x20; c++)
        all[c - 1] = (char)c;
    json_says(all, all);
    json_says("\"\\/\x7f", "\"\\/\x7f");
    json_says("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
    json_says("a\xff"
              "b",
              "a\xef\xbf\xbd"
              "b");
    json_says("\xc3", "\xef\xbf\xbd");
    json_says("\xe2\x82", "\xef\xbf\xbd\xef\xbf\xbd");
    json_says("\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"); /* a surrogate */
    json_says("\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd");                 /* overlong */
    json_says("\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
    SAYS(vs_out_foreign(&out, "a\033[31m\n\xc2\x9b\xffz"), "a?[31m??\xef\xbf\xbdz");
}

/* Random bytes never make invalid JSON. */
static void json_random(void **unused)
{
    (void)unused;
    uint64_t random = testing_seed();
    for (int round = 0; round < 20000; round++) {
        char text[33] = {0};
        for (int i = 0; i < 32; i++)
            text[i] = (char)(testing_random(&random) >> 24 | (round % 2 ? 0x80 : 0));
        json_error_t error;
        json_of(text);
        json_t *root = json_loads(memory, 0, &error);
        if (!root)
            fail_msg("%s in %s", error.text, memory);
        json_decref(root);
    }
}

static void json_shapes(void **unused)
{
    (void)unused;
    struct vs_json json;
    start();
    vs_json_init(&json, &out);
    vs_json_object(&json, NULL, false);
    vs_json_array(&json, "empty", false);
    vs_json_end(&json);
    vs_json_array(&json, "rows", false);
    vs_json_array(&json, NULL, true);
    vs_json_u64(&json, NULL, UINT64_MAX);
    vs_json_i64(&json, NULL, INT64_MIN);
    vs_json_object(&json, NULL, false);
    vs_json_bool(&json, "t", true);
    vs_json_end(&json);
    vs_json_end(&json);
    vs_json_end(&json);
    vs_json_ratio(&json, "half", 1, 2);
    vs_json_ratio(&json, "none", 1, 0);
    vs_json_end(&json);
    assert_string_equal(memory, "{\n"
                                "  \"empty\": [],\n"
                                "  \"rows\": [\n"
                                "    [18446744073709551615, -9223372036854775808, {\"t\": true}]\n"
                                "  ],\n"
                                "  \"half\": 0.5000,\n"
                                "  \"none\": null\n"
                                "}\n");
}

static void json_too_deep(void **unused)
{
    (void)unused;
    struct vs_json json;
    start();
    vs_json_init(&json, &out);
    for (int i = 0; i < 2 * VS_JSON_DEPTH; i++)
        vs_json_array(&json, NULL, false);
    for (int i = 0; i < 2 * VS_JSON_DEPTH; i++)
        vs_json_end(&json);
    assert_int_equal(vs_out_flush(&out), -EOVERFLOW);
}

static void memory_is_cut_off(void **unused)
{
    (void)unused;
    char small[5];
    vs_out_to_memory(&out, small, 4);
    vs_out_str(&out, "abcdef");
    assert_string_equal(small, "abcd");
    assert_int_equal(vs_out_flush(&out), -ENOSPC);
}

/* A reader that takes its time, a descriptor that does not block, and a tiny buffer. */
static void *slow_reader(void *argument)
{
    int fd = *(int *)argument;
    char part[1000];
    size_t total = 0;
    struct timespec nap = {0, 200000};
    for (;;) {
        ssize_t got = read(fd, part, sizeof part);
        if (got <= 0)
            break;
        for (ssize_t i = 0; i < got; i++)
            if (part[i] != (char)('a' + (total + (size_t)i) % 26))
                return (void *)1;
        total += (size_t)got;
        nanosleep(&nap, NULL);
    }
    return total == 200000 ? NULL : (void *)2;
}

static void short_writes(void **unused)
{
    (void)unused;
    int ends[2];
    char buffer[100];
    pthread_t reader;
    void *wrong;
    assert_int_equal(pipe(ends), 0);
    fcntl(ends[1], F_SETPIPE_SZ, 4096);
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    pthread_create(&reader, NULL, slow_reader, &ends[0]);
    vs_out_to_fd(&out, ends[1], buffer, sizeof buffer);
    for (int i = 0; i < 200000; i++)
        vs_out_char(&out, (char)('a' + i % 26));
    assert_int_equal(vs_out_flush(&out), 0);
    close(ends[1]);
    pthread_join(reader, &wrong);
    assert_null(wrong);
    close(ends[0]);
}

static void no_patience(void **unused)
{
    (void)unused;
    int ends[2];
    static char full[100000];
    assert_int_equal(pipe(ends), 0);
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    vs_out_to_fd(&out, ends[1], memory, 100);
    vs_out_raw(&out, full, sizeof full);
    errno = 7;
    assert_int_equal(vs_out_flush(&out), -EAGAIN);
    assert_int_equal(errno, 7);
    close(ends[0]);
    close(ends[1]);
}

static void nobody_reads(void **unused)
{
    (void)unused;
    int ends[2];
    sigset_t pending;
    signal(SIGPIPE, SIG_DFL); /* would end this test */
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    vs_out_to_fd(&out, ends[1], memory, 100);
    vs_out_str(&out, "x");
    assert_int_equal(vs_out_flush(&out), -EPIPE);
    sigpending(&pending);
    assert_int_equal(sigismember(&pending, SIGPIPE), 0);
    sigset_t now;
    sigprocmask(SIG_SETMASK, NULL, &now);
    assert_int_equal(sigismember(&now, SIGPIPE), 0);
    close(ends[1]);
}

static void file_too_large(void **unused)
{
    (void)unused;
    pid_t child = fork();
    int status;
    if (child == 0) {
        struct rlimit limit = {10, 10};
        FILE *f = tmpfile();
        setrlimit(RLIMIT_FSIZE, &limit);
        vs_out_to_fd(&out, fileno(f), memory, 100);
        vs_out_str(&out, "more than ten bytes");
        _exit(vs_out_flush(&out) == -EFBIG ? 0 : 1);
    }
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers),        cmocka_unit_test(sizes),
        cmocka_unit_test(times),          cmocka_unit_test(dates),
        cmocka_unit_test(json_strings),   cmocka_unit_test(json_random),
        cmocka_unit_test(json_shapes),    cmocka_unit_test(json_too_deep),
        cmocka_unit_test(short_writes),   cmocka_unit_test(memory_is_cut_off),
        cmocka_unit_test(no_patience),    cmocka_unit_test(nobody_reads),
        cmocka_unit_test(file_too_large),
    };
    return cmocka_run_group_tests_name("emit", tests, NULL, NULL);
}
