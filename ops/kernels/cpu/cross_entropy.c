/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax cross-entropy.  Sums are in double. */
#include "attr.h"
#include "kernels.h"
#include "report.h"
#include "rows.h"
#include "vmath.h"

/* Parameters common to all rows. */
struct cross_entropy {
    const struct cross_entropy_attr *attr;
    const int32_t *label;
    const float *weight;   /* class weights, or NULL */
    double weight_sum;     /* sum of the class weights */
    int64_t rows, n, step; /* step: bytes per row */
    bool half;
};

/* Label and x are operands first and first + 1; the class weights are operand `weight`, if
 * present. */
static struct cross_entropy open_call(const struct ckpt_kernel_args *a, int first, int weight)
{
    const struct ckpt_desc *x = &a->in[first].desc;
    struct cross_entropy c = {.attr = a->attr, .label = a->in[first + 1].data};
    c.weight = a->n_in > weight ? a->in[weight].data : NULL;
    c.n = x->shape[x->ndim - 1];
    c.rows = c.n ? desc_numel(x) / c.n : 0;
    c.step = c.n * ckpt_dtype_size(x->dtype);
    c.half = view_half(&a->in[first]);
    for (int64_t j = 0; c.weight && j < c.n; j++)
        c.weight_sum += (double)c.weight[j];
    if (!c.weight)
        c.weight_sum = (double)c.n;
    return c;
}

static bool is_counted(const struct cross_entropy *c, int32_t label)
{
    return label != c->attr->ignore_index;
}

static int64_t classes_of(const struct cross_entropy *c)
{
    return cross_entropy_classes(c->attr, c->n);
}

static bool fits(const struct cross_entropy *c, int32_t label)
{
    return label >= 0 && label < classes_of(c);
}

/* The weight of a row. */
static double weight_of(const struct cross_entropy *c, int32_t label)
{
    return !c->weight || !fits(c, label) ? 1 : (double)c->weight[label];
}

/* The maximum of a row, over 16 lanes, because compilers do not reorder a maximum of floats. */
ROWS_INLINE float largest_of(const void *x, int64_t n, bool half)
{
    float lane[16], top = -INFINITY;
    int64_t whole = n / 16 * 16;
    for (int k = 0; k < 16; k++)
        lane[k] = -INFINITY;
    for (int64_t j = 0; j < whole; j += 16) {
#pragma omp simd
        for (int k = 0; k < 16; k++) {
            float v = row_get(x, j + k, half);
            lane[k] = v > lane[k] ? v : lane[k];
        }
    }
    for (int k = 0; k < 16; k++)
        top = lane[k] > top ? lane[k] : top;
    for (int64_t j = whole; j < n; j++) {
        float v = row_get(x, j, half);
        top = v > top ? v : top;
    }
    return top;
}

/* The maximum of a row, and the sum of exp(x - maximum).  The sum is double: near 1, a small loss
 * is in the digits after the point. */
ROWS_INLINE double softmax_row(const void *x, int64_t n, bool half, float *largest)
{
    float top = largest_of(x, n, half);
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; j++)
        sum += (double)vexp(row_get(x, j, half) - top);
    *largest = top;
    return sum;
}

CKPT_CLONES static double exp_sum_leaf(const void *x, int64_t n, bool half, float *largest)
{
    return half ? softmax_row(x, n, true, largest) : softmax_row(x, n, false, largest);
}

/* sum over the classes of weight times x */
static double weighted_sum(const struct cross_entropy *c, const void *x)
{
    double sum = 0;
    for (int64_t j = 0; j < c->n; j++)
        sum += (c->weight ? (double)c->weight[j] : 1.) * (double)row_get(x, j, c->half);
    return sum;
}

/* The loss of a row; NaN where the label is no class. */
static double row_loss(const struct cross_entropy *c, const void *x, int32_t label, float stats[2])
{
    const double e = (double)c->attr->label_smoothing, z = (double)c->attr->z_loss;
    stats[0] = stats[1] = 0;
    if (!is_counted(c, label))
        return 0;
    double sum = exp_sum_leaf(x, c->n, c->half, &stats[0]);
    stats[1] = (float)sum;
    if (!fits(c, label))
        return NAN;
    double loss = log(sum) + ((double)stats[0] - (double)row_get(x, label, c->half));
    if (c->weight)
        loss *= weight_of(c, label);
    if (e == 0 && z == 0)
        return loss;
    double lse = (double)stats[0] + log(sum);
    double smooth = e > 0 ? c->weight_sum * lse - weighted_sum(c, x) : 0;
    return (1 - e) * loss + e / (double)c->n * smooth + z * weight_of(c, label) * lse * lse;
}

/* The divisor of the mean. */
static double count_rows(const struct cross_entropy *c)
{
    double total = 0;
    for (int64_t b = 0; b < c->rows; b++)
        total += is_counted(c, c->label[b]) ? weight_of(c, c->label[b]) : 0;
    return total;
}

static void reduce_rows(const struct cross_entropy *c, const double *each, double total, float *out)
{
    double loss = 0;
    for (int64_t b = 0; b < c->rows; b++) {
        loss += each[b];
        if (c->attr->reduction == CKPT_REDUCE_NONE)
            out[b] = (float)each[b];
    }
    if (c->attr->reduction == CKPT_REDUCE_MEAN)
        loss = total > 0 ? loss / total : loss;
    if (c->attr->reduction != CKPT_REDUCE_NONE)
        *out = (float)loss;
}

int cpu_cross_entropy(const struct ckpt_kernel_args *a)
{
    const struct cross_entropy c = open_call(a, 0, 2);
    double *each = a->workspace;
    float *out = a->out[0].data, *stats = a->out[1].data, *count = a->out[2].data;
#pragma omp parallel for schedule(static) if (c.rows * c.n > ROWS_CHUNK)
    for (int64_t b = 0; b < c.rows; b++) {
        each[b] = row_loss(&c, (const char *)a->in[0].data + b * c.step, c.label[b], stats + 2 * b);
        if (is_counted(&c, c.label[b]) && !fits(&c, c.label[b]))
            report_index(a, b, c.label[b], classes_of(&c));
    }
    const double total = count_rows(&c);
    reduce_rows(&c, each, total, out);
    count[0] = (float)total;
    count[1] = (float)c.weight_sum;
    return CKPT_OK;
}

int cpu_cross_entropy_count(const struct ckpt_kernel_args *a)
{
    struct cross_entropy c = {.attr = a->attr, .label = a->in[0].data};
    float *count = a->out[0].data;
    c.rows = desc_numel(&a->in[0].desc);
    if (a->n_in > 1) {
        c.weight = a->in[1].data;
        c.n = a->in[1].desc.shape[0];
    }
    for (int64_t j = 0; j < c.n; j++)
        c.weight_sum += (double)c.weight[j];
    count[0] = (float)count_rows(&c);
    count[1] = (float)c.weight_sum;
    return CKPT_OK;
}

/* dx = slope (scale p - (at where j is the label) - rest weight[j]) */
struct slopes {
    float slope, scale, at, rest;
};

static struct slopes slopes_of(const struct cross_entropy *c, int32_t label, float slope,
                               const float stats[2])
{
    const double e = (double)c->attr->label_smoothing, z = (double)c->attr->z_loss;
    const double w = weight_of(c, label), lse = (double)stats[0] + log((double)stats[1]);
    struct slopes s = {.slope = fits(c, label) ? slope : NAN};
    s.at = (float)((1 - e) * w);
    s.rest = (float)(e / (double)c->n);
    s.scale =
        (float)((1 - e) * w + e * c->weight_sum / (double)c->n + (z > 0 ? 2 * z * lse * w : 0));
    return s;
}

/* dx = slope (softmax(x) - one_hot(label)); with weights, label smoothing or z-loss see struct
 * slopes. */
ROWS_INLINE void slope_row(const struct cross_entropy *c, const void *x, void *dx, int32_t label,
                           struct slopes s, const float stats[2], bool half)
{
    const float largest = stats[0], sum = stats[1];
    if (!c->weight && s.rest == 0 && c->attr->z_loss == 0) {
#pragma omp simd
        for (int64_t j = 0; j < c->n; j++) {
            float p = vexp(row_get(x, j, half) - largest) / sum;
            row_put(dx, j, s.slope * (p - (j == label ? 1.f : 0.f)), half);
        }
        return;
    }
    for (int64_t j = 0; j < c->n; j++) {
        float p = vexp(row_get(x, j, half) - largest) / sum, w = c->weight ? c->weight[j] : 1.f;
        row_put(dx, j, s.slope * (s.scale * p - (j == label ? s.at : 0.f) - s.rest * w), half);
    }
}

CKPT_CLONES static void entropy_slope_leaf(const struct cross_entropy *c, const void *x, void *dx,
                                           int32_t label, struct slopes s, const float stats[2])
{
    WITH_FLAG(c->half, slope_row, c, x, dx, label, s, stats);
}

/* The gradient of row b; `reached`: the gradient of its loss. */
static void row_slope(const struct cross_entropy *c, const void *x, void *dx, int64_t b,
                      float reached, const float stats[2])
{
    const int32_t label = c->label[b];
    if (is_counted(c, label))
        entropy_slope_leaf(c, (const char *)x + b * c->step, (char *)dx + b * c->step, label,
                           slopes_of(c, label, reached, stats), stats);
    else
        memset((char *)dx + b * c->step, 0, (size_t)c->step);
}

int cpu_cross_entropy_dx(const struct ckpt_kernel_args *a)
{
    const struct cross_entropy c = open_call(a, 1, 5);
    const float *dloss = a->in[0].data, *stats = a->in[3].data, *count = a->in[4].data;
    const bool each = c.attr->reduction == CKPT_REDUCE_NONE;
    const bool mean = c.attr->reduction == CKPT_REDUCE_MEAN && count[0] > 0;
#pragma omp parallel for schedule(static) if (c.rows * c.n > ROWS_CHUNK)
    for (int64_t b = 0; b < c.rows; b++)
        row_slope(&c, a->in[1].data, a->out[0].data, b,
                  mean ? dloss[0] / count[0] : dloss[each ? b : 0], stats + 2 * b);
    return CKPT_OK;
}

int cpu_cross_entropy_both(const struct ckpt_kernel_args *a)
{
    const struct cross_entropy c = open_call(a, 1, 3);
    const float *dloss = a->in[0].data;
    const bool each = c.attr->reduction == CKPT_REDUCE_NONE;
    const double total = count_rows(&c);
    const bool mean = c.attr->reduction == CKPT_REDUCE_MEAN && total > 0;
    double *losses = a->workspace;
#pragma omp parallel for schedule(static) if (c.rows * c.n > ROWS_CHUNK)
    for (int64_t b = 0; b < c.rows; b++) {
        float stats[2];
        losses[b] = row_loss(&c, (const char *)a->in[1].data + b * c.step, c.label[b], stats);
        if (is_counted(&c, c.label[b]) && !fits(&c, c.label[b]))
            report_index(a, b, c.label[b], classes_of(&c));
        row_slope(&c, a->in[1].data, a->out[1].data, b,
                  mean ? dloss[0] / (float)total : dloss[each ? b : 0], stats);
    }
    reduce_rows(&c, losses, total, a->out[0].data);
    return CKPT_OK;
}
