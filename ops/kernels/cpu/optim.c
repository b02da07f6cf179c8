/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizer kernels: sums of squares, clip values, updates and assignments. */
#include "attr.h"
#include "kernels.h"
#include "optim/update_math.h"
#include "optim/host_update.h"
#include "optim/optim.h"
#include "report.h"
#include "rows.h"

#define NOISE_BLOCK 256 /* random words drawn at once */

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

/* The sum over elements [i, i + n) of a gradient. */
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
    /* the sum tells the other ranks */
    if (report_is_halted(a->run))
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
                         const struct ckpt_view *gradient, bool *not_finite)
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
        .broken = not_finite,
    };
    host_update(c, &p);
}

/* Sets *from to the first element of part j of operand k, clipped to [0, n).  Returns the number of
 * its elements, below 1 if none is inside. */
static int64_t part_of(const struct rounding *r, int k, int j, int64_t n, int64_t *from)
{
    int64_t end = j + 1 < r->begin[k + 1] ? r->part[j + 1].first : n;
    *from = max_i64(0, r->part[j].first);
    return min_i64(end, n) - *from;
}

static struct random_stream noise_of(const struct ckpt_run *run, const struct rounding_part *p)
{
    return (struct random_stream){.seed = run->seed ^ p->name, .step = (uint64_t)run->opt_step};
}

static uint16_t *half_at(const struct ckpt_view *v, int64_t at)
{
    return v->data ? (uint16_t *)v->data + at : NULL;
}

static struct mean8 bytes_at(const struct ckpt_view *v, int64_t n, int64_t at)
{
    return v->data ? mean8_at(v->data, n, at) : (struct mean8){NULL, NULL};
}

static void set_moments(const struct update_attr *attr, const struct ckpt_view *state, int64_t n,
                        int64_t at, struct host_update *p)
{
    if (attr->narrow == NARROW_8BIT) {
        p->byte_m = bytes_at(&state[UPDATE_EXP_AVG], n, at);
        p->byte_v = bytes_at(&state[UPDATE_EXP_AVG_SQ], n, at);
    } else {
        p->half_m = half_at(&state[UPDATE_EXP_AVG], at);
        p->half_v = half_at(&state[UPDATE_EXP_AVG_SQ], at);
    }
}

/* Updates parameter k with low-precision state; each of its parts has its own rounding stream. */
static void update_low_precision(const struct update_constants *c, const struct ckpt_kernel_args *a,
                                 int k, bool *not_finite)
{
    const struct narrow_update_attr *attr = a->attr;
    const struct rounding *r = &attr->rounding;
    const struct ckpt_view *state = a->out + k * UPDATE_STATES, *gradient = a->in + a->n_out + k;
    const int64_t n = desc_numel(&state[UPDATE_VALUE].desc), size = view_half(gradient) ? 2 : 4;
    for (int j = r->begin[k]; j < r->begin[k + 1]; j++) {
        int64_t at, some = part_of(r, k, j, n, &at);
        float *ema = state[UPDATE_EMA].data;
        struct host_update p = {
            .value = half_at(&state[UPDATE_VALUE], at),
            .ema = ema ? ema + at : NULL,
            .gradient = (const char *)gradient->data + at * size,
            .half = view_half(gradient),
            .n = some,
            .broken = not_finite,
            .narrow = true,
            .noise = noise_of(a->run, &r->part[j]),
            .first = at - r->part[j].first,
        };
        set_moments(&attr->update, state, n, at, &p);
        if (some > 0)
            host_update(c, &p);
    }
}

/* Restores the values from the masters: the gradient may have overwritten a value that shares its
 * memory. */
static void restore_values(const struct ckpt_kernel_args *a)
{
    for (int k = 0; k < update_params(a->n_in); k++) {
        const struct ckpt_view *state = a->out + k * UPDATE_STATES;
        const float *master = state[UPDATE_MASTER].data;
        uint16_t *value = state[UPDATE_VALUE].data;
        int64_t n = master ? desc_numel(&state[UPDATE_VALUE].desc) : 0;
        for (int64_t i = 0; i < n; i++)
            value[i] = bf16_round(master[i]);
    }
}

int cpu_update(const struct ckpt_kernel_args *a)
{
    const struct update_attr *attr = a->attr;
    const struct ckpt_view *gradient = a->in + a->n_out;
    const float *clip = a->in[a->n_in - 1].data;
    if (!isfinite(clip[CLIP_NORM])) {
        restore_values(a);
        return CKPT_OK;
    }
    bool not_finite = false;
    struct update_constants c = update_constants_of(attr);
    update_begin(&c, attr, clip, a->run->lr, a->run->opt_step);
    for (int k = 0; k < update_params(a->n_in); k++)
        if (attr->narrow)
            update_low_precision(&c, a, k, &not_finite);
        else
            update_param(&c, a->out + k * UPDATE_STATES, &gradient[k], &not_finite);
    if (not_finite)
        report_halt(a->run, HALT_UPDATE + (int32_t)(a->run->opt_step & 1));
    return CKPT_OK;
}

/* Rounds values x, from element `first` of a parameter on, to bf16. */
static void round_some(uint16_t *dst, const float *x, int64_t n, const struct random_stream *s,
                       int64_t first, int of)
{
#pragma omp parallel for schedule(static) if (n > OPTIM_CHUNK)
    for (int64_t at = 0; at < n; at += NOISE_BLOCK) {
        uint32_t word[NOISE_BLOCK];
        int64_t some = min_i64(NOISE_BLOCK, n - at);
        random_words(s, first + at, word, some);
        for (int64_t i = 0; i < some; i++)
            dst[at + i] = bf16_round(update_round(x[at + i], update_noise(word[i], of)));
    }
}

static void assign_low_precision(const struct ckpt_kernel_args *a, int k)
{
    const struct narrow_assign_attr *attr = a->attr;
    const struct rounding *r = &attr->rounding;
    const int64_t n = desc_numel(&a->out[k].desc);
    for (int j = r->begin[k]; j < r->begin[k + 1]; j++) {
        const struct random_stream s = noise_of(a->run, &r->part[j]);
        int64_t at, some = part_of(r, k, j, n, &at);
        if (some > 0)
            round_some((uint16_t *)a->out[k].data + at,
                       (const float *)a->in[a->n_out + k].data + at, some, &s,
                       at - r->part[j].first, attr->noise);
    }
}

int cpu_assign(const struct ckpt_kernel_args *a)
{
    const float *clip = a->in[a->n_in - 1].data;
    for (int k = 0; k < a->n_out && isfinite(clip[CLIP_NORM]); k++)
        if (view_half(&a->out[k]))
            assign_low_precision(a, k);
        else
            memcpy(a->out[k].data, a->in[a->n_out + k].data, (size_t)desc_bytes(&a->out[k].desc));
    return CKPT_OK;
}
