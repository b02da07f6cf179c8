/*
 * Does cuDNN take our graphs, in the workspace that the shape rules give them?  It decides from a
 * description of a device, so that no device is needed: only the last step, loading the compiled
 * kernels, fails without one.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include "cuda/cudnn_attention.h"
#include "cuda/workspace.h"

static const char h100[] =
    "{\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"
    "\"regsPerBlock\":65536,\"multiProcessorCount\":132,\"warpSize\":32,"
    "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":232448,"
    "\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,"
    "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,\"isTccDriver\":0,"
    "\"supportCoopLaunch\":1,\"smClockRateKHz\":1980000,\"memClockRateKHz\":2619000,"
    "\"l2CacheSize\":52428800,\"deviceName\":\"NVIDIA H100 80GB HBM3\",\"deviceVer\":900,"
    "\"driverVer\":13000,\"cudaDeviceId\":0,\"totalGlobalMem\":85000000000}";

static int failed;

/* Is a recipe accepted, as it should be? */
static void check(const char *name, const struct cudnn_recipe *recipe, bool expected)
{
    struct cudnn_plan *plan = cudnn_plan_make(recipe, NULL, h100);
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
 * attended over; the others are dense in the same order. */
static struct cudnn_attention_spec packed(int64_t outer, int64_t inner, int64_t heads,
                                          int64_t width, bool over_outer)
{
    const int64_t length = over_outer ? outer : inner;
    struct cudnn_attention_spec s = {.batch = over_outer ? inner : outer,
                                     .heads = heads,
                                     .queries = length,
                                     .keys = length,
                                     .width = width};
    for (int i = 0; i < CUDNN_ATTENTION_OPERANDS; i++) {
        int64_t row = (i <= CUDNN_ATTENTION_V ? 3 : 1) * heads * width;
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
    const struct cudnn_limits limits = {.workspace = CUDA_ATTENTION_CUDNN};
    char what[80];
    snprintf(what, sizeof what, "%s, forward", name);
    check(what, &(struct cudnn_recipe){cudnn_attention_forward, &s, sizeof s, limits}, expected);
    snprintf(what, sizeof what, "%s, backward", name);
    check(what, &(struct cudnn_recipe){cudnn_attention_backward, &s, sizeof s, limits}, expected);
}

/* ---- convolution --------------------------------------------------------------------------- */

struct conv {
    enum cudnn_conv_kind kind;
    cudnnDataType_t type;
};

/* [1, 17, 60, 104, channels], channels last. */
static cudnn_tensor image(struct cudnn_graph *g, int64_t uid, cudnnDataType_t type,
                          int64_t channels)
{
    struct cudnn_tensor_spec t = {
        .uid = uid,
        .type = type,
        .ndim = 5,
        .shape = {1, channels, 17, 60, 104},
        .stride = {17 * 60 * 104 * channels, 1, 60 * 104 * channels, 104 * channels, channels}};
    return cudnn_graph_tensor(g, &t);
}

/* Causal in time: all padding comes before. */
static void describe_conv(struct cudnn_graph *g, const void *spec)
{
    const struct conv *s = spec;
    const struct cudnn_conv_spec conv = {.ndim = 3,
                                         .before = {2, 1, 1},
                                         .after = {0, 1, 1},
                                         .stride = {1, 1, 1},
                                         .dilation = {1, 1, 1}};
    struct cudnn_tensor_spec w = {.uid = 2,
                                  .type = s->type,
                                  .ndim = 5,
                                  .shape = {64, 128, 3, 3, 3},
                                  .stride = {27 * 128, 1, 9 * 128, 3 * 128, 128}};
    cudnn_tensor x = image(g, 1, s->type, 128), y = image(g, 3, s->type, 64);
    cudnn_graph_conv(g, s->kind, &conv, x, cudnn_graph_tensor(g, &w), y);
}

static void check_conv(const char *name, struct conv s, struct cudnn_limits limits)
{
    check(name, &(struct cudnn_recipe){describe_conv, &s, sizeof s, limits}, true);
}

static void check_convs(void)
{
    const struct cudnn_limits bf16 = {.workspace = 4 << 20, .deterministic = true};
    const struct cudnn_limits f32 = {.workspace = 4 << 20, .deterministic = true, .exact = true};
    check_conv("conv bf16, y", (struct conv){CUDNN_CONV_Y, CUDNN_DATA_BFLOAT16}, bf16);
    check_conv("conv bf16, dx", (struct conv){CUDNN_CONV_DX, CUDNN_DATA_BFLOAT16}, bf16);
    check_conv("conv bf16, dw", (struct conv){CUDNN_CONV_DW, CUDNN_DATA_BFLOAT16}, bf16);
    check_conv("conv fp32, y", (struct conv){CUDNN_CONV_Y, CUDNN_DATA_FLOAT}, f32);
    check_conv("conv fp32, dx", (struct conv){CUDNN_CONV_DX, CUDNN_DATA_FLOAT}, f32);
    check_conv("conv fp32, dw", (struct conv){CUDNN_CONV_DW, CUDNN_DATA_FLOAT}, f32);
}

/* ---- limits and mistakes ------------------------------------------------------------------- */

static void describe_nothing(struct cudnn_graph *g, const void *spec)
{
    (void)spec;
    cudnn_graph_matmul(g, CUDNN_NO_TENSOR, CUDNN_NO_TENSOR, CUDNN_NO_TENSOR);
}

static void check_refusals(void)
{
    const struct cudnn_limits none = {.workspace = 16};
    struct cudnn_attention_spec s = packed(2, 200, 4, 64, false);
    check("no workspace", &(struct cudnn_recipe){cudnn_attention_backward, &s, sizeof s, none},
          false);
    check("operands absent", &(struct cudnn_recipe){describe_nothing, &s, sizeof s, none}, false);
}

/* The driver, or the stub that the toolkit has for linking; cuDNN finds what is loaded by name. */
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
    check_convs();
    check_refusals();
    return failed != 0;
}
