/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether cuDNN accepts our graphs with the workspace of the shape rules.  It decides from the
 * description of a device, so no device is needed: only the last step, loading the compiled
 * kernels, fails without one.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include "kernels/cuda/attention/attention_workspace.h"
#include "kernels/cuda/attention/cudnn_attention.h"
#include "kernels/cuda/cudnn_conv.h"

static const char h100[] =
    "{\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"
    "\"regsPerBlock\":65536,\"multiProcessorCount\":132,\"warpSize\":32,"
    "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":232448,"
    "\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,"
    "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,\"isTccDriver\":0,"
    "\"supportCoopLaunch\":1,\"smClockRateKHz\":1980000,\"memClockRateKHz\":2619000,"
    "\"l2CacheSize\":52428800,\"deviceName\":\"NVIDIA H100 80GB HBM3\",\"deviceVer\":900,"
    "\"driverVer\":13000,\"cudaDeviceId\":0,\"totalGlobalMem\":85000000000}";

static int failed, families;

/* The family of the last recipe that has one: the next mostly has the same. */
static struct cudnn_family *family;
static char family_of[2 * sizeof(struct cudnn_conv_graph)];

static struct cudnn_family *find_family(const struct cudnn_recipe *recipe)
{
    char of[sizeof family_of] = {0};
    for (int i = 0; i < recipe->n_like; i++)
        memcpy(of + i * (int)recipe->spec_size, recipe->like[i].spec, recipe->spec_size);
    if (!recipe->n_like || !memcmp(of, family_of, sizeof of))
        return recipe->n_like ? family : NULL;
    memcpy(family_of, of, sizeof of);
    cudnn_family_free(family);
    family = cudnn_family_make(recipe, NULL, h100);
    families++;
    return family;
}

/* Whether a recipe is accepted, as expected. */
static void check(const char *name, const struct cudnn_recipe *recipe, bool expected)
{
    struct cudnn_plan *plan = cudnn_plan_make(recipe, NULL, h100, find_family(recipe));
    bool accepted = plan && (cudnn_plan_accepted(plan) || cudnn_plan_broken(plan));
    bool fits = plan && cudnn_plan_workspace(plan) <= recipe->limits.workspace;
    printf("%-28s %s, workspace %lld\n", name, accepted ? "accepted" : "refused",
           plan ? (long long)cudnn_plan_workspace(plan) : -1LL);
    if (accepted != expected || !fits) {
        printf("  not as expected: %s\n", plan ? cudnn_plan_reason(plan) : "no memory");
        failed++;
    }
    cudnn_plan_free(plan);
}

/* ---- attention ----------------------------------------------------------------------------- */

/* q, k and v are thirds of one projection [outer, inner, 3, heads, width] of which one axis is
 * attended over, and the gradient of v is a third of that of the projection; the others are dense
 * in the same order. */
static struct cudnn_attention_spec packed(int64_t outer, int64_t inner, int64_t heads,
                                          int64_t width, bool over_outer)
{
    const int64_t length = over_outer ? outer : inner;
    struct cudnn_attention_spec s = {.batch = over_outer ? inner : outer,
                                     .heads = heads,
                                     .shared = heads,
                                     .queries = length,
                                     .keys = length,
                                     .width = width};
    for (int i = 0; i < CUDNN_ATTENTION_OPERANDS; i++) {
        bool third = i <= CUDNN_ATTENTION_V || i == CUDNN_ATTENTION_DV;
        int64_t row = (third ? 3 : 1) * heads * width;
        s.stride[i].row = over_outer ? inner * row : row;
        s.stride[i].batch = over_outer ? row : inner * row;
        s.stride[i].head = width;
    }
    s.stride[CUDNN_ATTENTION_LSE].row = 1;
    s.stride[CUDNN_ATTENTION_LSE].head = length;
    s.stride[CUDNN_ATTENTION_LSE].batch = heads * length;
    return s;
}

static void check_attention(const char *name, struct cudnn_attention_spec s, bool expected)
{
    struct cudnn_recipe recipe = {.describe = cudnn_attention_forward,
                                  .spec = &s,
                                  .spec_size = sizeof s,
                                  .limits = {.workspace = CUDA_ATTENTION_CUDNN}};
    const struct cuda_attention_sizes sizes = {.n_sequences = s.batch,
                                               .n_heads = s.heads,
                                               .n_shared = s.shared,
                                               .n_queries = s.queries,
                                               .n_keys = s.keys,
                                               .width = s.width};
    char what[80];
    snprintf(what, sizeof what, "%s, forward", name);
    check(what, &recipe, expected);
    recipe.describe = cudnn_attention_backward;
    recipe.limits.workspace += cuda_attention_shared_bytes(&sizes, s.batch * s.heads);
    snprintf(what, sizeof what, "%s, backward", name);
    check(what, &recipe, expected);
    if (!cuda_attention_in_ordered(&sizes))
        return;
    recipe.describe = cudnn_attention_ordered;
    recipe.limits.deterministic = true;
    recipe.limits.workspace += s.batch * s.heads * cuda_attention_ordered_bytes(&sizes);
    snprintf(what, sizeof what, "%s, ordered", name);
    check(what, &recipe, expected);
}

/* Dense q [batch, length, heads, width] on k and v of `shared` heads. */
static struct cudnn_attention_spec causal(int64_t batch, int64_t length, int64_t heads,
                                          int64_t shared, int64_t width, int64_t window)
{
    struct cudnn_attention_spec s = packed(batch, length, heads, width, false);
    s.shared = shared;
    s.causal = 1;
    s.window = window;
    for (int i = 0; i < CUDNN_ATTENTION_OPERANDS; i++) {
        bool key = i == CUDNN_ATTENTION_K || i == CUDNN_ATTENTION_V || i == CUDNN_ATTENTION_DK ||
                   i == CUDNN_ATTENTION_DV;
        if (i == CUDNN_ATTENTION_LSE)
            continue;
        s.stride[i].row = (key ? shared : heads) * width;
        s.stride[i].batch = length * s.stride[i].row;
    }
    return s;
}

/* ---- convolutions of a video autoencoder ---------------------------------------------------- */

static struct cudnn_recipe conv_recipe(const struct cudnn_conv_graph *k, enum ckpt_dtype dtype)
{
    return (struct cudnn_recipe){.describe = cudnn_conv_describe,
                                 .spec = k,
                                 .spec_size = sizeof *k,
                                 .limits = {.workspace = cuda_conv_workspace(&k->s, dtype),
                                            .deterministic = true,
                                            .exact = dtype == CKPT_F32}};
}

/* All three products, with a bias where one is possible; gradients of bf16 weights precede the
 * workspace. */
static void check_conv(const char *name, enum ckpt_dtype dtype, const struct conv_shape *s)
{
    static const char *const kinds[] = {"y", "dx", "dw"};
    for (int kind = CUDNN_CONV_Y; kind <= CUDNN_CONV_DW; kind++) {
        char what[80];
        struct cudnn_conv_graph k = cudnn_conv_graph(s, dtype, (enum cudnn_conv_kind)kind);
        struct cudnn_recipe recipe = conv_recipe(&k, dtype);
        k.bias = kind == CUDNN_CONV_Y;
        k.add = kind == CUDNN_CONV_DW && dtype == CKPT_F32;
        snprintf(what, sizeof what, "%s, %s, %s", name, dtype == CKPT_F32 ? "fp32" : "bf16",
                 kinds[kind]);
        check(what, &recipe, true);
    }
}

/* A square or a cube of kernel taps over [frames, side, side]; out is what a shape rule finds. */
static struct conv_shape square(int64_t n, int64_t frames, int64_t side, int64_t c, int64_t k,
                                int64_t taps)
{
    struct conv_shape s = {.n = n, .c = c, .k = k, .dilation = {1, 1, 1}, .groups = 1};
    for (int i = 0; i < 3; i++) {
        s.in[i] = s.out[i] = i ? side : frames;
        s.kernel[i] = i || frames > 1 ? taps : 1;
        s.stride[i] = 1;
        s.before[i] = s.after[i] = s.kernel[i] / 2;
    }
    if (frames > 1) { /* causal */
        s.before[0] = taps - 1;
        s.after[0] = 0;
    }
    return s;
}

static void check_like(const char *name, enum ckpt_dtype dtype, const struct conv_shape *s)
{
    struct cudnn_conv_graph k = cudnn_conv_graph(s, dtype, CUDNN_CONV_Y), fixed[CUDNN_LIKE];
    struct cudnn_recipe recipe = conv_recipe(&k, dtype), like[CUDNN_LIKE];
    k.bias = 1;
    cudnn_conv_like(&k, fixed);
    for (int i = 0; i < CUDNN_LIKE; i++)
        like[i] = conv_recipe(&fixed[i], dtype);
    recipe.like = like;
    recipe.n_like = CUDNN_LIKE;
    check(name, &recipe, true);
}

/* Bands and parts of a picture use the engine of another size: it must support them all. */
static void check_invariant(const char *name, enum ckpt_dtype dtype, struct conv_shape s)
{
    static const int64_t samples[] = {1, 4, 17}, rows[] = {3, 8, 33, 90, 720};
    s.invariant = 1;
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++)
        for (size_t j = 0; j < sizeof rows / sizeof *rows; j++) {
            char what[80];
            s.n = samples[i];
            s.out[1] = rows[j];
            s.in[1] = (rows[j] - 1) * s.stride[1] + s.kernel[1] - s.before[1] - s.after[1];
            snprintf(what, sizeof what, "%s, %d x %d rows", name, (int)s.n, (int)s.out[1]);
            check_like(what, dtype, &s);
        }
}

/* Parts of a clip: kernels of three frames over the available frames. */
static void check_frames(const char *name, int64_t height, int64_t width, int64_t c, int64_t k)
{
    static const int64_t frames[] = {1, 2, 3, 8, 13, 16, 45};
    for (size_t i = 0; i < sizeof frames / sizeof *frames; i++) {
        char what[80];
        struct conv_shape s = square(1, frames[i] + 2, height, c, k, 3);
        s.invariant = 1;
        s.before[0] = 0;
        s.out[0] = frames[i];
        s.in[2] = s.out[2] = width;
        snprintf(what, sizeof what, "%s, %d frames", name, (int)frames[i]);
        check_like(what, CKPT_BF16, &s);
    }
}

static void check_convs(void)
{
    struct conv_shape causal = square(1, 20, 32, 128, 256, 3);
    struct conv_shape halved = square(17, 1, 256, 128, 128, 3);
    struct conv_shape first = square(17, 1, 256, 3, 128, 3);
    struct conv_shape last = square(1, 20, 32, 128, 4, 3);
    struct conv_shape pointwise = square(1, 5, 32, 512, 8, 1);
    for (int i = 1; i < 3; i++) {
        halved.stride[i] = 2;
        halved.before[i] = 0;
        halved.out[i] = 128;
    }
    check_conv("causal", CKPT_BF16, &causal);
    check_conv("causal", CKPT_F32, &causal);
    check_conv("halved", CKPT_BF16, &halved);
    check_conv("3 channels in", CKPT_BF16, &first);
    check_conv("4 channels out", CKPT_BF16, &last);
    check_conv("pointwise", CKPT_BF16, &pointwise);
    check_conv("pointwise", CKPT_F32, &pointwise);
    struct conv_shape dilated = square(8, 1, 56, 256, 256, 3), grouped = dilated;
    struct conv_shape sequence = square(4, 1, 1, 128, 256, 1), turned = halved;
    for (int i = 1; i < 3; i++)
        dilated.dilation[i] = dilated.before[i] = dilated.after[i] = 2;
    grouped.groups = 32;
    sequence.in[2] = sequence.out[2] = 4096;
    sequence.kernel[2] = 5;
    sequence.before[2] = 16;
    sequence.dilation[2] = 4;
    check_conv("dilated", CKPT_BF16, &dilated);
    check_conv("dilated", CKPT_F32, &dilated);
    check_conv("grouped", CKPT_BF16, &grouped);
    check_conv("grouped", CKPT_F32, &grouped);
    check_conv("sequence", CKPT_BF16, &sequence);
    for (int i = 1; i < 3; i++) { /* a transposed one: 4 x 4 taps, twice as large */
        turned.kernel[i] = 4;
        turned.before[i] = turned.after[i] = 1;
    }
    check_conv("transposed", CKPT_BF16, &turned);
    struct conv_shape picture = square(17, 1, 256, 128, 256, 3);
    struct conv_shape colours = square(17, 1, 256, 128, 3, 3);
    halved.after[1] = halved.after[2] = 1;
    check_invariant("picture", CKPT_BF16, picture);
    check_invariant("halved, invariant", CKPT_BF16, halved);
    check_invariant("3 channels out", CKPT_BF16, colours);
    struct conv_shape parts = square(17, 1, 256, 256, 256, 3);
    parts.groups = 32;
    check_invariant("grouped", CKPT_BF16, parts);
    check_invariant("grouped, fp32", CKPT_F32, parts);
    check_frames("clip", 480, 720, 128, 128);
    check_frames("clip, 3 channels out", 480, 720, 128, 3);
    check_frames("clip, half", 240, 360, 256, 256);
    check_frames("clip, quarter", 120, 180, 512, 512);
    check_frames("clip of latents", 60, 90, 16, 512);
    printf("%d families\n", families);
    if (families != 10) { /* one for each name, whatever the sizes */
        printf("  not 10: a family depends on sizes\n");
        failed++;
    }
}

/* ---- limits and mistakes ------------------------------------------------------------------- */

static void describe_nothing(struct cudnn_graph *g, const void *spec)
{
    (void)spec;
    cudnn_graph_matmul(g, CUDNN_NO_TENSOR, CUDNN_NO_TENSOR, CUDNN_NO_TENSOR);
}

static void check_refusals(void)
{
    struct cudnn_attention_spec s = packed(2, 200, 4, 64, false);
    struct cudnn_recipe recipe = {.describe = cudnn_attention_backward,
                                  .spec = &s,
                                  .spec_size = sizeof s,
                                  .limits = {.workspace = 16}};
    check("no workspace", &recipe, false);
    recipe.describe = describe_nothing;
    check("operands absent", &recipe, false);
}

/* The driver, or the toolkit's stub for linking; cuDNN finds the loaded library by name. */
static bool load_driver(void)
{
    return dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) ||
           dlopen(CKPT_CUDA_DIR "/lib64/stubs/libcuda.so", RTLD_NOW | RTLD_GLOBAL) ||
           dlopen(CKPT_CUDA_DIR "/lib/stubs/libcuda.so", RTLD_NOW | RTLD_GLOBAL);
}

int main(void)
{
    if (!load_driver()) {
        printf("skipped: no libcuda.so.1, and no stub of it in %s\n", CKPT_CUDA_DIR);
        return 77;
    }
    printf("cuDNN %zu\n", cudnnGetVersion());
    check_attention("15 x 920 places", packed(15, 920, 16, 72, false), true);
    check_attention("240 frames x 36", packed(240, 36, 16, 72, true), true);
    check_attention("width 100", packed(2, 200, 4, 100, false), false);
    check_attention("GPT-2", causal(64, 1024, 12, 12, 64, 0), true);
    check_attention("Llama 3", causal(2, 4096, 32, 8, 128, 0), true);
    check_attention("Qwen 2.5, 1000 tokens", causal(1, 1000, 14, 2, 64, 0), true);
    check_attention("window", causal(2, 2048, 8, 8, 128, 256), true);
    check_attention("window, grouped", causal(2, 2048, 8, 2, 64, 256), true);
    check_attention("256 wide", packed(2, 500, 4, 256, false), true);
    check_attention("causal, 256 wide", causal(2, 512, 4, 4, 256, 0), true);
    check_attention("window, grouped, 256 wide", causal(1, 1000, 4, 2, 256, 99), true);
    check_attention("causal, 160 wide", causal(1, 1000, 2, 2, 160, 0), true);
    check_convs();
    check_refusals();
    cudnn_family_free(family);
    return failed != 0;
}
