/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 8-bit copies and products on a GPU.  Copies have the same bits as the CPU's: codes, scale, zeros
 * after the transposed rows; for sizes that fill no tile, zeros, huge values, infinity and NaN,
 * whichever op computes the largest magnitude.  Products are close to the CPU's, with a bias, with
 * an addend and accumulated, and have the same bits twice; the error of 14-bit sums stays below the
 * rounding error of 8 bits.  "test_gpu_fp8 times [ROWS K N]" prints times of a large model's layers
 * in 8 bits and in bf16, "test_gpu_fp8 errors" prints the error of sums by their length.
 */
#include "fp8_buffers.h"

/* ---- copies ---------------------------------------------------------------------------------- */

/* By definition; NaN is larger than all numbers. */
static struct buffer largest_of(const struct buffer *x)
{
    struct buffer b = make(CKPT_F32, 0, 0, 0);
    float most = 0, value;
    for (int64_t i = 0; i < desc_numel(&x->desc); i++) {
        cpu_load(&value, (const char *)x->host + i * ckpt_dtype_size(x->desc.dtype), x->desc.dtype,
                 1);
        most = isnan(value) || fabsf(value) > most ? fabsf(value) : most;
        if (isnan(most))
            break;
    }
    *(float *)b.host = most;
    send(&b);
    return b;
}

/* Two NaN scales are equal, whatever their other bits. */
static bool same_scale(const struct buffer *b)
{
    float got;
    must(!cudaMemcpy(&got, b->device, sizeof got, cudaMemcpyDeviceToHost), "a copy");
    return isnan(got) ? isnan(*(float *)b->host) : got == *(float *)b->host;
}

static void check_copies(const struct buffer *x, const char *what, struct cuda_libs *libs)
{
    static const enum ckpt_dtype dtypes[] = {CKPT_F8E4M3, CKPT_F8E5M2};
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 6; i++) {
            const int which = FP8_ROWS + i % 3;
            struct copies c = make_copies(&x->desc, dtypes[k]);
            struct buffer most = largest_of(x);
            fill_copies(x, NULL, &c, NULL, which);
            fill_copies(x, i < 3 ? NULL : &most, &c, libs, which);
            bool ok = same_scale(&c.scale) && (!(which & FP8_ROWS) || same(&c.by_rows)) &&
                      (!(which & FP8_COLUMNS) || same(&c.by_columns));
            if (!ok)
                printf("FAIL copies %d of %s %lld x %lld in %s: other bits than the CPU's\n", which,
                       what, (long long)x->desc.shape[0], (long long)x->desc.shape[1],
                       dtype_name(dtypes[k]));
            failures += !ok;
            drop(&most);
            drop_copies(&c);
        }
}

static void test_copies(struct cuda_libs *libs)
{
    static const int64_t sizes[][2] = {{1, 16},    {16, 16},   {17, 32},    {127, 144},
                                       {129, 128}, {300, 272}, {144, 1424}, {2057, 1152}};
    static const float extreme[] = {0.f, INFINITY, -INFINITY, NAN, 3e38f, 1e-40f};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int e = -1; e <= 1; e++)
            for (int dtype = CKPT_F32; dtype <= CKPT_BF16; dtype++) {
                struct buffer x = draw((enum ckpt_dtype)dtype, 2, sizes[i][0], sizes[i][1], 3,
                                       ldexpf(1.f, 60 * e));
                check_copies(&x, dtype_name(x.desc.dtype), libs);
                drop(&x);
            }
    for (size_t i = 0; i < sizeof extreme / sizeof *extreme; i++) {
        struct buffer x = draw(CKPT_BF16, 2, 200, 160, 3, i && extreme[i] != 1e-40f ? 1.f : 0.f);
        cpu_store((uint16_t *)x.host + 31000, &extreme[i], CKPT_BF16, 1);
        send(&x);
        check_copies(&x, "an extreme value in", libs);
        drop(&x);
    }
}

/* ---- products -------------------------------------------------------------------------------- */

struct factors {
    int64_t rows, cols, inner;
    struct buffer a, b, bias, addend, y, wide;
    struct copies qa, qb;
};

static struct factors make_product(int64_t rows, int64_t cols, int64_t inner)
{
    struct factors p = {.rows = rows, .cols = cols, .inner = inner};
    p.a = draw(CKPT_BF16, 2, rows, inner, 1, 1e-3f);
    p.b = draw(CKPT_BF16, 2, cols, inner, 2, 3.f);
    p.bias = draw(CKPT_BF16, 1, cols, 0, 3, 0.1f);
    p.addend = draw(CKPT_BF16, 2, rows, cols, 4, 0.1f);
    p.y = make(CKPT_BF16, 2, rows, cols);
    p.wide = make(CKPT_F32, 2, rows, cols);
    p.qa = make_copies(&p.a.desc, CKPT_F8E5M2);
    p.qb = make_copies(&p.b.desc, CKPT_F8E4M3);
    return p;
}

static void drop_product(struct factors *p)
{
    struct buffer *all[] = {&p->a, &p->b, &p->bias, &p->addend, &p->y, &p->wide};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        drop(all[i]);
    drop_copies(&p->qa);
    drop_copies(&p->qb);
}

/* Runs the product on both, and once more on the GPU with the four operands at `at`. */
static void check_product(const struct factors *p, struct cuda_libs *libs, ckpt_kernel cpu,
                          ckpt_kernel cuda, const struct buffer *const *operand, int n_in,
                          bool accumulate, const char *what)
{
    const struct buffer *out = operand[n_in];
    const size_t bytes = (size_t)desc_bytes(&out->desc);
    void *first = malloc(bytes), *second = malloc(bytes);
    must(first && second, "memory");
    for (int i = 0; i <= accumulate; i++)
        must(!run(cpu, NULL, NULL, n_in, 1, operand, i), what);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i <= accumulate; i++)
            if (run(cuda, libs, NULL, n_in, 1, operand, i)) {
                printf("FAIL %s: %s\n", what, cuda_libs_reason(libs));
                failures++;
                return;
            }
        must(!cudaMemcpy(k ? second : first, out->device, bytes, cudaMemcpyDeviceToHost), what);
    }
    const double error = error_of(out);
    const double limit = out->desc.dtype == CKPT_F32 ? 2e-3 : 5e-3;
    bool ok = error < limit && !memcmp(first, second, bytes);
    printf("%s %s, %lld x %lld x %lld: relative error %.2e\n", ok ? "ok  " : "FAIL", what,
           (long long)p->rows, (long long)p->inner, (long long)p->cols, error);
    failures += !ok;
    free(first);
    free(second);
}

static void test_product(int64_t rows, int64_t cols, int64_t inner, struct cuda_libs *libs)
{
    struct factors p = make_product(rows, cols, inner);
    for (int k = 0; k < 2; k++) {
        fill_copies(&p.a, NULL, &p.qa, k ? libs : NULL, FP8_ROWS);
        fill_copies(&p.b, NULL, &p.qb, k ? libs : NULL, FP8_ROWS);
    }
    const struct buffer *q[] = {&p.qa.by_rows, &p.qa.scale, &p.qb.by_rows, &p.qb.scale};
    for (int k = 0; k < 4; k++) {
        const struct buffer *in[] = {
            NULL, NULL, k & 1 ? &p.bias : NULL, k & 2 ? &p.addend : NULL, q[0], q[1], q[2],
            q[3], &p.y};
        static const char *const names[] = {"linear_fp8", "linear_fp8 with a bias",
                                            "linear_fp8 that adds", "linear_fp8 with both"};
        check_product(&p, libs, cpu_linear_fp8, cuda_linear_fp8, in, FP8_INPUTS, false, names[k]);
    }
    for (int k = 0; k < 2; k++) {
        const struct buffer *in[] = {q[0], q[1], q[2], q[3], k ? &p.addend : NULL, &p.y};
        check_product(&p, libs, cpu_linear_fp8_dx, cuda_linear_fp8_dx, in, 5, false,
                      k ? "linear_fp8_dx that adds" : "linear_fp8_dx");
    }
    for (int k = 0; k < 2; k++) {
        const struct buffer *in[] = {q[0], q[1], q[2], q[3], k ? &p.wide : &p.y};
        check_product(&p, libs, cpu_linear_fp8_dw, cuda_linear_fp8_dw, in, 4, k,
                      k ? "linear_fp8_dw" : "linear_fp8_dw in bf16");
    }
    drop_product(&p);
}

/* ---- sums of 14 bits ------------------------------------------------------------------------- */

/* The relative error of products of `side` x inner x side against fp32 sums; values are normal, or
 * the first factor is positive, so that sums grow with their length. */
static double sum_error(int64_t inner, bool positive, enum ckpt_dtype dtype, bool short_sums,
                        struct cuda_libs *libs)
{
    enum { SIDE = 256 };
    struct buffer a = draw(CKPT_BF16, 2, SIDE, inner, 1, 1.f);
    struct buffer b = draw(CKPT_BF16, 2, SIDE, inner, 2, 1.f), y = make(CKPT_F32, 2, SIDE, SIDE);
    struct copies qa = make_copies(&a.desc, dtype), qb = make_copies(&b.desc, CKPT_F8E4M3);
    uint16_t *values = a.host, *others = b.host;
    for (int64_t i = 0; i < SIDE * inner && positive; i++)
        values[i] &= 0x7fff, others[i] &= i % 4 ? 0x7fff : 0xffff;
    send(&a), send(&b);
    for (int k = 0; k < 2; k++) {
        fill_copies(&a, NULL, &qa, k ? libs : NULL, FP8_ROWS);
        fill_copies(&b, NULL, &qb, k ? libs : NULL, FP8_ROWS);
        const struct buffer *q[] = {&qa.by_rows, &qa.scale, &qb.by_rows, &qb.scale};
        struct ckpt_view in[4];
        for (int i = 0; i < 4; i++)
            in[i] = (struct ckpt_view){k ? q[i]->device : q[i]->host, q[i]->desc};
        struct gemm g = fp8_gemm(in, CKPT_F32);
        g.c = k ? y.device : y.host;
        g.short_sums = short_sums;
        void *scratch = k ? NULL : calloc(1, (size_t)gemm_workspace(&g) + 1);
        struct ckpt_kernel_args args = {.device = libs};
        if (k)
            must(!cuda_gemm(&args, &g), cuda_libs_reason(libs));
        else
            gemm_run(&g, scratch);
        free(scratch);
    }
    const double error = error_of(&y);
    drop(&a), drop(&b), drop(&y);
    drop_copies(&qa);
    drop_copies(&qb);
    return error;
}

/* The longest 14-bit sums have a tenth of the error of rounding to 8 bits (tests/unit/test_fp8.c).
 * If all terms have one sign, the error is at most the rounding error of a single value, 2^-4.
 * Other sums are as accurate as in fp32. */
static void test_sums(struct cuda_libs *libs)
{
    static const enum ckpt_dtype dtypes[] = {CKPT_F8E4M3, CKPT_F8E5M2};
    static const double price[] = {0.037, 0.06};
    for (int i = 0; i < 8; i++) {
        const bool one_sign = i & 1, cut = i & 2;
        const double error = sum_error(FP8_SHORT_SUMS, one_sign, dtypes[i / 4], cut, libs);
        const double limit = !cut ? 1e-3 : one_sign ? 0x1p-4 : price[i / 4] / 10;
        const bool ok = error < limit;
        printf("%s sums of %d %s%s: relative error %.2e\n", ok ? "ok  " : "FAIL", FP8_SHORT_SUMS,
               one_sign ? "mostly positive values" : "values", cut ? " in 14 bits" : "", error);
        failures += !ok;
    }
}

static void print_errors(void)
{
    static const int64_t inner[] = {128,  512,   1152,  2304,  3456,  4608,
                                    8192, 12288, 14336, 18944, 32768, 65536};
    struct cuda_libs *libs;
    must(!cuda_libs_open(&libs), "libs");
    for (size_t i = 0; i < sizeof inner / sizeof *inner; i++)
        for (int k = 0; k < 4; k++)
            printf("sums of %6lld, %s, %s: relative error %.2e, of 14 bits %.2e\n",
                   (long long)inner[i], k / 2 ? "e5m2 x e4m3" : "e4m3 x e4m3",
                   k & 1 ? "mostly positive" : "normal         ",
                   sum_error(inner[i], k & 1, k / 2 ? CKPT_F8E5M2 : CKPT_F8E4M3, false, libs),
                   sum_error(inner[i], k & 1, k / 2 ? CKPT_F8E5M2 : CKPT_F8E4M3, true, libs));
    cuda_libs_close(libs);
}

/* ---- all tests ------------------------------------------------------------------------------- */

static void test_products(void)
{
    /* The last one has tiles enough for our own kernels. */
    static const int64_t sizes[][3] = {{128, 128, 128},  {300, 160, 272},   {1003, 1152, 144},
                                       {144, 272, 2064}, {2056, 384, 1152}, {5103, 144, 2320}};
    for (int measuring = 0; measuring < 2; measuring++) {
        struct cuda_libs *libs;
        must(!cuda_libs_open(&libs), "libs");
        cuda_libs_set_measuring(libs, measuring, NULL, 0);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            test_product(sizes[i][0], sizes[i][1], sizes[i][2], libs);
        if (!measuring) {
            test_copies(libs);
            test_sums(libs);
        }
        cuda_libs_close(libs);
    }
}

/* ---- times ----------------------------------------------------------------------------------- */

/* A layer [rows, K] to [rows, N], forward and both gradients, in bf16 and in 8 bits. */
struct layer {
    int64_t rows, K, N;
    struct buffer x, w, dy, y, dx, dw, most_x, most_dy;
    struct copies qx, qw, qdy;
};

/* The largest magnitudes of x and dy are known when a layer copies them, as after most ops; ALONE:
 * they are computed. */
enum part {
    LINEAR,
    LINEAR_DX,
    LINEAR_DW,
    COPY_X,
    COPY_W,
    COPY_DY,
    FP8,
    FP8_DX,
    FP8_DW,
    ALONE_X,
    ALONE_DY,
    PARTS
};

static int run_part(const struct layer *l, enum part part, struct cuda_libs *libs)
{
    const int both = FP8_ROWS | FP8_COLUMNS;
#define RUN(kernel, n_in, n_out, ...)                                                              \
    run(kernel, libs, NULL, n_in, n_out, (const struct buffer *[]){__VA_ARGS__}, false)
    switch (part) {
    case LINEAR:
        return RUN(cuda_linear, 3, 1, &l->x, &l->w, NULL, &l->y);
    case LINEAR_DX:
        return RUN(cuda_linear_dx, 3, 1, &l->dy, &l->w, NULL, &l->dx);
    case LINEAR_DW:
        return RUN(cuda_linear_dw, 2, 1, &l->dy, &l->x, &l->dw);
    case COPY_X:
    case ALONE_X:
        return round_to(&l->x, part == COPY_X ? &l->most_x : NULL, &l->qx, libs, both);
    case COPY_W:
        return round_to(&l->w, NULL, &l->qw, libs, both);
    case COPY_DY:
    case ALONE_DY:
        return round_to(&l->dy, part == COPY_DY ? &l->most_dy : NULL, &l->qdy, libs, both);
    case FP8:
        return RUN(cuda_linear_fp8, FP8_INPUTS, 1, NULL, NULL, NULL, NULL, &l->qx.by_rows,
                   &l->qx.scale, &l->qw.by_rows, &l->qw.scale, &l->y);
    case FP8_DX:
        return RUN(cuda_linear_fp8_dx, 5, 1, &l->qdy.by_rows, &l->qdy.scale, &l->qw.by_columns,
                   &l->qw.scale, NULL, &l->dx);
    default:
        return RUN(cuda_linear_fp8_dw, 4, 1, &l->qdy.by_columns, &l->qdy.scale, &l->qx.by_columns,
                   &l->qx.scale, &l->dw);
    }
}

static double milliseconds(const struct layer *l, enum part part, struct cuda_libs *libs)
{
    enum { RUNS = 20 };
    cudaEvent_t begin, end;
    float ms = 0;
    must(!run_part(l, part, libs), cuda_libs_reason(libs));
    must(!cudaEventCreate(&begin) && !cudaEventCreate(&end) && !cudaEventRecord(begin, NULL),
         "events");
    for (int i = 0; i < RUNS; i++)
        run_part(l, part, libs);
    must(!cudaEventRecord(end, NULL) && !cudaEventSynchronize(end) &&
             !cudaEventElapsedTime(&ms, begin, end),
         "a run");
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return (double)ms / RUNS;
}

/* Bytes that a copy reads and writes: bf16 once, or twice to find the largest magnitude of a
 * tensor, and one byte for each of two copies; 0: the part is not a copy. */
static double copy_bytes(const struct layer *l, enum part part)
{
    switch (part) {
    case COPY_X:
        return 4. * (double)desc_numel(&l->x.desc);
    case COPY_DY:
        return 4. * (double)desc_numel(&l->dy.desc);
    case COPY_W:
        return 6. * (double)desc_numel(&l->w.desc);
    case ALONE_X:
        return 6. * (double)desc_numel(&l->x.desc);
    case ALONE_DY:
        return 6. * (double)desc_numel(&l->dy.desc);
    default:
        return 0;
    }
}

static void print_layer(int64_t rows, int64_t K, int64_t N)
{
    static const char *const names[PARTS] = {
        "linear",     "linear_dx",     "linear_dw",     "to_fp8 x", "to_fp8 w", "to_fp8 dy",
        "linear_fp8", "linear_fp8_dx", "linear_fp8_dw", "x alone",  "dy alone"};
    struct layer l = {.rows = rows, .K = K, .N = N};
    struct cuda_libs *libs[2];
    double sum[2][2] = {{0}};
    l.x = draw(CKPT_BF16, 2, rows, K, 1, 1.f);
    l.w = draw(CKPT_BF16, 2, N, K, 2, 0.02f);
    l.dy = draw(CKPT_BF16, 2, rows, N, 3, 1e-4f);
    l.y = make(CKPT_BF16, 2, rows, N);
    l.dx = make(CKPT_BF16, 2, rows, K);
    l.dw = make(CKPT_F32, 2, N, K);
    l.most_x = largest_of(&l.x);
    l.most_dy = largest_of(&l.dy);
    l.qx = make_copies(&l.x.desc, CKPT_F8E4M3);
    l.qw = make_copies(&l.w.desc, CKPT_F8E4M3);
    l.qdy = make_copies(&l.dy.desc, CKPT_F8E5M2);
    for (int m = 0; m < 2; m++) {
        must(!cuda_libs_open(&libs[m]), "libs");
        cuda_libs_set_measuring(libs[m], m, NULL, 0);
    }
    for (int i = 0; i < PARTS; i++) {
        const bool copies = copy_bytes(&l, (enum part)i) > 0;
        const double work =
            copies ? copy_bytes(&l, (enum part)i) : 2. * (double)rows * (double)K * (double)N;
        double ms[2];
        for (int m = 0; m < 2; m++) {
            ms[m] = milliseconds(&l, (enum part)i, libs[m]);
            if (i < ALONE_X)
                sum[i >= COPY_X][m] += ms[m];
        }
        printf("%-14s %6lld x %4lld x %4lld  proposed %7.4f ms, measured %7.4f ms %6.0f %s\n",
               names[i], (long long)rows, (long long)K, (long long)N, ms[0], ms[1],
               work / ms[1] * (copies ? 1e-6 : 1e-9), copies ? "GB/s" : "TFLOP/s");
    }
    printf("layer          %6lld x %4lld x %4lld  bf16 %.4f ms, 8 bits %.4f ms, %.2f times as fast "
           "(measured algorithms: %.4f, %.4f, %.2f)\n\n",
           (long long)rows, (long long)K, (long long)N, sum[0][0], sum[1][0], sum[0][0] / sum[1][0],
           sum[0][1], sum[1][1], sum[0][1] / sum[1][1]);
    struct buffer *all[] = {&l.x, &l.w, &l.dy, &l.y, &l.dx, &l.dw, &l.most_x, &l.most_dy};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        drop(all[i]);
    drop_copies(&l.qx);
    drop_copies(&l.qw);
    drop_copies(&l.qdy);
    cuda_libs_close(libs[0]);
    cuda_libs_close(libs[1]);
}

int main(int argc, char **argv)
{
    static const int64_t layers[][3] = {
        {13800, 1152, 1152}, {13800, 1152, 3456}, {13800, 1152, 4608}, {13800, 4608, 1152},
        {54000, 1152, 4608}, {54000, 4608, 1152}, {4096, 4096, 14336}, {16384, 4096, 4096}};
    struct cudaDeviceProp prop;
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || !devices ||
        cudaGetDeviceProperties(&prop, 0) != cudaSuccess || 10 * prop.major + prop.minor < 89) {
        printf("no GPU that multiplies 8-bit values here\n");
        return 77;
    }
    if (argc > 4 && !strcmp(argv[1], "times")) {
        print_layer(atoll(argv[2]), atoll(argv[3]), atoll(argv[4]));
        return 0;
    }
    if (argc > 1 && !strcmp(argv[1], "times")) {
        for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
            print_layer(layers[i][0], layers[i][1], layers[i][2]);
        return 0;
    }
    if (blas_open(1)) { /* no CPU device does */
        printf("%s\n", error_get());
        return 1;
    }
    if (argc > 1 && !strcmp(argv[1], "errors")) {
        print_errors();
        return 0;
    }
    test_products();
    return test_result();
}
