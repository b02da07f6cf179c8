/* SPDX-License-Identifier: Apache-2.0 */
/* video-encode: what its parts share. */
#ifndef CACHE_ENCODE_H
#define CACHE_ENCODE_H

#include "../cogvideo/coder.h"
#include "../stdit/run.h"
#include "cache.h"

struct encode_options {
    struct stdit_options stdit; /* the data and the autoencoder, as stdit-train takes them */
    const char *output, *stored;
    const char *model; /* of CogVideoX; NULL: Open-Sora */
    int64_t shard;
    bool check;
};

struct encode {
    struct encode_options options;
    struct stdit_data data;
    struct ckpt_options library; /* without ranks */
    int rank, ranks;
    json_t *setup;             /* what the values follow from */
    uint64_t sum;              /* of it */
    int64_t made[CACHE_PARTS]; /* shards */
    int64_t bad;               /* clips */
    struct cogvae_coder cogvideo;
    float *pixels; /* of a clip that it encodes */
};

/* Returns 0 to go on, 1 when all is done and -1 when a sentence was printed. */
int encode_options_parse(struct encode_options *o, int argc, char **argv);
int encode_options_agree(const struct encode_options *o, ckpt *c);

/* Rows of a shard: the first, and how many. */
int64_t encode_shard_rows(const struct encode *e, int64_t shard, int64_t *first);
/* The next shard of this rank from `shard` on that is not there; shards: none, -1 after a sentence.
 * The rank has every ranks-th. */
int64_t encode_next_shard(struct encode *e, enum cache_part part, int64_t shard);
int64_t encode_shards(const struct encode *e);
/* The name of a row, into dst. */
const char *encode_name(const struct encode *e, int64_t row, char dst[CACHE_PATH]);

/* The two passes, one after the other: each has the budget to itself.  Return 0, or -1 after a
 * sentence. */
int encode_text(struct encode *e);
int encode_latents(struct encode *e);

/* ---- CogVideoX ----------------------------------------------------------------------------- */

/* The videos and the size of their clips; then, with the device, its program; a clip out of a row,
 * as the source of a loader; its latents.  Return 0 (reading: 1), or -1 after a sentence. */
int encode_cogvideo_data(struct encode *e);
int encode_cogvideo_open(struct encode *e);
void encode_cogvideo_close(struct encode *e);
int encode_cogvideo_read(struct encode *e, struct loader_file *f, const struct loader_clip *c,
                         int64_t row, double *fps);
int encode_cogvideo_clip(struct encode *e, int64_t row, const uint8_t *rgb, float *z);

#endif
