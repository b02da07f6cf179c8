/* SPDX-License-Identifier: Apache-2.0 */
/* Writes shards and the manifest: see cache.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../common/say.h"
#include "cache.h"
#include "ckpt_tools.h"

/* Bytes of a header: in total, and per row.  Texts are cut so that they fit even if every character
 * is escaped twice. */
enum { FRONT = 4096, ROW = 2560, TEXT = 200 };

/* ---- shards -------------------------------------------------------------------------------- */

static int failed(const struct cache_writer *w)
{
    return say_fail("%s: cannot be written: %s", w->path, strerror(errno));
}

int cache_writer_open(struct cache_writer *w, const char *path, uint64_t setup, int64_t rows)
{
    *w = (struct cache_writer){.path = path, .front = FRONT + rows * ROW};
    snprintf(w->setup, sizeof w->setup, "%016llx", (unsigned long long)setup);
    w->header = json_object();
    w->clips = json_array();
    if (ckpt_replace_open(&w->file, path))
        return say_fail("%s", ckpt_error(NULL));
    w->stream = ckpt_replace_stream(w->file);
    /* The header is written last, when it is known. */
    return !w->stream || fseeko(w->stream, (off_t)w->front, SEEK_SET) ? failed(w) : 0;
}

/* Cuts a text and replaces characters that are not UTF-8 or need a six-character escape. */
static json_t *text_of(const char *text)
{
    char cut[TEXT + 1];
    size_t n = strlen(text);

    text += n > TEXT ? n - TEXT : 0; /* the end of a name is the most specific part */
    snprintf(cut, sizeof cut, "%s", text);
    for (char *p = cut; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = ' ';
    json_t *j = json_string(cut);
    for (char *p = cut; !j && *p; p++)
        *p = (char)((unsigned char)*p < 0x80 ? *p : '?');
    return j ? j : json_string(cut);
}

static json_t *describe(const struct cache_note *n, uint64_t sum, bool values)
{
    char text[17];

    snprintf(text, sizeof text, "%016llx", (unsigned long long)sum);
    json_t *j = json_pack("{s:I,s:o,s:[I,I,I]}", "row", (json_int_t)n->row, "name",
                          text_of(n->name), "source", (json_int_t)n->source[0],
                          (json_int_t)n->source[1], (json_int_t)n->source[2]);
    if (values)
        json_object_set_new(j, "sum", json_string(text));
    if (n->frames)
        json_object_set_new(j, "clip",
                            json_pack("[I,I,I]", (json_int_t)n->frames, (json_int_t)n->height,
                                      (json_int_t)n->width));
    if (n->frames)
        json_object_set_new(j, "fps", json_real(n->fps));
    if (n->bad)
        json_object_set_new(j, "bad", text_of(n->bad));
    return j;
}

int cache_writer_add(struct cache_writer *w, const struct cache_note *note, enum ckpt_dtype dtype,
                     int ndim, const int64_t *shape, const void *data)
{
    int64_t bytes = dtype == CKPT_BF16 ? 2 : 4;
    char name[24];

    for (int i = 0; i < ndim; i++)
        bytes *= shape[i];
    bytes = data ? bytes : 0;
    json_array_append_new(w->clips, describe(note, cache_sum(data, (size_t)bytes), data));
    if (!data)
        return 0;
    json_t *sizes = json_array();
    for (int i = 0; i < ndim; i++)
        json_array_append_new(sizes, json_integer(shape[i]));
    snprintf(name, sizeof name, "%lld", (long long)note->row);
    json_object_set_new(w->header, name,
                        json_pack("{s:s,s:o,s:[I,I]}", "dtype", dtype == CKPT_BF16 ? "BF16" : "F32",
                                  "shape", sizes, "data_offsets", (json_int_t)w->at,
                                  (json_int_t)(w->at + bytes)));
    w->at += bytes;
    return fwrite(data, 1, (size_t)bytes, w->stream) == (size_t)bytes ? 0 : failed(w);
}

/* The header, padded with blanks; NULL without memory, or if it is too long. */
static char *make_front(struct cache_writer *w)
{
    char *clips = json_dumps(w->clips, JSON_COMPACT), *front = malloc((size_t)w->front);
    uint64_t n = (uint64_t)w->front - sizeof n;

    json_object_set_new(w->header, "__metadata__",
                        json_pack("{s:s,s:s,s:s}", "format", "pt", "cache.setup", w->setup,
                                  "cache.clips", clips ? clips : ""));
    char *text = json_dumps(w->header, JSON_COMPACT);
    bool fits = front && text && clips && strlen(text) <= n;
    if (fits) {
        memcpy(front, &n, sizeof n); /* little-endian, as the library requires */
        memset(front + sizeof n, ' ', n);
        memcpy(front + sizeof n, text, strlen(text));
    } else {
        free(front);
    }
    free(text);
    free(clips);
    return fits ? front : NULL;
}

int cache_writer_finish(struct cache_writer *w)
{
    char *front = make_front(w);

    if (!front)
        return say_fail("%s: no memory for its header", w->path);
    bool written =
        !fseeko(w->stream, 0, SEEK_SET) && fwrite(front, (size_t)w->front, 1, w->stream) == 1;
    free(front);
    if (!written)
        return failed(w);
    struct ckpt_replacement *file = w->file;
    w->file = NULL;
    return ckpt_replace_commit(file, true) ? say_fail("%s", ckpt_error(NULL)) : 0;
}

void cache_writer_abandon(struct cache_writer *w)
{
    ckpt_replace_abandon(w->file);
    json_decref(w->header);
    json_decref(w->clips);
    w->file = NULL;
    w->header = w->clips = NULL;
}

/* ---- the manifest -------------------------------------------------------------------------- */

/* Adds a shard and its bad clips.  Returns 0, 1 if it does not exist, or -1 after an error
 * message. */
static int add_shard(json_t *shards, json_t *bad, const char *path, const char *setup)
{
    struct cache_shard s;
    json_t *header, *clip;
    char sum[17];
    size_t i;

    if (access(path, F_OK))
        return 1;
    int rc = cache_shard_open(&s, path, setup, &header);
    if (!rc) {
        snprintf(sum, sizeof sum, "%016llx", (unsigned long long)cache_shard_sum(&s));
        json_array_append_new(shards, json_pack("{s:s,s:I,s:I,s:s}", "file", strrchr(path, '/') + 1,
                                                "bytes", (json_int_t)s.size, "clips",
                                                (json_int_t)json_object_size(header) - 1,
                                                "header_sum", sum));
        json_array_foreach(s.clips, i, clip) if (json_object_get(clip, "bad"))
            json_array_append_new(
                bad, json_pack("{s:O,s:O,s:O}", "row", json_object_get(clip, "row"), "name",
                               json_object_get(clip, "name"), "why", json_object_get(clip, "bad")));
    }
    json_decref(header);
    cache_shard_close(&s);
    return rc;
}

static int write_json(const char *path, const json_t *j)
{
    struct ckpt_replacement *file;

    if (ckpt_replace_open(&file, path))
        return say_fail("%s", ckpt_error(NULL));
    FILE *f = ckpt_replace_stream(file);
    if (!f || json_dumpf(j, f, JSON_INDENT(1)) || fputc('\n', f) == EOF) {
        ckpt_replace_abandon(file);
        return say_fail("%s: cannot be written", path);
    }
    return ckpt_replace_commit(file, true) ? say_fail("%s", ckpt_error(NULL)) : 0;
}

int64_t cache_manifest_write(const char *dir, const json_t *setup, int64_t rows, int64_t each)
{
    json_t *shards = json_array(), *bad = json_array(), *manifest;
    const bool has[] = {[CACHE_LATENTS] = json_object_get(setup, "vae_model") != NULL,
                        [CACHE_TEXT] = json_object_get(setup, "text") != NULL};
    char path[CACHE_PATH], sum[17];
    int64_t missing = 0;
    int rc = 0;

    snprintf(sum, sizeof sum, "%016llx", (unsigned long long)cache_setup_sum(setup));
    for (int64_t i = 0; i * each < rows && rc >= 0; i++)
        for (int part = 0; part < CACHE_PARTS && rc >= 0; part++) {
            if (!has[part])
                continue;
            cache_shard_path(path, dir, (enum cache_part)part, i);
            rc = add_shard(shards, bad, path, sum);
            missing += rc > 0;
        }
    manifest = json_pack("{s:s,s:i,s:O,s:s,s:I,s:o,s:o}", "format", "ckpt-cache", "version",
                         CACHE_VERSION, "setup", setup, "setup_sum", sum, "rows", (json_int_t)rows,
                         "shards", shards, "bad", bad);
    snprintf(path, sizeof path, "%s/manifest.json", dir);
    rc = rc < 0 ? -1 : missing ? 0 : write_json(path, manifest);
    json_decref(manifest);
    return rc ? -1 : missing;
}
