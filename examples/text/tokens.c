/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizes prompts for T5: see tokens.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "../common/say.h"
#include "ckpt_tools.h"
#include "pieces.h"
#include "tokens.h"

#ifdef HAVE_SENTENCEPIECE

enum { SENTINELS = 100, MOST = 64 << 20 /* bytes of a model; T5's has 0.8 million */ };

/* ---- opening ------------------------------------------------------------------------------- */

/* Reads a whole file; the caller frees it. */
static char *read_file(const char *path, size_t *bytes)
{
    char *data = malloc(MOST);
    FILE *f;

    if (!data || ckpt_input_open(&f, path)) {
        say_fail("%s", data ? ckpt_error(NULL) : "no memory for a tokenizer");
        free(data);
        return NULL;
    }
    *bytes = fread(data, 1, MOST, f);
    bool failed = ferror(f);
    fclose(f);
    if (!failed)
        return data;
    say_fail("%s: cannot be read", path);
    free(data);
    return NULL;
}

static int find_special(struct t5_tokenizer *t, const char *path)
{
    t->count = pieces_count(t->pieces);
    t->pad = pieces_find(t->pieces, "<pad>");
    t->end = pieces_find(t->pieces, "</s>");
    t->unk = pieces_find(t->pieces, "<unk>");
    if (t->pad < 0 || t->end < 0 || t->unk < 0)
        return say_fail("%s: has no <pad>, </s> or <unk>: not a tokenizer of T5", path);
    return 0;
}

int t5_tokenizer_open(struct t5_tokenizer *t, const char *path)
{
    char inside[4096];
    struct stat st;
    size_t bytes;

    *t = (struct t5_tokenizer){.pieces = NULL};
    if (!stat(path, &st) && S_ISDIR(st.st_mode)) {
        if (snprintf(inside, sizeof inside, "%s/spiece.model", path) >= (int)sizeof inside)
            return say_fail("%s: the name is too long", path);
        path = inside;
    }
    char *data = read_file(path, &bytes);
    if (!data)
        return -1;
    int rc = pieces_open(&t->pieces, data, bytes)
                 ? say_fail("%s: is not a model of SentencePiece, or damaged", path)
                 : find_special(t, path);
    free(data);
    if (rc)
        t5_tokenizer_close(t);
    return rc;
}

void t5_tokenizer_close(struct t5_tokenizer *t)
{
    pieces_close(t->pieces);
    t->pieces = NULL;
}

/* ---- encoding ------------------------------------------------------------------------------ */

/* The special token written at `text`, and the bytes of its name; -1: none. */
static int32_t special_at(const struct t5_tokenizer *t, const char *text, size_t *bytes)
{
    const struct {
        const char *name;
        int32_t id;
    } all[] = {{"</s>", t->end}, {"<pad>", t->pad}, {"<unk>", t->unk}};
    int n = 0, sentinel = 0;

    for (int i = 0; i < 3; i++) {
        *bytes = strlen(all[i].name);
        if (!strncmp(text, all[i].name, *bytes))
            return all[i].id;
    }
    if (sscanf(text, "<extra_id_%2d>%n", &sentinel, &n) != 1 || !n || sentinel < 0)
        return -1;
    bool padded = text[10] == '0' && text[11] != '>'; /* 07 is not a name */
    if (padded || text[10] < '0' || text[10] > '9')
        return -1;
    *bytes = (size_t)n;
    return t->count + SENTINELS - 1 - sentinel;
}

/* Output tokens: tokens beyond the room are counted, not kept. */
struct sink {
    int32_t *ids;
    int64_t room, n;
    int32_t last;
};

static void put(struct sink *s, int32_t id)
{
    if (s->n < s->room)
        s->ids[s->n] = id;
    s->n++;
    s->last = id;
}

static int put_text(const struct t5_tokenizer *t, struct sink *s, const char *text, size_t n)
{
    int32_t *ids;
    int64_t count = n ? pieces_encode(t->pieces, text, n, &ids) : 0;

    if (count < 0)
        return say_fail("no memory for the tokens of a prompt");
    for (int64_t i = 0; i < count; i++)
        put(s, ids[i]);
    if (n)
        free(ids);
    return 0;
}

int t5_tokenizer_encode(const struct t5_tokenizer *t, const char *text, int32_t *ids,
                        int64_t length, int64_t *tokens)
{
    struct sink s = {.ids = ids, .room = length, .last = -1};
    const char *begin = text, *at = text;
    size_t bytes;

    for (; *at; at++) {
        int32_t id = *at == '<' ? special_at(t, at, &bytes) : -1;
        if (id < 0)
            continue;
        if (put_text(t, &s, begin, (size_t)(at - begin)))
            return -1;
        put(&s, id);
        begin = at + bytes;
        at = begin - 1;
    }
    if (put_text(t, &s, begin, (size_t)(at - begin)))
        return -1;
    if (s.last != t->end)
        put(&s, t->end);
    *tokens = s.n;
    if (s.n > length)
        ids[length - 1] = t->end;
    for (int64_t i = s.n; i < length; i++)
        ids[i] = t->pad;
    return 0;
}

#else

int t5_tokenizer_open(struct t5_tokenizer *t, const char *path)
{
    *t = (struct t5_tokenizer){.pieces = NULL};
    return say_fail("%s: this program was built without libsentencepiece, which reads tokenizers "
                    "of T5; on Debian or Ubuntu: apt install libsentencepiece-dev, and configure "
                    "again",
                    path);
}

void t5_tokenizer_close(struct t5_tokenizer *t)
{
    (void)t;
}

int t5_tokenizer_encode(const struct t5_tokenizer *t, const char *text, int32_t *ids,
                        int64_t length, int64_t *tokens)
{
    (void)t;
    (void)text;
    (void)ids;
    (void)length;
    (void)tokens;
    return -1;
}

#endif
