/* SPDX-License-Identifier: Apache-2.0 */
/* Files of latents, written and read in pieces. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "../../common/say.h"
#include "ckpt_files.h"
#include "ckpt_tools.h"
#include "latents.h"
#include "model.h"

enum { HEADER = 4096, NUMBERS = 5 /* before the latents */ };

/* ---- writing ------------------------------------------------------------------------------- */

static int failed(const struct vae_latent_writer *w)
{
    return say_fail("%s: cannot be written: %s", w->path, strerror(errno));
}

int vae_latents_create(struct vae_latent_writer *w, const char *path,
                       const struct vae_latent_info *info)
{
    *w = (struct vae_latent_writer){.info = *info, .path = path};
    w->info.frames = w->info.latent_frames = 0;
    if (ckpt_replace_open(&w->file, path))
        return say_fail("%s", ckpt_error(NULL));
    w->stream = ckpt_replace_stream(w->file);
    /* The header is written at the end, when its values are known. */
    return !w->stream || fseek(w->stream, HEADER + NUMBERS * 4, SEEK_SET) ? failed(w) : 0;
}

int vae_latents_put(struct vae_latent_writer *w, const float *z, int64_t n, int64_t frames)
{
    size_t values = (size_t)(n * w->info.latent * w->info.rows * w->info.columns);

    w->info.frames += frames;
    w->info.latent_frames += n;
    return fwrite(z, sizeof *z, values, w->stream) == values ? 0 : failed(w);
}

/* The size of the header, the header padded with blanks, and the numbers. */
static void make_front(const struct vae_latent_info *i, char front[HEADER + NUMBERS * 4])
{
    static const char *const names[] = {"chunk", "frames", "height", "width", "fps"};
    int32_t number[] = {(int32_t)i->chunk, (int32_t)i->frames, (int32_t)i->height,
                        (int32_t)i->width};
    float fps = (float)i->fps;
    uint64_t size = HEADER - 8;
    long long z = i->latent, rows = i->rows, columns = i->columns, t = i->latent_frames;
    int at = 9;

    memset(front, ' ', HEADER);
    for (int k = 0; k < 8; k++) /* little-endian */
        front[k] = (char)(size >> (8 * k) & 0xff);
    front[8] = '{';
    for (int k = 0; k < NUMBERS; k++)
        at += snprintf(front + at, (size_t)(HEADER - at),
                       "\"%s\":{\"dtype\":\"%s\",\"shape\":[1],\"data_offsets\":[%d,%d]},",
                       names[k], k < 4 ? "I32" : "F32", 4 * k, 4 * k + 4);
    at += snprintf(front + at, (size_t)(HEADER - at),
                   "\"latents\":{\"dtype\":\"F32\",\"shape\":[%lld,%lld,%lld,%lld],"
                   "\"data_offsets\":[%d,%lld]}}",
                   t, z, rows, columns, 4 * NUMBERS, 4 * NUMBERS + 4 * t * z * rows * columns);
    front[at] = ' '; /* replaces the terminating 0 */
    memcpy(front + HEADER, number, sizeof number);
    memcpy(front + HEADER + sizeof number, &fps, sizeof fps);
}

int vae_latents_finish(struct vae_latent_writer *w)
{
    char front[HEADER + NUMBERS * 4];

    make_front(&w->info, front);
    if (fseek(w->stream, 0, SEEK_SET) || fwrite(front, sizeof front, 1, w->stream) != 1)
        return failed(w);
    struct ckpt_replacement *file = w->file;
    w->file = NULL;
    return ckpt_replace_commit(file, true) ? say_fail("%s", ckpt_error(NULL)) : 0;
}

void vae_latents_abandon(struct vae_latent_writer *w)
{
    ckpt_replace_abandon(w->file);
    w->file = NULL;
}

/* ---- reading ------------------------------------------------------------------------------- */

static int number(struct vae_latent_reader *r, const char *name, int64_t *value)
{
    struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
    int32_t v;
    int i = ckpt_file_find(r->file, name);

    if (i < 0)
        return say_fail("%s: there is no '%s': not a file of vae-encode", r->path, name);
    if (ckpt_file_entry(r->file, i, &e) || e.numel != 1 || ckpt_file_read_i32(r->file, i, &v, 1))
        return say_fail("%s: '%s' is not one whole number", r->path, name);
    if (v < 1)
        return say_fail("%s: '%s' is %d", r->path, name, (int)v);
    *value = v;
    return 0;
}

static int read_shape(struct vae_latent_reader *r)
{
    struct vae_latent_info *info = &r->info;
    struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
    float fps;
    int i = ckpt_file_find(r->file, "fps");

    if (i < 0 || ckpt_file_entry(r->file, i, &e) || e.numel != 1 ||
        ckpt_file_read_f32(r->file, i, &fps, 1) || !(fps > 0 && fps < 1000))
        return say_fail("%s: there is no frame rate 'fps'", r->path);
    info->fps = (double)fps;
    r->tensor = ckpt_file_find(r->file, "latents");
    if (r->tensor < 0 || ckpt_file_entry(r->file, r->tensor, &e) || e.ndim != 4)
        return say_fail("%s: there are no 'latents' [T, Z, h, w]: not a file of vae-encode",
                        r->path);
    info->latent_frames = e.shape[0];
    info->latent = e.shape[1];
    info->rows = e.shape[2];
    info->columns = e.shape[3];
    return 0;
}

static int check(const struct vae_latent_reader *r)
{
    const struct vae_latent_info *i = &r->info;
    int64_t expected = vae_latent_frames(i->frames, i->chunk);

    if (expected != i->latent_frames)
        return say_fail("%s: %lld frames in chunks of %lld make %lld latents; there are %lld",
                        r->path, (long long)i->frames, (long long)i->chunk, (long long)expected,
                        (long long)i->latent_frames);
    return 0;
}

int vae_latents_open(struct vae_latent_reader *r, const char *path)
{
    *r = (struct vae_latent_reader){.path = path};
    if (ckpt_file_open(&r->file, path))
        return say_fail("%s", ckpt_error(NULL));
    if (!number(r, "frames", &r->info.frames) && !number(r, "height", &r->info.height) &&
        !number(r, "width", &r->info.width) && !number(r, "chunk", &r->info.chunk) &&
        !read_shape(r) && !check(r))
        return 0;
    vae_latents_close(r);
    return -1;
}

int vae_latents_read(struct vae_latent_reader *r, int64_t first, int64_t n, float *z)
{
    int64_t frame = r->info.latent * r->info.rows * r->info.columns;

    if (ckpt_file_read_part_f32(r->file, r->tensor, first * frame, z, n * frame))
        return say_fail("%s", ckpt_error(NULL));
    return 0;
}

void vae_latents_close(struct vae_latent_reader *r)
{
    ckpt_file_close(r->file);
    r->file = NULL;
}
