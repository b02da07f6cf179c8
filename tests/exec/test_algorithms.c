/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Algorithms of libraries travel with plans: on a device whose libraries choose some (the CPU with
 * a list of its own), --plan-out names them and --plan-in brings them back before a kernel runs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "context/context.h"
#include "exec/tiny.h"
#include "pins.h"

static struct pins chosen; /* by the device */
static char path[] = "test_algorithms.tmp-XXXXXX";

static struct pins *algorithms(struct device *d)
{
    (void)d;
    return &chosen;
}

/* Compiles for a device that chooses; returns ckpt_compile's code, prints the plan into text. */
static int compile(const struct ckpt_options *o, char *text, size_t size)
{
    struct tiny m = {.batch = 2, .length = 8, .width = 16, .heads = 2};
    struct ckpt_adamw a = tiny_adamw();
    ckpt_program *p;
    ckpt *c;
    assert_int_equal(ckpt_open(&c, o), 0);
    struct device_ops ops = *c->memory.device->ops;
    const struct device_ops *plain = c->memory.device->ops;
    ops.algorithms = algorithms;
    c->memory.device->ops = &ops;
    tiny_create(&m, c);
    int rc = ckpt_compile(c, tiny_record, &m, ckpt_adamw(c, &a), m.batch, &p);
    FILE *f = fmemopen(text, size, "w");
    assert_non_null(f);
    if (rc)
        fputs(ckpt_error(c), f);
    else
        ckpt_plan_print(p, f);
    fclose(f);
    c->memory.device->ops = plain;
    ckpt_close(c);
    return rc;
}

static void test_plan(void **state)
{
    char text[8192];
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    (void)state;
    o.device = "cpu";
    o.plan_out = path;
    assert_int_equal(compile(&o, text, sizeof text), 0);
    assert_null(strstr(text, "algorithms"));
    assert_int_equal(pins_set(&chosen, 5, "five"), 0);
    assert_int_equal(pins_set(&chosen, 6, "six"), 0);
    assert_int_equal(compile(&o, text, sizeof text), 0);
    assert_non_null(strstr(text, "algorithms                          2  of cuBLASLt\n"));
    pins_free(&chosen);
    o.plan_out = NULL;
    o.plan_in = path;
    assert_int_equal(compile(&o, text, sizeof text), 0);
    assert_int_equal(chosen.n, 2);
    assert_string_equal(pins_get(&chosen, 5), "five");
    chosen.ignored = 1;
    assert_int_equal(compile(&o, text, sizeof text), 0);
    assert_non_null(strstr(text, "; 1 of the plan file are not for this card"));
    pins_free(&chosen);
}

/* What is wrong with a plan file is said before anything runs. */
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
    assert_int_equal(compile(&o, text, sizeof text), CKPT_EFORMAT);
    assert_non_null(strstr(text, "line 1: expected pin, a key of 16 hex digits"));
    assert_int_equal(chosen.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_plan),
                                       cmocka_unit_test(test_bad_plan)};
    int fd = mkstemp(path);
    if (fd < 0)
        return 1;
    close(fd);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
