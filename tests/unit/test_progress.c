/* SPDX-License-Identifier: Apache-2.0 */
/* The progress line: plain lines into a file, and one line drawn over on a pseudo-terminal. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "ckpt_tools.h"

/* The output of a run of steps to a file, with a final zero. */
static void plain_run(char *text, size_t size, const char *what, int64_t total, int64_t from,
                      int64_t to)
{
    FILE *f = tmpfile();

    assert_non_null(f);
    ckpt_progress *pr = ckpt_progress_open(f, what, total);
    assert_non_null(pr);
    for (int64_t i = from; i <= to; i++)
        ckpt_progress_step(pr, i, 1.0 / (double)i, (int64_t)5 << 28);
    ckpt_progress_close(pr);
    rewind(f);
    size_t n = fread(text, 1, size - 1, f);
    text[n] = 0;
    fclose(f);
}

static int count(const char *text, char ch)
{
    int n = 0;

    for (; *text; text++)
        n += *text == ch;
    return n;
}

static void test_plain_lines(void **state)
{
    (void)state;
    char text[16384];

    plain_run(text, sizeof(text), "train", 1000, 1, 1000);
    assert_int_equal(count(text, '\n'), 21); /* the first, then one per 5 % */
    assert_int_equal(count(text, '\r'), 0);
    assert_int_equal(count(text, '\033'), 0);
    assert_non_null(strstr(text, "train:   0% 1/1000 ["));
    assert_non_null(strstr(text, "train:  50% 500/1000 ["));
    assert_non_null(strstr(text, "train: 100% 1000/1000 ["));
    assert_non_null(strstr(text, "loss 0.002"));
    assert_non_null(strstr(text, "1.25 GiB]\n"));
    assert_non_null(strstr(text, " steps/s"));
    assert_int_equal(text[strlen(text) - 1], '\n');
}

static void test_last_line_always(void **state)
{
    (void)state;
    char text[16384];

    plain_run(text, sizeof(text), "train", 1000, 1, 7);
    assert_int_equal(count(text, '\n'), 2);
    assert_non_null(strstr(text, " 7/1000 ["));
    plain_run(text, sizeof(text), "train", 1, 1, 1);
    assert_int_equal(count(text, '\n'), 1);
    plain_run(text, sizeof(text), "train", 10, 1, 0);
    assert_string_equal(text, "");
}

static void test_resumed_run(void **state)
{
    (void)state;
    char text[16384];

    plain_run(text, sizeof(text), "train", 1000, 991, 1000);
    assert_non_null(strstr(text, "train:  99% 991/1000 ["));
    assert_non_null(strstr(text, "train: 100% 1000/1000 ["));
    assert_int_equal(count(text, '\n'), 2);
}

static void test_unknown_total(void **state)
{
    (void)state;
    char text[16384];

    plain_run(text, sizeof(text), NULL, 0, 1, 50);
    assert_int_equal(count(text, '\n'), 2);
    assert_int_equal(count(text, '%'), 0);
    assert_memory_equal(text, "1 [00:00, loss 1, ", 18);
    assert_non_null(strstr(text, "\n50 [00:0"));
}

static void test_odd_values(void **state)
{
    (void)state;
    char text[4096];
    FILE *f = tmpfile();
    ckpt_progress *pr = ckpt_progress_open(f, "x", 10);

    ckpt_progress_step(pr, 20, NAN, 0);
    ckpt_progress_step(pr, 0, 1e300, -1);
    ckpt_progress_close(pr);
    rewind(f);
    text[fread(text, 1, sizeof(text) - 1, f)] = 0;
    fclose(f);
    assert_non_null(strstr(text, "x: 100% 20/10 ["));
    assert_null(strstr(text, "nan")); /* no loss, none is shown */
    assert_non_null(strstr(text, "loss 1e+300]"));
}

static void test_nothing_to_write_to(void **state)
{
    (void)state;
    assert_null(ckpt_progress_open(NULL, "x", 10));
    ckpt_progress_step(NULL, 1, 1, 1);
    ckpt_progress_close(NULL);
}

static void test_plan_lines(void **state)
{
    (void)state;
    char text[4096];
    FILE *f = tmpfile();
    assert_non_null(f);
    for (int seconds = 0; seconds <= 30; seconds++)
        ckpt_progress_plan(f, seconds);
    ckpt_progress_plan(NULL, 2);
    rewind(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    assert_string_equal(text, "planning: 2 s\nplanning: 5 s\nplanning: 10 s\nplanning: 20 s\n"
                              "planning: 30 s\n");
}

/* The write end of a new pseudo-terminal, *master its read end; NULL if there is none. */
static FILE *open_terminal(int *master)
{
    struct termios raw;

    *master = posix_openpt(O_RDWR | O_NOCTTY);
    if (*master < 0 || grantpt(*master) || unlockpt(*master))
        return NULL;
    /* Too much output must fail the test, not block it. */
    int fd = open(ptsname(*master), O_RDWR | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 || tcgetattr(fd, &raw))
        return NULL;
    cfmakeraw(&raw);
    tcsetattr(fd, TCSANOW, &raw);
    fcntl(*master, F_SETFL, O_NONBLOCK);
    return fdopen(fd, "w");
}

static void terminal_run(char *text, size_t size, const char *term)
{
    int master;
    FILE *f = open_terminal(&master);
    ssize_t n;

    if (!f)
        skip();
    setenv("TERM", term, 1);
    ckpt_progress *pr = ckpt_progress_open(f, "train", 1000);
    for (int64_t i = 1; i <= 1000; i++)
        ckpt_progress_step(pr, i, 0.5, 0);
    ckpt_progress_close(pr);
    size_t have = 0;
    while (have < size - 1 && (n = read(master, text + have, size - 1 - have)) > 0)
        have += (size_t)n;
    text[have] = 0;
    fclose(f);
    close(master);
}

static void test_terminal(void **state)
{
    (void)state;
    char text[16384];
    time_t start = time(NULL);

    terminal_run(text, sizeof(text), "xterm");
    /* At most 10 drawings a second, the first and the last; the clock here ticks in seconds. */
    assert_in_range(count(text, '\r'), 2, 2 + 10 * (time(NULL) - start + 1));
    assert_int_equal(count(text, '\n'), 1);
    assert_int_equal(count(text, '\033'), 0);
    assert_int_equal(text[0], '\r');
    assert_non_null(strstr(text, "\rtrain:   0% |"));
    assert_non_null(strstr(text, "\rtrain: 100% |#####"));
    assert_non_null(strstr(text, "#| 1000/1000 ["));
    for (const char *s = text; (s = strchr(s, '\r')); s++)
        assert_in_range(strcspn(s + 1, "\r\n"), 1, 79);
}

static void test_dumb_terminal(void **state)
{
    (void)state;
    char text[16384];

    terminal_run(text, sizeof(text), "dumb");
    assert_int_equal(count(text, '\r'), 0);
    assert_int_equal(count(text, '\n'), 21);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_lines), cmocka_unit_test(test_last_line_always),
        cmocka_unit_test(test_resumed_run), cmocka_unit_test(test_unknown_total),
        cmocka_unit_test(test_odd_values),  cmocka_unit_test(test_nothing_to_write_to),
        cmocka_unit_test(test_terminal),    cmocka_unit_test(test_dumb_terminal),
        cmocka_unit_test(test_plan_lines),
    };

    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
