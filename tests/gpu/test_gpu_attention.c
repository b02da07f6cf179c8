/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention forward on a GPU against the CPU's kernel: head widths with special kernels, lengths on
 * both sides of their tiles, causal, windows, grouped heads, several leading axes, operands cut
 * from one projection, and packed or padded keys whose spare rows are NaN.  The largest magnitude
 * of the result is checked as well.  Tests the kernel that is selected and libckpt's own kernel,
 * which must give the same bits every time.  "test_gpu_attention 72" tests only that width.
 */
#include <math.h>
#include "attr.h"
#include "attention_shapes.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cuda/attention/attention_core.h"
#include "kernels/cuda/kernels.h"

enum { Q, K, V, LENS, O, LSE, TENSORS, INPUTS = LENS + 1, WORKSPACE = 64 << 20 };

struct data {
    struct ckpt_desc desc[TENSORS];
    void *host[TENSORS], *device[TENSORS];
    int64_t bytes[TENSORS];
};

static void *workspace, *most_of_o;

/* ---- operands ------------------------------------------------------------------------------- */

static void describe(struct data *d, const struct shape *s)
{
    const bool fused = s->layout == FUSED;
    d->desc[Q] = queries_desc(s, fused);
    d->desc[K] = d->desc[V] = keys_desc(s, fused);
    d->desc[O] = queries_desc(s, false);
    d->desc[LSE] = lse_desc(s);
    d->desc[LENS] = lens_desc(s);
}

static void create(struct data *d, const struct shape *s)
{
    describe(d, s);
    for (int i = 0; i < TENSORS; i++) {
        int64_t n = 3 * desc_numel(&d->desc[i]); /* enough for FUSED */
        float *values = malloc((size_t)n * sizeof *values);
        d->bytes[i] =
            (i < LENS && s->layout == FUSED ? n : n / 3) * ckpt_dtype_size(d->desc[i].dtype);
        d->host[i] = calloc(1, (size_t)n * 4);
        must(values && d->host[i], "memory");
        ckpt_fill_normal(11, 0, (uint32_t)i, values, n);
        if (i < LENS)
            ckpt_to_bf16(values, d->host[i], d->bytes[i] / 2);
        free(values);
    }
    if (s->lens[0] >= 0) {
        memcpy(d->host[LENS], s->lens, (size_t)s->outer * sizeof(int));
        for (int i = K; i <= V; i++)
            spoil_spare_rows(s, d->host[i], d->bytes[i]);
    }
    for (int i = 0; i < TENSORS; i++)
        must(!cudaMalloc(&d->device[i], (size_t)d->bytes[i]) &&
                 !cudaMemcpy(d->device[i], d->host[i], (size_t)d->bytes[i], cudaMemcpyHostToDevice),
             "device memory");
}

static void destroy(struct data *d)
{
    for (int i = 0; i < TENSORS; i++) {
        free(d->host[i]);
        cudaFree(d->device[i]);
    }
}

static int run(const struct data *d, const struct shape *s, ckpt_kernel kernel, bool on_device)
{
    void *const *at = on_device ? d->device : d->host;
    const struct attention_attr attr = {
        .scale = scale_of(s), .causal = s->causal, .window = s->window};
    struct ckpt_view in[ATTENTION_PLAIN + ATTENTION_EXTRAS] = {{0}};
    struct ckpt_view out[3] = {
        {at[O], d->desc[O]}, {at[LSE], d->desc[LSE]}, {most_of_o, {.dtype = CKPT_F32}}};
    for (int i = 0; i < INPUTS; i++)
        in[i < LENS || is_packed(s) ? i : ATTENTION_PLAIN + ATTENTION_LENGTHS] =
            (struct ckpt_view){at[i], d->desc[i]};
    const int n = s->layout == PADDED ? ATTENTION_PLAIN + ATTENTION_EXTRAS : LENS;
    struct ckpt_kernel_args a = {.n_in = is_packed(s) ? INPUTS : n,
                                 .n_out = on_device ? 3 : 2,
                                 .extra = on_device ? EXTRA_LARGEST : 0,
                                 .in = in,
                                 .out = out,
                                 .attr = &attr,
                                 .workspace = workspace,
                                 .workspace_bytes = WORKSPACE,
                                 .device = on_device ? libs : NULL,
                                 .threads = 1};
    if (!on_device)
        a.workspace = calloc(1, WORKSPACE);
    int rc = kernel(&a);
    if (!on_device)
        free(a.workspace);
    return rc;
}

/* ---- results -------------------------------------------------------------------------------- */

/* The largest difference; NaN counts as a difference. */
static double difference(const void *x, const void *y, const struct ckpt_desc *d)
{
    double most = 0;
    for (int64_t i = 0; i < desc_numel(d); i++) {
        double apart = fabs(value_of(x, d->dtype, i) - value_of(y, d->dtype, i));
        if (!(apart <= most))
            most = apart;
    }
    return most;
}

/* o has entries of about 1 with 8 bits of mantissa; lse is fp32, computed from equally rounded
 * products. */
static void check_results(const struct data *d, const struct shape *s, ckpt_kernel kernel,
                          const char *what, void *const result[2])
{
    for (int i = 0; i < 2; i++)
        cudaMemset(d->device[O + i], 0xff, (size_t)d->bytes[O + i]);
    check(!run(d, s, kernel, true), what, s);
    for (int i = 0; i < 2; i++)
        must(!cudaMemcpy(result[i], d->device[O + i], (size_t)d->bytes[O + i],
                         cudaMemcpyDeviceToHost),
             what);
    uint32_t most;
    must(!cudaMemcpy(&most, most_of_o, sizeof most, cudaMemcpyDeviceToHost), what);
    check(most == largest_of(result[0], CKPT_BF16, desc_numel(&d->desc[O])), "largest", s);
    check(difference(result[0], d->host[O], &d->desc[O]) < 0.03, what, s);
    check(difference(result[1], d->host[LSE], &d->desc[LSE]) < 1e-3, what, s);
}

static void check_bits(const struct data *d, const struct shape *s, ckpt_kernel kernel,
                       void *const expected[2])
{
    void *o = malloc((size_t)d->bytes[O]);
    must(o, "memory");
    for (int i = 0; i < AGAIN; i++) {
        cudaMemset(d->device[O], 0xff, (size_t)d->bytes[O]);
        run(d, s, kernel, true);
        must(!cudaMemcpy(o, d->device[O], (size_t)d->bytes[O], cudaMemcpyDeviceToHost), "o");
        check(!memcmp(o, expected[0], (size_t)d->bytes[O]), "bits", s);
    }
    free(o);
}

static void test(const struct shape *s)
{
    struct data d;
    create(&d, s);
    void *result[2] = {malloc((size_t)d.bytes[O]), malloc((size_t)d.bytes[LSE])};
    must(result[0] && result[1], "memory");
    check(!run(&d, s, is_packed(s) ? cpu_cross_attention : cpu_attention, false), "cpu", s);
    if (is_packed(s)) {
        check_results(&d, s, cuda_cross_attention, "cross attention", result);
        check_bits(&d, s, cuda_cross_attention, result);
    } else {
        check_results(&d, s, cuda_attention, "chosen", result);
        check_results(&d, s, cuda_attention_own, "own", result);
        check_bits(&d, s, cuda_attention_own, result);
    }
    free(result[0]);
    free(result[1]);
    destroy(&d);
}

/* ---- shapes --------------------------------------------------------------------------------- */

static void test_lengths(int64_t width, int64_t n, int64_t m)
{
    const int64_t most = n > m ? n : m, least = n < m ? n : m;
    const struct shape shapes[] = {
        {1, 2, n, n, 2, 2, width, false, 0, FUSED, {-1}},
        {2, 1, n, m, 4, 2, width, false, 0, DENSE, {-1}},
        {2, 2, n, n, 2, 2, width, true, 0, SWAPPED, {-1}},
        {1, 1, least, most, 4, 1, width, true, 0, DENSE, {-1}},
        {1, 2, n, n, 2, 1, width, true, 1 + n / 3, DENSE, {-1}},
        {3, 1, n, 2 * m + 5, 2, 2, width, false, 0, DENSE, {(int)m, 0, (int)(m / 2 + 1)}},
    };
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
        test(&shapes[k]);
}

static void test_width(int64_t width)
{
    for_lengths(width, test_lengths);
    for_texts(width, test);
    for_padding(width, test);
    /* More heads than multiprocessors, so that blocks have several items. */
    test(&(struct shape){3, 4, 193, 150, 12, 12, width, false, 0, SWAPPED, {-1}});
    test(&(struct shape){3, 4, 257, 257, 12, 4, width, true, 0, DENSE, {-1}});
}

int main(int argc, char **argv)
{
    cudaMalloc(&workspace, WORKSPACE);
    cudaMalloc(&most_of_o, sizeof(uint32_t));
    return test_widths(argc, argv, test_width);
}
