/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention backward on a GPU against the CPU's kernel: head widths with special kernels, lengths
 * on both sides of their tiles, fewer and more queries than keys, causal, windows, grouped heads,
 * leading axes in either order, packed or padded keys whose spare rows are NaN and get gradients of
 * 0, and gradients stored side by side, as for one projection.  Each gradient's largest magnitude
 * is checked.  Tests the kernel that is selected, and the one that --unordered selects.  The former
 * must give the same bits every time, with concurrent copies, and must not write beyond its scratch
 * size. "test_gpu_attention_dx 72" tests only that width.
 */
#include <math.h>
#include "attr.h"
#include "attention_shapes.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cuda/attention/attention_workspace.h"
#include "kernels/cuda/kernels.h"

/* Forward reads Q to LENS and writes O and LSE; backward reads Q to D_O. */
enum { Q, K, V, LENS, O, LSE, D_O, DQ, DK, DV, TENSORS, INPUTS = DQ, RESULTS = TENSORS - DQ };
enum { GUARD = 4096, BESIDE = 32 << 20, SCRATCH = 64 << 20 };

struct data {
    struct ckpt_desc desc[TENSORS];
    void *host[TENSORS], *device[TENSORS];
    int64_t bytes[TENSORS];
    char *workspace;
    int64_t workspace_bytes;
    uint32_t *most; /* on the device: the largest magnitudes of dv, dq and dk */
};

static const int left_order[RESULTS] = {2, 0, 1};
static cudaStream_t stream, other;
static char *beside;

/* ---- operands ------------------------------------------------------------------------------- */

static void describe(struct data *d, const struct shape *s)
{
    d->desc[Q] = d->desc[O] = d->desc[D_O] = d->desc[DQ] = queries_desc(s, false);
    d->desc[K] = d->desc[V] = d->desc[DK] = d->desc[DV] = keys_desc(s, false);
    d->desc[LSE] = lse_desc(s);
    d->desc[LENS] = lens_desc(s);
}

/* On the device gradients may be strided: their rows are one of three groups of heads. */
static struct ckpt_desc on_device_desc(const struct data *d, const struct shape *s, int i)
{
    if (s->layout != FUSED || i < DQ)
        return d->desc[i];
    return i == DQ ? queries_desc(s, true) : keys_desc(s, true);
}

/* The operands: of packed keys LENS stands behind K and V, of padded ones at the end. */
static int operands(const struct data *d, const struct shape *s, bool forward, bool on_device,
                    struct ckpt_view *view)
{
    void *const *at = on_device ? d->device : d->host;
    int n = 0;
    for (int i = 0; i < (forward ? O : INPUTS); i++)
        if (i != LENS || is_packed(s))
            view[n++] = (struct ckpt_view){at[i], on_device ? on_device_desc(d, s, i) : d->desc[i]};
    for (int i = 0; s->layout == PADDED && i < ATTENTION_EXTRAS; i++)
        view[n++] = i == ATTENTION_LENGTHS ? (struct ckpt_view){at[LENS], d->desc[LENS]}
                                           : (struct ckpt_view){NULL, {.ndim = -1}};
    return n;
}

static int call(const struct data *d, const struct shape *s, ckpt_kernel kernel, bool forward,
                bool on_device)
{
    void *const *at = on_device ? d->device : d->host;
    struct attention_attr attr = {.scale = scale_of(s), .causal = s->causal, .window = s->window};
    struct cross_attention_attr packed = {.scale = scale_of(s)};
    struct ckpt_view in[TENSORS + ATTENTION_EXTRAS], out[2 * RESULTS];
    uint32_t extra = 0;
    const int n = operands(d, s, forward, on_device, in);
    for (int i = 0; i < (forward ? 2 : RESULTS); i++) {
        const int of = (forward ? O : DQ) + i;
        out[i] = (struct ckpt_view){at[of], on_device ? on_device_desc(d, s, of) : d->desc[of]};
    }
    for (int i = 0; on_device && i < RESULTS; i++) {
        out[RESULTS + i] = (struct ckpt_view){d->most + i, {.dtype = CKPT_F32}};
        extra |= (uint32_t)(EXTRA_LARGEST + left_order[i]) << 4 * i;
    }
    struct ckpt_kernel_args a = {.n_in = n,
                                 .n_out = forward     ? 2
                                          : on_device ? 2 * RESULTS
                                                      : RESULTS,
                                 .extra = forward ? 0 : extra,
                                 .in = in,
                                 .out = out,
                                 .attr = is_packed(s) ? (const void *)&packed : &attr,
                                 .workspace = d->workspace,
                                 .workspace_bytes = d->workspace_bytes,
                                 .device = on_device ? libs : NULL,
                                 .stream = on_device ? stream : NULL,
                                 .threads = 1};
    if (!on_device) {
        a.workspace = calloc(1, SCRATCH);
        a.workspace_bytes = SCRATCH;
    }
    int rc = kernel(&a);
    if (!on_device)
        free(a.workspace);
    return rc;
}

static void create(struct data *d, const struct shape *s)
{
    describe(d, s);
    const struct ckpt_desc *q = &d->desc[Q], *k = &d->desc[K];
    d->workspace_bytes = is_packed(s) ? cuda_attention_own_dx_workspace(q, k, true)
                                      : max_i64(cuda_attention_dx_workspace(q, k, true),
                                                cuda_attention_dx_workspace(q, k, false));
    for (int i = 0; i < TENSORS; i++) {
        const int64_t n = desc_numel(&d->desc[i]);
        float *values = malloc((size_t)n * sizeof *values);
        d->bytes[i] = n * ckpt_dtype_size(d->desc[i].dtype);
        d->host[i] = calloc(1, (size_t)d->bytes[i]);
        must(values && d->host[i], "memory");
        ckpt_fill_normal(17, 0, (uint32_t)i, values, n);
        if (i <= V || i == D_O)
            ckpt_to_bf16(values, d->host[i], n);
        free(values);
    }
    if (s->lens[0] >= 0) {
        memcpy(d->host[LENS], s->lens, (size_t)s->outer * sizeof(int));
        for (int i = K; i <= V; i++)
            spoil_spare_rows(s, d->host[i], d->bytes[i]);
    }
    check(!call(d, s, is_packed(s) ? cpu_cross_attention : cpu_attention, true, false),
          "cpu forward", s);
    check(!call(d, s, is_packed(s) ? cpu_cross_attention_dx : cpu_attention_dx, false, false),
          "cpu backward", s);
    for (int i = 0; i < TENSORS; i++)
        must(!cudaMalloc(&d->device[i], (size_t)(3 * d->bytes[i])) &&
                 !cudaMemcpy(d->device[i], d->host[i], (size_t)d->bytes[i], cudaMemcpyHostToDevice),
             "device memory");
    must(!cudaMalloc((void **)&d->workspace, (size_t)d->workspace_bytes + GUARD) &&
             !cudaMalloc((void **)&d->most, RESULTS * sizeof *d->most),
         "workspace");
}

static void destroy(struct data *d)
{
    for (int i = 0; i < TENSORS; i++) {
        free(d->host[i]);
        cudaFree(d->device[i]);
    }
    cudaFree(d->workspace);
    cudaFree(d->most);
}

/* ---- results -------------------------------------------------------------------------------- */

/* The difference relative to the expected values; NaN stays NaN. */
static double relative(const void *x, const void *expected, int64_t n)
{
    double apart = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        const double y = value_of(expected, CKPT_BF16, i);
        const double e = value_of(x, CKPT_BF16, i) - y;
        apart += e * e;
        size += y * y;
    }
    return size > 0 ? sqrt(apart / size) : apart;
}

/* Copies gradient i from the device to contiguous rows. */
static void fetch(const struct data *d, const struct shape *s, int i, const char *what, void *to)
{
    const struct ckpt_desc *x = &d->desc[i];
    const size_t row = (size_t)(x->shape[x->ndim - 2] * s->width) * sizeof(uint16_t);
    must(!cudaMemcpy2D(to, row, d->device[i], s->layout == FUSED ? 3 * row : row, row,
                       (size_t)d->bytes[i] / row, cudaMemcpyDeviceToHost),
         what);
}

static void check_largest(const struct data *d, const struct shape *s, const char *what,
                          void *const result[RESULTS])
{
    uint32_t most[RESULTS];
    must(!cudaMemcpy(most, d->most, sizeof most, cudaMemcpyDeviceToHost), what);
    for (int i = 0; i < RESULTS; i++) {
        const int of = left_order[i];
        const uint32_t want = largest_of(result[of], CKPT_BF16, desc_numel(&d->desc[DQ + of]));
        check(most[i] == want, "largest", s);
        if (most[i] != want)
            printf("%s: of %d %g, not %g\n", what, of, float_of_bits(most[i]), float_of_bits(want));
    }
}

static void run(const struct data *d, const struct shape *s, ckpt_kernel kernel, const char *what,
                void *const result[RESULTS])
{
    char guard[GUARD];
    for (int i = DQ; i < TENSORS; i++)
        must(!cudaMemset(d->device[i], 0xff, (size_t)(3 * d->bytes[i])), what);
    must(!cudaMemset(d->workspace, 0xff, (size_t)d->workspace_bytes + GUARD), what);
    must(!cudaDeviceSynchronize(), what);
    cudaMemcpyAsync(beside, beside + BESIDE, BESIDE, cudaMemcpyDeviceToDevice, other);
    check(!call(d, s, kernel, false, true), what, s);
    must(!cudaDeviceSynchronize(), what);
    for (int i = 0; i < RESULTS; i++)
        fetch(d, s, DQ + i, what, result[i]);
    check_largest(d, s, what, result);
    must(!cudaMemcpy(guard, d->workspace + d->workspace_bytes, GUARD, cudaMemcpyDeviceToHost),
         what);
    for (int i = 0; i < GUARD; i++)
        if (guard[i] != (char)0xff) {
            check(false, "scratch", s);
            break;
        }
}

/* Entries have 8 bits of mantissa, as have the factors of their products. */
static void check_results(const struct data *d, const struct shape *s, ckpt_kernel kernel,
                          const char *what, void *const result[RESULTS])
{
    static const char *const name[RESULTS] = {"dq", "dk", "dv"};
    run(d, s, kernel, what, result);
    for (int i = 0; i < RESULTS; i++) {
        const double apart = relative(result[i], d->host[DQ + i], desc_numel(&d->desc[DQ + i]));
        check(apart < 0.012, name[i], s);
        if (!(apart < 0.012))
            printf("%s: %g\n", what, apart);
    }
}

static void check_bits(const struct data *d, const struct shape *s, ckpt_kernel kernel,
                       void *const expected[RESULTS], int times)
{
    void *again[RESULTS];
    for (int i = 0; i < RESULTS; i++)
        must((again[i] = malloc((size_t)d->bytes[DQ + i])) != NULL, "memory");
    for (int k = 0; k < times; k++) {
        run(d, s, kernel, "again", again);
        for (int i = 0; i < RESULTS; i++)
            check(!memcmp(again[i], expected[i], (size_t)d->bytes[DQ + i]), "bits", s);
    }
    for (int i = 0; i < RESULTS; i++)
        free(again[i]);
}

/* Then the device keeps an order, and the scratch is of that size. */
static void check_unordered(struct data *d, const struct shape *s, void *const result[RESULTS])
{
    cuda_libs_set_unordered(libs, true);
    check_results(d, s, cuda_attention_dx, "unordered", result);
    cuda_libs_set_unordered(libs, false);
    d->workspace_bytes = cuda_attention_dx_workspace(&d->desc[Q], &d->desc[K], false);
}

static void test(const struct shape *s, int times)
{
    const ckpt_kernel dx = is_packed(s) ? cuda_cross_attention_dx : cuda_attention_dx;
    struct data d;
    void *result[RESULTS];
    create(&d, s);
    for (int i = 0; i < RESULTS; i++)
        must((result[i] = malloc((size_t)d.bytes[DQ + i])) != NULL, "memory");
    if (!is_packed(s))
        check_unordered(&d, s, result);
    check_results(&d, s, dx, "ordered", result);
    check_bits(&d, s, dx, result, times);
    for (int i = 0; i < RESULTS; i++)
        free(result[i]);
    destroy(&d);
}

/* ---- shapes --------------------------------------------------------------------------------- */

static void test_lengths(int64_t width, int64_t n, int64_t m)
{
    const int64_t most = n > m ? n : m, least = n < m ? n : m;
    const struct shape shapes[] = {
        {2, 1, n, m, 4, 2, width, false, 0, DENSE, {-1}},
        {2, 2, n, n, 2, 2, width, true, 0, SWAPPED, {-1}},
        {1, 1, least, most, 4, 1, width, true, 0, DENSE, {-1}},
        {1, 1, most, least, 2, 1, width, true, 0, DENSE, {-1}},
        {1, 2, n, n, 2, 1, width, true, 1 + n / 3, DENSE, {-1}},
        {1, 1, n, n, 2, 2, width, true, 1, DENSE, {-1}},
        {2, 1, n, n, 2, 2, width, false, 0, FUSED, {-1}},
        {1, 1, n, n, 2, 2, width, true, 0, FUSED, {-1}},
    };
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
        test(&shapes[k], 2);
}

static void test_text(const struct shape *s)
{
    test(s, 2);
}

static void test_width(int64_t width)
{
    for_lengths(width, test_lengths);
    for_texts(width, test_text);
    for_padding(width, test_text);
    /* More blocks than multiprocessors, so that some blocks wait for blocks that started long
     * before. */
    test(&(struct shape){3, 5, 300, 920, 16, 16, width, false, 0, SWAPPED, {-1}}, AGAIN);
    test(&(struct shape){3, 5, 515, 515, 16, 4, width, true, 0, DENSE, {-1}}, AGAIN);
    /* A last wave of four blocks, which become eight. */
    test(&(struct shape){1, 1, 130, 900, 17, 17, width, false, 0, DENSE, {-1}}, AGAIN);
    /* A single head, whose queries are cut into chunks. */
    test(&(struct shape){1, 1, 2100, 200, 1, 1, width, false, 0, DENSE, {-1}}, AGAIN);
    test(&(struct shape){1, 1, 4000, 300, 1, 1, width, false, 0, DENSE, {300}}, AGAIN);
    /* The same with causal attention and shared keys: the longest block has twice the average work.
     */
    test(&(struct shape){1, 1, 1300, 1300, 6, 2, width, true, 0, DENSE, {-1}}, AGAIN);
}

int main(int argc, char **argv)
{
    cudaStreamCreate(&stream);
    cudaStreamCreate(&other);
    cudaMalloc((void **)&beside, 2 * BESIDE);
    return test_widths(argc, argv, test_width);
}
