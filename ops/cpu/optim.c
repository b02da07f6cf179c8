/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizer's kernels: sums of squares, the clip values, updates and assignments. */
#include "attr.h"
#include "kernels.h"
#include "optim/update_math.h"
#include "optim/host_update.h"
#include "optim/optim.h"
#include "report.h"
#include "rows.h"

CKPT_CLONES static double sum_squares_f32(const float *g, int64_t n)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += (double)g[i] * (double)g[i];
    return sum;
}

CKPT_CLONES static double sum_squares_bf16(const uint16_t *g, int64_t n)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += (double)bf16_load(g[i]) * (double)bf16_load(g[i]);
    return sum;
}

/* Elements [i, i + n) of a gradient. */
static double sum_squares_leaf(const struct ckpt_view *v, int64_t i, int64_t n)
{
    return view_half(v) ? sum_squares_bf16((const uint16_t *)v->data + i, n)
                        : sum_squares_f32((const float *)v->data + i, n);
}

/* The sum over one tensor. */
static double sum_squares_of(const struct ckpt_view *v, double *partial)
{
    int64_t n = desc_numel(&v->desc), chunks = optim_chunks(&v->desc);
    double sum = 0;
#pragma omp parallel for schedule(static) if (chunks > 1)
    for (int64_t i = 0; i < chunks; i++)
        partial[i] =
            sum_squares_leaf(v, i * OPTIM_CHUNK, min_i64(OPTIM_CHUNK, n - i * OPTIM_CHUNK));
    for (int64_t i = 0; i < chunks; i++)
        sum += partial[i];
    return sum;
}

int cpu_sum_squares(const struct ckpt_kernel_args *a)
{
    double sum = 0;
    for (int i = 0; i < a->n_in; i++)
        sum += sum_squares_of(&a->in[i], a->workspace);
    if (report_is_halted(a->run)) /* other ranks learn of it by the sum */
        sum = NAN;
    *(float *)a->out[0].data = (float)sum;
    return CKPT_OK;
}

int cpu_clip_coefficient(const struct ckpt_kernel_args *a)
{
    const struct clip_attr *attr = a->attr;
    float *out = a->out[0].data;
    double sum = isfinite(*(const float *)a->in[0].data) ? 0 : NAN; /* the loss */
    for (int i = 1; i < a->n_in; i++)
        sum += *(const float *)a->in[i].data;
    if (report_is_halted(a->run))
        sum = NAN;
    double norm = sqrt(sum), factor = attr->clip_norm / (norm + 1e-6);
    double k = (double)a->run->opt_step + 1;
    out[CLIP_NORM] = (float)norm;
    if (!isfinite(out[CLIP_NORM]))
        report_halt(a->run, HALT_NAN);
    out[CLIP_FACTOR] = attr->clip_norm > 0.f && factor < 1 ? (float)factor : 1.f;
    out[CLIP_UNBIAS1] = (float)(1.0 / (1.0 - pow((double)attr->beta1, k)));
    out[CLIP_UNBIAS2] = (float)(1.0 / (1.0 - pow((double)attr->beta2, k)));
    for (int i = 0; i < 2 * attr->more; i++)
        out[CLIP_VALUES + i] = (float)(1.0 / (1.0 - pow((double)attr->beta[i], k)));
    if (attr->scalars) {
        out[clip_step(attr)] = (float)k;
        out[clip_step(attr) + 1] = a->run->lr;
    }
    return CKPT_OK;
}

static void update_param(const struct update_constants *c, const struct ckpt_view *state,
                         const struct ckpt_view *gradient, bool *broken)
{
    const bool half = view_half(&state[UPDATE_VALUE]);
    struct host_update p = {
        .w = state[half ? UPDATE_MASTER : UPDATE_VALUE].data,
        .m = state[UPDATE_EXP_AVG].data,
        .v = state[UPDATE_EXP_AVG_SQ].data,
        .ema = state[UPDATE_EMA].data,
        .value = half ? state[UPDATE_VALUE].data : NULL,
        .gradient = gradient->data,
        .half = view_half(gradient),
        .n = desc_numel(&state[UPDATE_VALUE].desc),
        .broken = broken,
    };
    host_update(c, &p);
}

/* The values as they were: the room of one may hold its gradient. */
static void restore_values(const struct ckpt_kernel_args *a)
{
    for (int k = 0; k < update_params(a->n_in); k++) {
        const struct ckpt_view *state = a->out + k * UPDATE_STATES;
        const float *master = state[UPDATE_MASTER].data;
        uint16_t *value = state[UPDATE_VALUE].data;
        int64_t n = view_half(&state[UPDATE_VALUE]) ? desc_numel(&state[UPDATE_VALUE].desc) : 0;
        for (int64_t i = 0; i < n; i++)
            value[i] = bf16_round(master[i]);
    }
}

int cpu_update(const struct ckpt_kernel_args *a)
{
    const struct ckpt_view *gradient = a->in + a->n_out;
    const float *clip = a->in[a->n_in - 1].data;
    if (!isfinite(clip[CLIP_NORM])) {
        restore_values(a);
        return CKPT_OK;
    }
    bool broken = false;
    struct update_constants c = update_constants_of(a->attr);
    update_begin(&c, a->attr, clip, a->run->lr, a->run->opt_step);
    for (int k = 0; k < update_params(a->n_in); k++)
        update_param(&c, a->out + k * UPDATE_STATES, &gradient[k], &broken);
    if (broken)
        report_halt(a->run, HALT_UPDATE + (int32_t)(a->run->opt_step & 1));
    return CKPT_OK;
}

int cpu_assign(const struct ckpt_kernel_args *a)
{
    const float *clip = a->in[a->n_in - 1].data;
    for (int k = 0; k < a->n_out && isfinite(clip[CLIP_NORM]); k++)
        memcpy(a->out[k].data, a->in[a->n_out + k].data, (size_t)desc_bytes(&a->out[k].desc));
    return CKPT_OK;
}
