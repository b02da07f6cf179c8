/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expressions on a GPU: the kernels that NVRTC compiles for a program, vectorized and by elements,
 * give the same bits as the kernel that interprets it node by node in fp32.  Every function is
 * tested between bf16 and fp32 values, on operands with all kinds of bits (NaNs, infinities,
 * subnormals, zeros of both signs), in views that are dense, odd, unaligned, broadcast, permuted or
 * far apart.  Functions of two bf16 values are tested with every first value and many second
 * values.  Sums of integers are exact in any order, and are compared, too.
 */
#include <stdlib.h>
#include <string.h>
#include <cuda_runtime_api.h>
#include "ckpt_tools.h"
#include "core/bits.h"
#include "kernels/cuda/expr_launch.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/libs.h"
#include "kernels/cuda/nvrtc.h"
#include "expr/expr.h"
#include "must.h"
#include "ops.h"

enum { INPUTS = 4, MOST = 1 << 20, PROGRAMS = 16, PICKS = 11, VALUES = 128, PAIRED = 8 };

/* Operands, and the results of both implementations: two results and a magnitude each. */
static struct {
    void *in[INPUTS], *out[2][3];
    struct ckpt_run *run_device;
    struct ckpt_run run;
    struct cuda_libs *libs;
} device;
static uint64_t random_state = 1;

static uint32_t draw(uint32_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % below;
}

/* ---- one program, three implementations ------------------------------------------------------ */

struct call {
    struct expr e;
    struct ckpt_view in[INPUTS], out[3];
    int n_out;
};

static struct ckpt_view dense(void *data, enum ckpt_dtype dtype, int ndim, const int64_t *shape)
{
    struct ckpt_view v = {.data = data, .desc = {.dtype = dtype, .ndim = ndim}};
    memcpy(v.desc.shape, shape, (size_t)ndim * sizeof *shape);
    desc_dense(&v.desc);
    return v;
}

static int64_t bytes_of(const struct ckpt_desc *d)
{
    return desc_numel(d) * ckpt_dtype_size(d->dtype);
}

/* Runs c with results in set `to`, `shift` elements after its start. */
static void run(struct call *c, ckpt_kernel kernel, int to, int shift, const char *what)
{
    struct ckpt_view out[3];
    for (int k = 0; k < c->n_out; k++) {
        out[k] = c->out[k];
        int64_t size = ckpt_dtype_size(out[k].desc.dtype);
        out[k].data = (char *)device.out[to][k] + (k + 1 < 2 + c->e.second ? shift * size : 0);
        must(!cudaMemset(device.out[to][k], 0x55, (size_t)(bytes_of(&out[k].desc) + shift * size)),
             what);
    }
    struct ckpt_kernel_args a = {.n_in = c->e.n_in,
                                 .n_out = c->n_out,
                                 .extra = c->e.largest ? EXTRA_LARGEST : 0,
                                 .in = c->in,
                                 .out = out,
                                 .attr = &c->e,
                                 .run = &device.run,
                                 .run_device = device.run_device,
                                 .device = device.libs};
    must(!kernel(&a) && !cudaDeviceSynchronize(), what);
}

/* Prints the first result that differs. */
static void compare(const struct call *c, int shift, const char *what)
{
    for (int k = 0; k < c->n_out; k++) {
        const struct ckpt_desc *d = &c->out[k].desc;
        const int64_t size = ckpt_dtype_size(d->dtype), n = bytes_of(d);
        char *a = malloc((size_t)n), *b = malloc((size_t)n);
        must(a && b, "memory");
        must(!cudaMemcpy(a, (char *)device.out[0][k] + (k < 1 + !!c->e.second ? shift * size : 0),
                         (size_t)n, cudaMemcpyDeviceToHost) &&
                 !cudaMemcpy(b, device.out[1][k], (size_t)n, cudaMemcpyDeviceToHost),
             what);
        for (int64_t i = 0; i < n && memcmp(a, b, (size_t)n); i += size)
            if (memcmp(a + i, b + i, (size_t)size)) {
                uint32_t x = 0, y = 0;
                memcpy(&x, a + i, (size_t)size);
                memcpy(&y, b + i, (size_t)size);
                printf("FAIL %s, result %d, element %lld: %x, node by node %x\n", what, k,
                       (long long)(i / size), x, y);
                failures++;
                break;
            }
        free(a);
        free(b);
    }
}

/* Runs vectorized if the views allow it; by elements, with shifted results; and node by node. */
static void check(struct call *c, bool shifted, const char *what)
{
    char text[200];
    c->n_out = 1 + (c->e.second || c->e.largest);
    c->e.ndim = c->out[0].desc.ndim;
    c->e.dtype = (int32_t)c->out[0].desc.dtype;
    if (!c->e.reduced)
        memcpy(c->e.shape, c->out[0].desc.shape, sizeof c->e.shape);
    c->out[1] = c->out[0];
    if (c->e.largest)
        c->out[1] = dense(NULL, CKPT_I32, 1, (int64_t[]){1});
    run(c, expr_interpret, 1, 0, what);
    for (int shift = 0; shift < 1 + shifted; shift++) {
        snprintf(text, sizeof text, "%s%s", what, shift ? ", not aligned" : "");
        run(c, cuda_expr, 0, shift, text);
        compare(c, shift, text);
    }
}

/* ---- operands -------------------------------------------------------------------------------- */

/* Half of the values are ordinary numbers, the others any bits. */
static void fill(int k, enum ckpt_dtype dtype, int64_t n, int which)
{
    uint32_t *words = malloc((size_t)n * sizeof *words);
    must(words, "memory");
    for (int64_t i = 0; i < n; i++) {
        float usual = ((float)draw(1 << 16) - 32768.f) / 8192.f;
        uint32_t any = draw(1 << 16) << 16 | draw(1 << 16);
        words[i] = dtype == CKPT_I32 ? draw((uint32_t)which)
                   : draw(2)         ? float_bits(usual)
                   : draw(4)         ? any
                                     : any & 0x80ffffffu; /* small, and zeros */
    }
    for (int64_t i = 0; i < n && dtype == CKPT_BF16; i++)
        ((uint16_t *)words)[i] = (uint16_t)(words[i] >> 16);
    must(!cudaMemcpy(device.in[k], words, (size_t)(n * ckpt_dtype_size(dtype)),
                     cudaMemcpyHostToDevice),
         "operands");
    free(words);
}

/* ---- programs -------------------------------------------------------------------------------- */

/* Per element, operand `which` selects which of the n nodes is the result. */
static int pick(struct expr *e, int which, const int *node, int n)
{
    int y = node[0];
    for (int k = 1; k < n; k++)
        y = expr_where(e, expr_binary(e, EXPR_EQ, which, expr_constant(e, (float)k)), node[k], y);
    return y;
}

/* Adds PICKS functions, from number `first` on, of the nodes made so far; most of them round. */
static int make_program(struct expr *e, int first, int *picked)
{
    static const float constants[][2] = {{0.25f, 0.75f}, {-4.f, 4.f}, {0.f, 1.f}, {0.1f, 3.f},
                                         {-1.f, 0.25f},  {0.5f, 2.f}, {1.f, -3.f}};
    int pool[INPUTS + 2 * PICKS] = {0, 1, 2}, n = 3;
    for (int k = 0; k < PICKS; k++) {
        enum expr_code code = EXPR_SCALE + (first + k) % (EXPR_CODES - EXPR_SCALE);
        const int arguments = expr_arguments(code), a = pool[draw((uint32_t)n)];
        const int b = pool[draw((uint32_t)n)], c = pool[draw((uint32_t)n)];
        const float *p = constants[draw(sizeof constants / sizeof *constants)];
        int y = expr_node(e, code, a, arguments > 1 ? b : 0, arguments > 2 ? c : 0,
                          arguments == 1 ? p[0] : 0.f, arguments == 1 ? p[1] : 0.f);
        if (draw(3))
            y = expr_unary(e, EXPR_BF16, y);
        picked[k] = pool[n++] = y;
    }
    return pick(e, 3, picked, PICKS);
}

/* Makes operands of these dtypes; the last one selects the function per element. */
static void set_operands(struct call *c, int ndim, const int64_t *shape, const enum ckpt_dtype *in,
                         enum ckpt_dtype out)
{
    c->out[0] = dense(NULL, out, ndim, shape);
    for (int k = 0; k < INPUTS; k++) {
        enum ckpt_dtype dtype = k + 1 < INPUTS ? in[k] : CKPT_I32;
        c->in[k] = dense(device.in[k], dtype, ndim, shape);
        fill(k, dtype, desc_numel(&c->in[k].desc), PICKS);
    }
}

static void check_functions(void)
{
    static const enum ckpt_dtype in[][3] = {{CKPT_BF16, CKPT_BF16, CKPT_BF16},
                                            {CKPT_BF16, CKPT_F32, CKPT_BF16}};
    char what[100];
    for (int i = 0; i < PROGRAMS; i++) {
        struct call c = {.n_out = 1};
        int picked[PICKS];
        const int64_t shape[] = {96, 1000 + 8 * (i % 2) + 3 * (i % 8 == 7)};
        snprintf(what, sizeof what, "program %d of functions", i);
        expr_init(&c.e, "functions", INPUTS);
        expr_finish(&c.e, make_program(&c.e, i * PICKS, picked), NULL);
        set_operands(&c, 2, shape, in[i % 4 == 3], i % 4 == 2 ? CKPT_F32 : CKPT_BF16);
        c.e.largest = i % 4 == 0;
        if (i % 4 == 1 && picked[2] < c.e.n_nodes - 1)
            c.e.second = (uint8_t)(1 + picked[2]);
        check(&c, true, what);
    }
}

/* Makes nodes of all functions of expr_pair.cuh, divided between two programs (`others`). */
static void make_pairs(struct expr *e, bool others, int *node)
{
    const int x = 0, y = 1;
    const int half[] = {expr_binary(e, EXPR_ADD, x, y),
                        expr_binary(e, EXPR_SUB, x, y),
                        expr_binary(e, EXPR_MUL, x, y),
                        expr_binary(e, EXPR_MINIMUM, x, y),
                        expr_binary(e, EXPR_MAXIMUM, x, y),
                        expr_binary(e, EXPR_RELU_DX, x, y),
                        expr_where(e, expr_binary(e, EXPR_LT, x, y), y, x),
                        expr_where(e, x, y, x)};
    if (!others)
        memcpy(node, half, sizeof half);
    if (others) {
        node[0] = expr_node(e, EXPR_SCALE, x, 0, 0, -3.f, 0.f);
        node[1] = expr_node(e, EXPR_AFFINE, x, 0, 0, 0x1p-20f, 0.25f);
        node[2] = expr_node(e, EXPR_CLAMP, x, 0, 0, -4.f, 3.f);
        node[3] = expr_node(e, EXPR_CLAMP, x, 0, 0, 0.f, 1.f);
        node[4] = expr_node(e, EXPR_LEAKY, x, 0, 0, 0.1f, 0.f);
        node[5] = expr_where(e, expr_binary(e, EXPR_LE, x, y), expr_unary(e, EXPR_ABS, x), y);
        node[6] = expr_where(e, expr_binary(e, EXPR_EQ, x, y), expr_unary(e, EXPR_RELU, x), x);
        node[7] = expr_where(e, expr_binary(e, EXPR_NE, x, y), x, y);
    }
    for (int k = 0; k < PAIRED; k++)
        node[k] = expr_unary(e, EXPR_BF16, node[k]);
}

/* Tests every x with y from zeros, the smallest and largest numbers, ones, NaN, and others. */
static void check_pairs(void)
{
    static const uint16_t special[] = {0x0000, 0x8000, 0x0001, 0x8001, 0x007f, 0x0080, 0x8080,
                                       0x3f80, 0xbf80, 0x3f81, 0x7f7f, 0xff7f, 0x7f80, 0xff80,
                                       0x7fff, 0x7fc0, 0xffc0, 0x7f81, 0x3f7f, 0x4000};
    static uint16_t all[1 << 16], y[VALUES * PAIRED];
    static int32_t which[VALUES * PAIRED];
    const int64_t shape[] = {VALUES * PAIRED, 1 << 16};
    for (int i = 0; i < 1 << 16; i++)
        all[i] = (uint16_t)i;
    for (int i = 0; i < VALUES * PAIRED; i++) {
        const int value = i / PAIRED;
        if (i % PAIRED == 0)
            y[i] = value < (int)(sizeof special / sizeof *special) ? special[value]
                                                                   : (uint16_t)draw(1 << 16);
        y[i] = y[i - i % PAIRED];
        which[i] = i % PAIRED;
    }
    must(!cudaMemcpy(device.in[0], all, sizeof all, cudaMemcpyHostToDevice) &&
             !cudaMemcpy(device.in[1], y, sizeof y, cudaMemcpyHostToDevice) &&
             !cudaMemcpy(device.in[2], which, sizeof which, cudaMemcpyHostToDevice),
         "operands");
    for (int others = 0; others < 2; others++) {
        struct call c = {.n_out = 1};
        int node[PAIRED];
        expr_init(&c.e, "pairs", 3);
        make_pairs(&c.e, others, node);
        expr_finish(&c.e, pick(&c.e, 2, node, PAIRED), NULL);
        c.out[0] = dense(NULL, CKPT_BF16, 2, shape);
        c.in[0] = dense(device.in[0], CKPT_BF16, 2, shape);
        c.in[0].desc.stride[0] = 0;
        c.in[1] = dense(device.in[1], CKPT_BF16, 2, (int64_t[]){shape[0], 1});
        c.in[2] = dense(device.in[2], CKPT_I32, 2, (int64_t[]){shape[0], 1});
        for (int k = 1; k < 3; k++) {
            c.in[k].desc.shape[1] = shape[1];
            c.in[k].desc.stride[1] = 0;
        }
        check(&c, false, others ? "all values, other functions" : "all values");
    }
}

/* ---- views, leaves, sums --------------------------------------------------------------------- */

/* x is permuted, y starts at an odd element, z is broadcast; an index and random numbers. */
static void check_views(void)
{
    const enum ckpt_dtype in[] = {CKPT_BF16, CKPT_BF16, CKPT_BF16};
    const int64_t shapes[][3] = {{6, 40, 64}, {5, 7, 9}, {3, 17, 32}, {1, 1, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int kind = 0; kind < 4; kind++) {
            struct call c = {.n_out = 1};
            char what[100];
            const int64_t *n = shapes[i];
            snprintf(what, sizeof what, "views of kind %d, %lld x %lld x %lld", kind,
                     (long long)n[0], (long long)n[1], (long long)n[2]);
            expr_init(&c.e, "views", INPUTS);
            int sum = expr_binary(&c.e, EXPR_ADD, 0, expr_binary(&c.e, EXPR_MUL, 1, 2));
            sum = expr_binary(&c.e, EXPR_ADD, expr_unary(&c.e, EXPR_BF16, sum), 3);
            int place = expr_node(&c.e, EXPR_INDEX, 1, 0, 0, 0.f, 0.f);
            int chance = expr_node(&c.e, EXPR_UNIFORM, 0, 0, 0, 0.f, 0.f);
            sum = expr_binary(&c.e, EXPR_ADD, expr_unary(&c.e, EXPR_BF16, sum), place);
            sum = expr_where(&c.e, expr_binary(&c.e, EXPR_LT, chance, expr_constant(&c.e, 0.7f)),
                             sum, 1);
            expr_finish(&c.e, sum, NULL);
            set_operands(&c, 3, n, in, CKPT_BF16);
            if (kind == 1) { /* rows of x are columns */
                c.in[0].desc.stride[1] = n[0];
                c.in[0].desc.stride[0] = 1;
            } else if (kind == 2) {
                c.in[1].data = (char *)c.in[1].data + 2;
                fill(1, CKPT_BF16, desc_numel(&c.in[1].desc) + 1, 0);
            } else if (kind == 3) {
                c.in[2].desc.stride[2] = 0;
                c.in[0].desc.stride[0] = 0;
            }
            check(&c, true, what);
        }
}

/* Rows that are 2 GiB apart. */
static void check_far(void)
{
    const int64_t shape[] = {2, 512}, away = ((int64_t)1 << 30) + 8;
    struct call c = {.n_out = 1};
    char *data;
    if (cudaMalloc((void **)&data, (size_t)(away + 512) * 2) != cudaSuccess) {
        printf("no room for rows that are far apart\n");
        cudaGetLastError();
        return;
    }
    expr_init(&c.e, "far", 2);
    expr_finish(&c.e, expr_binary(&c.e, EXPR_ADD, 0, 1), NULL);
    c.out[0] = dense(NULL, CKPT_BF16, 2, shape);
    c.in[0] = dense(data, CKPT_BF16, 2, shape);
    c.in[0].desc.stride[0] = away;
    c.in[1] = dense(device.in[1], CKPT_BF16, 2, shape);
    fill(1, CKPT_BF16, 1024, 0);
    must(!cudaMemcpy(data, device.in[1], 1024, cudaMemcpyDeviceToDevice) &&
             !cudaMemcpy(data + 2 * away, (char *)device.in[1] + 1024, 1024,
                         cudaMemcpyDeviceToDevice),
         "operands");
    check(&c, true, "rows that are far apart");
    cudaFree(data);
}

/* Sums of integers over one and two axes, vectorized and not: one result per row, or one per
 * element, which reads a sum, a maximum and a sum that depends on them. */
static void check_sums(bool per_row)
{
    const int64_t shapes[][3] = {{30, 4, 1152}, {3, 5, 77}, {64, 1, 8}, {40, 2, 40}, {2, 3, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int reduced = 1; reduced < 3; reduced++) {
            struct call c = {.n_out = 1};
            const enum ckpt_dtype out = i % 3 ? CKPT_F32 : CKPT_BF16;
            const int64_t *n = shapes[i];
            const enum ckpt_dtype in[] = {CKPT_BF16, i % 2 ? CKPT_F32 : CKPT_BF16, CKPT_BF16};
            char what[100];
            snprintf(what, sizeof what, "%s over %d axes, %lld x %lld x %lld",
                     per_row ? "sum" : "sums of elements", reduced, (long long)n[0],
                     (long long)n[1], (long long)n[2]);
            expr_init(&c.e, "sum", 3);
            int y = expr_unary(&c.e, EXPR_BF16, expr_binary(&c.e, EXPR_MUL, 0, 2));
            y = expr_unary(&c.e, EXPR_BF16, expr_binary(&c.e, EXPR_MAXIMUM, y, 1));
            y = expr_unary(&c.e, EXPR_INTEGER, expr_node(&c.e, EXPR_CLAMP, y, 0, 0, -8.f, 8.f));
            int sum = expr_node(&c.e, EXPR_SUM, y, 0, 0, 0.5f, 0.f);
            if (!per_row) {
                int other = expr_node(&c.e, EXPR_MAX, expr_unary(&c.e, EXPR_ABS, y), 0, 0, 1.f, 0);
                int sign = expr_unary(&c.e, EXPR_SIGN, expr_binary(&c.e, EXPR_ADD, sum, other));
                y = expr_node(&c.e, EXPR_SUM, expr_binary(&c.e, EXPR_MUL, y, sign), 0, 0, 2.f, 0);
                sum = expr_binary(&c.e, EXPR_ADD, expr_binary(&c.e, EXPR_SUB, 0, sum), y);
            }
            expr_finish(&c.e, sum, NULL);
            set_operands(&c, 3, n, in, out);
            c.in[2].desc.stride[0] = c.in[2].desc.stride[1] = 0; /* a row for all */
            memcpy(c.e.shape, n, 3 * sizeof *n);
            c.e.reduced = (uint8_t)reduced;
            c.e.per_row = per_row;
            if (per_row)
                c.out[0] = dense(NULL, out, 3, (int64_t[]){n[0], reduced < 2 ? n[1] : 1, 1});
            check(&c, false, what);
        }
}

int main(void)
{
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || !devices) {
        printf("no GPU here\n");
        return 77;
    }
    if (!nvrtc_version()) {
        printf("no NVRTC here\n");
        return 77;
    }
    const size_t room = (size_t)VALUES * PAIRED * (2 << 16) + 4096;
    device.run = (struct ckpt_run){.seed = 7, .step = 3, .n_micro = 1};
    must(!cuda_libs_open(&device.libs), "libs");
    must(!cudaMalloc((void **)&device.run_device, sizeof device.run) &&
             !cudaMemcpy(device.run_device, &device.run, sizeof device.run, cudaMemcpyHostToDevice),
         "device memory");
    for (int k = 0; k < INPUTS; k++)
        must(!cudaMalloc(&device.in[k], MOST * sizeof(float)), "device memory");
    for (int k = 0; k < 6; k++)
        must(!cudaMalloc(&device.out[k / 3][k % 3], room), "device memory");
    check_functions();
    check_pairs();
    check_views();
    check_far();
    check_sums(true);
    check_sums(false);
    cuda_libs_close(device.libs);
    return test_result();
}
