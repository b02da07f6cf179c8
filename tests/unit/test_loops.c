/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels that loop over strided views (maps, copy, pad, sums), on random shapes, memory orders
 * and gaps, against one plain loop over all indices; and sums that do not depend on the number of
 * threads.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#ifdef _OPENMP
#include <omp.h>
#endif
#include "attr.h"
#include "ckpt_tools.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/workspace.h"

static uint32_t random_word(void)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

static int64_t random_in(int64_t low, int64_t high)
{
    return low + random_word() % (high - low + 1);
}

static double get(const struct ckpt_view *v, int64_t i)
{
    if (v->desc.dtype == CKPT_BF16)
        return (double)bf16_load(((uint16_t *)v->data)[i]);
    return v->desc.dtype == CKPT_F32 ? (double)((float *)v->data)[i] : ((int32_t *)v->data)[i];
}

static void put(const struct ckpt_view *v, int64_t i, double x)
{
    if (v->desc.dtype == CKPT_BF16)
        ((uint16_t *)v->data)[i] = bf16_round((float)x);
    else if (v->desc.dtype == CKPT_F32)
        ((float *)v->data)[i] = (float)x;
    else
        ((int32_t *)v->data)[i] = (int32_t)x;
}

/* A view whose axes have any order in memory, with gaps; its bytes are NaN. */
static struct ckpt_view make_view(enum ckpt_dtype dtype, int ndim, const int64_t *shape, bool any)
{
    struct ckpt_view v = {.desc = {.dtype = dtype, .ndim = ndim}};
    int order[CKPT_MAX_DIMS] = {0};
    int64_t stride = 1;
    for (int i = 0; i < ndim; i++) {
        int k = any ? (int)random_in(0, i) : i;
        v.desc.shape[i] = shape[i];
        order[i] = order[k];
        order[k] = i;
    }
    for (int i = ndim - 1; i >= 0; i--) {
        v.desc.stride[order[i]] = stride;
        stride = stride * shape[order[i]] + (any && random_in(0, 3) == 0 ? random_in(1, 5) : 0);
    }
    v.data = malloc((size_t)stride * 4);
    assert_non_null(v.data);
    memset(v.data, 0xff, (size_t)stride * 4);
    return v;
}

static void unravel(int64_t i, int ndim, const int64_t *shape, int64_t *index)
{
    for (int axis = ndim - 1; axis >= 0; axis--) {
        index[axis] = i % shape[axis];
        i /= shape[axis];
    }
}

/* The address of v's element at index, broadcast to ndim axes. */
static int64_t place(const struct ckpt_view *v, int ndim, const int64_t *index)
{
    int64_t at = 0;
    for (int axis = 0; axis < v->desc.ndim; axis++)
        if (v->desc.shape[axis] != 1)
            at += index[axis + ndim - v->desc.ndim] * v->desc.stride[axis];
    return at;
}

/* Quarters between -8 and 8: sums and products of a few are exact in fp32. */
static void fill_view(const struct ckpt_view *v)
{
    for (int64_t i = 0; i < desc_numel(&v->desc); i++) {
        int64_t index[CKPT_MAX_DIMS];
        unravel(i, v->desc.ndim, v->desc.shape, index);
        bool whole = v->desc.dtype == CKPT_I32;
        put(v, place(v, v->desc.ndim, index), whole ? random_in(0, 1) : random_in(-32, 32) / 4.0);
    }
}

static int random_shape(int64_t *shape, int64_t most)
{
    int ndim = (int)random_in(0, 4);
    for (int i = 0; i < ndim; i++)
        shape[i] = random_in(0, 3) ? random_in(1, most) : 1;
    if (ndim && random_in(0, 30) == 0)
        shape[random_in(0, ndim - 1)] = random_in(1000, 2500);
    return ndim;
}

/* A shape that broadcasts to the given one. */
static int narrower(int ndim, const int64_t *shape, int64_t *narrow)
{
    int n = (int)random_in(0, ndim);
    for (int i = 0; i < n; i++)
        narrow[i] = random_in(0, 2) ? shape[ndim - n + i] : 1;
    return n;
}

static double apply(int op, const double *x)
{
    switch (op) {
    case 0:
        return x[0] + x[1];
    case 1:
        return x[0] - x[1];
    case 2:
        return x[0] * x[1];
    default:
        return x[0] != 0 ? x[1] : x[2];
    }
}

static void check_map(int op)
{
    static const ckpt_kernel kernels[] = {cpu_add, cpu_sub, cpu_mul, cpu_where};
    int64_t shape[CKPT_MAX_DIMS], narrow[CKPT_MAX_DIMS], index[CKPT_MAX_DIMS];
    int ndim = random_shape(shape, 9), n_in = op == 3 ? 3 : 2;
    struct ckpt_view x[3], y = make_view((enum ckpt_dtype)random_in(0, 1), ndim, shape, true);
    for (int k = 0; k < n_in; k++) {
        enum ckpt_dtype dtype = op == 3 && k == 0 ? CKPT_I32 : (enum ckpt_dtype)random_in(0, 1);
        int n = narrower(ndim, shape, narrow);
        x[k] = make_view(dtype, n, narrow, random_in(0, 1));
        fill_view(&x[k]);
    }
    struct ckpt_kernel_args args = {.n_in = n_in, .n_out = 1, .in = x, .out = &y};
    assert_int_equal(kernels[op](&args), 0);
    for (int64_t i = 0; i < desc_numel(&y.desc); i++) {
        double v[3];
        unravel(i, ndim, shape, index);
        for (int k = 0; k < n_in; k++)
            v[k] = get(&x[k], place(&x[k], ndim, index));
        double want = apply(op, v);
        if (y.desc.dtype == CKPT_BF16)
            want = (double)bf16_load(bf16_round((float)want));
        assert_true(get(&y, place(&y, ndim, index)) == want);
    }
    for (int k = 0; k < n_in; k++)
        free(x[k].data);
    free(y.data);
}

static void test_maps(void **state)
{
    (void)state;
    for (int i = 0; i < 800; i++)
        check_map(i % 4);
}

/* The bits of y equal those of x at `begin` on an axis, and are zeros elsewhere. */
static void check_placed(const struct ckpt_view *y, const struct ckpt_view *x, int axis,
                         int64_t begin)
{
    for (int64_t i = 0; i < desc_numel(&y->desc); i++) {
        int64_t index[CKPT_MAX_DIMS];
        unravel(i, y->desc.ndim, y->desc.shape, index);
        double got = get(y, place(y, y->desc.ndim, index)), want = 0;
        if (y->desc.ndim)
            index[axis] -= begin;
        bool inside = !y->desc.ndim || (index[axis] >= 0 && index[axis] < x->desc.shape[axis]);
        if (inside)
            want = get(x, place(x, x->desc.ndim, index));
        assert_true(got == want);
    }
}

static void check_copy(enum ckpt_dtype dtype, int64_t most)
{
    int64_t shape[CKPT_MAX_DIMS];
    int ndim = random_shape(shape, most);
    struct ckpt_view x = make_view(dtype, ndim, shape, true);
    struct ckpt_view y = make_view(dtype, ndim, shape, random_in(0, 1));
    struct ckpt_kernel_args args = {.n_in = 1, .n_out = 1, .in = &x, .out = &y};
    fill_view(&x);
    assert_int_equal(cpu_copy(&args), 0);
    check_placed(&y, &x, 0, 0);
    free(y.data);
    if (ndim) {
        struct pad_attr attr = {.axis = (int)random_in(0, ndim - 1), .begin = random_in(0, 3)};
        attr.size = shape[attr.axis] += attr.begin + random_in(0, 3);
        y = make_view(dtype, ndim, shape, random_in(0, 1));
        args.attr = &attr;
        assert_int_equal(cpu_pad(&args), 0);
        check_placed(&y, &x, attr.axis, attr.begin);
        free(y.data);
    }
    free(x.data);
}

static void test_copies(void **state)
{
    (void)state;
    for (int i = 0; i < 600; i++)
        check_copy((enum ckpt_dtype)(i % 3), 9);
    for (int i = 0; i < 30; i++) { /* more than one block that is turned round */
        int64_t shape[] = {random_in(60, 150), 2, random_in(60, 150)};
        struct ckpt_view x = make_view((enum ckpt_dtype)(i % 3), 3, shape, true);
        struct ckpt_view y = make_view(x.desc.dtype, 3, shape, false);
        struct ckpt_kernel_args args = {.n_in = 1, .n_out = 1, .in = &x, .out = &y};
        fill_view(&x);
        assert_int_equal(cpu_copy(&args), 0);
        check_placed(&y, &x, 0, 0);
        free(x.data);
        free(y.data);
    }
}

static void run_sum_to(const struct ckpt_view *x, const struct ckpt_view *y, bool accumulate)
{
    struct ckpt_kernel_args args = {
        .n_in = 1, .n_out = 1, .in = x, .out = y, .accumulate = accumulate};
    args.workspace_bytes = cpu_reduce_workspace(&x->desc, &y->desc);
    args.workspace = malloc((size_t)args.workspace_bytes + 1);
    assert_non_null(args.workspace);
    assert_int_equal(cpu_sum_to(&args), 0);
    free(args.workspace);
}

/* Sums of quarters are exact, so results must be equal. */
static void check_sum(int ndim, const int64_t *shape, int n, const int64_t *narrow)
{
    struct ckpt_view x = make_view((enum ckpt_dtype)random_in(0, 1), ndim, shape, random_in(0, 1));
    struct ckpt_view y = make_view(CKPT_F32, n, narrow, false);
    int64_t results = desc_numel(&y.desc), index[CKPT_MAX_DIMS];
    double *want = calloc((size_t)results, sizeof *want);
    bool accumulate = random_in(0, 1);
    assert_non_null(want);
    fill_view(&x);
    if (accumulate)
        fill_view(&y);
    for (int64_t i = 0; i < results && accumulate; i++)
        want[i] = get(&y, i);
    for (int64_t i = 0; i < desc_numel(&x.desc); i++) {
        unravel(i, ndim, shape, index);
        want[place(&y, ndim, index)] += get(&x, place(&x, ndim, index));
    }
    run_sum_to(&x, &y, accumulate);
    for (int64_t i = 0; i < results; i++)
        assert_true(get(&y, i) == want[i]);
    free(want);
    free(x.data);
    free(y.data);
}

static void test_sums(void **state)
{
    (void)state;
    static const int64_t large[][2] = {{3, 70001}, {70001, 3}, {300, 700}, {5000, 40}, {2, 140000}};
    int64_t shape[CKPT_MAX_DIMS], narrow[CKPT_MAX_DIMS];
    for (int i = 0; i < 800; i++) {
        int ndim = random_shape(shape, 9), n = narrower(ndim, shape, narrow);
        check_sum(ndim, shape, n, narrow);
    }
    for (size_t i = 0; i < sizeof large / sizeof *large; i++)
        for (int kept = 0; kept < 4; kept++) { /* several parts, meeting in the workspace */
            narrow[0] = kept & 1 ? large[i][0] : 1;
            narrow[1] = kept & 2 ? large[i][1] : 1;
            check_sum(2, large[i], 2, narrow);
        }
}

/* Values whose sum depends on its order. */
static void test_sums_and_threads(void **state)
{
#ifdef _OPENMP
    static const int64_t shape[] = {300, 1100}, results[][2] = {{1, 1}, {1, 1100}, {300, 1}};
    struct ckpt_view x = make_view(CKPT_F32, 2, shape, false);
    (void)state;
    ckpt_fill_normal(1, 2, 3, x.data, 300 * 1100);
    for (int i = 0; i < 300 * 1100; i++)
        ((float *)x.data)[i] = expf(9 * ((float *)x.data)[i]);
    for (int i = 0; i < 3; i++) {
        struct ckpt_view one = make_view(CKPT_F32, 2, results[i], false);
        struct ckpt_view many = make_view(CKPT_F32, 2, results[i], false);
        int threads = omp_get_max_threads();
        omp_set_num_threads(1);
        run_sum_to(&x, &one, false);
        omp_set_num_threads(3);
        run_sum_to(&x, &many, false);
        omp_set_num_threads(threads);
        assert_memory_equal(one.data, many.data, (size_t)desc_bytes(&one.desc));
        free(one.data);
        free(many.data);
    }
    free(x.data);
#else
    (void)state;
    skip();
#endif
}

static void test_accumulate(void **state)
{
    (void)state;
    float sum[1000], addend[1000];
    struct ckpt_view v[2] = {{sum, {.ndim = 1, .shape = {1000}, .stride = {1}}}, {addend, {0}}};
    struct ckpt_kernel_args args = {.n_in = 2, .n_out = 1, .in = v, .out = v};
    v[1].desc = v[0].desc;
    for (int i = 0; i < 1000; i++) {
        sum[i] = NAN; /* must not be read */
        addend[i] = (float)i;
    }
    for (int round = 1; round <= 3; round++) {
        assert_int_equal(cpu_accumulate(&args), 0);
        args.accumulate = true;
        for (int i = 0; i < 1000; i++)
            assert_true(sum[i] == (float)(i * round));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_maps),       cmocka_unit_test(test_copies),
        cmocka_unit_test(test_sums),       cmocka_unit_test(test_sums_and_threads),
        cmocka_unit_test(test_accumulate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
