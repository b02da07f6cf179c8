/* SPDX-License-Identifier: Apache-2.0 */
/* The codebook of --quantizer vq. */
#include <math.h>
#include <stdlib.h>
#include "../../common/say.h"
#include "ckpt_tools.h"
#include "quantizer.h"

#define Z     "quantizer.z"
#define INDEX "quantizer.index"

enum { STREAM = 0x56410100 }; /* distinct from the streams of run.h */

/* An entry is dead if it has fewer rows than this share of an even distribution of the rows. */
static const double DEAD = 0.3;

/* Entries start at random positions with a count of 0: the first training steps move every unused
 * entry to a row. */
int vae_quantizer_create(struct vae_quantizer *q, ckpt *c, int64_t entries, int64_t width,
                         double decay, int64_t seed)
{
    int64_t shape[] = {entries, width};
    struct ckpt_init init = CKPT_NORMAL(1.f);

    *q = (struct vae_quantizer){
        .entries = entries, .width = width, .decay = decay, .seed = (uint64_t)seed};
    q->book = ckpt_param(c, "quantizer.codebook", CKPT_F32, 2, shape, init, false);
    q->count = ckpt_param(c, "quantizer.ema_count", CKPT_F32, 1, shape, CKPT_ZEROS, false);
    q->total = ckpt_param(c, "quantizer.ema_sum", CKPT_F32, 2, shape, CKPT_ZEROS, false);
    return q->total.id ? 0 : say_fail("the codebook: %s", ckpt_error(c));
}

ckpt_tensor vae_quantizer_record(const struct vae_quantizer *q, ckpt_tape *t, ckpt_tensor z,
                                 ckpt_tensor *commitment)
{
    ckpt_tensor index;

    ckpt_label(t, "quantizer");
    z = ckpt_cast(t, z, CKPT_F32);
    ckpt_tensor y = ckpt_quantize(t, z, q->book, &index, commitment);
    ckpt_output(t, Z, z);
    ckpt_output(t, INDEX, index);
    return y;
}

/* ---- rows of a step ------------------------------------------------------------------------ */

/* The number of rows of a program, or 0 after a sentence. */
static int64_t rows_of(ckpt *c, ckpt_program *p)
{
    struct ckpt_desc d;
    int64_t n = 1;

    if (ckpt_program_desc(p, INDEX, &d)) {
        say_fail("the codebook: %s", ckpt_error(c));
        return 0;
    }
    for (int i = 0; i < d.ndim; i++)
        n *= d.shape[i];
    return n;
}

struct vae_codes vae_quantizer_spread(const struct vae_quantizer *q, const int64_t *rows)
{
    struct vae_codes codes = {0};
    double all = 0, bits = 0;

    for (int64_t k = 0; k < q->entries; k++)
        all += (double)rows[k];
    for (int64_t k = 0; k < q->entries; k++) {
        codes.used += rows[k] > 0;
        bits -= rows[k] > 0 ? (double)rows[k] / all * log2((double)rows[k] / all) : 0;
    }
    codes.perplexity = exp2(bits);
    return codes;
}

int vae_quantizer_count(ckpt *c, ckpt_program *p, int64_t *rows)
{
    int64_t n = rows_of(c, p);
    int32_t *index = malloc((size_t)n * sizeof *index);
    int rc = n && index ? ckpt_fetch(p, INDEX, index, n * (int64_t)sizeof *index) : -1;

    for (int64_t r = 0; !rc && r < n; r++)
        rows[index[r]]++;
    free(index);
    return rc ? say_fail("the codebook: %s", index ? ckpt_error(c) : "no memory") : 0;
}

/* ---- the update ---------------------------------------------------------------------------- */

/* The arrays of an update. */
struct work {
    int64_t rows;
    float *z, *book, *count, *total, *sum, *u;
    int64_t *near; /* number of rows nearest to each entry */
    int32_t *index, *order;
};

static void work_free(struct work *w)
{
    free(w->z);
    free(w->near);
    free(w->index);
}

static int work_create(struct work *w, const struct vae_quantizer *q, int64_t rows)
{
    int64_t k = q->entries, n = k * q->width;

    *w = (struct work){.rows = rows};
    w->z = calloc((size_t)(rows * (q->width + 1) + 3 * n + k), sizeof *w->z);
    w->near = calloc((size_t)k, sizeof *w->near);
    w->index = malloc((size_t)(2 * rows) * sizeof *w->index);
    if (!w->z || !w->near || !w->index) {
        work_free(w);
        return say_fail("the codebook: no memory");
    }
    w->u = w->z + rows * q->width;
    w->book = w->u + rows;
    w->total = w->book + n;
    w->sum = w->total + n;
    w->count = w->sum + n;
    w->order = w->index + rows;
    return 0;
}

/* count and total are moving averages, weight 1 - decay for this step; entries move to their means.
 * Entries without rows in this step keep their position. */
static void follow(const struct vae_quantizer *q, struct work *w)
{
    float rest = (float)(1 - q->decay);
    int64_t d = q->width;

    for (int64_t r = 0; r < w->rows; r++) {
        w->near[w->index[r]]++;
        for (int64_t j = 0; j < d; j++)
            w->sum[w->index[r] * d + j] += w->z[r * d + j];
    }
    for (int64_t k = 0; k < q->entries; k++) {
        w->count[k] += rest * ((float)w->near[k] - w->count[k]);
        for (int64_t j = k * d; j < (k + 1) * d; j++) {
            w->total[j] += rest * (w->sum[j] - w->total[j]);
            w->book[j] = w->near[k] ? w->total[j] / w->count[k] : w->book[j];
        }
    }
}

/* Row i of a random permutation, of which the first i are fixed. */
static int64_t draw_row(struct work *w, int64_t i)
{
    int64_t at = i + (int64_t)((double)w->u[i] * (double)(w->rows - i));
    int32_t row = w->order[at];

    w->order[at] = w->order[i];
    w->order[i] = row;
    return row;
}

/* Each dead entry moves to a different random row and gets the count of an even distribution, so
 * that it has time to attract rows.  If there are more dead entries than rows, the last ones stay
 * dead. */
static int64_t revive(const struct vae_quantizer *q, struct work *w, int64_t step)
{
    float even = (float)((double)w->rows / (double)q->entries);
    int64_t d = q->width, moved = 0;

    ckpt_fill_uniform(q->seed, (uint64_t)step, STREAM, w->u, w->rows);
    for (int64_t r = 0; r < w->rows; r++)
        w->order[r] = (int32_t)r;
    for (int64_t k = 0; k < q->entries && moved < w->rows; k++) {
        if (w->count[k] >= (float)DEAD * even)
            continue;
        const float *z = w->z + draw_row(w, moved++) * d;
        w->count[k] = even;
        for (int64_t j = 0; j < d; j++) {
            w->book[k * d + j] = z[j];
            w->total[k * d + j] = even * z[j];
        }
    }
    return moved;
}

static int update(const struct vae_quantizer *q, ckpt *c, ckpt_program *p, struct work *w,
                  int64_t step, struct vae_codes *codes)
{
    int64_t k = q->entries, n = k * q->width;

    if (ckpt_fetch(p, Z, w->z, w->rows * q->width * (int64_t)sizeof *w->z) ||
        ckpt_fetch(p, INDEX, w->index, w->rows * (int64_t)sizeof *w->index) ||
        ckpt_param_get(c, q->book, CKPT_VALUE, w->book, n) ||
        ckpt_param_get(c, q->count, CKPT_VALUE, w->count, k) ||
        ckpt_param_get(c, q->total, CKPT_VALUE, w->total, n))
        return -1;
    follow(q, w);
    *codes = vae_quantizer_spread(q, w->near);
    codes->moved = revive(q, w, step);
    return ckpt_param_set(c, q->book, CKPT_VALUE, w->book, n) ||
           ckpt_param_set(c, q->count, CKPT_VALUE, w->count, k) ||
           ckpt_param_set(c, q->total, CKPT_VALUE, w->total, n);
}

int vae_quantizer_update(const struct vae_quantizer *q, ckpt *c, ckpt_program *p, int64_t step,
                         struct vae_codes *codes)
{
    struct work w;
    int64_t rows = rows_of(c, p);

    if (!rows || work_create(&w, q, rows))
        return -1;
    int rc = update(q, c, p, &w, step, codes);
    work_free(&w);
    return rc ? say_fail("the codebook: %s", ckpt_error(c)) : 0;
}
