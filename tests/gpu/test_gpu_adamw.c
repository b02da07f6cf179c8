/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Updates of every kind on a GPU and on the host give the same bits: odd sizes and addresses,
 * values from denormal to huge, with and without master and EMA, both gradient dtypes, state in
 * bf16 and means in 8 bits.  Also the assignment of a state, and the clip values of several pairs
 * of betas.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cuda_runtime_api.h>
#include "attr.h"
#include "ckpt_tools.h"
#include "core/mean8.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cuda/kernels.h"
#include "must.h"
#include "optim/update_math.h"

enum {
    MOST = 5000,
    WITH_VALUE = 1,
    WITH_HALF = 2,
    WITH_EMA = 4,
    NARROW = 8, /* state in bf16 */
    WAYS = 16,
    BYTES = 16, /* beside NARROW: means in 8 bits */
    STEPS = 3,
    WORDS = (MOST + MEAN8_BLOCK) / MEAN8_BLOCK * (MEAN8_BLOCK + 2) / 4 + 1
};

/* All operands of one update, and the values of the step that it reads. */
struct operands {
    float w[MOST], m[MOST], v[MOST], ema[MOST], g[MOST], clip[CLIP_VALUES];
    uint16_t value[MOST], half[MOST], half_m[MOST], half_v[MOST];
    int32_t byte_m[WORDS], byte_v[WORDS];
    struct ckpt_run run;
};

static struct operands host, back;

/* wild: any finite bits, so all exponents; otherwise values as in training. */
static float draw(uint64_t *state, bool wild)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    uint32_t bits = (uint32_t)(*state >> 32);
    if (!wild)
        return (float)(int32_t)bits * 0x1p-31f;
    if ((bits >> 23 & 0xff) == 0xff)
        bits &= ~(UINT32_C(1) << 30);
    return float_of_bits(bits);
}

static void fill(uint64_t seed, bool wild)
{
    uint64_t state = seed;
    for (int i = 0; i < MOST; i++) {
        host.w[i] = draw(&state, wild);
        host.m[i] = draw(&state, wild) * 0.1f;
        host.v[i] = fabsf(draw(&state, wild)) * (wild ? 1.f : 1e-3f);
        host.ema[i] = draw(&state, wild);
        host.g[i] = draw(&state, wild);
    }
    ckpt_to_bf16(host.w, host.value, MOST);
    ckpt_to_bf16(host.g, host.half, MOST);
    ckpt_to_bf16(host.m, host.half_m, MOST);
    ckpt_to_bf16(host.v, host.half_v, MOST);
    memset(host.byte_m, 0, sizeof host.byte_m);
    memset(host.byte_v, 0, sizeof host.byte_v);
    host.clip[CLIP_NORM] = 3.f;
    host.clip[CLIP_FACTOR] = 0.731f;
    host.clip[CLIP_UNBIAS1] = 5.263158f;
    host.clip[CLIP_UNBIAS2] = 500.25f;
    host.run = (struct ckpt_run){.lr = 1.7e-3f, .seed = UINT64_C(0x123456789a)};
}

static struct ckpt_view view(void *data, enum ckpt_dtype dtype, int64_t n)
{
    return (struct ckpt_view){data,
                              {.dtype = dtype, .ndim = data ? 1 : -1, .shape = {n}, .stride = {1}}};
}

/* Updates with all optional parts; beta2 of sgd is its dampening. */
static const struct update_attr kinds[] = {
    {.kind = UPDATE_ADAMW, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .unbias = CLIP_UNBIAS1},
    {.kind = UPDATE_ADAMW,
     .beta1 = 0.8f,
     .beta2 = 0.9f,
     .eps = 1e-8f,
     .unbias = CLIP_UNBIAS1,
     .unclipped = 1,
     .ema_warmup = 1},
    {.kind = UPDATE_SGD},
    {.kind = UPDATE_SGD, .beta1 = 0.9f, .beta2 = 0.25f, .clip_value = 0.3f},
    {.kind = UPDATE_SGD, .beta1 = 0.9f, .nesterov = 1},
    {.kind = UPDATE_LION, .beta1 = 0.9f, .beta2 = 0.99f, .clip_value = 0.3f, .ema_warmup = 1},
    {.kind = UPDATE_STEP, .scale = 1.7f},
    {.kind = UPDATE_STEP, .scale = 1.f, .plain = 1},
};

enum { KINDS = sizeof kinds / sizeof *kinds };

/* One parameter that begins before the operand, and two inside it. */
static const struct rounding parts = {
    .begin = {0, 3}, .part = {{UINT64_C(0xfedcba9876543210), -192}, {22, 64}, {33, 640}}};

static struct ckpt_view state_view(struct operands *o, int i, int way, int64_t at, int64_t n)
{
    if (way & BYTES)
        return view(i == UPDATE_EXP_AVG ? o->byte_m : o->byte_v, CKPT_I32, mean8_words(n));
    if (way & NARROW)
        return view((i == UPDATE_EXP_AVG ? o->half_m : o->half_v) + at, CKPT_BF16, n);
    return view((i == UPDATE_EXP_AVG ? o->m : o->v) + at, CKPT_F32, n);
}

/* Updates elements [at, at + n) of o, which is in the memory of the kernel's processor. */
static void run(ckpt_kernel kernel, struct operands *o, int kind, int way, int64_t at, int64_t n)
{
    bool narrow = way & NARROW, value = narrow || way & WITH_VALUE, half = way & WITH_HALF;
    struct narrow_update_attr all = {.update = kinds[kind], .rounding = parts};
    struct update_attr *attr = &all.update;
    const struct ckpt_view none = view(NULL, CKPT_F32, 0);
    attr->lr_factor = 0.75f;
    attr->weight_decay = 0.013f;
    attr->ema_decay = 0.9999f;
    attr->narrow = way & BYTES ? NARROW_8BIT : narrow ? NARROW_BF16 : NARROW_NOT;
    struct ckpt_view in[UPDATE_STATES + 2] = {
        [UPDATE_VALUE] = value ? view(o->value + at, CKPT_BF16, n) : view(o->w + at, CKPT_F32, n),
        [UPDATE_MASTER] = view(value && !narrow ? o->w + at : NULL, CKPT_F32, n),
        [UPDATE_EXP_AVG] = update_has_mean(attr) ? state_view(o, UPDATE_EXP_AVG, way, at, n) : none,
        [UPDATE_EXP_AVG_SQ] =
            update_has_square(attr) ? state_view(o, UPDATE_EXP_AVG_SQ, way, at, n) : none,
        [UPDATE_EMA] = view(way & WITH_EMA ? o->ema + at : NULL, CKPT_F32, n),
        half ? view(o->half + at, CKPT_BF16, n) : view(o->g + at, CKPT_F32, n),
        view(o->clip, CKPT_F32, CLIP_VALUES)};
    struct ckpt_kernel_args a = {.in = in,
                                 .out = in,
                                 .n_in = UPDATE_STATES + 2,
                                 .n_out = UPDATE_STATES,
                                 .attr = attr,
                                 .run = &host.run,
                                 .run_device = &o->run};
    must(!kernel(&a), "the kernel");
}

/* Counts differences of bits; two NaNs are equal. */
static int differences(const float *a, const float *b)
{
    int n = 0;
    for (int i = 0; i < MOST; i++)
        n += memcmp(&a[i], &b[i], sizeof *a) && !(isnan(a[i]) && isnan(b[i]));
    return n;
}

static int half_differences(const uint16_t *a, const uint16_t *b)
{
    int n = 0;
    for (int i = 0; i < MOST; i++)
        n += a[i] != b[i] && !((a[i] & 0x7fff) > 0x7f80 && (b[i] & 0x7fff) > 0x7f80);
    return n;
}

/* Counts differences of codes and block maxima. */
static int word_differences(const int32_t *a, const int32_t *b)
{
    int n = 0;
    for (int i = 0; i < WORDS; i++)
        n += a[i] != b[i];
    return n;
}

static int test(struct operands *device, int kind, int way, int64_t at, int64_t n, bool wild)
{
    fill((uint64_t)(n * 16 + way), wild);
    if (way & BYTES) {
        mean8_to(host.m, n, false, host.byte_m);
        mean8_to(host.v, n, true, host.byte_v);
    }
    host.run.opt_step = kind % 3; /* 0: sgd has no dampening then */
    must(!cudaMemcpy(device, &host, sizeof host, cudaMemcpyHostToDevice), "copy");
    for (int i = 0; i < STEPS; i++) {
        run(cuda_update, device, kind, way, at, n);
        run(cpu_update, &host, kind, way, at, n);
    }
    must(!cudaMemcpy(&back, device, sizeof back, cudaMemcpyDeviceToHost), "copy");
    int differ =
        differences(back.w, host.w) + differences(back.m, host.m) + differences(back.v, host.v) +
        differences(back.ema, host.ema) + half_differences(back.value, host.value) +
        half_differences(back.half_m, host.half_m) + half_differences(back.half_v, host.half_v) +
        word_differences(back.byte_m, host.byte_m) + word_differences(back.byte_v, host.byte_v);
    if (differ)
        printf("FAIL kind %d, %lld elements from %lld,%s%s%s%s%s: %d differ\n", kind, (long long)n,
               (long long)at, way & WITH_VALUE ? " bf16 value" : "",
               way & BYTES    ? " 8-bit state"
               : way & NARROW ? " bf16 state"
                              : "",
               way & WITH_HALF ? " bf16 gradient" : "", way & WITH_EMA ? " EMA" : "",
               wild ? " any exponent" : "", differ);
    return differ;
}

/* m becomes v, or stays unchanged if the norm is not finite. */
static int test_assign(struct operands *device, float norm)
{
    fill(7, false);
    host.clip[CLIP_NORM] = norm;
    must(!cudaMemcpy(device, &host, sizeof host, cudaMemcpyHostToDevice), "copy");
    for (int i = 0; i < 2; i++) {
        struct operands *o = i ? &host : device;
        struct ckpt_view in[] = {view(o->m, CKPT_F32, MOST), view(o->v, CKPT_F32, MOST),
                                 view(o->clip, CKPT_F32, CLIP_VALUES)};
        struct ckpt_kernel_args a = {.in = in, .out = in, .n_in = 3, .n_out = 1};
        must(!(i ? cpu_assign(&a) : cuda_assign(&a)), "assign");
    }
    must(!cudaMemcpy(&back, device, sizeof back, cudaMemcpyDeviceToHost), "copy");
    bool taken = memcmp(host.m, host.v, sizeof host.m) == 0;
    int failed = differences(back.m, host.m) || taken != (bool)isfinite(norm);
    if (failed)
        printf("FAIL assign, norm %g\n", (double)norm);
    return failed;
}

/* The same for a bf16 state: a mean and a mean of squares. */
static int test_assign_narrow(struct operands *device, int noise, int64_t n, float norm)
{
    const struct narrow_assign_attr attr = {.noise = noise, .rounding = parts};
    fill(7, false);
    host.clip[CLIP_NORM] = norm;
    memset(host.half_m, 0, sizeof host.half_m);
    must(!cudaMemcpy(device, &host, sizeof host, cudaMemcpyHostToDevice), "copy");
    for (int i = 0; i < 2; i++) {
        struct operands *o = i ? &host : device;
        struct ckpt_view in[] = {view(o->half_m, CKPT_BF16, n), view(o->v, CKPT_F32, n),
                                 view(o->clip, CKPT_F32, CLIP_VALUES)};
        struct ckpt_kernel_args a = {.in = in,
                                     .out = in,
                                     .n_in = 3,
                                     .n_out = 1,
                                     .attr = &attr,
                                     .run = &host.run,
                                     .run_device = &device->run};
        must(!(i ? cpu_assign(&a) : cuda_assign(&a)), "assign");
    }
    must(!cudaMemcpy(&back, device, sizeof back, cudaMemcpyDeviceToHost), "copy");
    bool taken = host.half_m[n - 1] != 0;
    int failed = half_differences(back.half_m, host.half_m) || taken != (bool)isfinite(norm);
    if (failed)
        printf("FAIL assign of bf16, norm %g\n", (double)norm);
    return failed;
}

/* Three pairs of betas, the step and the learning rate; powers may differ in the last digits. */
static int test_clip(struct operands *device)
{
    const struct clip_attr attr = {.clip_norm = 0.5f,
                                   .beta1 = 0.9f,
                                   .beta2 = 0.999f,
                                   .more = 2,
                                   .scalars = 1,
                                   .beta = {0.8f, 0.9f, 0.95f, 0.99f}};
    int n = clip_values(&attr), failed = 0;
    fill(9, false);
    host.run.opt_step = 4;
    host.g[0] = 2.f, host.g[1] = 0.75f;
    must(!cudaMemcpy(device, &host, sizeof host, cudaMemcpyHostToDevice), "copy");
    for (int i = 0; i < 2; i++) {
        struct operands *o = i ? &host : device;
        struct ckpt_view in[] = {view(o->g, CKPT_F32, 1), view(o->g + 1, CKPT_F32, 1)};
        struct ckpt_view out = view(o->w, CKPT_F32, n);
        struct ckpt_kernel_args a = {.in = in,
                                     .out = &out,
                                     .n_in = 2,
                                     .n_out = 1,
                                     .attr = &attr,
                                     .workspace = device->ema,
                                     .run = &host.run,
                                     .run_device = &device->run};
        must(!(i ? cpu_clip_coefficient(&a) : cuda_clip_coefficient(&a)), "clip values");
    }
    must(!cudaMemcpy(&back, device, sizeof back, cudaMemcpyDeviceToHost), "copy");
    for (int i = 0; i < n; i++)
        if (!(fabsf(back.w[i] - host.w[i]) <= 1e-6f * fabsf(host.w[i]))) {
            printf("FAIL clip value %d: %g and %g\n", i, (double)back.w[i], (double)host.w[i]);
            failed = 1;
        }
    return failed;
}

int main(void)
{
    static const int64_t sizes[] = {1, 5, 31, 1000, 1024, 1027, MOST - 4};
    struct operands *device;
    int n = 0, failed = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess || !n) {
        printf("skipped: no GPU\n");
        return 77;
    }
    must(!cudaMalloc((void **)&device, sizeof *device), "device memory");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int way = 0; way < 2 * WAYS; way++) /* at whole vectors, and not */
            for (int kind = 0; kind < KINDS; kind++)
                failed += test(device, kind, way % WAYS, way / WAYS, sizes[i], i % 2) > 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int way = 0; way < 2 * WAYS; way++)
            for (int kind = 0; kind < KINDS; kind++)
                if (way & NARROW && !(way & WITH_VALUE))
                    failed +=
                        test(device, kind, way % WAYS | BYTES, way / WAYS, sizes[i], i % 2) > 0;
    for (int i = 0; i < 2; i++)
        failed += test_assign(device, i ? NAN : 1.f);
    for (int i = 0; i < 4; i++)
        failed += test_assign_narrow(device, i % 2 ? NOISE_MEAN : NOISE_SQUARE, MOST - i,
                                     i / 2 ? NAN : 1.f);
    failed += test_clip(device);
    cudaFree(device);
    printf("%d of %d differ\n", failed,
           (int)(sizeof sizes / sizeof *sizes) * (2 * WAYS + WAYS / 2) * KINDS + 7);
    return failed > 0;
}
