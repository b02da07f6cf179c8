/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a cache (cache.h).  Shards stay mapped, and a row has pointers into them.
 *
 * The files may be damaged: a header must have the checksum in the manifest, and shapes, offsets
 * and lengths are checked against the size of the shard before values are read.  cache_open can
 * also check the values.  Rows that could not be encoded have the reason instead.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "../common/say.h"
#include "cache.h"
#include "ckpt_tools.h"

/* ---- rows ---------------------------------------------------------------------------------- */

static int64_t item(const json_t *array, size_t i)
{
    return (int64_t)json_integer_value(json_array_get(array, i));
}

/* The number of elements, or 0 if a size is below 1 or the bytes would overflow. */
static int64_t elements(const json_t *shape)
{
    int64_t n = 1;

    for (size_t i = 0; i < json_array_size(shape); i++)
        n = item(shape, i) > 0 && n <= INT64_MAX / item(shape, i) / 8 ? n * item(shape, i) : 0;
    return n;
}

/* The values of a clip in its shard, or NULL if they do not match the header. */
static const uint8_t *values_of(const struct cache_shard *s, const json_t *entry, size_t ndim,
                                bool *half)
{
    const json_t *shape = json_object_get(entry, "shape"),
                 *at = json_object_get(entry, "data_offsets");
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    uint64_t front;

    *half = dtype && !strcmp(dtype, "BF16");
    memcpy(&front, s->bytes, sizeof front);
    front += sizeof front;
    int64_t bytes = elements(shape) * (*half ? 2 : 4);
    if (!dtype || (!*half && strcmp(dtype, "F32")) || json_array_size(shape) != ndim || !bytes ||
        item(at, 0) < 0 || item(at, 1) - item(at, 0) != bytes ||
        item(at, 1) > (int64_t)(s->size - front))
        return NULL;
    return s->bytes + front + item(at, 0);
}

/* The strings stay in the metadata of the shard. */
static void take_note(struct cache_row *r, const json_t *clip)
{
    const json_t *size = json_object_get(clip, "clip"), *source = json_object_get(clip, "source");

    for (size_t i = 0; i < 3; i++)
        r->note.source[i] = item(source, i);
    r->note.frames = item(size, 0);
    r->note.height = item(size, 1);
    r->note.width = item(size, 2);
    r->note.fps = json_number_value(json_object_get(clip, "fps"));
    r->note.bad = json_string_value(json_object_get(clip, "bad"));
}

static int take_clip(struct cache *c, const struct cache_shard *s, enum cache_part part,
                     const json_t *header, const json_t *clip)
{
    int64_t at = (int64_t)json_integer_value(json_object_get(clip, "row"));
    const char *sum = json_string_value(json_object_get(clip, "sum"));
    char name[24];

    if (at < 0 || at >= c->rows)
        return say_fail("%s: lists clip %lld, but there are %lld clips", s->path, (long long)at,
                        (long long)c->rows);
    struct cache_row *r = &c->row[at];
    r->note.row = at;
    r->note.name = json_string_value(json_object_get(clip, "name"));
    if (part == CACHE_LATENTS)
        take_note(r, clip);
    c->bad += part == CACHE_LATENTS && r->note.bad;
    if (!sum)
        return 0;
    snprintf(name, sizeof name, "%lld", (long long)at);
    const json_t *entry = json_object_get(header, name), *shape = json_object_get(entry, "shape");
    const uint8_t *values = values_of(s, entry, part == CACHE_TEXT ? 2 : 4, &r->half[part]);
    if (!values)
        return say_fail("%s: the tensor of clip %lld does not match the header", s->path,
                        (long long)at);
    r->sum[part] = strtoull(sum, NULL, 16);
    if (part == CACHE_TEXT) {
        r->text = values;
        r->tokens = item(shape, 0);
        c->tokens = r->tokens > c->tokens ? r->tokens : c->tokens;
        c->width = c->width ? c->width : item(shape, 1);
        return item(shape, 1) == c->width
                   ? 0
                   : say_fail("%s: the text features have different widths", s->path);
    }
    r->z = values;
    c->present++;
    for (size_t i = 0; i < 4; i++)
        r->shape[i] = item(shape, i);
    return 0;
}

/* ---- shards -------------------------------------------------------------------------------- */

static size_t bytes_of(const struct cache *c, const struct cache_row *r, enum cache_part part)
{
    int64_t n = part == CACHE_TEXT ? r->tokens * c->width
                                   : r->shape[0] * r->shape[1] * r->shape[2] * r->shape[3];

    return (size_t)(n * (r->half[part] ? 2 : 4));
}

/* Drops pages from the process that were read and are not needed again soon.  They stay in the page
 * cache, which the system can reclaim. */
static void give_back(const uint8_t *at, size_t n)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)at & ~(page - 1);

    madvise((void *)first, (uintptr_t)at + n - first, MADV_DONTNEED);
}

/* Reads all values of a shard: their checksums must be those in its header. */
static int check_values(const struct cache *c, const struct cache_shard *s, enum cache_part part)
{
    const json_t *clip;
    size_t i;

    json_array_foreach(s->clips, i, clip)
    {
        const struct cache_row *r = &c->row[json_integer_value(json_object_get(clip, "row"))];
        const uint8_t *at = part == CACHE_TEXT ? r->text : r->z;
        if (!at || !json_object_get(clip, "sum"))
            continue;
        bool same = cache_sum(at, bytes_of(c, r, part)) == r->sum[part];
        give_back(at, bytes_of(c, r, part));
        if (!same)
            return say_fail("%s: clip %lld (%s) is damaged: its checksum does not match", s->path,
                            (long long)r->note.row, r->note.name);
    }
    return 0;
}

/* Opens a shard that the manifest describes; all: checks its values, too. */
static int take_shard(struct cache *c, struct cache_shard *s, const char *dir, const json_t *about,
                      bool all)
{
    const char *file = json_string_value(json_object_get(about, "file"));
    const char *sum = json_string_value(json_object_get(about, "header_sum"));
    const char *setup = json_string_value(json_object_get(c->manifest, "setup_sum"));
    enum cache_part part = file && !strncmp(file, "text", 4) ? CACHE_TEXT : CACHE_LATENTS;
    char path[CACHE_PATH];
    json_t *header, *clip;
    size_t i;

    if (!file || !sum || strchr(file, '/') ||
        snprintf(path, sizeof path, "%s/%s", dir, file) >= CACHE_PATH)
        return say_fail("%s/manifest.json: the entry of a shard is not valid", dir);
    int rc = cache_shard_open(s, path, setup, &header);
    if (!rc && (int64_t)s->size != json_integer_value(json_object_get(about, "bytes")))
        rc = say_fail("%s: has %zu bytes, and the manifest says %lld", path, s->size,
                      (long long)json_integer_value(json_object_get(about, "bytes")));
    if (!rc && cache_shard_sum(s) != strtoull(sum, NULL, 16))
        rc = say_fail("%s: its header is damaged: its checksum does not match the manifest", path);
    if (!rc)
        json_array_foreach(s->clips, i, clip) if (!rc) rc = take_clip(c, s, part, header, clip);
    json_decref(header);
    if (!rc && all)
        rc = check_values(c, s, part);
    if (!rc) /* the header was parsed */
        madvise(s->bytes, s->size, MADV_DONTNEED);
    return rc;
}

static int take_shards(struct cache *c, const char *dir, bool all)
{
    const json_t *shards = json_object_get(c->manifest, "shards"), *about;
    size_t i;

    c->row = calloc((size_t)c->rows, sizeof *c->row);
    c->shard = calloc(json_array_size(shards) + 1, sizeof *c->shard);
    if (!c->row || !c->shard)
        return say_fail("%s: no memory for %lld clips", dir, (long long)c->rows);
    json_array_foreach(
        shards, i, about) if (take_shard(c, &c->shard[c->n_shards++], dir, about, all)) return -1;
    return 0;
}

static int open_cache(struct cache *c, const char *dir, bool all)
{
    char path[CACHE_PATH];
    json_error_t error;
    FILE *f;

    *c = (struct cache){.rows = 0};
    if (snprintf(path, sizeof path, "%s/manifest.json", dir) >= CACHE_PATH)
        return say_fail("%s: the name is too long", dir);
    if (ckpt_input_open(&f, path))
        return say_fail("%s; an unfinished cache has no manifest: run video-encode again",
                        ckpt_error(NULL));
    c->manifest = json_loadf(f, 0, &error);
    fclose(f);
    if (!c->manifest)
        return say_fail("%s: line %d: %s", path, error.line, error.text);
    const char *format = json_string_value(json_object_get(c->manifest, "format"));
    int64_t version = json_integer_value(json_object_get(c->manifest, "version"));
    if (!format || strcmp(format, "ckpt-cache"))
        return say_fail("%s: is not the manifest of a cache", path);
    if (version != CACHE_VERSION)
        return say_fail("%s: is of version %lld, and this program reads %d", path,
                        (long long)version, CACHE_VERSION);
    c->setup = json_object_get(c->manifest, "setup");
    c->rows = json_integer_value(json_object_get(c->manifest, "rows"));
    if (c->rows < 1 || c->rows > INT64_C(1) << 40)
        return say_fail("%s: there are no rows", path);
    return take_shards(c, dir, all);
}

int cache_open(struct cache *c, const char *dir, bool all)
{
    return open_cache(c, dir, all) ? -1 : c->present ? 0 : say_fail("%s: has no clip", dir);
}

int cache_open_texts(struct cache *c, const char *dir)
{
    return open_cache(c, dir, false) ? -1 : c->tokens ? 0 : say_fail("%s: has no text", dir);
}

void cache_close(struct cache *c)
{
    for (int64_t i = 0; i < c->n_shards; i++)
        cache_shard_close(&c->shard[i]);
    free(c->shard);
    free(c->row);
    json_decref(c->manifest);
    *c = (struct cache){.rows = 0};
}

/* ---- values -------------------------------------------------------------------------------- */

/* Values may be unaligned, so pieces of them are copied first. */
static void widen(const uint8_t *from, bool half, float *to, int64_t n)
{
    uint16_t part[1024];

    if (!half) {
        memcpy(to, from, (size_t)n * sizeof *to);
        return;
    }
    for (int64_t i = 0; i < n; i += 1024) {
        int64_t m = n - i < 1024 ? n - i : 1024;
        memcpy(part, from + 2 * i, (size_t)m * 2);
        ckpt_from_bf16(part, to + i, m);
    }
}

void cache_read_latents(const struct cache *c, int64_t row, float *z)
{
    const struct cache_row *r = &c->row[row];
    size_t bytes = bytes_of(c, r, CACHE_LATENTS);

    widen(r->z, r->half[CACHE_LATENTS], z, (int64_t)bytes / (r->half[CACHE_LATENTS] ? 2 : 4));
    give_back(r->z, bytes);
}

void cache_read_text(const struct cache *c, int64_t row, int64_t tokens, float *y)
{
    const struct cache_row *r = &c->row[row];
    int64_t n = r->text ? r->tokens * c->width : 0;

    memset(y + n, 0, (size_t)(tokens * c->width - n) * sizeof *y);
    if (!n)
        return;
    widen(r->text, r->half[CACHE_TEXT], y, n);
    give_back(r->text, bytes_of(c, r, CACHE_TEXT));
}

const char *cache_setup_text(const struct cache *c, const char *key)
{
    return json_string_value(json_object_get(c->setup, key));
}

int64_t cache_setup_int(const struct cache *c, const char *key, int64_t fallback)
{
    const json_t *j = json_object_get(c->setup, key);

    return json_is_integer(j) ? (int64_t)json_integer_value(j) : fallback;
}
