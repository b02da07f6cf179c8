/* SPDX-License-Identifier: Apache-2.0 */
/* Writes shards and the manifest: see cache.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../../common/json_make.h"
#include "../../common/say.h"
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
    cache_sum_text(w->setup, setup);
    w->header = json_object();
    w->clips = json_array();
    w->failed = !w->header || !w->clips;
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

static json_t *describe(const struct cache_note *n, uint64_t sum, bool values, bool *failed)
{
    char text[CACHE_SUM];
    json_t *j = json_pack("{s:I,s:o,s:[I,I,I]}", "row", (json_int_t)n->row, "name",
                          text_of(n->name), "source", (json_int_t)n->source[0],
                          (json_int_t)n->source[1], (json_int_t)n->source[2]);

    if (values)
        json_make_set(j, "sum", json_string(cache_sum_text(text, sum)), failed);
    if (values && n->from)
        json_make_set(j, "from", json_string(cache_sum_text(text, n->from)), failed);
    if (n->frames)
        json_make_set(j, "clip",
                      json_pack("[I,I,I]", (json_int_t)n->frames, (json_int_t)n->height,
                                (json_int_t)n->width),
                      failed);
    if (n->frames)
        json_make_set(j, "fps", json_real(n->fps), failed);
    if (n->bad)
        json_make_set(j, "bad", text_of(n->bad), failed);
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
    json_t *about = describe(note, cache_sum(data, (size_t)bytes), data, &w->failed);
    json_make_append(w->clips, about, &w->failed);
    if (!data)
        return 0;
    json_t *sizes = json_array();
    for (int i = 0; i < ndim; i++)
        json_make_append(sizes, json_integer(shape[i]), &w->failed);
    snprintf(name, sizeof name, "%lld", (long long)note->row);
    json_make_set(w->header, name,
                  json_pack("{s:s,s:o,s:[I,I]}", "dtype", dtype == CKPT_BF16 ? "BF16" : "F32",
                            "shape", sizes, "data_offsets", (json_int_t)w->at,
                            (json_int_t)(w->at + bytes)),
                  &w->failed);
    w->at += bytes;
    return fwrite(data, 1, (size_t)bytes, w->stream) == (size_t)bytes ? 0 : failed(w);
}

/* The header, padded with blanks; NULL without memory, or if it is too long. */
static char *make_front(struct cache_writer *w)
{
    char *clips = json_dumps(w->clips, JSON_COMPACT), *front = malloc((size_t)w->front);
    uint64_t n = (uint64_t)w->front - sizeof n;

    json_make_set(w->header, "__metadata__",
                  json_pack("{s:s,s:s,s:s}", "format", "pt", "cache.setup", w->setup, "cache.clips",
                            clips ? clips : ""),
                  &w->failed);
    char *text = w->failed ? NULL : json_dumps(w->header, JSON_COMPACT);
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

struct manifest {
    json_t *shards, *bad;
    int64_t present; /* rows with values */
    bool failed;     /* JSON was lost */
};

static void add_bad(struct manifest *m, const json_t *clip)
{
    json_make_append(m->bad,
                     json_pack("{s:O,s:O,s:O}", "row", json_object_get(clip, "row"), "name",
                               json_object_get(clip, "name"), "why", json_object_get(clip, "bad")),
                     &m->failed);
}

/* Adds a shard of these rows and its bad clips.  Returns 0, 1 if it does not exist, or -1 after an
 * error message. */
static int add_shard(struct manifest *m, const char *path, const char *setup, int64_t first,
                     int64_t n)
{
    struct cache_shard s;
    json_t *header, *clip;
    char sum[CACHE_SUM];
    size_t i;

    if (access(path, F_OK))
        return 1;
    int rc = cache_shard_open(&s, path, setup, &header) || cache_shard_check_rows(&s, first, n);
    if (!rc) {
        int64_t clips = (int64_t)json_object_size(header) - 1;
        m->present += clips;
        json_make_append(m->shards,
                         json_pack("{s:s,s:I,s:I,s:s}", "file", strrchr(path, '/') + 1, "bytes",
                                   (json_int_t)s.size, "clips", (json_int_t)clips, "header_sum",
                                   cache_sum_text(sum, s.sum)),
                         &m->failed);
        json_array_foreach(s.clips, i, clip) if (json_object_get(clip, "bad")) add_bad(m, clip);
    }
    json_decref(header);
    cache_shard_close(&s);
    return rc ? -1 : 0;
}

/* Adds the shards of a part.  Returns the number of missing ones, or -1 after an error message. */
static int64_t add_part(struct manifest *m, const char *dir, enum cache_part part,
                        const json_t *setup, int64_t rows, int64_t each)
{
    char path[CACHE_PATH], sum[CACHE_SUM];
    int64_t missing = 0;

    cache_sum_text(sum, cache_setup_sum(setup));
    for (int64_t i = 0; i * each < rows; i++) {
        int64_t left = rows - i * each;
        cache_shard_path(path, dir, part, i);
        int rc = add_shard(m, path, sum, i * each, left < each ? left : each);
        if (rc < 0)
            return -1;
        missing += rc;
    }
    return missing;
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

static int write_manifest(const struct manifest *m, const char *dir, const json_t *setup,
                          int64_t rows)
{
    char path[CACHE_PATH], sum[CACHE_SUM];
    json_t *j = m->failed ? NULL
                          : json_pack("{s:s,s:i,s:O,s:s,s:I,s:O,s:O}", "format", "ckpt-cache",
                                      "version", CACHE_VERSION, "setup", setup, "setup_sum",
                                      cache_sum_text(sum, cache_setup_sum(setup)), "rows",
                                      (json_int_t)rows, "shards", m->shards, "bad", m->bad);

    snprintf(path, sizeof path, "%s/manifest.json", dir);
    int rc = j ? write_json(path, j) : say_fail("%s: no memory to write it", path);
    json_decref(j);
    return rc;
}

/* Adds files without a row. */
static void add_left(struct manifest *m, char *const *left, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        json_make_append(
            m->bad,
            json_pack("{s:o,s:s}", "name", text_of(left[i]), "why", "is no video, or too short"),
            &m->failed);
}

int64_t cache_manifest_write(const char *dir, const json_t *setup, int64_t rows, int64_t each,
                             char *const *left, int64_t n_left)
{
    struct manifest m = {.shards = json_array(), .bad = json_array()};
    int64_t texts = 0, sights = 0, latents = 0;

    add_left(&m, left, n_left);
    if (json_object_get(setup, "text"))
        texts = add_part(&m, dir, CACHE_TEXT, setup, rows, each);
    if (json_object_get(setup, "sight") && texts >= 0)
        sights = add_part(&m, dir, CACHE_SIGHT, setup, rows, each);
    if (json_object_get(setup, "vae_model")) {
        m.present = 0; /* a text without a clip is no use */
        latents =
            texts < 0 || sights < 0 ? -1 : add_part(&m, dir, CACHE_LATENTS, setup, rows, each);
    }
    int64_t missing = texts < 0 || sights < 0 || latents < 0 ? -1 : texts + sights + latents;
    if (!missing && !m.present)
        missing = say_fail("%s: none of the %lld clips could be read, so there is no manifest; "
                           "remove the shards to encode them again",
                           dir, (long long)rows);
    if (!missing && write_manifest(&m, dir, setup, rows))
        missing = -1;
    json_decref(m.shards);
    json_decref(m.bad);
    return missing;
}
