/* The optimizer's kernels: sums of squares, the clip factor and the fused AdamW update. */
#include "attr.h"
#include "kernels.h"
#include "optim/optim.h"
#include "rows.h"

CKPT_CLONES static double sum_squares_leaf(const float *g, int64_t n)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += (double)g[i] * (double)g[i];
    return sum;
}

/* The sum over one tensor. */
static double sum_squares_of(const struct ckpt_view *v, double *partial)
{
    const float *g = v->data;
    int64_t n = desc_numel(&v->desc), chunks = optim_chunks(&v->desc);
    double sum = 0;
#pragma omp parallel for schedule(static) if (chunks > 1)
    for (int64_t i = 0; i < chunks; i++)
        partial[i] =
            sum_squares_leaf(g + i * OPTIM_CHUNK, min_i64(OPTIM_CHUNK, n - i * OPTIM_CHUNK));
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
    out[0] = (float)norm;
    out[1] = attr->clip_norm > 0.f && factor < 1 ? (float)factor : 1.f;
    return CKPT_OK;
}

/* Constants of one update. */
struct adamw {
    float clip, beta1, beta2, new1, new2; /* new = 1 - beta */
    float unbias1, unbias2;               /* 1 / (1 - beta^k) */
    float eps, lr, weight_decay, ema, new_ema;
};

static struct adamw adamw_constants(const struct ckpt_adamw *o, const struct ckpt_run *run,
                                    float clip)
{
    double k = (double)run->opt_step + 1;
    return (struct adamw){
        .clip = clip,
        .beta1 = o->beta1,
        .beta2 = o->beta2,
        .new1 = (float)(1.0 - (double)o->beta1),
        .new2 = (float)(1.0 - (double)o->beta2),
        .unbias1 = (float)(1.0 / (1.0 - pow((double)o->beta1, k))),
        .unbias2 = (float)(1.0 / (1.0 - pow((double)o->beta2, k))),
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

static struct adamw_rows adamw_at(const struct ckpt_kernel_args *a, int64_t i)
{
    const struct ckpt_view *out = a->out;
    bool half = view_half(&out[0]);
    return (struct adamw_rows){
        .w = (float *)out[half ? 1 : 0].data + i,
        .m = (float *)out[2].data + i,
        .v = (float *)out[3].data + i,
        .ema = out[4].data ? (float *)out[4].data + i : NULL,
        .value = half ? (uint16_t *)out[0].data + i : NULL,
        .g = (const float *)a->in[5].data + i,
    };
}

int cpu_adamw(const struct ckpt_kernel_args *a)
{
    const float *clip = a->in[6].data;
    int64_t n = desc_numel(&a->in[0].desc);
    if (!isfinite(clip[0]))
        return CKPT_OK;
    struct adamw p = adamw_constants(a->attr, a->run, clip[1]);
#pragma omp parallel for schedule(static) if (n > OPTIM_CHUNK)
    for (int64_t i = 0; i < n; i += OPTIM_CHUNK) {
        struct adamw_rows rows = adamw_at(a, i);
        adamw_leaf(&p, &rows, min_i64(OPTIM_CHUNK, n - i));
    }
    return CKPT_OK;
}
