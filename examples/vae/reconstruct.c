/* SPDX-License-Identifier: Apache-2.0 */
/* How near a clip comes back: PSNR, and pictures to look at. */
#include <math.h>
#include <stdlib.h>
#include "../common/picture.h"
#include "ckpt_dist.h"
#include "run.h"

/* Encodes without noise and decodes, in the chunks that files have. */
static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct vae_run *r = user;
    const struct vae_data *d = &r->data;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 5,
                               (int64_t[]){batch, d->frames, d->padded_height, d->padded_width, 3});
    struct vae_posterior p = vae_posterior(t, vae_spatial_encode(&r->model, t, x, 1));
    ckpt_tensor z = ckpt_affine(t, p.mean, VAE_FACTOR, 0.f), commitment;

    p = vae_posterior(t, vae_temporal_encode(&r->model, t, z, VAE_CHUNK));
    z = p.mean;
    if (r->options.vq)
        z = vae_quantizer_record(&r->quantizer, t, z, &commitment);
    z = vae_temporal_decode(&r->model, t, z, d->frames, VAE_CHUNK);
    ckpt_tensor y = ckpt_cast(t, vae_spatial_decode(&r->model, t, z, 1), CKPT_F32);
    y = vae_part(t, vae_part(t, y, 2, 0, d->height), 3, 0, d->width);
    ckpt_output(t, "y", y);
    return y;
}

static uint8_t to_byte(float v)
{
    return (uint8_t)lrintf(fminf(fmaxf((v + 1.f) * 127.5f, 0.f), 255.f));
}

/* The values of a clip without what it was filled up with. */
static void crop(const struct vae_data *d, const float *x, uint8_t *rgb)
{
    for (int64_t f = 0; f < d->frames; f++)
        for (int64_t y = 0; y < d->height; y++)
            for (int64_t i = 0; i < d->width * 3; i++)
                *rgb++ = to_byte(x[f * vae_data_frame(d) + y * d->padded_width * 3 + i]);
}

static int write_strip(struct vae_run *r, const char *name, int64_t row, const uint8_t *rgb)
{
    const struct vae_data *d = &r->data;
    int64_t width = d->frames * d->width;
    char path[4096], tag[64];

    if (!r->options.out || ckpt_rank(r->context) > 0)
        return 0;
    snprintf(tag, sizeof tag, row ? "%s-%lld" : "%s", name, (long long)row);
    snprintf(path, sizeof path, "%s/%s.png", r->options.out, tag);
    if (picture_write(path, d->frames, d->height, d->width, rgb, width < 960 ? 1920 / width : 1))
        return -1;
    log_picture(&r->log, tag, path);
    return 0;
}

/* Adds the squared differences of bytes, which are what a person would see. */
static double squares(const uint8_t *a, const uint8_t *b, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sum;
}

/* x: room for a clip; y and rgb: for what comes back, and for the bytes of both. */
static int run(struct vae_run *r, ckpt_program *p, float *x, float *y, uint8_t *rgb, double *sum,
               int64_t *rows)
{
    const struct vae_data *d = &r->data;
    int64_t n = d->frames * d->height * d->width * 3, all = d->frames * vae_data_frame(d);

    for (int64_t row = 0; row < d->rows; row++) {
        vae_data_take(d, row, 0, d->frames, x);
        if (ckpt_feed(p, "x", x, all * (int64_t)sizeof *x) || ckpt_step(p, NULL) ||
            ckpt_fetch(p, "y", y, n * (int64_t)sizeof *y))
            return say_fail("%s", ckpt_error(r->context));
        crop(d, x, rgb);
        for (int64_t i = 0; i < n; i++)
            rgb[n + i] = to_byte(y[i]);
        *sum += squares(rgb, rgb + n, n);
        if (r->options.vq && vae_quantizer_count(r->context, p, rows))
            return -1;
        if (write_strip(r, "clip", row, rgb) || write_strip(r, "reconstruction", row, rgb + n))
            return -1;
    }
    return 0;
}

static void say_codes(const struct vae_run *r, const int64_t *rows)
{
    struct vae_codes codes = vae_quantizer_spread(&r->quantizer, rows);

    printf("codebook: %lld of %lld entries used, perplexity %.1f\n", (long long)codes.used,
           (long long)r->quantizer.entries, codes.perplexity);
}

int vae_reconstruct_compile(struct vae_run *r)
{
    if (ckpt_compile(r->context, record, r, NULL, 1, &r->reconstruction))
        return say_fail("reconstruction: %s", ckpt_error(r->context));
    return 0;
}

int vae_reconstruct(struct vae_run *r)
{
    const struct vae_data *d = &r->data;
    int64_t n = d->frames * d->height * d->width * 3;
    double sum = 0;

    float *x = malloc((size_t)(d->frames * vae_data_frame(d)) * sizeof *x);
    float *y = malloc((size_t)n * sizeof *y);
    uint8_t *rgb = malloc((size_t)(2 * n));
    int64_t *rows = calloc((size_t)(r->options.vq ? r->quantizer.entries : 1), sizeof *rows);
    int rc = x && y && rgb && rows ? run(r, r->reconstruction, x, y, rgb, &sum, rows)
                                   : say_fail("no memory for pictures");
    free(x);
    free(y);
    free(rgb);
    if (!rc && r->options.vq)
        say_codes(r, rows);
    free(rows);
    if (rc)
        return -1;
    double mean = sum / (double)(n * d->rows) / (255. * 255.);
    printf("reconstruction: PSNR %.2f dB over %lld frames", mean > 0 ? -10 * log10(mean) : INFINITY,
           (long long)(d->rows * d->frames));
    if (r->options.out)
        say_print(" (%s/clip.png, %s/reconstruction.png)", r->options.out, r->options.out);
    putchar('\n');
    return 0;
}
