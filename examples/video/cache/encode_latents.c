/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last pass of video-encode: from clips to latents.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../../common/memory.h"
#include "ckpt_tools.h"
#include "encode.h"

struct pass {
    struct encode *e;
    struct encode_rows rows;
    float *z;
    uint16_t *half; /* NULL: latents are stored as fp32 */
    ckpt_progress *progress;
    int64_t done;
};

/* The shape in which a row is encoded, or NULL. */
static const struct video_shape *shape_of(const struct encode *e, int64_t row)
{
    const struct video_data *d = &e->data;
    const struct video_options *o = &e->options.video;
    struct bucket b;

    if (!d->shapes.buckets.n)
        return d->shapes.shape;
    if (!buckets_assign(&d->shapes.buckets, &d->shapes.size[row], row, o->stride ? o->stride : 1,
                        (uint64_t)o->library.seed, 0, &b))
        return NULL;
    return video_shape_of(&d->shapes, &b);
}

static bool size(void *user, int64_t row, struct video_clips *c)
{
    const struct pass *p = user;
    const struct video_shape *s = shape_of(p->rows.e, row);

    *c = s ? s->clips : (struct video_clips){.frames = 0};
    return s;
}

static int read_clip(void *user, struct loader_file *f, const struct loader_clip *c, int64_t row,
                     double *fps)
{
    const struct pass *p = user;

    return p->rows.e->family->read(p->rows.e, f, c, row, fps);
}

static int open_rows(struct pass *p, struct encode *e)
{
    const struct video_data *d = &e->data;
    int64_t most = 0;

    for (int i = 0; i < d->shapes.n; i++) {
        const struct video_clips *c = &d->shapes.shape[i].clips;
        int64_t clip = c->frames * c->height * c->width * 3;
        most = clip > most ? clip : most;
    }
    p->rows = (struct encode_rows){.e = e, .size = size, .read = read_clip, .user = p};
    return encode_rows_open(&p->rows, most, most);
}

/* ---- writing ------------------------------------------------------------------------------- */

static int add_clip(struct pass *p, struct cache_writer *w, const struct video_shape *s,
                    struct loader_clip *c, struct cache_note *note)
{
    struct video_data *d = &p->e->data;
    int64_t n = video_data_z(d, s);
    const int64_t shape[] = {d->channels, s->geometry.frames, s->geometry.height,
                             s->geometry.width};

    note->bad = c->bad;
    if (c->bad) {
        names_add(&p->e->bad, note->name);
        return cache_writer_add(w, note, CKPT_F32, 0, NULL, NULL);
    }
    note->frames = c->frames;
    note->height = (int64_t)s->geometry.pixel_height;
    note->width = (int64_t)s->geometry.pixel_width;
    note->fps = videos_rate(&d->videos, c->frames, c->fps);
    note->from = encode_rows_sum(c);
    if (p->e->family->clip(p->e, s, c, p->z))
        return -1;
    if (p->half)
        ckpt_to_bf16(p->z, p->half, n);
    return cache_writer_add(w, note, p->half ? CKPT_BF16 : CKPT_F32, 4, shape,
                            p->half ? (const void *)p->half : p->z);
}

static int add_row(struct pass *p, struct cache_writer *w, int64_t row)
{
    const struct video_data *d = &p->e->data;
    const struct video_shape *s = shape_of(p->e, row);
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    struct loader_clip c;
    char name[CACHE_PATH];
    struct cache_note note = {.row = row, .name = encode_name(p->e, row, name)};

    if (d->shapes.size) {
        note.source[0] = d->shapes.size[row].frames;
        note.source[1] = d->shapes.size[row].height;
        note.source[2] = d->shapes.size[row].width;
    }
    p->done++;
    if (!s)
        return cache_writer_add(w, &note, CKPT_F32, 0, NULL, NULL);
    if (encode_rows_take(&p->rows, row, &c))
        return -1;
    int rc = add_clip(p, w, s, &c, &note);
    loader_release(p->rows.loader);
    ckpt_program_info(p->e->family->program(p->e), &info);
    ckpt_progress_step(p->progress, p->done, NAN, info.arena_bytes);
    return rc;
}

static int make_shard(struct pass *p, int64_t shard)
{
    struct cache_writer w;
    char path[CACHE_PATH];
    int64_t first, n = encode_shard_rows(p->e, shard, &first);

    cache_shard_path(path, p->e->options.output, CACHE_LATENTS, shard);
    int rc = cache_writer_open(&w, path, p->e->sum, n);
    for (int64_t i = 0; i < n && !rc; i++)
        rc = add_row(p, &w, first + i);
    rc = rc ? rc : cache_writer_finish(&w);
    cache_writer_abandon(&w);
    p->e->made[CACHE_LATENTS] += !rc;
    return rc ? -1 : 0;
}

/* ---- main ---------------------------------------------------------------------------------- */

static int open_pass(struct pass *p)
{
    const struct video_data *d = &p->e->data;
    bool half = !strcmp(p->e->options.stored, "bf16");
    int64_t most = 0;

    if (p->e->family->open(p->e))
        return -1;
    for (int i = 0; i < d->shapes.n; i++) {
        int64_t z = video_data_z(d, &d->shapes.shape[i]);
        most = z > most ? z : most;
    }
    p->z = MEMORY_FOR(sizeof *p->z, most);
    p->half = half ? MEMORY_FOR(sizeof *p->half, most) : NULL;
    return p->z && (p->half || !half) ? 0 : say_fail("no memory for the latents of a clip");
}

/* A resumed run counts on from the clips of the shards that are there. */
static void open_progress(struct pass *p)
{
    const struct encode *e = p->e;
    int64_t first, all = 0, todo = 0;

    for (int64_t shard = e->rank; shard < encode_shards(e); shard += e->ranks)
        all += encode_shard_rows(e, shard, &first);
    for (int64_t i = 0; i < e->n_todo; i++)
        todo += encode_shard_rows(e, e->todo[i], &first);
    p->done = all - todo;
    p->progress = ckpt_progress_open(stderr, "encode", all);
}

static int make_shards(struct pass *p)
{
    struct encode *e = p->e;
    int rc = open_rows(p, e);

    open_progress(p);
    for (int64_t i = 0; i < e->n_todo && !rc; i++)
        rc = make_shard(p, e->todo[i]);
    ckpt_progress_close(p->progress);
    encode_rows_close(&p->rows);
    return rc ? -1 : 0;
}

int encode_latents(struct encode *e)
{
    struct pass p = {.e = e};

    if (encode_list_shards(e, CACHE_LATENTS))
        return -1;
    if (!e->n_todo)
        return 0;
    int rc = open_pass(&p);
    if (!rc)
        ckpt_plan_print(e->family->program(e), stdout);
    if (!rc && !e->library.plan_only)
        rc = make_shards(&p);
    free(p.z);
    free(p.half);
    return rc;
}

/* ---- check --------------------------------------------------------------------------------- */

static int check_caption(const struct encode *e, const struct cache_row *r)
{
    const char *caption = videos_caption(&e->data.videos, r->note.row);
    uint64_t from = r->part[CACHE_TEXT].from;

    return from && from != cache_sum(caption, caption ? strlen(caption) : 0)
               ? encode_refuse(e, r, "other words")
               : 0;
}

int64_t encode_check_latents(struct encode *e, const struct cache *c)
{
    struct pass p = {.e = e};
    int64_t n = 0;
    int rc = open_rows(&p, e);

    for (int64_t i = 0; i < c->rows && rc >= 0; i++) {
        rc = check_caption(e, &c->row[i])
                 ? -1
                 : encode_rows_check(&p.rows, &c->row[i], CACHE_LATENTS, "other frames");
        n += rc > 0;
    }
    encode_rows_close(&p.rows);
    return rc < 0 ? -1 : n;
}
