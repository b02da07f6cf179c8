/* SPDX-License-Identifier: Apache-2.0 */
/* Reconstruction quality of clips: PSNR, and pictures to look at. */
#include <math.h>
#include <stdlib.h>
#include "../../common/compiled.h"
#include "../../common/directory.h"
#include "../../common/picture.h"
#include "ckpt_dist.h"
#include "run.h"

enum { MOST_READ = 16 /* reconstructed clips of --video-dir */ };

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

/* The values of a clip without its padding. */
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
    if (directory_make(r->options.out))
        return -1;
    snprintf(tag, sizeof tag, row ? "%s-%lld" : "%s", name, (long long)row);
    snprintf(path, sizeof path, "%s/%s.png", r->options.out, tag);
    if (picture_write(path, d->frames, d->height, d->width, rgb, width < 960 ? 1920 / width : 1))
        return -1;
    log_picture(&r->log, tag, path);
    return 0;
}

/* Adds the squared differences of bytes, the displayed values. */
static double squares(const uint8_t *a, const uint8_t *b, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sum;
}

/* The buffers and sums of a reconstruction. */
struct views {
    struct loader_file file;
    float *x, *y;  /* a clip and its reconstruction */
    uint8_t *rgb;  /* bytes of both */
    int64_t *used; /* rows nearest to each codebook entry */
    double sum;    /* of squared differences */
    int64_t clips;
};

/* Returns 1, or 0 if the clip cannot be read, which the training steps have reported. */
static int take(const struct vae_run *r, struct views *v, int64_t row)
{
    const struct vae_data *d = &r->data;
    char said[256];

    if (!d->videos.rows) {
        vae_data_take(d, row, 0, d->frames, v->x);
        return 1;
    }
    say_keep(said, sizeof said);
    int rc = vae_clip_read(r, &v->file, row, row, d->frames, v->rgb);
    say_keep(NULL, 0);
    if (rc <= 0)
        return 0;
    vae_data_values(d, v->rgb, d->frames, v->x);
    return 1;
}

static int view(struct vae_run *r, struct views *v)
{
    const struct vae_data *d = &r->data;
    ckpt_program *p = r->reconstruction;
    int64_t n = d->frames * d->height * d->width * 3, all = d->frames * vae_data_frame(d);
    uint8_t *back = v->rgb + n;

    if (ckpt_feed(p, "x", v->x, all * (int64_t)sizeof *v->x) || ckpt_step(p, NULL) ||
        ckpt_fetch(p, "y", v->y, n * (int64_t)sizeof *v->y))
        return say_fail("%s", ckpt_error(r->context));
    crop(d, v->x, v->rgb);
    for (int64_t i = 0; i < n; i++)
        back[i] = to_byte(v->y[i]);
    v->sum += squares(v->rgb, back, n);
    if (r->options.vq && vae_quantizer_count(r->context, p, v->used))
        return -1;
    int64_t i = v->clips++;
    return write_strip(r, "clip", i, v->rgb) || write_strip(r, "reconstruction", i, back) ? -1 : 0;
}

/* All clips in memory; of videos, the first readable ones. */
static int view_all(struct vae_run *r, struct views *v)
{
    const struct vae_data *d = &r->data;
    int64_t most = d->videos.rows ? MOST_READ : d->rows;

    for (int64_t row = 0; row < d->rows && v->clips < most; row++)
        if (take(r, v, row) && view(r, v))
            return -1;
    return v->clips ? 0 : say_fail("reconstruction: no clip can be read");
}

static void say_codes(const struct vae_run *r, const int64_t *rows)
{
    struct vae_codes codes = vae_quantizer_spread(&r->quantizer, rows);

    printf("codebook: %lld of %lld entries used, perplexity %.1f\n", (long long)codes.used,
           (long long)r->quantizer.entries, codes.perplexity);
}

int vae_reconstruct_compile(struct vae_run *r)
{
    int rc = ckpt_compile(r->context, record, r, NULL, 1, &r->reconstruction);
    return compiled(r->context, rc, r->reconstruction, "reconstruction: ");
}

static void report(const struct vae_run *r, const struct views *v)
{
    const struct vae_data *d = &r->data;
    int64_t frames = v->clips * d->frames;
    double mean = v->sum / (double)(frames * d->height * d->width * 3) / (255. * 255.);

    if (r->options.vq)
        say_codes(r, v->used);
    printf("reconstruction: PSNR %.2f dB over %lld frames", mean > 0 ? -10 * log10(mean) : INFINITY,
           (long long)frames);
    if (r->options.out)
        say_print(" (%s/clip.png, %s/reconstruction.png)", r->options.out, r->options.out);
    putchar('\n');
}

int vae_reconstruct(struct vae_run *r)
{
    const struct vae_data *d = &r->data;
    int64_t n = d->frames * d->height * d->width * 3;
    struct views v = {
        .file = {.hw = r->options.loader.hw, .most_pixels = videos_pixels(&d->videos)}};

    v.x = malloc((size_t)(d->frames * vae_data_frame(d)) * sizeof *v.x);
    v.y = malloc((size_t)n * sizeof *v.y);
    v.rgb = malloc((size_t)(2 * n));
    v.used = calloc((size_t)(r->options.vq ? r->quantizer.entries : 1), sizeof *v.used);
    int rc = v.x && v.y && v.rgb && v.used ? view_all(r, &v) : say_fail("no memory for pictures");
    if (!rc)
        report(r, &v);
    video_close(&v.file.video);
    free(v.x);
    free(v.y);
    free(v.rgb);
    free(v.used);
    return rc;
}
