/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizes prompts for T5: see tokens.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "../common/say.h"
#include "../tokenizer/tokenizer.h"
#include "ckpt_tools.h"
#include "pieces.h"
#include "tokens.h"

/* ---- tokenizer.json -------------------------------------------------------------------------- */

static int open_json(struct t5_tokenizer *t, const char *path)
{
    t->json = malloc(sizeof *t->json);
    if (!t->json)
        return say_fail("no memory for a tokenizer");
    if (tokenizer_open(t->json, path)) {
        free(t->json);
        t->json = NULL;
        return -1;
    }
    t->count = t->json->n;
    t->pad = tokenizer_find(t->json, "<pad>");
    t->end = tokenizer_find(t->json, "</s>");
    return t->pad < 0 || t->end < 0
               ? say_fail("%s: has no <pad> or </s>: not a tokenizer of T5", path)
               : 0;
}

/* The file of a tokenizer: spiece.model or tokenizer.json of a directory, or path itself.  NULL
 * after an error message. */
static const char *find_file(const char *path, char inside[4096])
{
    static const char *const names[] = {"spiece.model", "tokenizer.json"};
    struct stat st;

    for (int i = 0; i < 2; i++)
        if (snprintf(inside, 4096, "%s/%s", path, names[i]) < 4096 && !access(inside, F_OK))
            return inside;
    if (!stat(path, &st) && S_ISDIR(st.st_mode)) {
        say_fail("%s: has no spiece.model and no tokenizer.json", path);
        return NULL;
    }
    return path;
}

static bool is_json(const char *path)
{
    size_t n = strlen(path);

    return n > 5 && !strcmp(path + n - 5, ".json");
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

static int put_json(const struct t5_tokenizer *t, struct sink *s, const char *text)
{
    int64_t n;
    int32_t *ids = tokenizer_encode(t->json, "prompt", text, (int64_t)strlen(text), &n);

    for (int64_t i = 0; ids && i < n; i++)
        put(s, ids[i]);
    free(ids);
    return ids ? 0 : -1;
}

/* ---- spiece.model ---------------------------------------------------------------------------- */

#ifdef HAVE_SENTENCEPIECE

enum { SENTINELS = 100, MOST = 64 << 20 /* bytes of a model; T5's has 0.8 million */ };

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

static int open_pieces(struct t5_tokenizer *t, const char *path)
{
    size_t bytes;
    char *data = read_file(path, &bytes);

    if (!data)
        return -1;
    int rc = pieces_open(&t->pieces, data, bytes)
                 ? say_fail("%s: is not a model of SentencePiece, or damaged", path)
                 : find_special(t, path);
    free(data);
    return rc;
}

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
    if (strncmp(text, "<extra_id_", 10)) /* sscanf looks for the end of the text */
        return -1;
    if (sscanf(text, "<extra_id_%2d>%n", &sentinel, &n) != 1 || !n || sentinel < 0)
        return -1;
    bool padded = text[10] == '0' && text[11] != '>'; /* 07 is not a name */
    if (padded || text[10] < '0' || text[10] > '9')
        return -1;
    *bytes = (size_t)n;
    return t->count + SENTINELS - 1 - sentinel;
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

static int put_pieces(const struct t5_tokenizer *t, struct sink *s, const char *text)
{
    const char *begin = text, *at = text;
    size_t bytes;

    for (; *at; at++) {
        int32_t id = *at == '<' ? special_at(t, at, &bytes) : -1;
        if (id < 0)
            continue;
        if (put_text(t, s, begin, (size_t)(at - begin)))
            return -1;
        put(s, id);
        begin = at + bytes;
        at = begin - 1;
    }
    return put_text(t, s, begin, (size_t)(at - begin));
}

#else

static int open_pieces(struct t5_tokenizer *t, const char *path)
{
    (void)t;
    return say_fail("%s: this program was built without libsentencepiece, which reads tokenizers "
                    "of T5; on Debian or Ubuntu: apt install libsentencepiece-dev, and configure "
                    "again",
                    path);
}

static int put_pieces(const struct t5_tokenizer *t, struct sink *s, const char *text)
{
    (void)t, (void)s, (void)text;
    return -1;
}

void pieces_close(struct pieces *p)
{
    (void)p;
}

#endif

/* ---- both ------------------------------------------------------------------------------------ */

int t5_tokenizer_open(struct t5_tokenizer *t, const char *path)
{
    char inside[4096];

    *t = (struct t5_tokenizer){.pieces = NULL};
    path = find_file(path, inside);
    if (!path)
        return -1;
    int rc = is_json(path) ? open_json(t, path) : open_pieces(t, path);
    if (rc)
        t5_tokenizer_close(t);
    return rc;
}

void t5_tokenizer_close(struct t5_tokenizer *t)
{
    if (t->pieces)
        pieces_close(t->pieces);
    if (t->json)
        tokenizer_close(t->json);
    free(t->json);
    *t = (struct t5_tokenizer){.pieces = NULL};
}

int t5_tokenizer_encode(const struct t5_tokenizer *t, const char *text, int32_t *ids,
                        int64_t length, int64_t *tokens)
{
    struct sink s = {.ids = ids, .room = length, .last = -1};

    if (t->json ? put_json(t, &s, text) : put_pieces(t, &s, text))
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
