/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of kernels: every op has a row on every device, in order of names, with scratch that
 * does not depend on the build. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "kernels/kernel.h"
#include "ops/table.h"

static const struct kernel *const tables[] = {
    [CKPT_ON_CPU] = cpu_kernels, [CKPT_ON_CUDA] = cuda_kernels};

static bool has_row(const struct kernel *k, const struct ckpt_op_def *op)
{
    while (k->op && k->op != op)
        k++;
    return k->op != NULL;
}

static void test_every_op_has_rows(void **state)
{
    (void)state;
    for (int i = 0; ops_table[i]; i++) {
        const struct ckpt_op_def *op = ops_table[i];
        if (op->flags & CKPT_OP_VIEW || op == &op_feed || op == &op_fetch)
            continue;
        assert_null(op->cpu);
        for (int d = 0; d < 2; d++)
            if (!has_row(tables[d], op))
                fail_msg("%s has no row in table %d", op->name, d);
        assert_non_null(kernel_run(op, CKPT_ON_CPU));
    }
}

static void test_rows_are_in_order(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++)
        for (const struct kernel *k = tables[d]; k[0].op && k[1].op; k++)
            if (strcmp(k[0].op->name, k[1].op->name) > 0)
                fail_msg("table %d: %s is before %s", d, k[0].op->name, k[1].op->name);
}

/* The scratch of a call follows its outputs, not what was recorded. */
static void test_scratch_is_of_the_call(void **state)
{
    (void)state;
    struct ckpt_desc d[4] = {{.dtype = CKPT_BF16, .ndim = 2, .shape = {64, 128}},
                             {.dtype = CKPT_BF16, .ndim = 2, .shape = {128, 128}}};
    struct ckpt_desc out[3];
    for (int i = 0; i < 3; i++)
        out[i] = d[0];
    struct ckpt_call call = {.n_in = 4, .n_out = 2, .in = d, .out = out, .backend = CKPT_ON_CPU};
    const int64_t two = kernel_workspace(&op_linear_dx_gated, &call);
    call.n_out = 3; /* the kernel has a matrix to compute in */
    assert_true(kernel_workspace(&op_linear_dx_gated, &call) < two);
    call.workspace = 12345; /* a row that asks for none wins over what was there */
    assert_int_equal(kernel_workspace(&op_add, &call), 0);
    const struct ckpt_op_def own = {.size = sizeof own, .name = "own"};
    assert_int_equal(kernel_workspace(&own, &call), 12345);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_op_has_rows),
                                       cmocka_unit_test(test_rows_are_in_order),
                                       cmocka_unit_test(test_scratch_is_of_the_call)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
