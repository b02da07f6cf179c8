/* SPDX-License-Identifier: Apache-2.0 */
/* Views of constants take no memory where one element is repeated: a tensor that a model writes
 * into begins as such a one, as large as an activation. */
#define CKPT_NO_AT /* as the files of the importer are compiled */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>
#include "import/views.h"

static void test_uniform(void **state)
{
    const int64_t shape[] = {1 << 20, 1 << 20}, groups[] = {1 << 20, 1 << 18, 4};
    struct recording r = {.failed = false};
    (void)state;
    struct tensor x = view_expand(&r, tensor_number(&r, PT2_F32, 3, 0), 2, shape);
    x = view_reshape(&r, x, 3, groups);
    assert_false(r.failed);
    assert_int_equal(x.ndim, 3);
    assert_true(tensor_f(&x, ((int64_t)1 << 40) - 1) == 3);
    heap_free(&r.heap);
}

/* Others keep the order of their elements. */
static void test_dense(void **state)
{
    struct recording r = {.failed = false};
    (void)state;
    struct tensor x = tensor_zeros(&r, PT2_F32, 2, (int64_t[]){2, 3});
    for (int i = 0; i < 6; i++)
        x.f[i] = i;
    x = view_reshape(&r, view_swap(&r, x, 0, 1), 1, (int64_t[]){6});
    for (int i = 0; i < 6; i++)
        assert_true(tensor_f(&x, i) == (double)(i % 2 * 3 + i / 2));
    heap_free(&r.heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_uniform),
                                       cmocka_unit_test(test_dense)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
