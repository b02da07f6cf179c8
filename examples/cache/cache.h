/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cache of latents and text features, which video-encode makes and trainers read.
 *
 *     DIR/manifest.json               what it was made of and by, and its shards
 *     DIR/latents-00000.safetensors   "ROW", [Z, F, h, w], fp32 or bf16
 *     DIR/text-00000.safetensors      "ROW", [tokens, width], fp32 or bf16; where there is text
 *
 * ROW is the place of a clip in the list of the data, from 0; a shard has those of so many rows
 * that follow each other.  The metadata of a shard tell the sizes, the sum of the bytes and the
 * name of each clip, which clips could not be read and why, and the digest of the settings that it
 * was made with.  The manifest has a sum of the header of each shard: so every byte is in a sum.
 *
 * Shards and manifest appear whole and on the disk, or not at all.
 */
#ifndef EXAMPLES_CACHE_H
#define EXAMPLES_CACHE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "ckpt.h"

enum { CACHE_PATH = 4096, CACHE_VERSION = 1 };

/* A sum of 64 bits; a change within one aligned word of 8 bytes always changes it. */
uint64_t cache_sum(const void *data, size_t bytes);
/* The sum of a file, or of the regular files of a directory in the order of their names.  Returns
 * 0, or -1 after a sentence, as all below. */
int cache_sum_path(const char *path, uint64_t *sum);

enum cache_part { CACHE_LATENTS, CACHE_TEXT, CACHE_PARTS };
/* The name of a shard into dst. */
void cache_shard_path(char dst[CACHE_PATH], const char *dir, enum cache_part part, int64_t shard);

/* What a shard tells of a row. */
struct cache_note {
    int64_t row;
    const char *name;              /* of its file; borrowed */
    int64_t frames, height, width; /* of the clip as it was encoded; 0: text, or bad */
    int64_t source[3];             /* frames, height, width of the file */
    double fps;                    /* that a model is told */
    const char *bad;               /* why it could not be read; NULL: it could */
};

/* ---- writing ------------------------------------------------------------------------------- */

struct cache_writer {
    struct ckpt_replacement *file;
    FILE *stream;
    const char *path;
    int64_t front, at; /* bytes in front of the values; of values so far */
    json_t *header, *clips;
    char setup[17];
};

/* Begins a shard of at most so many rows, beside what stands there. */
int cache_writer_open(struct cache_writer *w, const char *path, uint64_t setup, int64_t rows);
/* Adds a row; without values (shape and data NULL) only what is told of it. */
int cache_writer_add(struct cache_writer *w, const struct cache_note *note, enum ckpt_dtype dtype,
                     int ndim, const int64_t *shape, const void *data);
int cache_writer_finish(struct cache_writer *w);
void cache_writer_abandon(struct cache_writer *w); /* also after a finish */

/* Whether a shard is there: 1, 0, or -1 after a sentence: of another setup, or damaged. */
int cache_shard_is_there(const char *path, uint64_t setup);

/* Writes the manifest, of so many shards of so many rows each, where all are there: latents where
 * setup has "vae_model", text where it has "text".  setup is borrowed.  Returns how many are not
 * there yet, or -1 after a sentence. */
int64_t cache_manifest_write(const char *dir, const json_t *setup, int64_t rows, int64_t each);

/* What a digest is made of: the setup as text. */
uint64_t cache_setup_sum(const json_t *setup);

/* ---- reading ------------------------------------------------------------------------------- */

/* A row; z and text point into the shards, which are mapped. */
struct cache_row {
    const uint8_t *z, *text; /* NULL: it has none */
    int64_t shape[4];        /* of z */
    int64_t tokens;          /* of text */
    struct cache_note note;
    uint64_t sum[CACHE_PARTS];
    bool half[CACHE_PARTS]; /* bf16 */
};

struct cache_shard {
    char path[CACHE_PATH];
    uint8_t *bytes;
    size_t size;
    json_t *clips; /* owns the names */
};

struct cache {
    int64_t rows, n_shards;
    int64_t present, bad;  /* rows with latents; that could not be read */
    int64_t tokens, width; /* of the longest text; 0: there is none */
    json_t *manifest;
    const json_t *setup;   /* in it */
    struct cache_row *row; /* [rows] */
    struct cache_shard *shard;
};

/* Opens a cache: sizes of files and sums of headers are always checked.  all: those of the values,
 * too; the sentence names shard and clip. */
int cache_open(struct cache *c, const char *dir, bool all);
/* Opens one of texts alone, as trainers make it of their captions. */
int cache_open_texts(struct cache *c, const char *dir);
void cache_close(struct cache *c);

/* Values of a row as fp32: latents, or text with zeros up to so many tokens behind it.  The pages
 * are given back to the system, so that the process does not grow by what it has read. */
void cache_read_latents(const struct cache *c, int64_t row, float *z);
void cache_read_text(const struct cache *c, int64_t row, int64_t tokens, float *y);

/* A text or number of the setup; NULL and fallback where there is none. */
const char *cache_setup_text(const struct cache *c, const char *key);
int64_t cache_setup_int(const struct cache *c, const char *key, int64_t fallback);

/* ---- between its files ----------------------------------------------------------------------- */

/* Maps a shard and reads its header.  setup NULL: any.  *header is the caller's. */
int cache_shard_open(struct cache_shard *s, const char *path, const char *setup, json_t **header);
void cache_shard_close(struct cache_shard *s);
/* The sum of its header. */
uint64_t cache_shard_sum(const struct cache_shard *s);

#endif
