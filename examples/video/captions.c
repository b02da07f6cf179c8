/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Caption files beside videos, in directories and tar files: see videos.h.
 *
 * The caption of "a/b.c.mp4" is in "a/b.c.txt" or "a/b.c.json".  If there is neither, it is in
 * "a/b.txt" or "a/b.json": webdataset takes names up to the first dot.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../common/names.h"
#include "../common/say.h"
#include "../common/text_file.h"
#include "videos.h"

enum { LONGEST = 1 << 20 /* maximum bytes of a caption file */ };

static const char *const endings[] = {".txt", ".json"};
enum { ENDINGS = sizeof endings / sizeof *endings };

/* ---- clips ---------------------------------------------------------------------------------- */

/* The clips without a caption, or with an empty one if those count.  Names their files. */
static int64_t count_without(const struct videos *v, int64_t rows, bool empty, struct names *files)
{
    const char *last = NULL;
    int64_t n = 0;

    for (int64_t i = 0; i < rows; i++) {
        const char *caption = videos_caption(v, i), *name = videos_name(v, i);
        if (caption && (*caption || !empty))
            continue;
        n++;
        if (name != last)
            names_add(files, last = name);
    }
    return n;
}

int videos_check_captions(const struct videos *v, int64_t rows, bool empty, const char *path)
{
    struct names missing = {.n = 0}, without = {.n = 0};
    char text[NAMES_TEXT];
    int64_t n = count_without(v, rows, false, &missing);

    if (n && !empty)
        return say_fail("%s: %lld of %lld clips have no caption: %s; write that of NAME.mp4 into "
                        "NAME.txt beside it, an empty file for an empty one, or give "
                        "--empty-captions",
                        path, (long long)n, (long long)rows, names_text(&missing, text));
    n = count_without(v, rows, true, &without);
    if (n)
        say_note("%s: %lld of %lld clips have no caption and get an empty one: %s", path,
                 (long long)n, (long long)rows, names_text(&without, text));
    return 0;
}

/* ---- names --------------------------------------------------------------------------------- */

static const char *base_of(const char *name)
{
    const char *slash = strrchr(name, '/');

    return slash ? slash + 1 : name;
}

static bool ends_in(const char *name, const char *ending)
{
    size_t n = strlen(name), m = strlen(ending);

    return n > m && !strcasecmp(name + n - m, ending);
}

/* The possible names of a video's caption, the best first: i from 0 on.  Returns whether there is
 * an i-th one. */
static bool name_of(char *dst, size_t size, const char *video, int i)
{
    const char *base = base_of(video), *last = strrchr(base, '.');
    size_t stem = last ? (size_t)(last - video) : strlen(video);

    if (i >= ENDINGS)
        stem = (size_t)(base - video) + strcspn(base, ".");
    return i < 2 * ENDINGS &&
           snprintf(dst, size, "%.*s%s", (int)stem, video, endings[i % ENDINGS]) < (int)size;
}

/* ---- files --------------------------------------------------------------------------------- */

static char *from_json(const char *name, const char *text)
{
    json_error_t e;
    json_t *j = json_loads(text, JSON_REJECT_DUPLICATES, &e);
    const char *found = json_string_value(json_object_get(j, "caption"));

    found = found ? found : json_string_value(json_object_get(j, "text"));
    if (!j)
        say_note("%s: is not JSON, so it has no caption: line %d: %s", name, e.line, e.text);
    else if (!found)
        say_note("%s: has no caption: no text under \"caption\" or \"text\"", name);
    char *caption = found ? strdup(found) : NULL;
    json_decref(j);
    return caption ? text_strip(caption) : NULL;
}

/* Reads the caption and closes the file. */
static char *read_caption(struct text_file *f, int opened)
{
    char *text = opened ? NULL : text_file_all(f, LONGEST), *caption = text;

    if (text && ends_in(f->name, ".json")) {
        caption = from_json(f->name, text);
        free(text);
    } else if (text)
        text_strip(text);
    else
        say_note("%s is left out as a caption", f->name);
    text_file_close(f);
    return caption;
}

char *caption_beside(const char *video)
{
    struct text_file f;
    char path[4096];

    for (int i = 0; name_of(path, sizeof path, video, i); i++)
        if (!access(path, F_OK))
            return read_caption(&f, text_file_open(&f, path));
    return NULL;
}

/* ---- members of tar files ------------------------------------------------------------------ */

static int by_name(const void *a, const void *b)
{
    const struct shard_member *x = *(const struct shard_member *const *)a,
                              *y = *(const struct shard_member *const *)b;

    return strcmp(x->name, y->name);
}

static int compare_name(const void *name, const void *member)
{
    return strcmp(name, (*(const struct shard_member *const *)member)->name);
}

int captions_in_open(struct captions_in *c, const char *path, const struct shard *s)
{
    *c = (struct captions_in){.path = path};
    c->caption = malloc(((size_t)s->n + 1) * sizeof *c->caption);
    if (!c->caption)
        return say_fail("%s: no memory for the names of captions", path);
    for (int64_t i = 0; i < s->n; i++)
        if (ends_in(s->member[i].name, ".txt") || ends_in(s->member[i].name, ".json"))
            c->caption[c->n++] = &s->member[i];
    qsort(c->caption, (size_t)c->n, sizeof *c->caption, by_name);
    return 0;
}

void captions_in_close(struct captions_in *c)
{
    free(c->caption);
    *c = (struct captions_in){.n = 0};
}

char *captions_in_find(const struct captions_in *c, const char *video)
{
    struct text_file f;
    char name[4096];

    for (int i = 0; name_of(name, sizeof name, video, i); i++) {
        const struct shard_member **m =
            bsearch(name, c->caption, (size_t)c->n, sizeof *c->caption, compare_name);
        if (m && (*m)->runs) {
            say_note("%s/%s: has holes, which are zero bytes: not a text file", c->path, name);
            return NULL;
        }
        if (m)
            return read_caption(
                &f, text_file_open_part(&f, c->path, (*m)->name, (*m)->start, (*m)->size));
    }
    return NULL;
}
