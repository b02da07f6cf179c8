/* SPDX-License-Identifier: Apache-2.0 */
/* The pass of video-encode from first frames to the features that I2V of Wan 2.1 reads.  A frame is
 * read again for it: its size is the encoder's, not that of the clip. */
#include <stdlib.h>
#include <string.h>
#include "../../common/clip.h"
#include "../../common/memory.h"
#include "../wan/sight.h"
#include "ckpt_tools.h"
#include "encode.h"

struct pass {
    struct encode *e;
    struct sight sight;
    uint8_t *rgb;
    float *features;
    uint16_t *half; /* NULL: they are stored as fp32 */
};

static int open_pass(struct pass *p)
{
    const struct encode *e = p->e;
    const char *dtype = e->options.video.dtype;

    if (sight_open(&p->sight, &e->library, e->options.image_encoder,
                   strcmp(dtype, "bf16") ? CKPT_F32 : CKPT_BF16))
        return -1;
    const int64_t side = p->sight.config.side, rows = sight_rows(&p->sight.config),
                  width = p->sight.config.width;
    const bool half = !strcmp(e->options.stored, "bf16");

    p->rgb = MEMORY_FOR(3, side, side);
    p->features = MEMORY_FOR(sizeof *p->features, rows, width);
    p->half = half ? MEMORY_FOR(sizeof *p->half, rows, width) : NULL;
    return p->rgb && p->features && (p->half || !half) ? 0 : say_fail("no memory for a picture");
}

static void close_pass(struct pass *p)
{
    sight_close(&p->sight);
    free(p->rgb);
    free(p->features);
    free(p->half);
}

/* A file that cannot be read is none of the clips either, where the reason is counted. */
static bool read_frame(struct pass *p, int64_t row)
{
    struct clip whole = {.frames = 1};
    struct video v;
    bool read = !video_open_file(&v, videos_find(&p->e->data.videos, row, 0, &whole)) &&
                !sight_read(&p->sight, &v, p->rgb);

    video_close(&v);
    return read;
}

static int add_row(struct pass *p, struct cache_writer *w, int64_t row)
{
    const struct sight_config *c = &p->sight.config;
    const int64_t shape[] = {sight_rows(c), c->width};
    char name[CACHE_PATH];
    struct cache_note note = {.row = row, .name = encode_name(p->e, row, name)};

    if (!read_frame(p, row))
        return cache_writer_add(w, &note, CKPT_F32, 0, NULL, NULL);
    note.from = cache_sum(p->rgb, (size_t)(3 * c->side * c->side));
    if (sight_encode(&p->sight, p->rgb, p->features))
        return -1;
    if (p->half)
        ckpt_to_bf16(p->features, p->half, shape[0] * shape[1]);
    return cache_writer_add(w, &note, p->half ? CKPT_BF16 : CKPT_F32, 2, shape,
                            p->half ? (const void *)p->half : p->features);
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
    for (int64_t i = 0; i < e->n_todo && !rc && !e->library.plan_only; i++)
        rc = make_shard(&p, e->todo[i]);
    close_pass(&p);
    return rc;
}
