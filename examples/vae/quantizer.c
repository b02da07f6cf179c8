/* The codebook of --quantizer vq. */
#include <stdlib.h>
#include "../common/say.h"
#include "ckpt_vae.h"
#include "quantizer.h"

#define Z     "quantizer.z"
#define INDEX "quantizer.index"

/* Entries begin as they are drawn, each as if it had been seen once. */
int vae_quantizer_create(struct vae_quantizer *q, ckpt *c, int64_t entries, int64_t width,
                         double decay)
{
    int64_t shape[] = {entries, width}, n = entries * width;
    float *book = malloc((size_t)n * sizeof *book);
    struct ckpt_init init = CKPT_NORMAL(1.f);

    *q = (struct vae_quantizer){.entries = entries, .width = width, .decay = decay};
    q->book = ckpt_param(c, "quantizer.codebook", CKPT_F32, 2, shape, init, false);
    q->count = ckpt_param(c, "quantizer.ema_count", CKPT_F32, 1, shape, CKPT_ONES, false);
    q->total = ckpt_param(c, "quantizer.ema_sum", CKPT_F32, 2, shape, CKPT_ZEROS, false);
    int rc = !book || ckpt_param_get(c, q->book, CKPT_VALUE, book, n) ||
             ckpt_param_set(c, q->total, CKPT_VALUE, book, n);
    free(book);
    return rc ? say_fail("the codebook: %s", book ? ckpt_error(c) : "no memory") : 0;
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

/* Room for what an update works on. */
struct work {
    float *z, *book, *count, *total, *new_count, *new_total;
    int32_t *index;
};

static int64_t numel(const struct ckpt_desc *d)
{
    int64_t n = 1;

    for (int i = 0; i < d->ndim; i++)
        n *= d->shape[i];
    return n;
}

/* count and total = decay times themselves + the rest of what the step saw. */
static int64_t follow(const struct vae_quantizer *q, struct work *w, int64_t rows)
{
    int64_t d = q->width, used = 0;

    for (int64_t r = 0; r < rows; r++) {
        int64_t k = w->index[r];
        w->new_count[k] += 1.f;
        for (int64_t j = 0; j < d; j++)
            w->new_total[k * d + j] += w->z[r * d + j];
    }
    for (int64_t k = 0; k < q->entries; k++) {
        used += w->new_count[k] > 0;
        w->count[k] += (float)(1 - q->decay) * (w->new_count[k] - w->count[k]);
        for (int64_t j = k * d; j < (k + 1) * d; j++)
            w->total[j] += (float)(1 - q->decay) * (w->new_total[j] - w->total[j]);
    }
    return used;
}

/* Entries that nothing came near for long keep their place: their mean is of nearly nothing. */
static void set_book(const struct vae_quantizer *q, struct work *w)
{
    for (int64_t k = 0; k < q->entries; k++)
        for (int64_t j = k * q->width; j < (k + 1) * q->width; j++)
            if (w->count[k] > 1e-3f)
                w->book[j] = w->total[j] / w->count[k];
}

static int update(const struct vae_quantizer *q, ckpt *c, ckpt_program *p, struct work *w,
                  int64_t rows, int64_t *used)
{
    int64_t k = q->entries, n = k * q->width;

    if (ckpt_fetch(p, Z, w->z, rows * q->width * (int64_t)sizeof *w->z) ||
        ckpt_fetch(p, INDEX, w->index, rows * (int64_t)sizeof *w->index) ||
        ckpt_param_get(c, q->book, CKPT_VALUE, w->book, n) ||
        ckpt_param_get(c, q->count, CKPT_VALUE, w->count, k) ||
        ckpt_param_get(c, q->total, CKPT_VALUE, w->total, n))
        return -1;
    *used = follow(q, w, rows);
    set_book(q, w);
    return ckpt_param_set(c, q->book, CKPT_VALUE, w->book, n) ||
           ckpt_param_set(c, q->count, CKPT_VALUE, w->count, k) ||
           ckpt_param_set(c, q->total, CKPT_VALUE, w->total, n);
}

int vae_quantizer_update(const struct vae_quantizer *q, ckpt *c, ckpt_program *p, int64_t *used)
{
    struct ckpt_desc d;
    int64_t some, n = q->entries * q->width;

    if (ckpt_program_desc(p, INDEX, &d))
        return say_fail("the codebook: %s", ckpt_error(c));
    int64_t rows = numel(&d), z = rows * q->width;
    float *room = calloc((size_t)(z + 3 * n + 2 * q->entries), sizeof *room);
    int32_t *index = malloc((size_t)rows * sizeof *index);
    struct work w = {.z = room, .index = index};
    if (!room || !index) {
        free(room);
        free(index);
        return say_fail("the codebook: no memory");
    }
    w.book = w.z + z;
    w.total = w.book + n;
    w.new_total = w.total + n;
    w.count = w.new_total + n;
    w.new_count = w.count + q->entries;
    int rc = update(q, c, p, &w, rows, used ? used : &some);
    free(room);
    free(index);
    return rc ? say_fail("the codebook: %s", ckpt_error(c)) : 0;
}
