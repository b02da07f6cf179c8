/* SPDX-License-Identifier: Apache-2.0 */
/* video-encode: what its parts share. */
#ifndef CACHE_ENCODE_H
#define CACHE_ENCODE_H

#include "../stdit/run.h"
#include "cache.h"

struct encode_options {
    struct stdit_options stdit; /* the data and the autoencoder, as stdit-train takes them */
    const char *output, *stored;
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

#endif
