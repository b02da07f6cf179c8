/* SPDX-License-Identifier: Apache-2.0 */
/* video-encode: the state that its parts share. */
#ifndef CACHE_ENCODE_H
#define CACHE_ENCODE_H

#include <stdatomic.h>
#include "../../common/names.h"
#include "../../text/reader.h"
#include "../coder.h"
#include "../model.h"
#include "../stdit/run.h"
#include "cache.h"

struct encode;
struct encode_family;

struct encode_options {
    struct video_options video; /* the data and the autoencoder, as in stdit-train */
    const struct encode_family *family;
    const char *output, *stored;
    const char *model; /* a directory with the autoencoder; NULL: that of --vae */
    const char *fit; /* "crop" or "stretch" */
    double fps;      /* of clips; 0: a clip is a whole video */
    int64_t shard;
    bool first;                /* also what models read that continue a first frame */
    const char *image_encoder; /* a directory with the encoder of first frames; NULL: none */
    bool check;
};

/* How the clips of an autoencoder are cut, read and encoded.  Functions that return int return 0,
 * or -1 after an error message. */
struct encode_family {
    const struct video_model *model;                /* that trains on its latents; NULL: STDiT */
    const char *(*name)(const struct encode *e);    /* "family" in the setup of a cache */
    const char *(*weights)(const struct encode *e); /* their file or directory */
    /* Opens the videos, and sets the shapes of their clips. */
    int (*data)(struct encode *e);
    /* Opens the device and compiles; sets the shapes of latents.  close also after a failure. */
    int (*open)(struct encode *e);
    void (*close)(struct encode *e);
    ckpt_program *(*program)(const struct encode *e);
    /* Reads a clip of a row, as a loader's source; encodes it into latents. */
    int (*read)(struct encode *e, struct loader_file *f, const struct loader_clip *c, int64_t row,
                double *fps);
    int (*clip)(struct encode *e, const struct video_shape *s, const struct loader_clip *c,
                float *z);
};

/* How its model reads captions. */
enum text_family encode_text_family(const struct encode_family *f);

/* Open-Sora's autoencoder, on clips as stdit-train cuts them. */
extern const struct encode_family encode_opensora;
/* Those of the coder (coder.h), on whole videos: the one that the config.json of a directory names.
 * NULL after an error message. */
const struct encode_family *encode_coder(const char *dir);

/* What a file has for its clip: all frames that were asked for, fewer, or one, as a photo. */
enum clip_length { CLIP_LONG, CLIP_SHORT, CLIP_PHOTO };

struct encode {
    const struct encode_family *family;
    struct encode_options options;
    struct video_data data;
    struct ckpt_options library; /* without ranks */
    int rank, ranks;
    json_t *setup;             /* inputs and settings that determine the values */
    uint64_t sum;              /* digest of setup */
    int64_t made[CACHE_PARTS]; /* number of new shards */
    int64_t *todo, n_todo;     /* shards that this rank makes in the current pass */
    struct names bad;          /* clips that could not be read */
    enum clip_length *lengths; /* [rows], 0 where no file was read; readers set them, or NULL */
    atomic_llong longer;       /* videos with --fps whose end is in no clip */
    ckpt *context;             /* of Open-Sora's autoencoder */
    struct video_coder coder;  /* the other ones */
    struct video_coder *each;  /* [shapes]: it, with the program of a shape */
    float *pixels;             /* of the clip being encoded */
};

/* Returns 0 to go on, 1 to exit and -1 after an error message. */
int encode_options_parse(struct encode_options *o, int argc, char **argv);
int encode_options_agree(struct encode_options *o, ckpt *c);

/* The number of rows of a shard, and its first row. */
int64_t encode_shard_rows(const struct encode *e, int64_t shard, int64_t *first);
/* Lists the missing shards of this rank in e->todo; they are assigned to ranks in turn.  All of a
 * pass uses this list: whether a shard exists is asked once.  Returns 0, or -1 after an error
 * message. */
int encode_list_shards(struct encode *e, enum cache_part part);
int64_t encode_shards(const struct encode *e);
/* Writes the name of a row to dst. */
const char *encode_name(const struct encode *e, int64_t row, char dst[CACHE_PATH]);

/* The passes, which run one after the other: each has the whole budget.  Return 0, or -1 after an
 * error message. */
int encode_text(struct encode *e);
int encode_sight(struct encode *e);
int encode_latents(struct encode *e);

/* The rows of e->todo, whose clips a loader reads ahead in order. */
struct encode_rows {
    struct encode *e;
    /* Sets frames, height and width of a row's clip; false: it has none. */
    bool (*size)(void *user, int64_t row, struct video_clips *c);
    /* Reads it, as a loader's source. */
    int (*read)(void *user, struct loader_file *f, const struct loader_clip *c, int64_t row,
                double *fps);
    void *user;
    struct loader_source source;
    struct loader *loader;
    int64_t at, row; /* the next one to read ahead: index of its shard in e->todo, and row */
};

/* clip, step: bytes as in struct loader_need.  Take returns the clip of that row, the next one that
 * has a clip; release it (loader_release).  Return 0, or -1 after an error message. */
int encode_rows_open(struct encode_rows *r, int64_t clip, int64_t step);
void encode_rows_close(struct encode_rows *r);
int encode_rows_take(struct encode_rows *r, int64_t row, struct loader_clip *c);
/* The checksum of its frames. */
uint64_t encode_rows_sum(const struct loader_clip *c);

/* Compare what the rows of a cache were made from with frames and captions that are read again, and
 * with first frames if the cache has their features.  All shards are in e->todo.  Return the number
 * of clips, or of features, or -1 after an error message. */
int64_t encode_check_latents(struct encode *e, const struct cache *c);
int64_t encode_check_sight(struct encode *e, const struct cache *c);

/* The same for the next row: 1 if its values were made from that clip, 0 if it has none, or -1. */
int encode_rows_check(struct encode_rows *r, const struct cache_row *row, enum cache_part part,
                      const char *what);
/* The error of a row that was made from something else.  Returns -1. */
int encode_refuse(const struct encode *e, const struct cache_row *r, const char *what);

#endif
