/* SPDX-License-Identifier: Apache-2.0 */
/* Text to tokens and back: see tokenizer.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../common/say.h"
#include "parts.h"

/* ---- files ----------------------------------------------------------------------------------- */

static bool find_file(const char *directory, const char *name, char path[4096])
{
    return snprintf(path, 4096, "%s/%s", directory, name) < 4096 && !access(path, R_OK);
}

/* The files of tokenizers, in the order in which they are looked for; end: of names of such files
 * elsewhere. */
static const struct reader {
    const char *name, *end;
    int (*read)(struct tokenizer_parts *p, const char *path);
} readers[] = {{"tokenizer.json", "tokenizer.json", parts_read},
               {"vocab.json", "vocab.json", parts_read_pair},
               {"vocab.txt", ".txt", parts_read_words}};
enum { READERS = sizeof readers / sizeof *readers };

static bool find_in(const char *directory, char path[4096])
{
    for (int i = 0; i < READERS; i++)
        if (find_file(directory, readers[i].name, path))
            return true;
    return false;
}

bool tokenizer_is_in(const char *directory)
{
    char path[4096];

    return find_in(directory, path);
}

/* By the end of the name; a file under any other name is a tokenizer.json. */
static int read_parts(struct tokenizer_parts *p, const char *path)
{
    size_t n = strlen(path);

    for (int i = 1; i < READERS; i++) {
        size_t m = strlen(readers[i].end);
        if (n >= m && !strcmp(path + n - m, readers[i].end))
            return readers[i].read(p, path);
    }
    return parts_read(p, path);
}

int tokenizer_open(struct tokenizer *t, const char *path)
{
    char inside[4096];

    *t = (struct tokenizer){.bytes = !path || !strcmp(path, "bytes"), .n = 256};
    for (int i = 0; i < 256; i++)
        t->alphabet[i] = (char)i;
    if (t->bytes)
        return 0;
    t->is = calloc(1, sizeof *t->is);
    if (!t->is)
        return say_fail("no memory for a tokenizer");
    int rc = read_parts(t->is, find_in(path, inside) ? inside : path);
    t->n = t->is->vocabulary.n;
    if (rc)
        tokenizer_close(t);
    return rc;
}

void tokenizer_close(struct tokenizer *t)
{
    if (t->is)
        parts_close(t->is);
    free(t->is);
    *t = (struct tokenizer){.bytes = true, .n = 256};
}

/* ---- tokens ---------------------------------------------------------------------------------- */

int64_t tokenizer_before(const struct tokenizer *t)
{
    return t->bytes ? 0 : t->is->before.n;
}

const char *tokenizer_decode(const struct tokenizer *t, int32_t token, int32_t *bytes)
{
    *bytes = 0;
    if (token < 0 || token >= t->n || (!t->bytes && !t->is->text[token]))
        return "";
    *bytes = t->bytes ? 1 : t->is->bytes[token];
    return t->bytes ? &t->alphabet[token] : t->is->text[token];
}

bool tokenizer_continues(const struct tokenizer *t, int32_t token)
{
    const char *prefix = t->bytes ? "" : t->is->wordpiece.prefix;
    const char *name =
        t->bytes || token < 0 || token >= t->n ? NULL : t->is->vocabulary.name[token];

    return *prefix && name && !strncmp(name, prefix, strlen(prefix));
}

bool tokenizer_is_special(const struct tokenizer *t, int32_t token)
{
    for (int l = 0; l < 2 && !t->bytes; l++) {
        const struct added_list *list = l ? &t->is->added_normalized : &t->is->added;
        for (int i = 0; i < list->n; i++)
            if (list->token[i].id == token)
                return list->token[i].special;
    }
    return false;
}

const char *tokenizer_config_text(const struct tokenizer *t, const char *key)
{
    const json_t *token = t->bytes ? NULL : json_object_get(t->is->config, key);

    return json_string_value(json_is_object(token) ? json_object_get(token, "content") : token);
}

int32_t tokenizer_find(const struct tokenizer *t, const char *name)
{
    for (int32_t i = 0; !t->bytes && i < t->n; i++)
        if (t->is->vocabulary.name[i] && !strcmp(t->is->vocabulary.name[i], name))
            return i;
    return -1;
}

/* ---- text ------------------------------------------------------------------------------------ */

struct encoding {
    const struct tokenizer_parts *is;
    const char *path, *text; /* the whole text */
    const bool *plain;       /* of each byte of the text, or NULL */
    bool first;              /* what is encoded now begins where the whole text does */
    struct ids ids;
    struct tokenizer_cut *cut; /* those that are not found yet, in order */
    int64_t cuts;
};

static int take_piece(void *user, const char *piece, int64_t bytes)
{
    struct encoding *e = user;
    const struct tokenizer_parts *p = e->is;
    int rc = p->kind == MODEL_BPE       ? bpe_encode(&p->bpe, piece, bytes, &e->ids)
             : p->kind == MODEL_UNIGRAM ? unigram_encode(&p->unigram, piece, bytes, &e->ids)
                                        : wordpiece_encode(&p->wordpiece, piece, bytes, &e->ids);

    return rc ? say_fail("no memory for a word of %lld bytes", (long long)bytes) : 0;
}

/* A part of a normalized text: an added token, or text to be split. */
static int take_normalized(void *user, const char *text, int64_t bytes, int32_t id)
{
    struct encoding *e = user;
    bool first = e->first;

    e->first = false;
    if (id >= 0)
        return ids_add(&e->ids, id) ? say_fail("%s: no memory for its tokens", e->path) : 0;
    return splitter_run(e->is->splitter, e->path, text, bytes, first, take_piece, e);
}

static int take_text(void *user, const char *text, int64_t bytes, int32_t id)
{
    struct encoding *e = user;
    struct text normalized = {NULL, 0, 0};

    e->first = text == e->text;
    if (id >= 0)
        return take_normalized(e, text, bytes, id);
    if (!e->is->normalizer)
        return added_each(&e->is->added_normalized, text, bytes, NULL, take_normalized, e);
    int rc = normalizer_run(e->is->normalizer, e->path, text, bytes, &normalized);
    if (!rc && normalized.n)
        rc = added_each(&e->is->added_normalized, normalized.bytes, normalized.n, NULL,
                        take_normalized, e);
    free(normalized.bytes);
    return rc;
}

/* ---- cuts: where tokens lie in the text ------------------------------------------------------ */

/* The bytes that text has once its tokens are text again: U+2581 of pieces is a blank. */
static int64_t decoded_bytes(const struct tokenizer_parts *p, const char *text, int64_t bytes)
{
    int64_t n = bytes;

    for (int64_t i = 0; i + 3 <= bytes && !splitter_has_bytes(p->splitter); i++)
        n -= memcmp(text + i, "\xe2\x96\x81", 3) ? 0 : 2;
    return n;
}

/* The same for text that is normalized before; -1 after an error message. */
static int64_t normal_bytes(const struct encoding *e, const char *text, int64_t bytes)
{
    struct text normalized = {NULL, 0, 0};

    if (!e->is->normalizer)
        return decoded_bytes(e->is, text, bytes);
    int rc = normalizer_run(e->is->normalizer, e->path, text, bytes, &normalized);
    int64_t n = rc ? -1 : decoded_bytes(e->is, normalized.bytes, normalized.n);
    free(normalized.bytes);
    return n;
}

/* Finds a cut in the text of the tokens from `first` on, which begins at `text`. */
static int find_cut(const struct encoding *e, const char *text, int64_t bytes, int64_t first,
                    struct tokenizer_cut *cut)
{
    const int64_t part = normal_bytes(e, text, cut->at - (text - e->text)),
                  whole = normal_bytes(e, text, bytes);
    int64_t all = 0, at;

    for (int64_t i = first; i < e->ids.n; i++)
        all += e->is->text[e->ids.id[i]] ? e->is->bytes[e->ids.id[i]] : 0;
    at = whole - all; /* -1: the splitter has put a blank before the text */
    if (part < 0 || whole < 0)
        return -1;
    if (at != 0 && at != -1)
        return say_fail("%s: the tokenizer changes this text, so that the tokens of a turn cannot "
                        "be found in it",
                        e->path);
    cut->begin = cut->end = first;
    for (int64_t i = first; i < e->ids.n && at < part; i++) {
        at += e->is->bytes[e->ids.id[i]];
        cut->end++;
        cut->begin += at <= part;
    }
    return 0;
}

/* Takes a part of the text, and finds the cuts before its end. */
static int take_part(void *user, const char *text, int64_t bytes, int32_t id)
{
    struct encoding *e = user;
    const int64_t first = e->ids.n, begin = text - e->text;
    int rc = take_text(user, text, bytes, id);

    for (; !rc && e->cuts && e->cut->at < begin + bytes; e->cut++, e->cuts--) {
        e->cut->begin = e->cut->end = first;
        if (e->cut->at > begin && id >= 0)
            e->cut->end = e->ids.n;
        else if (e->cut->at > begin)
            rc = find_cut(e, text, bytes, first, e->cut);
    }
    return rc;
}

static int add_ids(struct ids *to, const struct ids *from)
{
    int rc = 0;

    for (int64_t i = 0; i < from->n && !rc; i++)
        rc = ids_add(to, from->id[i]);
    return rc;
}

static int check_text(const char *path, const char *text, int64_t bytes)
{
    for (int64_t at = 0, n; at < bytes; at += n) {
        n = utf8_length(text + at, bytes - at);
        if (!n)
            return say_fail("%s: not UTF-8 at byte %lld", path, (long long)at);
    }
    return 0;
}

/* The tokens without those before and behind. */
static int encode_text(struct encoding *e, int64_t bytes)
{
    return check_text(e->path, e->text, bytes) ||
                   added_each(&e->is->added, e->text, bytes, e->plain, take_part, e)
               ? -1
               : 0;
}

static int encode(struct encoding *e, int64_t bytes)
{
    if (add_ids(&e->ids, &e->is->before))
        return say_fail("%s: no memory for its tokens", e->path);
    if (encode_text(e, bytes))
        return -1;
    return add_ids(&e->ids, &e->is->behind) ? say_fail("%s: no memory for its tokens", e->path) : 0;
}

static int encode_bytes(struct encoding *e, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i++)
        if (ids_add(&e->ids, (unsigned char)e->text[i]))
            return say_fail("%s: no memory for its tokens", e->path);
    return 0;
}

/* The tokens with room for one more. */
static int32_t *fitted(struct encoding *e, int rc, int64_t *n)
{
    int32_t *ids = rc ? NULL : realloc(e->ids.id, (size_t)(e->ids.n + 1) * sizeof *ids);

    if (!rc && !ids)
        say_fail("%s: no memory for its tokens", e->path);
    if (!ids)
        free(e->ids.id);
    *n = e->ids.n;
    return ids;
}

int32_t *tokenizer_encode(void *user, const char *path, const char *text, int64_t bytes, int64_t *n)
{
    const struct tokenizer *t = user;
    struct encoding e = {.is = t->is, .path = path, .text = text};
    int rc = t->bytes ? encode_bytes(&e, bytes) : encode(&e, bytes);

    return fitted(&e, rc, n);
}

/* Normalized text has no places that say which of its bytes are plain. */
static int check_special(const struct encoding *e)
{
    const struct added_list *list = &e->is->added_normalized;

    for (int i = 0; i < list->n && e->is->normalizer; i++)
        if (list->token[i].special)
            return say_fail("%s: the special token %s is looked for in normalized text, which is "
                            "not supported for parts of a text",
                            e->path, list->token[i].text);
    return 0;
}

int32_t *tokenizer_encode_parts(const struct tokenizer *t, const char *path, const char *text,
                                int64_t bytes, const bool *plain, struct tokenizer_cut *cut,
                                int64_t cuts, int64_t *n)
{
    struct encoding e = {
        .is = t->is, .path = path, .text = text, .plain = plain, .cut = cut, .cuts = cuts};
    int rc = t->bytes ? encode_bytes(&e, bytes) : check_special(&e) || encode_text(&e, bytes);

    for (; e.cuts && !rc; e.cut++, e.cuts--)
        e.cut->begin = e.cut->end = t->bytes ? e.cut->at : e.ids.n;
    return fitted(&e, rc, n);
}
