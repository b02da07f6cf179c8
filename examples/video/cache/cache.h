/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cache of latents and text features, which video-encode makes and trainers read.
 *
 *   DIR/manifest.json               its inputs, its settings, its program and its shards
 *   DIR/latents-00000.safetensors   "ROW", [Z, F, h, w], fp32 or bf16; with clips of first frames
 *                                   2 Z channels, theirs last
 *   DIR/text-00000.safetensors      "ROW", [tokens, width], fp32 or bf16; only with text
 *   DIR/sight-00000.safetensors     "ROW", [rows, width], fp32 or bf16: features of first frames;
 *                                   only with a picture encoder
 *
 * ROW is the position of a clip in the list of the data, from 0.  A shard has a fixed number of
 * consecutive rows.  The metadata of a shard contain the sizes, the checksum and the name of each
 * clip, the digest of the frames or the caption that its values were made from, the clips that
 * could not be read with the reason, and the digest of the settings.  The manifest has a checksum
 * of the header of each shard, so a checksum covers every byte, and each row is bound to its
 * source.
 *
 * Shards and the manifest are written atomically and durably, by one run at a time (lock.h).  They
 * are read, never mapped: a file that another process cuts under way is an error.
 */
#ifndef EXAMPLES_CACHE_H
#define EXAMPLES_CACHE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "ckpt.h"

enum { CACHE_PATH = 4096, CACHE_VERSION = 1, CACHE_EACH = 1 << 20 /* most rows of a shard */ };

/* A 64-bit checksum; any change within one aligned 8-byte word changes it. */
uint64_t cache_sum(const void *data, size_t bytes);
/* The checksum of a file, or of the regular files of a directory in the order of their names.
 * Returns 0, or -1 after an error message, as do all below. */
int cache_sum_path(const char *path, uint64_t *sum);

enum cache_part { CACHE_LATENTS, CACHE_TEXT, CACHE_SIGHT, CACHE_PARTS };
/* The length of such a sum as text, with its final zero. */
enum { CACHE_SUM = 17 };
const char *cache_sum_text(char dst[CACHE_SUM], uint64_t sum);
/* Writes the path of a shard to dst. */
void cache_shard_path(char dst[CACHE_PATH], const char *dir, enum cache_part part, int64_t shard);

/* The metadata of a row in a shard. */
struct cache_note {
    int64_t row;
    const char *name;              /* file name; borrowed */
    int64_t frames, height, width; /* of the encoded clip; 0: text, or bad */
    int64_t source[3];             /* frames, height, width of the file */
    double fps;                    /* the frame rate given to the model */
    const char *bad;               /* the reason why it could not be read; NULL: readable */
    /* Checksum of the frames that were encoded, or of the caption; 0: unknown, in a cache of an
     * older version. */
    uint64_t from;
};

/* ---- writing ------------------------------------------------------------------------------- */

struct cache_writer {
    struct ckpt_replacement *file;
    FILE *stream;
    const char *path;
    int64_t front, at; /* bytes before the values; bytes of values so far */
    json_t *header, *clips;
    bool failed; /* part of header or clips could not be made */
    char setup[CACHE_SUM];
};

/* Begins a shard of at most that many rows; an existing file stays until the new one is
 * finished. */
int cache_writer_open(struct cache_writer *w, const char *path, uint64_t setup, int64_t rows);
/* Adds a row; without values (shape and data NULL) only its metadata. */
int cache_writer_add(struct cache_writer *w, const struct cache_note *note, enum ckpt_dtype dtype,
                     int ndim, const int64_t *shape, const void *data);
int cache_writer_finish(struct cache_writer *w);
void cache_writer_abandon(struct cache_writer *w); /* also after cache_writer_finish */

/* Whether a shard of these n rows exists: 1, 0, or -1 after an error message if it has another
 * setup or other rows, or is damaged. */
int cache_shard_is_there(const char *path, uint64_t setup, int64_t first, int64_t n);

/* Writes the manifest for that many rows, `each` per shard, if all shards exist: latents if setup
 * has "vae_model", text if it has "text", features of pictures if it has "sight".  left: names of
 * files that gave no row.  The caller keeps setup.  Returns the number of missing shards, or -1
 * after an error message, also if no row has values. */
int64_t cache_manifest_write(const char *dir, const json_t *setup, int64_t rows, int64_t each,
                             char *const *left, int64_t n_left);

/* The digest of the setup, computed from its text. */
uint64_t cache_setup_sum(const json_t *setup);

/* ---- reading ------------------------------------------------------------------------------- */

/* The values of a row in a shard. */
struct cache_values {
    int64_t shard, at; /* number of the shard; first byte in its file */
    int64_t bytes;     /* 0: the cache has none */
    uint64_t sum;      /* of the bytes */
    uint64_t from;     /* cache_note.from */
    bool half;         /* bf16 */
};

struct cache_row {
    struct cache_values part[CACHE_PARTS];
    int64_t shape[4]; /* of the latents */
    int64_t tokens;   /* of the text */
    int64_t sight[2]; /* rows and width of the features of its first frame */
    struct cache_note note;
};

struct cache_shard {
    char path[CACHE_PATH];
    int64_t size, front; /* bytes of the file; of them, before the values */
    uint64_t sum;        /* of those */
    json_t *clips;       /* owns the names */
};

struct cache_files;

struct cache {
    int64_t rows, n_shards;
    int64_t present, bad;  /* rows with latents; rows that could not be read */
    int64_t tokens, width; /* of the longest text; 0: no text */
    json_t *manifest;
    const json_t *setup;   /* inside manifest */
    struct cache_row *row; /* [rows] */
    struct cache_shard *shard;
    struct cache_files *files; /* those that are open */
};

/* Opens a cache.  Checks the manifest, the sizes of files and the checksums of headers; all: also
 * the checksums of the values.  The error message names shard and clip. */
int cache_open(struct cache *c, const char *dir, bool all);
/* Opens a cache that has only texts, as trainers make it from their captions. */
int cache_open_texts(struct cache *c, const char *dir);
void cache_close(struct cache *c);

/* Whether the cache has these values of a row. */
static inline bool cache_has(const struct cache_row *r, enum cache_part part)
{
    return r->part[part].bytes > 0;
}

/* Read the values of a row as fp32: latents, or text padded with zeros up to that many tokens.
 * Values that differ from their checksum, or that another process cut off, are an error.  One
 * thread at a time. */
int cache_read_latents(const struct cache *c, int64_t row, float *z);
int cache_read_text(const struct cache *c, int64_t row, int64_t tokens, float *y);
/* The features of the first frame, which the cache has. */
int cache_read_sight(const struct cache *c, int64_t row, float *sight);

/* Fails if two clips of different names have the same latents, unless they were made from the same
 * frames: in a cache that two runs wrote at once, one has the other's. */
int cache_check_sources(const struct cache *c, const char *dir);

/* A text or number of the setup; NULL or fallback if it is missing. */
const char *cache_setup_text(const struct cache *c, const char *key);
int64_t cache_setup_int(const struct cache *c, const char *key, int64_t fallback);

/* ---- private to the files of the cache ------------------------------------------------------- */

/* Opens a regular file that is not empty; reads bytes at an offset. */
int cache_file_open(const char *path, int *fd, int64_t *size);
int cache_file_read(const char *path, int fd, void *dst, int64_t bytes, int64_t at);

/* Reads the header of a shard.  setup NULL: any.  The caller owns *header. */
int cache_shard_open(struct cache_shard *s, const char *path, const char *setup, json_t **header);
void cache_shard_close(struct cache_shard *s);
/* Checks that the shard lists these n rows, in order. */
int cache_shard_check_rows(const struct cache_shard *s, int64_t first, int64_t n);

/* Opens and closes the files of a cache; reads values of a row as they are stored. */
int cache_files_open(struct cache *c);
void cache_files_close(struct cache *c);
int cache_files_read(const struct cache *c, const struct cache_values *v, void *dst);

#endif
