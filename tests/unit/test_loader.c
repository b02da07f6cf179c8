/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clips that threads read ahead: the same clips in the same order with any number of threads and
 * any memory, unreadable clips skipped and counted, and a stop at any time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "../../examples/common/loader.h"
#include "../../examples/common/say.h"

enum { CLIPS = 300, ROWS = 40, LARGEST = 9 * 4 * 5 * 3 };

const char say_program[] = "test_loader";

/* ---- what is said -------------------------------------------------------------------------- */

static char said[8192];
static _Thread_local char *kept;
static _Thread_local size_t kept_room;

static int say(const char *fmt, va_list ap)
{
    char *to = kept ? kept : said;
    size_t n = strlen(to), most = kept ? kept_room : sizeof said;

    if (n + 2 < most) {
        vsnprintf(to + n, most - n - 1, fmt, ap);
        strcat(to, "\n");
    }
    return -1;
}

int say_fail(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    say(fmt, ap);
    va_end(ap);
    return -1;
}

void say_note(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    say(fmt, ap);
    va_end(ap);
}

void say_keep(char *dst, size_t size)
{
    kept = dst;
    kept_room = size;
    if (dst)
        *dst = 0;
}

const char *say_bytes(char dst[32], int64_t bytes)
{
    snprintf(dst, 32, "%lld", (long long)bytes);
    return dst;
}

/* ---- clips of numbers ---------------------------------------------------------------------- */

struct fake {
    int64_t asked, most; /* clips */
    int good;            /* every so many-th row can be read; 0: none */
    bool slow;
    const char *known;
};

static int next(void *user, struct loader_clip *c)
{
    struct fake *f = user;
    int64_t n = f->asked;

    if (n == f->most)
        return 0;
    f->asked++;
    *c = (struct loader_clip){
        .sample = n, .row = n * 7 % ROWS, .frames = 1 + n * n % 9, .height = 1 + n % 4, .width = 5};
    return 1;
}

static int read_row(void *user, struct loader_file *file, const struct loader_clip *c, int64_t row,
                    double *fps)
{
    const struct fake *f = user;

    if (row % 11 == 10)
        return 0; /* has no such clip */
    if (!f->good || row % f->good)
        return say_fail("row %d is bad", (int)row);
    for (int64_t i = 0; i < c->frames * c->height * c->width * 3; i++)
        c->rgb[i] = (uint8_t)(c->sample * 31 + row * 7 + i);
    if (f->slow)
        while (!atomic_load(file->stop))
            usleep(1000);
    *fps = (double)row;
    return f->slow ? -1 : 1;
}

static const char *name(const void *names, int64_t row)
{
    static char text[16];

    assert_string_equal(names, "names");
    snprintf(text, sizeof text, "row-%d", (int)row);
    return text;
}

/* The row that replaces another. */
static int64_t found(int64_t row, int good)
{
    while (row % 11 == 10 || row % good)
        row = (row + 1) % ROWS;
    return row;
}

static struct loader *open_fake(struct fake *f, struct loader_source *s, int64_t workers,
                                int64_t memory, int64_t max_bad)
{
    const struct loader_need need = {LARGEST, 3 * LARGEST, 0};
    const struct loader_options o = {.memory = memory ? memory + workers * (4 << 20) : 0,
                                     .workers = workers,
                                     .max_bad = max_bad};
    struct loader *l;

    *s = (struct loader_source){.next = next,
                                .read = read_row,
                                .rows = ROWS,
                                .user = f,
                                .known = f->known,
                                .name = name,
                                .names = "names"};
    said[0] = 0;
    assert_int_equal(loader_open(&l, &o, &need, s), 0);
    return l;
}

static void check_clip(const struct loader_clip *c, int64_t n, int good)
{
    int64_t row = found(n * 7 % ROWS, good);

    assert_int_equal(c->sample, n);
    assert_int_equal(c->row, row);
    assert_true(c->fps == (double)row);
    for (int64_t i = 0; i < c->frames * c->height * c->width * 3; i++)
        assert_int_equal(c->rgb[i], (uint8_t)(n * 31 + row * 7 + i));
}

static void check_all(int64_t workers, int64_t memory, int good)
{
    struct fake f = {.most = CLIPS, .good = good};
    struct loader_source s;
    struct loader_clip c;
    struct loader *l = open_fake(&f, &s, workers, memory, ROWS);

    for (int64_t n = 0; n < CLIPS; n++) {
        assert_int_equal(loader_take(l, &c), 0);
        check_clip(&c, n, good);
        loader_release(l);
    }
    assert_int_equal(loader_take(l, &c), -1);
    assert_non_null(strstr(said, "no more clips"));
    assert_true(loader_waited(l) > 0);
    assert_true(loader_waited(l) == 0);
    loader_close(l);
}

static void test_order(void **state)
{
    (void)state;
    for (int64_t workers = 1; workers <= 8; workers += workers > 1 ? 3 : 1)
        for (int64_t memory = LARGEST; memory < 40 * LARGEST; memory = memory * 3 + 1) {
            check_all(workers, memory, 1);
            check_all(workers, memory, 3);
        }
    check_all(2, 0, 1);
}

/* ---- bad rows ------------------------------------------------------------------------------ */

static int count(const char *what)
{
    int n = 0;

    for (const char *at = said; (at = strstr(at, what)); at++)
        n++;
    return n;
}

/* Each unreadable row is named once, in the order of discovery. */
static void test_bad(void **state)
{
    struct fake f = {.most = 200, .good = 2};
    struct loader_source s;
    struct loader_clip c;
    struct loader *l = open_fake(&f, &s, 3, 0, 19);

    (void)state;
    for (int64_t n = 0; n < 200; n++) {
        assert_int_equal(loader_take(l, &c), 0);
        check_clip(&c, n, 2);
        loader_release(l);
    }
    loader_close(l);
    assert_int_equal(count("row 7 is bad\n"), 1);
    assert_true(strstr(said, "row 7 is") < strstr(said, "row 1 is"));
    int bad = count("is bad");
    assert_true(bad > 15 && bad < 20);

    f = (struct fake){.most = 200, .good = 2};
    l = open_fake(&f, &s, 3, 0, 4);
    int64_t n = 0;
    while (!loader_take(l, &c) && n++ < 200)
        loader_release(l);
    assert_int_equal(n, 9); /* rows 0 7 14 21 28 35 2 9 16 23: the fifth bad one is 23 */
    assert_int_equal(count("is bad"), 5);
    assert_int_equal(count("more than --max-bad 4"), 1);
    loader_close(l);

    f = (struct fake){.most = 200, .good = 0};
    l = open_fake(&f, &s, 3, 0, 100);
    assert_int_equal(loader_take(l, &c), -1);
    assert_int_equal(count("no clip can be read"), 1);
    loader_close(l);
}

/* A run that resumes with the list of another: no row is named twice, and the count continues. */
static void test_known(void **state)
{
    struct fake f = {.most = 10, .good = 2};
    struct loader_source s;
    struct loader_clip c;
    struct loader *l = open_fake(&f, &s, 3, 0, 19);
    char known[256];

    (void)state;
    assert_string_equal(loader_bad(l), "");
    for (int n = 0; n < 10; n++) {
        assert_int_equal(loader_take(l, &c), 0);
        loader_release(l);
    }
    strcpy(known, loader_bad(l));
    assert_string_equal(known, "7 row-7\n35 row-35\n9 row-9\n11 row-11\n23 row-23\n");
    assert_string_equal(loader_bad(l), known);
    loader_close(l);

    f = (struct fake){.most = 11, .good = 2, .known = known};
    l = open_fake(&f, &s, 3, 0, 5);
    assert_string_equal(loader_bad(l), known);
    for (int n = 0; n < 11; n++) {
        assert_int_equal(loader_take(l, &c), 0);
        check_clip(&c, n, 2);
        loader_release(l);
    }
    assert_int_equal(count("is bad"), 0);
    loader_close(l);
    f = (struct fake){.most = 20, .good = 2, .known = known};
    l = open_fake(&f, &s, 3, 0, 5);
    int n = 0;
    while (!loader_take(l, &c) && n++ < 20)
        loader_release(l);
    assert_int_equal(n, 11); /* the next bad one, row 37, is the sixth */
    assert_int_equal(count("is bad"), 1);
    loader_close(l);

    /* A list of other data, or no list at all: nothing is known. */
    f = (struct fake){.most = 2, .good = 2, .known = "7 row-8\n99 row-99\n-1 x\nrow\n\n 7\n7row-7"};
    l = open_fake(&f, &s, 1, 0, 5);
    assert_string_equal(loader_bad(l), "");
    for (n = 0; n < 2; n++) {
        assert_int_equal(loader_take(l, &c), 0);
        loader_release(l);
    }
    assert_int_equal(count("row 7 is bad"), 1);
    loader_close(l);

    /* A row found by another rank counts once and is not named again. */
    f = (struct fake){.most = 10, .good = 2};
    l = open_fake(&f, &s, 3, 0, 6);
    loader_take_bad(l, "3 row-3\n7 row-7\n");
    loader_take_bad(l, "7 row-7\n");
    for (n = 0; n < 10; n++) {
        assert_int_equal(loader_take(l, &c), 0);
        loader_release(l);
    }
    assert_string_equal(loader_bad(l),
                        "3 row-3\n7 row-7\n35 row-35\n9 row-9\n11 row-11\n23 row-23\n");
    assert_int_equal(count("row 7 is bad"), 0);
    loader_close(l);
}

/* ---- ends ---------------------------------------------------------------------------------- */

static void test_end(void **state)
{
    struct fake f = {.most = CLIPS, .good = 1, .slow = true};
    struct loader_source s;
    struct loader_clip c;

    (void)state;
    loader_close(open_fake(&f, &s, 4, 2 * LARGEST, 0)); /* while they read, and wait for room */
    f = (struct fake){.most = CLIPS, .good = 1};
    struct loader *l = open_fake(&f, &s, 4, 2 * LARGEST, 0);
    assert_int_equal(loader_take(l, &c), 0);
    loader_close(l);
    for (int i = 0; i < 50; i++) { /* none, whether threads or the trainer come first */
        f = (struct fake){.most = 0};
        l = open_fake(&f, &s, 4, 0, 0);
        assert_int_equal(loader_take(l, &c), -1);
        loader_close(l);
    }
    loader_close(NULL);
}

static void test_divide(void **state)
{
    const struct loader_need need = {1000, 2500, 100};
    struct loader_options o = {.workers = 3};
    struct loader_room room;

    (void)state;
    assert_int_equal(loader_divide(&o, &need, &room), 0);
    assert_int_equal(room.clips, 5000);
    int64_t decoders = 3 * room.decoder;
    o.memory = decoders + 1000;
    assert_int_equal(loader_divide(&o, &need, &room), 0);
    assert_int_equal(room.clips, 1000);
    o.memory--;
    said[0] = 0;
    assert_int_equal(loader_divide(&o, &need, &room), -1);
    assert_non_null(strstr(said, "--loader-memory"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order), cmocka_unit_test(test_bad),    cmocka_unit_test(test_known),
        cmocka_unit_test(test_end),   cmocka_unit_test(test_divide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
