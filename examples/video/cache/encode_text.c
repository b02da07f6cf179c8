/* SPDX-License-Identifier: Apache-2.0 */
/* The first pass of video-encode: from captions to features, without padding. */
#include <string.h>
#include "caption_pass.h"
#include "ckpt_tools.h"
#include "encode.h"

enum text_family encode_text_family(const struct encode_family *f)
{
    return f->model ? f->model->text : TEXT_OPENSORA;
}

static const char *caption_of(void *user, int64_t row)
{
    const struct encode *e = user;

    return videos_caption(&e->data.videos, row);
}

static const char *name_of(void *user, int64_t row, char dst[CACHE_PATH])
{
    return encode_name(user, row, dst);
}

/* A plan needs no captions. */
static int check_captions(const struct encode *e)
{
    const struct video_options *o = &e->options.video;

    return e->library.plan_only
               ? 0
               : videos_check_captions(&e->data.videos, e->data.shapes.rows, o->empty_captions,
                                       o->video_dir);
}

static int make_shards(struct encode *e, struct caption_pass *p)
{
    char path[CACHE_PATH];
    int64_t first;

    for (int64_t i = 0; i < e->n_todo; i++) {
        int64_t n = encode_shard_rows(e, e->todo[i], &first);
        cache_shard_path(path, e->options.output, CACHE_TEXT, e->todo[i]);
        if (caption_pass_shard(p, path, e->sum, first, n))
            return -1;
        e->made[CACHE_TEXT]++;
    }
    return 0;
}

int encode_text(struct encode *e)
{
    const struct video_options *o = &e->options.video;
    struct caption_pass p = {.library = &e->library,
                             .encoder = o->text_encoder,
                             .tokenizer = o->tokenizer,
                             .from = o->video_dir,
                             .family = encode_text_family(e->family),
                             .dtype = strcmp(o->dtype, "bf16") ? CKPT_F32 : CKPT_BF16,
                             .length = o->text_tokens,
                             .caption = caption_of,
                             .name = name_of,
                             .user = e};

    if (!o->text_encoder)
        return 0;
    if (check_captions(e) || encode_list_shards(e, CACHE_TEXT))
        return -1;
    if (!e->n_todo)
        return 0;
    int rc = caption_pass_open(&p);
    if (!rc && e->library.plan_only)
        ckpt_plan_print(p.model.program, stdout);
    else if (!rc)
        rc = make_shards(e, &p);
    if (!rc)
        caption_pass_report(&p);
    caption_pass_close(&p);
    return rc;
}
