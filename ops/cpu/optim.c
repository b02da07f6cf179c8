/* The optimizer's kernels: sums of squares, the clip factor and the fused AdamW update. */
#include "attr.h"
#include "kernels.h"
#include "optim/optim.h"
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
    double norm = sqrt(sum), factor = attr->clip_norm / (norm + 1e-6);
    double k = (double)a->run->opt_step + 1;
    out[CLIP_NORM] = (float)norm;
    out[CLIP_FACTOR] = attr->clip_norm > 0.f && factor < 1 ? (float)factor : 1.f;
    out[CLIP_UNBIAS1] = (float)(1.0 / (1.0 - pow((double)attr->beta1, k)));
    out[CLIP_UNBIAS2] = (float)(1.0 / (1.0 - pow((double)attr->beta2, k)));
    return CKPT_OK;
}

/* Constants of one update. */
struct adamw {
    float clip, beta1, beta2, new1, new2; /* new = 1 - beta */
    float unbias1, unbias2;               /* 1 / (1 - beta^k) */
    float eps, lr, weight_decay, ema, new_ema;
};

static struct adamw adamw_constants(const struct ckpt_adamw *o, const struct ckpt_run *run,
                                    const float *clip)
{
    return (struct adamw){
        .clip = clip[CLIP_FACTOR],
        .beta1 = o->beta1,
        .beta2 = o->beta2,
        .new1 = (float)(1.0 - (double)o->beta1),
        .new2 = (float)(1.0 - (double)o->beta2),
        .unbias1 = clip[CLIP_UNBIAS1],
        .unbias2 = clip[CLIP_UNBIAS2],
        .eps = o->eps,
        .lr = run->lr,
        .weight_decay = o->weight_decay,
        .ema = o->ema_decay,
        .new_ema = (float)(1.0 - (double)o->ema_decay),
    };
}

/* Where a chunk's operands begin; value is bf16 beside a master, ema may be NULL. */
struct adamw_rows {
    float *w, *m, *v, *ema;
    uint16_t *value;
    const float *g;
};

ROWS_INLINE void adamw_loop(const struct adamw *p, const struct adamw_rows *r, int64_t n, bool half,
                            bool with_ema)
{
    const struct adamw c = *p;
    float *restrict w = r->w, *restrict m = r->m, *restrict v = r->v, *restrict ema = r->ema;
    uint16_t *restrict value = r->value;
    const float *restrict gradient = r->g;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float g = gradient[i] * c.clip;
        float mi = c.beta1 * m[i] + c.new1 * g;
        float vi = c.beta2 * v[i] + c.new2 * g * g;
        float update = mi * c.unbias1 / (sqrtf(vi * c.unbias2) + c.eps);
        float wi = w[i] - c.lr * (update + c.weight_decay * w[i]);
        m[i] = mi;
        v[i] = vi;
        w[i] = wi;
        if (half)
            value[i] = bf16_round(wi);
        if (with_ema)
            ema[i] = c.ema * ema[i] + c.new_ema * wi;
    }
}

CKPT_CLONES static void adamw_leaf(const struct adamw *p, const struct adamw_rows *r, int64_t n)
{
    if (r->value && r->ema)
        adamw_loop(p, r, n, true, true);
    else if (r->value)
        adamw_loop(p, r, n, true, false);
    else if (r->ema)
        adamw_loop(p, r, n, false, true);
    else
        adamw_loop(p, r, n, false, false);
}

/* Elements [i, i + n) of a parameter: its states and its gradient. */
static void adamw_chunk(const struct adamw *p, const struct ckpt_view *state,
                        const struct ckpt_view *gradient, int64_t i, int64_t n)
{
    const bool half = view_half(&state[ADAMW_VALUE]);
    float *ema = state[ADAMW_EMA].data, wide[OPTIM_CHUNK];
    struct adamw_rows rows = {
        .w = (float *)state[half ? ADAMW_MASTER : ADAMW_VALUE].data + i,
        .m = (float *)state[ADAMW_EXP_AVG].data + i,
        .v = (float *)state[ADAMW_EXP_AVG_SQ].data + i,
        .ema = ema ? ema + i : NULL,
        .value = half ? (uint16_t *)state[ADAMW_VALUE].data + i : NULL,
        .g = (const float *)gradient->data + i,
    };
    if (view_half(gradient)) {
        cpu_load(wide, (const uint16_t *)gradient->data + i, CKPT_BF16, n);
        rows.g = wide;
    }
    adamw_leaf(p, &rows, n);
}

static void adamw_param(const struct adamw *p, const struct ckpt_view *state,
                        const struct ckpt_view *gradient)
{
    const int64_t n = desc_numel(&state[ADAMW_VALUE].desc);
#pragma omp parallel for schedule(static) if (n > OPTIM_CHUNK)
    for (int64_t i = 0; i < n; i += OPTIM_CHUNK)
        adamw_chunk(p, state, gradient, i, min_i64(OPTIM_CHUNK, n - i));
}

int cpu_adamw(const struct ckpt_kernel_args *a)
{
    const struct ckpt_view *gradient = a->in + a->n_out;
    const float *clip = a->in[a->n_in - 1].data;
    if (!isfinite(clip[CLIP_NORM]))
        return CKPT_OK;
    struct adamw p = adamw_constants(a->attr, a->run, clip);
    for (int k = 0; k < adamw_params(a->n_in); k++)
        adamw_param(&p, a->out + k * ADAMW_STATES, &gradient[k]);
    return CKPT_OK;
}
