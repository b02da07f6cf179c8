/* SPDX-License-Identifier: Apache-2.0 */
/* Plan files: a round trip gives the same bytes, damage gives a clear message, and unnoticed damage
 * still gives a valid plan. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "graphs.h"

#define MOST 400000

static char path[64];

static size_t slurp(const char *name, char *text)
{
    FILE *f = fopen(name, "rb");
    assert_non_null(f);
    size_t n = fread(text, 1, MOST - 1, f);
    text[n] = '\0';
    fclose(f);
    return n;
}

static void spill(const char *text, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* Writes the smallest plan of g to path and text. */
static size_t write_smallest(const struct graph *g, char *text)
{
    struct plan *all = plan_checked(g, INT64_MAX), *p = plan_checked(g, all->min_budget);
    assert_int_equal(plan_write(g, p, path), 0);
    plan_free(all);
    plan_free(p);
    return slurp(path, text);
}

static void test_round_trip(void **state)
{
    (void)state;
    char *before = malloc(MOST), *after = malloc(MOST);
    for (int i = 0; i < 3; i++) {
        struct graph *g = i == 0   ? graph_chain(8, 1 << 12)
                          : i == 1 ? graph_transformer(1, 1 << 14, 2)
                                   : graph_random(12, 20);
        g->storages[1].name[0] = '\n'; /* a name cannot break a line */
        struct plan *p;
        write_smallest(g, before);
        assert_int_equal(plan_read(g, path, &p), 0);
        assert_int_equal(plan_check(g, p), 0);
        assert_int_equal(plan_write(g, p, path), 0);
        slurp(path, after);
        assert_string_equal(before, after);
        p->budgets.device = INT64_MAX;
        assert_int_equal(plan_write(g, p, path), 0);
        plan_free(p);
        assert_int_equal(plan_read(g, path, &p), 0);
        assert_true(p->budgets.device == INT64_MAX);
        plan_free(p);
        graph_free(g);
    }
    free(before);
    free(after);
}

/* Replaces the first old by new in text and expects an error with these words. */
static void expect_error(const struct graph *g, const char *text, const char *old,
                         const char *replacement, int code, const char *what)
{
    char *damaged = malloc(MOST);
    const char *at = strstr(text, old);
    assert_non_null(at);
    snprintf(damaged, MOST, "%.*s%s%s", (int)(at - text), text, replacement, at + strlen(old));
    spill(damaged, strlen(damaged));
    struct plan *p;
    assert_int_equal(plan_read(g, path, &p), code);
    assert_null(p);
    if (!strstr(error_get(), what))
        fail_msg("expected \"%s\" in \"%s\"", what, error_get());
    free(damaged);
}

static void test_messages(void **state)
{
    (void)state;
    struct graph *g = graph_chain(8, 1 << 12), *other = graph_chain(9, 1 << 12);
    char *text = malloc(MOST);
    write_smallest(g, text);
    const char *number = "line 8: expected persistent, a number from 0 to";
    const char *version = "line 1: plan files of version 3 cannot be read, only those of version 4";
    expect_error(g, text, "plan 4\n", "plan 3\n", CKPT_EFORMAT, version);
    expect_error(g, text, "plan 4\n", "plan 5\n", CKPT_EFORMAT, "again with --plan-out");
    expect_error(g, text, "libckpt-", "", CKPT_EFORMAT, "line 1: a plan file begins");
    expect_error(g, text, "signature ", "signature x", CKPT_EFORMAT, "16 hex digits");
    expect_error(g, text, "budget ", "budget -", CKPT_EFORMAT,
                 "line 3: expected a budget, a number");
    expect_error(g, text, "persistent 0", "persistent 00", CKPT_EFORMAT, number);
    expect_error(g, text, "persistent 0", "persistent 0 ", CKPT_EFORMAT, "the end of the line");
    expect_error(g, text, "persistent 0", "persistent -0", CKPT_EFORMAT, number);
    expect_error(g, text, "persistent 0", "persistent 9223372036854775808", CKPT_EFORMAT, number);
    expect_error(g, text, "persistent 0", "persistent 99999999999999999999", CKPT_EFORMAT, number);
    expect_error(g, text, "persistent 0", "persistent", CKPT_EFORMAT,
                 "expected persistent, a number");
    expect_error(g, text, "transient", "transients", CKPT_EFORMAT,
                 "line 9: expected \"transient\"");
    expect_error(g, text, "\nseconds 0", "\nseconds nan0", CKPT_EFORMAT, "a time in seconds");
    expect_error(g, text, "\nseconds 0", "\nseconds -0", CKPT_EFORMAT, "a time in seconds");
    expect_error(g, text, "\nseconds 0", "\nseconds 1e9990", CKPT_EFORMAT, "a time in seconds");
    expect_error(g, text, "run 0", "walk 0", CKPT_EFORMAT,
                 "line 27: expected run, again, host, both or next");
    expect_error(g, text, "run 0", "run 17", CKPT_EFORMAT, "line 27: expected an op, a number");
    expect_error(g, text, "run 0  #", "run 0 #", CKPT_EFORMAT, "and a name");
    expect_error(g, text, "\nend\n", "\n", CKPT_EFORMAT, "the file ends too early");
    expect_error(g, text, "\nend\n", "\nend", CKPT_EFORMAT, "expected a line of text");
    expect_error(g, text, "\nend\n", "\nend\n\n", CKPT_EFORMAT, "something follows the end");
    expect_error(other, text, "end", "end", CKPT_EPLAN, "another program");
    free(text);
    graph_free(g);
    graph_free(other);
}

/* A committed file with all features: residences that continue in the next step, both tiers, state
 * on the host, copies to its steps and back.  It does not count the slots that stage transfers of
 * NVMe, by which its host budget is too small. */
static void test_committed(void **state)
{
    (void)state;
    struct graph *g = graph_transformer(1, 1 << 14, 1);
    const char *srcdir = getenv("srcdir");
    char *before = malloc(MOST), *now, name[4096];
    struct plan *p;
    size_t size;
    snprintf(name, sizeof(name), "%s/tests/data/planner/version-4.plan", srcdir ? srcdir : ".");
    if (plan_read(g, name, &p))
        fail_msg("%s", error_get());
    assert_int_equal(plan_check(g, p), CKPT_EPLAN);
    assert_non_null(strstr(error_get(), "65536 more than its budget"));
    slurp(name, before);
    assert_int_equal(plan_print(g, p, &now, &size), 0);
    assert_string_equal(now, before);
    assert_non_null(strstr(now, "\ncopy "));
    free(now);
    p->budgets.host += 98304; /* slots take a quarter of it */
    if (plan_check(g, p))
        fail_msg("%s", error_get());
    plan_free(p);
    free(before);
    graph_free(g);
}

/* Algorithm choices are part of a plan, and can be read without the graph. */
static void test_pins(void **state)
{
    (void)state;
    char *before = malloc(MOST), *after = malloc(MOST);
    struct graph *g = graph_chain(8, 1 << 12);
    struct plan *p = plan_checked(g, INT64_MAX), *q;
    struct algorithms algorithms = {0};
    assert_int_equal(algorithms_set(&algorithms, 3, "the device had this one"), 0);
    assert_int_equal(algorithms_set(&algorithms, 7, "and another for this"), 0);
    assert_int_equal(algorithms_set(&p->algorithms, UINT64_MAX, "algorithm 1 2 ff"), 0);
    assert_int_equal(algorithms_set(&p->algorithms, 7, "end"), 0);
    assert_int_equal(plan_write(g, p, path), 0);
    slurp(path, before);
    assert_non_null(strstr(before, "\npin 0000000000000007 end\npin ffffffffffffffff algorithm 1 2 "
                                   "ff\nend\n"));
    assert_int_equal(plan_read(g, path, &q), 0);
    assert_int_equal(q->algorithms.n, 2);
    assert_int_equal(plan_check(g, q), 0);
    assert_int_equal(plan_write(g, q, path), 0);
    slurp(path, after);
    assert_string_equal(before, after);
    assert_int_equal(plan_read_algorithms(path, &algorithms), 0);
    assert_int_equal(algorithms.n, 3);
    assert_string_equal(algorithms_get(&algorithms, 7), "end");
    assert_string_equal(algorithms_get(&algorithms, UINT64_MAX), "algorithm 1 2 ff");
    expect_error(g, before, "pin 0", "pin ", CKPT_EFORMAT, "expected pin, a key");
    expect_error(g, before, " end\n", "\n", CKPT_EFORMAT, "expected pin, a key");
    expect_error(g, before, "pin 0", "pins 0", CKPT_EFORMAT, "expected \"end\"");
    spill("pin 7 x\nend\n", 12);
    assert_int_equal(plan_read_algorithms(path, &algorithms), CKPT_EFORMAT);
    spill("pin", 3);
    assert_int_equal(plan_read_algorithms(path, &algorithms), CKPT_EFORMAT);
    assert_int_equal(plan_read_algorithms("/nonexistent/plan", &algorithms), CKPT_EIO);
    assert_int_equal(algorithms.n, 3);
    algorithms_free(&algorithms);
    plan_free(p);
    plan_free(q);
    graph_free(g);
    free(before);
    free(after);
}

static void test_no_file(void **state)
{
    (void)state;
    struct graph *g = graph_chain(2, 1 << 12);
    struct plan *p = plan_checked(g, INT64_MAX), *q;
    assert_int_equal(plan_read(g, "/nonexistent/plan", &q), CKPT_EIO);
    assert_non_null(strstr(error_get(), "/nonexistent/plan"));
    assert_int_equal(plan_read(g, "/", &q), CKPT_EIO);
    assert_int_equal(plan_write(g, p, "/nonexistent/plan"), CKPT_EIO);
    assert_non_null(strstr(error_get(), "/nonexistent/plan"));
    if (!access("/dev/full", W_OK))
        assert_int_equal(plan_write(g, p, "/dev/full"), CKPT_EIO);
    plan_free(p);
    graph_free(g);
}

static void test_truncated(void **state)
{
    (void)state;
    struct graph *g = graph_chain(4, 1 << 12);
    char *text = malloc(MOST);
    size_t n = write_smallest(g, text);
    for (size_t cut = 0; cut < n; cut += 3) {
        struct plan *p;
        spill(text, cut);
        assert_int_equal(plan_read(g, path, &p), CKPT_EFORMAT);
    }
    free(text);
    graph_free(g);
}

/* A damaged plan is refused by the reader or the checker, or is still a plan. */
static void try_damaged(const struct graph *g, int *seen, int *sound)
{
    struct plan *p;
    int rc = plan_read(g, path, &p);
    if (rc) {
        assert_true(rc == CKPT_EFORMAT || rc == CKPT_EPLAN);
        assert_true(error_get()[0] != '\0');
        ++*seen;
        return;
    }
    rc = plan_check(g, p);
    assert_true(rc == 0 || rc == CKPT_EPLAN);
    *seen += rc != 0;
    *sound += rc == 0;
    plan_free(p);
}

static uint32_t draw(uint32_t *state, uint32_t n)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % n;
}

static void test_mutations(void **state)
{
    (void)state;
    struct graph *g = graph_chain(6, 1 << 12);
    char *text = malloc(MOST), *damaged = malloc(MOST);
    size_t n = write_smallest(g, text);
    uint32_t x = 7;
    int seen = 0, sound = 0;
    for (int i = 0; i < 2000; i++) {
        memcpy(damaged, text, n);
        for (uint32_t k = draw(&x, 2) + 1; k > 0; k--) {
            size_t at = draw(&x, (uint32_t)n);
            damaged[at] =
                draw(&x, 2) ? (char)('0' + draw(&x, 10)) : (char)(damaged[at] ^ (1 << draw(&x, 8)));
        }
        spill(damaged, n);
        try_damaged(g, &seen, &sound);
    }
    assert_true(seen > 500 && sound > 50); /* names, seconds and the like may change */
    free(text);
    free(damaged);
    graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_messages),
        cmocka_unit_test(test_committed),  cmocka_unit_test(test_no_file),
        cmocka_unit_test(test_truncated),  cmocka_unit_test(test_mutations),
        cmocka_unit_test(test_pins),
    };
    snprintf(path, sizeof(path), "test_plan_file.%ld", (long)getpid());
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove(path);
    return failed;
}
