/*
 * Convolutions by cuDNN.  Every engine must give the same bits every time, and keep fp32 as it is.
 * What cuDNN refuses goes to conv_direct.cu.
 */
#include "cuda/conv_direct.h"
#include "cuda/cudnn_conv.h"
#include "cuda/kernels.h"
#include "cuda/workspace.h"

/* The plan that cuDNN has for k, or NULL: also where an address is not aligned as it was told. */
static int find_plan(const struct ckpt_kernel_args *a, const struct cudnn_conv_graph *k,
                     int64_t workspace, void *const *pointers, const struct cudnn_plan **plan)
{
    struct cudnn_recipe recipe = {.describe = cudnn_conv_describe,
                                  .spec = k,
                                  .spec_size = sizeof *k,
                                  .limits = {workspace, true, true}};
    recipe.limits.exact = k->dtype == CKPT_F32;
    *plan = NULL;
    for (int i = 0; i < 4; i++)
        if ((uintptr_t)pointers[i] % 16)
            return CKPT_OK;
    int rc = cudnn_plan_get(a->device, a->stream, &recipe, plan);
    if (!rc && !cudnn_plan_accepted(*plan))
        *plan = NULL;
    return rc;
}

static int run_plan(const struct ckpt_kernel_args *a, const struct cudnn_conv_graph *k,
                    const struct cudnn_plan *plan, void *const *pointers, void *workspace)
{
    static const int64_t uids[] = {CUDNN_CONV_UID_X, CUDNN_CONV_UID_W, CUDNN_CONV_UID_Y,
                                   CUDNN_CONV_UID_BIAS};
    return cudnn_plan_run(a->device, a->stream, plan, k->bias ? 4 : 3, uids, pointers, workspace);
}

int cuda_conv(const struct ckpt_kernel_args *a)
{
    struct ckpt_desc in[] = {a->in[0].desc, a->in[1].desc};
    struct conv_shape s = conv_shape_forward(in, a->attr);
    struct cudnn_conv_graph k = cudnn_conv_graph(&s, in[0].dtype, CUDNN_CONV_Y);
    void *const pointers[] = {a->in[0].data, a->in[1].data, a->out[0].data, a->in[2].data};
    const struct cudnn_plan *plan;
    k.bias = a->in[2].data != NULL;
    int rc = find_plan(a, &k, a->workspace_bytes, pointers, &plan);
    if (rc)
        return rc;
    return plan ? run_plan(a, &k, plan, pointers, a->workspace) : cuda_conv_direct(a, &s);
}

int cuda_conv_dx(const struct ckpt_kernel_args *a)
{
    struct ckpt_desc in[] = {a->in[0].desc, a->in[1].desc};
    struct conv_shape s = conv_shape_dx(in, a->attr);
    struct cudnn_conv_graph k = cudnn_conv_graph(&s, in[0].dtype, CUDNN_CONV_DX);
    void *const pointers[] = {a->out[0].data, a->in[1].data, a->in[0].data, NULL};
    const struct cudnn_plan *plan;
    int rc = find_plan(a, &k, a->workspace_bytes, pointers, &plan);
    if (rc)
        return rc;
    return plan ? run_plan(a, &k, plan, pointers, a->workspace) : cuda_conv_dx_direct(a, &s);
}

/*
 * cuDNN's engines make the gradient of bf16 operands in bf16: it goes to the front of the workspace
 * and is widened, or added, from there.
 */
int cuda_conv_dw(const struct ckpt_kernel_args *a)
{
    struct ckpt_desc in[] = {a->in[0].desc, a->in[1].desc};
    struct conv_shape s = conv_shape_dw(in, a->attr);
    struct cudnn_conv_graph k = cudnn_conv_graph(&s, in[0].dtype, CUDNN_CONV_DW);
    bool narrow = k.dtype == CKPT_BF16;
    int64_t front = narrow ? cuda_conv_dw_front(&s) : 0;
    void *dw = narrow ? a->workspace : a->out[0].data;
    void *const pointers[] = {a->in[1].data, dw, a->in[0].data, NULL};
    const struct cudnn_plan *plan;
    k.add = a->accumulate && !narrow;
    int rc = find_plan(a, &k, a->workspace_bytes - front, pointers, &plan);
    if (rc)
        return rc;
    if (!plan)
        return cuda_conv_dw_direct(a, &s);
    rc = run_plan(a, &k, plan, pointers, (char *)a->workspace + front);
    return rc || !narrow ? rc : cuda_conv_widen(a);
}
