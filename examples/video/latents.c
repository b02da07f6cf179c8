/* SPDX-License-Identifier: Apache-2.0 */
/* Files of latents, and latents from moments: see latents.h. */
#include "latents.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../common/memory.h"
#include "../common/say.h"
#include "../common/tensors.h"
#include "ckpt_files.h"
#include "ckpt_tools.h"

/* A dot at the beginning begins no extension. */
int video_latents_stem(const char *video, const char **name)
{
    const char *slash = strrchr(video, '/');

    *name = slash ? slash + 1 : video;
    const char *dot = strrchr(*name, '.');
    return (int)(dot && dot > *name ? (size_t)(dot - *name) : strlen(*name));
}

int video_latents_path(char dst[VIDEO_LATENTS_PATH], const char *dir, const char *video)
{
    const char *name;
    int n = video_latents_stem(video, &name);

    return snprintf(dst, VIDEO_LATENTS_PATH, "%s/%.*s.safetensors", dir, n, name) <
                   VIDEO_LATENTS_PATH
               ? 0
               : say_fail("%s/%s: the name is too long", dir, name);
}

/* Reads the sizes; *first: channels come before frames. */
static int take_shape(struct video_latents *l, const struct ckpt_file_entry *e, const char *path,
                      bool *first)
{
    const int64_t *s = e->shape;
    int ndim = e->ndim;

    *first = !strcmp(e->name, "encoded_video");
    if (!*first && ndim == 5 && s[0] == 1) {
        s++;
        ndim--;
    }
    if (ndim != 4 || e->numel < 1)
        return say_fail("%s: '%s' is not one clip %s", path, e->name,
                        *first ? "[Z, F, h, w]" : "[F, Z, h, w]");
    l->channels = s[*first ? 0 : 1];
    l->frames = s[*first ? 1 : 0];
    l->height = s[2];
    l->width = s[3];
    return 0;
}

/* Converts between [F, h, w, Z] and the order of the file; out: to the file. */
static void reorder(const struct video_latents *l, bool first, float *file, bool out)
{
    int64_t plane = l->height * l->width;

    for (int64_t f = 0; f < l->frames; f++)
        for (int64_t c = 0; c < l->channels; c++) {
            int64_t at = (first ? c * l->frames + f : f * l->channels + c) * plane;
            for (int64_t p = 0; p < plane; p++) {
                float *here = &l->z[(f * plane + p) * l->channels + c], *there = &file[at + p];
                *(out ? there : here) = *(out ? here : there);
            }
        }
}

void video_latents_to(const struct video_latents *l, float *values)
{
    reorder(l, true, values, true);
}

static int read_values(struct video_latents *l, ckpt_file *f, int i, bool first)
{
    int64_t n = l->frames * l->channels * l->height * l->width;
    float *file = MEMORY_FOR(sizeof *file, n, 1);
    int rc = 0;

    l->z = MEMORY_FOR(sizeof *l->z, n, 1);
    if (!file || !l->z)
        rc = say_fail("no memory for %lld latents", (long long)n);
    else if (ckpt_file_read_f32(f, i, file, n))
        rc = say_fail("%s", ckpt_error(NULL));
    else
        reorder(l, first, file, false);
    free(file);
    return rc;
}

int video_latents_from(struct video_latents *l, const float *values)
{
    int64_t n = l->frames * l->channels * l->height * l->width, plane = l->height * l->width;

    l->z = MEMORY_FOR(sizeof *l->z, n, 1);
    if (!l->z)
        return say_fail("no memory for %lld latents", (long long)n);
    for (int64_t i = 0; i < n; i++) {
        int64_t c = i / plane / l->frames, f = i / plane % l->frames;
        l->z[(f * plane + i % plane) * l->channels + c] = values[i];
    }
    return 0;
}

int video_latents_read(struct video_latents *l, const char *path, bool values)
{
    struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
    ckpt_file *f;
    bool first = false;

    *l = (struct video_latents){.z = NULL};
    if (ckpt_file_open(&f, path))
        return say_fail("%s", ckpt_error(NULL));
    int i = ckpt_file_find(f, "encoded_video");
    if (i < 0)
        i = ckpt_file_find(f, "latents");
    int rc = i < 0 || ckpt_file_entry(f, i, &e)
                 ? say_fail("%s: there is no 'encoded_video' and no 'latents'", path)
                 : take_shape(l, &e, path, &first);
    if (!rc && values)
        rc = read_values(l, f, i, first);
    ckpt_file_close(f);
    return rc;
}

int video_latents_write(const struct video_latents *l, const char *path, const char *name,
                        enum ckpt_dtype dtype)
{
    const int64_t shape[] = {l->channels, l->frames, l->height, l->width};
    int64_t n = l->frames * l->channels * l->height * l->width;
    float *file = MEMORY_FOR(sizeof *file, n, 1);
    uint16_t *half = dtype == CKPT_BF16 ? MEMORY_FOR(sizeof *half, n, 1) : NULL;
    int rc = 0;

    if (!file || (dtype == CKPT_BF16 && !half))
        rc = say_fail("no memory for %lld latents", (long long)n);
    if (!rc)
        reorder(l, true, file, true);
    if (!rc && half)
        ckpt_to_bf16(file, half, n);
    if (!rc)
        rc = tensors_write(
            path, 1, &(struct tensor){name, dtype, 4, shape, half ? (const void *)half : file});
    free(file);
    free(half);
    return rc;
}

/* ---- moments ------------------------------------------------------------------------------- */

/* The noise of a clip depends only on the seed and the name of its file, and on no other clip. */
static uint64_t step_of(const char *name)
{
    uint64_t h = UINT64_C(14695981039346656037);

    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * UINT64_C(1099511628211);
    return h >> 12;
}

/* A value from mean and logvar; z: noise. */
static float latent(const struct autoencoder_sizes *s, int64_t c, float mean, float logvar, float z)
{
    if (s->mean)
        return (float)(((double)mean - s->mean[c]) / s->deviation[c]);
    return (mean + expf(0.5f * fminf(fmaxf(logvar, -30.f), 20.f)) * z) * (float)s->scaling;
}

int video_latents_draw(struct video_latents *moments, uint64_t seed,
                       const struct autoencoder_sizes *sizes, const char *name)
{
    int64_t places = moments->frames * moments->height * moments->width;
    int64_t channels = moments->channels / 2;
    float *noise = MEMORY_FOR(sizeof *noise, places, channels);

    if (!noise)
        return say_fail("no memory for noise");
    ckpt_fill_normal(seed, step_of(name), 0, noise, places * channels);
    for (int64_t p = 0; p < places; p++)
        for (int64_t c = 0; c < channels; c++) {
            const float *m = moments->z + p * 2 * channels;
            float *z = &noise[p * channels + c];
            *z = latent(sizes, c, m[c], m[channels + c], *z);
        }
    free(moments->z);
    moments->z = noise;
    moments->channels = channels;
    return 0;
}
