/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --vram auto and none: if a step fits, the plan is byte for byte the same as without a budget.
 * Otherwise auto plans within the available memory and none refuses.  On the CPU the host's limits
 * count; a machine file gives the memory of a simulated GPU.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "context/context.h"
#include "plan/graph/machine.h"
#include "plan/one_search.h"
#include "tiny.h"

static const struct tiny shape = {.batch = 4, .length = 48, .width = 24, .heads = 2};

#define MACHINE "auto-budget-machine.json"
#define PLAN    "auto-budget.plan"

/* Writes a machine file of a GPU with `memory` bytes, of which a process uses `process` bytes
 * besides its arena. */
static void write_machine(int64_t memory, int64_t process)
{
    struct machine m;
    assert_int_equal(machine_read("a100-40", &m), 0);
    m.memory = memory;
    m.process = process;
    assert_int_equal(machine_write(&m, MACHINE), 0);
    machine_free(&m);
}

/* The text of the plan for this GPU under a budget, for free(); NULL if it is refused. */
static char *plan_text(int64_t vram, struct ckpt_program_info *info, char message[1024])
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct ckpt_adamw a = tiny_adamw();
    struct tiny m = shape;
    ckpt_program *p;
    char *text = NULL;
    ckpt *c;
    o.vram = vram;
    o.plan_only = true;
    o.machine = "./" MACHINE;
    o.plan_out = PLAN;
    if (ckpt_open(&c, &o))
        fail_msg("%s", ckpt_error(NULL));
    tiny_create(&m, c);
    if (ckpt_compile(c, tiny_record, &m, ckpt_adamw(c, &a), m.batch, &p)) {
        snprintf(message, 1024, "%s", ckpt_error(c));
        ckpt_close(c);
        return NULL;
    }
    *info = (struct ckpt_program_info)CKPT_PROGRAM_INFO_INIT;
    assert_int_equal(ckpt_program_info(p, info), 0);
    ckpt_close(c);
    FILE *f = fopen(PLAN, "r");
    assert_non_null(f);
    text = calloc(1, 1 << 20);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 20) - 1, f) > 0);
    fclose(f);
    unlink(PLAN);
    return text;
}

static void test_card(void **state)
{
    (void)state;
    struct ckpt_program_info none, fits, tight;
    char message[1024];
    const int64_t process = 1 << 20;
    write_machine(INT64_C(1) << 34, process);
    char *free_plan = plan_text(CKPT_VRAM_NONE, &none, message);
    assert_non_null(free_plan);
    for (int i = 0; i < 2; i++) { /* the default is auto */
        char *auto_plan = plan_text(i ? CKPT_VRAM_AUTO : 0, &fits, message);
        assert_non_null(auto_plan);
        assert_string_equal(auto_plan, free_plan);
        assert_true(fits.budget == (INT64_C(1) << 34) - process);
        free(auto_plan);
    }
    free(free_plan);
    /* A card that does not hold the free plan: the margin is left, too. */
    int64_t card = none.planned_peak * 4 / 5 + 2 * process;
    write_machine(card, process);
    char *text = plan_text(CKPT_VRAM_AUTO, &tight, message);
    assert_non_null(text);
    assert_true(tight.budget >= card - process && tight.budget < card);
    assert_true(tight.planned_peak + tight.overhead_bytes <= tight.budget);
    assert_true(tight.recomputed_ops > 0);
    free(text);
    unlink(MACHINE);
}

/* Budgets that depend on free memory never change a bit. */
static void test_same_bits(void **state)
{
    (void)state;
    const int64_t budgets[] = {0, CKPT_VRAM_NONE, CKPT_VRAM_AUTO};
    struct tiny_result r[3];
    struct ckpt_adamw a = tiny_adamw();
    char message[1024];
    for (int i = 0; i < 3; i++) {
        struct ckpt_options o = CKPT_OPTIONS_INIT;
        o.vram = budgets[i];
        o.device = "cpu";
        if (tiny_train(shape, &o, &a, 3, &r[i], message))
            fail_msg("%s", message);
        assert_true(!i || tiny_same(&r[0], &r[i]));
        assert_true(i == 2 ? r[i].info.budget < INT64_MAX : r[i].info.budget == INT64_MAX);
    }
    for (int i = 0; i < 3; i++)
        tiny_result_free(&r[i]);
}

/* Only --device auto falls back to the CPU, and says why. */
static void test_no_gpu(void **state)
{
    (void)state;
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    ckpt *c;
    assert_string_equal(ckpt_no_gpu(NULL), "");
    o.device = "cpu";
    assert_int_equal(ckpt_open(&c, &o), 0);
    assert_string_equal(ckpt_no_gpu(c), "");
    ckpt_close(c);
    o.device = "auto";
    assert_int_equal(ckpt_open(&c, &o), 0);
    const bool gpu = c->memory.device->ops->backend == CKPT_ON_CUDA;
    assert_int_equal(*ckpt_no_gpu(c) != '\0', device_expected() && !gpu);
    ckpt_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_card),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_no_gpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
