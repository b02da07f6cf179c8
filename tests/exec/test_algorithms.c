/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Library algorithms are stored in plans and machine files.  On a device whose libraries select
 * some (the CPU with its own list), --plan-out and --machine-out write them, --plan-in and
 * --machine restore them before a kernel runs, and all ranks use rank 0's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "context/context.h"
#include "dist/rank_threads.h"
#include "exec/tiny.h"
#include "algorithms.h"

static struct algorithms chosen[2]; /* per rank */
static char path[] = "test_algorithms.tmp-XXXXXX", machine[] = "test_algorithms.tmp-XXXXXX",
            machine_out[] = "test_algorithms.tmp-XXXXXX";

static struct algorithms *first_algorithms(struct device *d)
{
    (void)d;
    return &chosen[0];
}

static struct algorithms *second_algorithms(struct device *d)
{
    (void)d;
    return &chosen[1];
}

/* Replaces the context's device calls by `own`, so that the device selects algorithms. */
static void let_choose(ckpt *c, int rank, struct device_ops *own)
{
    *own = *c->memory.device->ops;
    own->algorithms = rank ? second_algorithms : first_algorithms;
    c->memory.device->ops = own;
}

/* As a kernel call: uses the file's choice for this key, otherwise this one. */
static void use(struct algorithms *p, uint64_t key, const char *choice,
                enum algorithm_origin origin)
{
    const char *given = algorithms_get(p, key);
    assert_int_equal(
        algorithms_put(p, key, given ? given : choice, given ? ALGORITHM_TAKEN : origin), 0);
}

static void forget(void)
{
    algorithms_free(&chosen[0]);
    algorithms_free(&chosen[1]);
}

/* Simulates the kernels after a compile; NULL: nothing. */
static void (*kernels)(struct algorithms *p);

/* Compiles for a device that selects algorithms and runs `steps` steps.  Returns ckpt_compile's
 * code and prints the plan to text. */
static int compile(const struct ckpt_options *o, int steps, char *text, size_t size)
{
    struct tiny m = {.batch = 2, .length = 8, .width = 16, .heads = 2};
    struct ckpt_adamw a = tiny_adamw();
    struct device_ops ops;
    ckpt_program *p;
    ckpt *c;
    assert_int_equal(ckpt_open(&c, o), 0);
    const struct device_ops *plain = c->memory.device->ops;
    let_choose(c, 0, &ops);
    tiny_create(&m, c);
    int rc = ckpt_compile(c, tiny_record, &m, ckpt_adamw(c, &a), m.batch, &p);
    if (kernels)
        kernels(&chosen[0]);
    FILE *f = fmemopen(text, size, "w");
    assert_non_null(f);
    if (rc)
        fputs(ckpt_error(c), f);
    else
        ckpt_plan_print(p, f);
    fclose(f);
    float x[2 * 8 * 16] = {0}, loss;
    for (int i = 0; i < steps; i++) {
        assert_int_equal(ckpt_feed(p, "x", x, sizeof x), 0);
        assert_int_equal(ckpt_feed(p, "c", x, 2 * 16 * sizeof *x), 0);
        assert_int_equal(ckpt_step(p, &loss), 0);
    }
    c->memory.device->ops = plain;
    ckpt_close(c);
    return rc;
}

static void use_five(struct algorithms *p)
{
    use(p, 5, "", ALGORITHM_PROPOSED);
    p->ignored = 1;
}

static void test_plan(void **state)
{
    char text[8192];
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    (void)state;
    o.device = "cpu";
    o.plan_out = path;
    assert_int_equal(compile(&o, 0, text, sizeof text), 0);
    assert_null(strstr(text, "algorithms"));
    use(&chosen[0], 5, "five", ALGORITHM_PROPOSED);
    use(&chosen[0], 6, "six", ALGORITHM_FASTER);
    assert_int_equal(algorithms_set(&chosen[0], 7, "of another program"), 0);
    assert_int_equal(compile(&o, 0, text, sizeof text), 0);
    assert_non_null(strstr(text,
                           "algorithms                          2  of matrix products, 1 measured "
                           "to be faster than those proposed\n"));
    forget();
    o.plan_out = NULL;
    o.plan_in = path;
    assert_int_equal(compile(&o, 0, text, sizeof text), 0);
    assert_null(strstr(text, "algorithms")); /* nothing has used them */
    assert_int_equal(chosen[0].n, 2);
    assert_string_equal(algorithms_get(&chosen[0], 5), "five");
    kernels = use_five;
    assert_int_equal(compile(&o, 0, text, sizeof text), 0);
    kernels = NULL;
    assert_non_null(strstr(text, "1  of matrix products, 1 named in a file; 1 named in a file are "
                                 "not for this card"));
    forget();
}

/* Writes a copy of the machine file `cpu` with these algorithms. */
static void write_machine(const char *const *choices, int n)
{
    struct machine m;
    assert_int_equal(machine_read("cpu", &m), 0);
    for (int i = 0; i < n; i++)
        assert_int_equal(algorithms_set(&m.algorithms, 10 + (uint64_t)i, choices[i]), 0);
    assert_int_equal(machine_write(&m, machine), 0);
    machine_free(&m);
}

/* Algorithms of a machine file are known before a kernel runs; a plan's take precedence. */
static void test_machine(void **state)
{
    static const char *const choices[] = {"ten", "eleven", "twelve"};
    char text[8192];
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    (void)state;
    write_machine(choices, 3);
    o.device = "cpu";
    o.machine = machine;
    assert_int_equal(compile(&o, 0, text, sizeof text), 0);
    assert_int_equal(chosen[0].n, 3);
    assert_string_equal(algorithms_get(&chosen[0], 12), "twelve");
    forget();
    use(&chosen[0], 10, "planned", ALGORITHM_PROPOSED);
    o.machine = NULL;
    o.plan_out = path;
    assert_int_equal(compile(&o, 0, text, sizeof text), 0);
    forget();
    o.machine = machine;
    o.plan_out = NULL;
    o.plan_in = path;
    assert_int_equal(compile(&o, 0, text, sizeof text), 0);
    assert_int_equal(chosen[0].n, 3);
    assert_string_equal(algorithms_get(&chosen[0], 10), "planned");
    assert_string_equal(algorithms_get(&chosen[0], 11), "eleven");
    forget();
}

static void use_some(struct algorithms *p)
{
    use(p, 10, "", ALGORITHM_PROPOSED);
    assert_int_equal(algorithms_put(p, 11, "of another version", ALGORITHM_PROPOSED), 0);
    assert_int_equal(algorithms_put(p, 13, "faster now", ALGORITHM_FASTER), 0);
    use(p, 20, "faster", ALGORITHM_FASTER);
    use(p, 21, "proposed", ALGORITHM_PROPOSED);
}

/* --machine-out writes algorithms that are faster than the proposed ones.  Entries that were read
 * stay, except those that today's library rejects. */
static void test_machine_out(void **state)
{
    static const char *const choices[] = {"taken", "outdated", "not used", "slower now"};
    static const char *const expected[][2] = {
        {"10", "taken"}, {"12", "not used"}, {"13", "faster now"}, {"20", "faster"}};
    char text[8192];
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct machine m;
    (void)state;
    write_machine(choices, 4);
    o.device = "cpu";
    o.machine = machine;
    o.machine_out = machine_out;
    kernels = use_some;
    assert_int_equal(compile(&o, 1, text, sizeof text), 0);
    kernels = NULL;
    forget();
    assert_int_equal(machine_read(machine_out, &m), 0);
    assert_int_equal(m.algorithms.n, 4);
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(algorithms_get(&m.algorithms, strtoull(expected[i][0], NULL, 10)),
                            expected[i][1]);
    assert_true(m.n_costs > 0);
    machine_free(&m);
}

/* ---- ranks ----------------------------------------------------------------------------------- */

struct member {
    struct rank_thread thread;
    const char *plan_in; /* for rank 0 only */
    char message[256];
    int code;
};

static void *compile_rank(void *user)
{
    struct member *r = user;
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct tiny m = {.batch = 2, .length = 8, .width = 16, .heads = 2};
    struct ckpt_adamw a = tiny_adamw();
    struct device_ops ops;
    ckpt_program *p;
    o.machine = r->thread.rank ? NULL : machine;
    o.plan_in = r->thread.rank ? NULL : r->plan_in;
    ckpt *c = rank_open(&r->thread, o, 3, 0);
    if (!c)
        return NULL;
    const struct device_ops *plain = c->memory.device->ops;
    let_choose(c, r->thread.rank, &ops);
    tiny_create(&m, c);
    r->code = ckpt_compile(c, tiny_record, &m, ckpt_adamw(c, &a), m.batch, &p);
    snprintf(r->message, sizeof r->message, "%s", ckpt_error(c));
    c->memory.device->ops = plain;
    ckpt_close(c);
    return NULL;
}

/* Rank 1 has no machine file. */
static void test_ranks(void **state)
{
    static const char *const choices[] = {"ten", "eleven"};
    struct member member[2] = {{.plan_in = NULL}};
    (void)state;
    write_machine(choices, 2);
    run_ranks(member, sizeof *member, 2, 0, compile_rank);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(member[i].code, 0);
        assert_int_equal(chosen[i].n, 2);
        assert_string_equal(algorithms_get(&chosen[i], 10), "ten");
        assert_string_equal(algorithms_get(&chosen[i], 11), "eleven");
    }
    forget();
}

/* All ranks report an error in rank 0's file. */
static void test_bad_ranks(void **state)
{
    struct member member[2] = {{.plan_in = path}};
    (void)state;
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("pin 5 five\nend\n", f);
    fclose(f);
    run_ranks(member, sizeof *member, 2, 0, compile_rank);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(member[i].code, CKPT_EFORMAT);
        assert_non_null(strstr(member[i].message, "line 1: expected pin"));
    }
    forget();
}

/* An error in a plan file is reported before anything runs. */
static void test_bad_plan(void **state)
{
    char text[8192];
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    (void)state;
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("pin 5 five\nend\n", f);
    fclose(f);
    o.device = "cpu";
    o.plan_in = path;
    assert_int_equal(compile(&o, 0, text, sizeof text), CKPT_EFORMAT);
    assert_non_null(strstr(text, "line 1: expected pin, a key of 16 hex digits"));
    assert_int_equal(chosen[0].n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan),        cmocka_unit_test(test_machine),
        cmocka_unit_test(test_machine_out), cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_bad_ranks),   cmocka_unit_test(test_bad_plan)};
    char *const files[] = {path, machine, machine_out};
    for (int i = 0; i < 3; i++) {
        int fd = mkstemp(files[i]);
        if (fd < 0)
            return 1;
        close(fd);
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (int i = 0; i < 3; i++)
        unlink(files[i]);
    return failed;
}
