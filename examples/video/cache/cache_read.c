/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens a cache (cache.h).  The files may be damaged, or made by others: the manifest must list the
 * shards of its rows, a header must have the checksum in the manifest, and shapes, offsets and
 * lengths are checked against the size of the shard.  cache_open can also check the values.  Rows
 * that could not be encoded have the reason instead.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../../common/json_keys.h"
#include "../../common/say.h"
#include "cache.h"

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

/* Finds the values of a clip in its shard; false if they do not match the header. */
static bool find_values(const struct cache_shard *s, const json_t *entry, size_t ndim,
                        struct cache_values *v)
{
    const json_t *shape = json_object_get(entry, "shape"),
                 *at = json_object_get(entry, "data_offsets");
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    int64_t from = item(at, 0), to = item(at, 1);

    v->half = dtype && !strcmp(dtype, "BF16");
    v->bytes = elements(shape) * (v->half ? 2 : 4);
    v->at = s->front + from;
    return dtype && (v->half || !strcmp(dtype, "F32")) && json_array_size(shape) == ndim &&
           v->bytes && from >= 0 && to >= from && to - from == v->bytes && to <= s->size - s->front;
}

static uint64_t sum_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? strtoull(text, NULL, 16) : 0;
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
    r->note.from = sum_of(clip, "from");
}

static int take_text_shape(struct cache *c, const struct cache_shard *s, struct cache_row *r,
                           const json_t *shape)
{
    r->tokens = item(shape, 0);
    c->tokens = r->tokens > c->tokens ? r->tokens : c->tokens;
    c->width = c->width ? c->width : item(shape, 1);
    return item(shape, 1) == c->width
               ? 0
               : say_fail("%s: the text features have different widths", s->path);
}

/* Latents and text of a row are of one clip. */
static int take_name(const struct cache_shard *s, struct cache_row *r, const char *name)
{
    if (!name)
        return say_fail("%s: clip %lld has no name", s->path, (long long)r->note.row);
    if (r->note.name && strcmp(r->note.name, name))
        return say_fail("%s: clip %lld is %s, and %s in another shard", s->path,
                        (long long)r->note.row, name, r->note.name);
    r->note.name = name;
    return 0;
}

/* Takes a clip, whose row was checked. */
static int take_clip(struct cache *c, const struct cache_shard *s, enum cache_part part,
                     const json_t *header, const json_t *clip)
{
    int64_t at = (int64_t)json_integer_value(json_object_get(clip, "row"));
    struct cache_row *r = &c->row[at];
    struct cache_values v = {.shard = s - c->shard, .from = sum_of(clip, "from")};
    char name[24];

    r->note.row = at;
    if (take_name(s, r, json_string_value(json_object_get(clip, "name"))))
        return -1;
    if (part == CACHE_LATENTS)
        take_note(r, clip);
    c->bad += part == CACHE_LATENTS && r->note.bad;
    if (!json_object_get(clip, "sum"))
        return 0;
    snprintf(name, sizeof name, "%lld", (long long)at);
    const json_t *entry = json_object_get(header, name), *shape = json_object_get(entry, "shape");
    if (!find_values(s, entry, part == CACHE_LATENTS ? 4 : 2, &v))
        return say_fail("%s: the tensor of clip %lld does not match the header", s->path,
                        (long long)at);
    v.sum = sum_of(clip, "sum");
    r->part[part] = v;
    if (part == CACHE_TEXT)
        return take_text_shape(c, s, r, shape);
    for (size_t i = 0; i < 2 && part == CACHE_SIGHT; i++)
        r->sight[i] = item(shape, i);
    if (part == CACHE_SIGHT)
        return 0;
    c->present++;
    for (size_t i = 0; i < 4; i++)
        r->shape[i] = item(shape, i);
    return 0;
}

/* ---- shards -------------------------------------------------------------------------------- */

/* Reads all values of a shard: their checksums must be those in its header. */
static int check_values(const struct cache *c, const struct cache_shard *s, enum cache_part part)
{
    const json_t *clip;
    uint8_t *values = NULL;
    int64_t room = 0;
    int rc = 0;
    size_t i;

    json_array_foreach(s->clips, i, clip)
    {
        const struct cache_row *r = &c->row[json_integer_value(json_object_get(clip, "row"))];
        const struct cache_values *v = &r->part[part];
        if (rc || !v->bytes)
            continue;
        uint8_t *more = v->bytes > room ? realloc(values, (size_t)v->bytes) : values;
        if (!more) {
            rc = say_fail("%s: no memory to check clip %lld", s->path, (long long)r->note.row);
            continue;
        }
        room = v->bytes > room ? v->bytes : room;
        values = more;
        rc = cache_files_read(c, v, values);
        if (rc > 0)
            rc = say_fail("%s: clip %lld (%s) is damaged: its checksum does not match", s->path,
                          (long long)r->note.row, r->note.name);
    }
    free(values);
    return rc;
}

/* What the manifest says of its shards. */
struct plan {
    const char *dir, *setup;
    int64_t each;   /* rows per shard */
    int64_t shards; /* of each part */
    bool *seen;     /* [CACHE_PARTS][shards] */
    bool all;       /* check the values, too */
};

/* The part and the number of a shard by its name, which is not a path. */
static bool find_number(const struct plan *p, const char *file, enum cache_part *part,
                        int64_t *number)
{
    char path[CACHE_PATH];

    for (int i = 0; i < CACHE_PARTS; i++) {
        const char *digits = strrchr(file, '-');
        *part = (enum cache_part)i;
        *number = digits ? strtoll(digits + 1, NULL, 10) : -1;
        cache_shard_path(path, ".", *part, *number);
        if (*number >= 0 && *number < p->shards && !strcmp(path + 2, file))
            return true;
    }
    return false;
}

/* Compares a shard with its entry in the manifest. */
static int check_shard(const struct cache_shard *s, const json_t *about)
{
    int64_t bytes = (int64_t)json_integer_value(json_object_get(about, "bytes"));

    if (s->size != bytes)
        return say_fail("%s: has %lld bytes, and the manifest says %lld", s->path,
                        (long long)s->size, (long long)bytes);
    return s->sum == sum_of(about, "header_sum")
               ? 0
               : say_fail("%s: its header is damaged: its checksum does not match the manifest",
                          s->path);
}

static int take_clips(struct cache *c, const struct cache_shard *s, enum cache_part part,
                      const json_t *header)
{
    const json_t *clip;
    int rc = 0;
    size_t i;

    json_array_foreach(s->clips, i, clip) if (!rc) rc = take_clip(c, s, part, header, clip);
    return rc;
}

/* Opens a shard that the manifest describes. */
static int take_shard(struct cache *c, struct cache_shard *s, const struct plan *p,
                      const json_t *about)
{
    const char *file = json_string_value(json_object_get(about, "file"));
    enum cache_part part;
    char path[CACHE_PATH];
    json_t *header;
    int64_t number;

    if (!file || !find_number(p, file, &part, &number) ||
        snprintf(path, sizeof path, "%s/%s", p->dir, file) >= CACHE_PATH)
        return say_fail("%s/manifest.json: %s is not the name of one of its shards", p->dir,
                        file ? file : "an entry without \"file\"");
    bool *seen = &p->seen[part * p->shards + number];
    if (*seen)
        return say_fail("%s/manifest.json: lists %s twice", p->dir, file);
    *seen = true;
    int64_t first = number * p->each, left = c->rows - first;
    int rc = cache_shard_open(s, path, p->setup, &header) || check_shard(s, about) ||
             cache_shard_check_rows(s, first, left < p->each ? left : p->each) ||
             take_clips(c, s, part, header) || (p->all && check_values(c, s, part));
    json_decref(header);
    return rc ? -1 : 0;
}

/* A part is whole or not there at all. */
static int check_whole(const struct plan *p)
{
    char path[CACHE_PATH];

    for (int part = 0; part < CACHE_PARTS; part++) {
        const bool *seen = p->seen + part * p->shards;
        bool any = false;
        for (int64_t i = 0; i < p->shards; i++)
            any |= seen[i];
        for (int64_t i = 0; any && i < p->shards; i++) {
            cache_shard_path(path, p->dir, (enum cache_part)part, i);
            if (!seen[i])
                return say_fail("%s/manifest.json: does not list %s; run video-encode again",
                                p->dir, path);
        }
    }
    return 0;
}

static int take_shards(struct cache *c, struct plan *p)
{
    const json_t *shards = json_object_get(c->manifest, "shards"), *about;
    int rc = 0;
    size_t i;

    c->row = calloc((size_t)c->rows, sizeof *c->row);
    c->shard = calloc(json_array_size(shards) + 1, sizeof *c->shard);
    p->seen = calloc((size_t)p->shards, CACHE_PARTS * sizeof *p->seen);
    if (!c->row || !c->shard || !p->seen)
        rc = say_fail("%s: no memory for %lld clips", p->dir, (long long)c->rows);
    json_array_foreach(shards, i, about) if (!rc) rc =
        take_shard(c, &c->shard[c->n_shards++], p, about);
    rc = rc ? rc : check_whole(p);
    free(p->seen);
    return rc;
}

/* ---- the manifest -------------------------------------------------------------------------- */

static const struct json_keys text_keys[] = {JSON_READ("dtype tokens encoder tokenizer"), JSON_END};
static const struct json_keys sight_keys[] = {JSON_READ("encoder processor"), JSON_END};
static const struct json_keys setup_keys[] = {
    JSON_READ("family vae_model vae dtype stored data captions seed stride rows shard clip buckets "
              "first_frame fit fps"),
    JSON_READ_INSIDE("text", text_keys), JSON_READ_INSIDE("sight", sight_keys), JSON_END};
static const struct json_keys shard_keys[] = {JSON_READ("file bytes clips header_sum"), JSON_END};
static const struct json_keys bad_keys[] = {JSON_READ("row name why"), JSON_END};
static const struct json_keys manifest_keys[] = {
    JSON_ONLY("format", "ckpt-cache"),     JSON_READ("version setup_sum rows"),
    JSON_READ_INSIDE("setup", setup_keys), JSON_READ_INSIDE("shards", shard_keys),
    JSON_READ_INSIDE("bad", bad_keys),     JSON_END};

static int read_manifest(struct cache *c, const char *path)
{
    if (access(path, F_OK))
        return say_fail("%s: %s; an unfinished cache has no manifest: run video-encode again; a "
                        "directory of videos is no cache: video-encode --data makes one of it",
                        path, strerror(errno));
    c->manifest = json_keys_read(path);
    if (!c->manifest)
        return -1;
    const char *format = json_string_value(json_object_get(c->manifest, "format"));
    int64_t version = json_integer_value(json_object_get(c->manifest, "version"));
    if (!format || strcmp(format, "ckpt-cache"))
        return say_fail("%s: is not the manifest of a cache", path);
    if (version != CACHE_VERSION)
        return say_fail("%s: is of version %lld, and this program reads %d", path,
                        (long long)version, CACHE_VERSION);
    return json_keys_check(path, "", c->manifest, manifest_keys);
}

/* Checks the counts of the manifest against each other, so that memory is allocated for rows that
 * exist. */
static int check_counts(const struct cache *c, const char *path, struct plan *p)
{
    size_t listed = json_array_size(json_object_get(c->manifest, "shards"));

    p->setup = json_string_value(json_object_get(c->manifest, "setup_sum"));
    p->each = cache_setup_int(c, "shard", 0);
    if (!json_is_object(c->setup) || !p->setup)
        return say_fail("%s: lacks \"setup\" or \"setup_sum\"", path);
    if (strtoull(p->setup, NULL, 16) != cache_setup_sum(c->setup))
        return say_fail("%s: \"setup\" was changed: its checksum is another than \"setup_sum\"",
                        path);
    if (c->rows < 1 || p->each < 1 || p->each > CACHE_EACH ||
        c->rows != cache_setup_int(c, "rows", 0))
        return say_fail("%s: there are no rows, or \"rows\" differs from its setup", path);
    p->shards = (c->rows - 1) / p->each + 1;
    return p->shards <= (int64_t)listed
               ? 0
               : say_fail("%s: lists %zu shards, and its %lld rows have %lld", path, listed,
                          (long long)c->rows, (long long)p->shards);
}

static int open_cache(struct cache *c, const char *dir, bool all)
{
    struct plan p = {.dir = dir, .all = all};
    char path[CACHE_PATH];

    *c = (struct cache){.rows = 0};
    if (snprintf(path, sizeof path, "%s/manifest.json", dir) >= CACHE_PATH)
        return say_fail("%s: the name is too long", dir);
    if (access(dir, F_OK))
        return say_fail("%s: there is no such cache; make one with video-encode --output %s", dir,
                        dir);
    if (read_manifest(c, path))
        return -1;
    c->setup = json_object_get(c->manifest, "setup");
    c->rows = json_integer_value(json_object_get(c->manifest, "rows"));
    return check_counts(c, path, &p) || cache_files_open(c) || take_shards(c, &p) ? -1 : 0;
}

static void note_unknown(const struct cache *c, const char *dir)
{
    int64_t unknown = 0;

    for (int64_t i = 0; i < c->rows; i++)
        unknown += cache_has(&c->row[i], CACHE_LATENTS) && !c->row[i].part[CACHE_LATENTS].from;
    if (unknown)
        say_print("%s: was made by an older version, which did not record what its %lld clips were "
                  "made from: if two runs wrote it at once, some may have the latents of others\n",
                  dir, (long long)unknown);
}

int cache_open(struct cache *c, const char *dir, bool all)
{
    if (open_cache(c, dir, all))
        return -1;
    note_unknown(c, dir);
    return c->present ? 0 : say_fail("%s: has no clip", dir);
}

int cache_open_texts(struct cache *c, const char *dir)
{
    return open_cache(c, dir, false) ? -1 : c->tokens ? 0 : say_fail("%s: has no text", dir);
}

void cache_close(struct cache *c)
{
    for (int64_t i = 0; i < c->n_shards; i++)
        cache_shard_close(&c->shard[i]);
    cache_files_close(c);
    free(c->shard);
    free(c->row);
    json_decref(c->manifest);
    *c = (struct cache){.rows = 0};
}

/* ---- sources ------------------------------------------------------------------------------- */

static int by_sum(const void *a, const void *b)
{
    const struct cache_row *x = *(const struct cache_row *const *)a,
                           *y = *(const struct cache_row *const *)b;
    uint64_t s = x->part[CACHE_LATENTS].sum, t = y->part[CACHE_LATENTS].sum;

    return (s > t) - (s < t);
}

/* Whether b has the latents of a although it was made from something else, as far as is known. */
static bool is_copy(const struct cache_row *a, const struct cache_row *b)
{
    const struct cache_values *x = &a->part[CACHE_LATENTS], *y = &b->part[CACHE_LATENTS];

    return x->sum == y->sum && x->bytes == y->bytes && strcmp(a->note.name, b->note.name) &&
           (!x->from || !y->from || x->from != y->from);
}

int cache_check_sources(const struct cache *c, const char *dir)
{
    const struct cache_row **row = calloc((size_t)c->rows, sizeof *row);
    int64_t n = 0;
    int rc = 0;

    if (!row)
        return say_fail("%s: no memory to compare %lld clips", dir, (long long)c->rows);
    for (int64_t i = 0; i < c->rows; i++)
        if (cache_has(&c->row[i], CACHE_LATENTS))
            row[n++] = &c->row[i];
    qsort(row, (size_t)n, sizeof *row, by_sum);
    for (int64_t i = 1; i < n && !rc; i++)
        if (is_copy(row[i - 1], row[i]))
            rc = say_fail(
                "%s: clips %lld (%s) and %lld (%s) have the same latents, as when two runs "
                "wrote this cache at once: encode it anew in another directory",
                dir, (long long)row[i - 1]->note.row, row[i - 1]->note.name,
                (long long)row[i]->note.row, row[i]->note.name);
    free(row);
    return rc;
}

/* ---- setup --------------------------------------------------------------------------------- */

const char *cache_setup_text(const struct cache *c, const char *key)
{
    return json_string_value(json_object_get(c->setup, key));
}

int64_t cache_setup_int(const struct cache *c, const char *key, int64_t fallback)
{
    const json_t *j = json_object_get(c->setup, key);

    return json_is_integer(j) ? (int64_t)json_integer_value(j) : fallback;
}
