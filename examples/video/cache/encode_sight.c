/* SPDX-License-Identifier: Apache-2.0 */
/* The pass of video-encode from first frames to the features that I2V of Wan 2.1 reads.  A frame is
 * read again for it, ahead of the encoder: its size is the encoder's, not that of the clip. */
#include <stdlib.h>
#include <string.h>
#include "../../common/clip.h"
#include "../../common/memory.h"
#include "../wan/sight.h"
#include "ckpt_tools.h"
#include "encode.h"

struct pass {
    struct encode *e;
    struct encode_rows rows;
    struct sight sight;
    float *features;
    uint16_t *half; /* NULL: they are stored as fp32 */
};

/* ---- reading ------------------------------------------------------------------------------- */

static bool size(void *user, int64_t row, struct video_clips *c)
{
    const struct pass *p = user;
    const int64_t side = p->sight.config.side;

    (void)row;
    *c = (struct video_clips){.frames = 1, .height = side, .width = side};
    return true;
}

static int read_frame(void *user, struct loader_file *f, const struct loader_clip *c, int64_t row,
                      double *fps)
{
    struct pass *p = user;
    struct clip whole = {.frames = 1};
    struct video *v = loader_file_open(f, videos_find(&p->e->data.videos, row, 0, &whole));

    if (!v || sight_read(&p->sight.config, v, c->rgb))
        return -1;
    *fps = 0;
    return 1;
}

/* As many frames ahead as there are workers. */
static int open_rows(struct pass *p)
{
    const int64_t side = p->sight.config.side, frame = 3 * side * side;

    p->rows = (struct encode_rows){.e = p->e, .size = size, .read = read_frame, .user = p};
    return encode_rows_open(&p->rows, frame, p->e->options.video.loader.workers * frame);
}

/* ---- writing ------------------------------------------------------------------------------- */

static int open_pass(struct pass *p)
{
    const struct encode *e = p->e;
    const char *dtype = e->options.video.dtype;

    if (sight_open(&p->sight, &e->library, e->options.image_encoder,
                   strcmp(dtype, "bf16") ? CKPT_F32 : CKPT_BF16))
        return -1;
    const int64_t rows = sight_rows(&p->sight.config), width = p->sight.config.width;
    const bool half = !strcmp(e->options.stored, "bf16");

    p->features = MEMORY_FOR(sizeof *p->features, rows, width);
    p->half = half ? MEMORY_FOR(sizeof *p->half, rows, width) : NULL;
    return p->features && (p->half || !half) ? 0 : say_fail("no memory for features of a picture");
}

static void close_pass(struct pass *p)
{
    encode_rows_close(&p->rows);
    sight_close(&p->sight);
    free(p->features);
    free(p->half);
}

static int add_features(struct pass *p, struct cache_writer *w, struct loader_clip *c,
                        struct cache_note *note)
{
    const struct sight_config *g = &p->sight.config;
    const int64_t shape[] = {sight_rows(g), g->width};

    if (c->bad) /* it is none of the clips either, where the reason is counted */
        return cache_writer_add(w, note, CKPT_F32, 0, NULL, NULL);
    note->from = encode_rows_sum(c);
    if (sight_encode(&p->sight, c->rgb, p->features))
        return -1;
    if (p->half)
        ckpt_to_bf16(p->features, p->half, shape[0] * shape[1]);
    return cache_writer_add(w, note, p->half ? CKPT_BF16 : CKPT_F32, 2, shape,
                            p->half ? (const void *)p->half : p->features);
}

static int add_row(struct pass *p, struct cache_writer *w, int64_t row)
{
    struct loader_clip c;
    char name[CACHE_PATH];
    struct cache_note note = {.row = row, .name = encode_name(p->e, row, name)};

    if (encode_rows_take(&p->rows, row, &c))
        return -1;
    int rc = add_features(p, w, &c, &note);
    loader_release(p->rows.loader);
    return rc;
}

static int make_shard(struct pass *p, int64_t shard)
{
    struct encode *e = p->e;
    struct cache_writer w;
    char path[CACHE_PATH];
    int64_t first, n = encode_shard_rows(e, shard, &first);

    cache_shard_path(path, e->options.output, CACHE_SIGHT, shard);
    int rc = cache_writer_open(&w, path, e->sum, n);
    for (int64_t i = 0; i < n && !rc; i++)
        rc = add_row(p, &w, first + i);
    rc = rc ? rc : cache_writer_finish(&w);
    cache_writer_abandon(&w);
    e->made[CACHE_SIGHT] += !rc;
    return rc ? -1 : 0;
}

int encode_sight(struct encode *e)
{
    struct pass p = {.e = e};

    if (!e->options.image_encoder)
        return 0;
    if (encode_list_shards(e, CACHE_SIGHT))
        return -1;
    if (!e->n_todo)
        return 0;
    int rc = open_pass(&p);
    if (!rc)
        ckpt_plan_print(p.sight.program, stdout);
    if (!rc && !e->library.plan_only)
        rc = open_rows(&p);
    for (int64_t i = 0; i < e->n_todo && !rc && !e->library.plan_only; i++)
        rc = make_shard(&p, e->todo[i]);
    close_pass(&p);
    return rc;
}

int64_t encode_check_sight(struct encode *e, const struct cache *c)
{
    struct pass p = {.e = e};
    int64_t n = 0;

    if (!e->options.image_encoder)
        return 0;
    int rc = sight_config(&p.sight.config, e->options.image_encoder) || open_rows(&p) ? -1 : 0;
    for (int64_t i = 0; i < c->rows && rc >= 0; i++) {
        rc = encode_rows_check(&p.rows, &c->row[i], CACHE_SIGHT, "another first frame");
        n += rc > 0;
    }
    encode_rows_close(&p.rows);
    return rc < 0 ? -1 : n;
}
