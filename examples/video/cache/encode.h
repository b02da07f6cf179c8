/* SPDX-License-Identifier: Apache-2.0 */
/* video-encode: the state that its parts share. */
#ifndef CACHE_ENCODE_H
#define CACHE_ENCODE_H

#include "../coder.h"
#include "../stdit/run.h"
#include "cache.h"

struct encode_options {
    struct stdit_options stdit; /* the data and the autoencoder, as in stdit-train */
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
    json_t *setup;             /* inputs and settings that determine the values */
    uint64_t sum;              /* digest of setup */
    int64_t made[CACHE_PARTS]; /* number of new shards */
    int64_t *todo, n_todo;     /* shards that this rank makes in the current pass */
    int64_t bad;               /* number of clips */
    struct video_coder cogvideo;
    float *pixels; /* of the clip being encoded */
};

/* Returns 0 to go on, 1 to exit and -1 after an error message. */
int encode_options_parse(struct encode_options *o, int argc, char **argv);
int encode_options_agree(const struct encode_options *o, ckpt *c);

/* The number of rows of a shard, and its first row. */
int64_t encode_shard_rows(const struct encode *e, int64_t shard, int64_t *first);
/* Lists the missing shards of this rank in e->todo; they are assigned to ranks in turn.  All of a
 * pass uses this list: whether a shard exists is asked once.  Returns 0, or -1 after an error
 * message. */
int encode_list_shards(struct encode *e, enum cache_part part);
int64_t encode_shards(const struct encode *e);
/* Writes the name of a row to dst. */
const char *encode_name(const struct encode *e, int64_t row, char dst[CACHE_PATH]);

/* The two passes, which run one after the other: each has the whole budget.  Return 0, or -1 after
 * an error message. */
int encode_text(struct encode *e);
int encode_latents(struct encode *e);

/* Reads the frames and captions of all clips again, and compares them with what the rows of a cache
 * were made from.  Returns the number of clips, or -1 after an error message. */
int64_t encode_check_clips(struct encode *e, const struct cache *c);

/* ---- CogVideoX ----------------------------------------------------------------------------- */

/* Open the videos and set the size of their clips; open the device and compile the program; read a
 * clip of a row, as a loader's source; encode it into latents.  Return 0 (read: 1), or -1 after an
 * error message. */
int encode_cogvideo_data(struct encode *e);
int encode_cogvideo_open(struct encode *e);
void encode_cogvideo_close(struct encode *e);
int encode_cogvideo_read(struct encode *e, struct loader_file *f, const struct loader_clip *c,
                         int64_t row, double *fps);
int encode_cogvideo_clip(struct encode *e, int64_t row, const uint8_t *rgb, float *z);

#endif
