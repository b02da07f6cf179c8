/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Byte-pair encoding of a piece: it begins with a token for each character; while two neighbouring
 * tokens form a known pair, merges the pair of lowest rank, the leftmost one of equals (Sennrich et
 * al. 2016).  Candidate pairs are kept in a heap, so a piece of n characters takes O(n log n) time.
 */
#include <stdlib.h>
#include <string.h>
#include "../common/say.h"
#include "ckpt_tools.h"
#include "parts.h"

/* ---- merges ---------------------------------------------------------------------------------- */

/* The slot of a pair: the one that holds it, or the empty one where it belongs. */
static struct bpe_pair *find_pair(const struct bpe *b, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint64_t at = key * 0x9e3779b97f4a7c15u;

    for (at ^= at >> 29;; at++) {
        struct bpe_pair *p = &b->pair[at & (uint64_t)(b->pairs - 1)];
        if (p->left < 0 || (p->left == left && p->right == right))
            return p;
    }
}

static int make_pairs(struct bpe *b, const char *path, int64_t n)
{
    b->pairs = 16;
    while (b->pairs < 2 * n)
        b->pairs *= 2;
    b->pair = malloc((size_t)b->pairs * sizeof *b->pair);
    for (int64_t i = 0; b->pair && i < b->pairs; i++)
        b->pair[i].left = -1;
    return b->pair ? 0 : say_fail("%s: no memory", path);
}

static int32_t find_token(const struct bpe *b, const char *name)
{
    return vocabulary_find(b->model.vocabulary, name, (int64_t)strlen(name));
}

/* Of two equal pairs the later one counts. */
static int put_merge(struct bpe *b, const char *path, const char *left, const char *right,
                     int32_t rank)
{
    int32_t x = find_token(b, left), y = find_token(b, right), token = -1;
    char whole[1024];

    if (snprintf(whole, sizeof whole, "%s%s", left, right) < (int)sizeof whole)
        token = find_token(b, whole);
    if (x < 0 || y < 0 || token < 0)
        return say_fail("%s: merge %d, '%s %s', has a token that is not in the vocabulary", path,
                        (int)rank, left, right);
    *find_pair(b, x, y) = (struct bpe_pair){x, y, rank, token};
    return 0;
}

/* Adds the merge "a b"; modifies line. */
static int put_line(struct bpe *b, const char *path, char *line, int32_t rank)
{
    char *blank = strchr(line, ' ');

    if (!blank)
        return say_fail("%s: merge %d does not have two parts: '%s'", path, (int)rank, line);
    *blank = 0;
    return put_merge(b, path, line, blank + 1, rank);
}

static int put_value(struct bpe *b, const char *path, const json_t *value, int32_t rank)
{
    const char *left = json_string_value(json_array_get(value, 0));
    const char *right = json_string_value(json_array_get(value, 1));

    if (!json_is_string(value))
        return left && right ? put_merge(b, path, left, right, rank)
                             : say_fail("%s: merge %d is not valid", path, (int)rank);
    char *line = strdup(json_string_value(value));
    int rc = line ? put_line(b, path, line, rank) : say_fail("%s: no memory", path);
    free(line);
    return rc;
}

int bpe_read(struct bpe *b, const char *path, const json_t *merges)
{
    json_t *value;
    size_t i;

    if (!json_is_array(merges))
        return say_fail("%s: there are no merges", path);
    int rc = make_pairs(b, path, (int64_t)json_array_size(merges));
    json_array_foreach(merges, i, value)
    {
        rc = rc ? rc : put_value(b, path, value, (int32_t)i);
    }
    return rc;
}

int bpe_read_text(struct bpe *b, const char *path)
{
    int32_t most = b->model.vocabulary->n, rank = 0;
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    FILE *f;

    if (ckpt_input_open(&f, path))
        return say_fail("%s", ckpt_error(NULL));
    int rc = make_pairs(b, path, most);
    while (!rc && (n = getline(&line, &room, f)) > 0) {
        while (n && (line[n - 1] == '\n' || line[n - 1] == '\r'))
            line[--n] = 0;
        if (!n || !strncmp(line, "#version", 8))
            continue;
        rc = rank < most ? put_line(b, path, line, rank)
                         : say_fail("%s: more merges than tokens", path);
        rank++;
    }
    free(line);
    fclose(f);
    return rc;
}

void bpe_close(struct bpe *b)
{
    free(b->pair);
    b->pair = NULL;
}

/* ---- encoding -------------------------------------------------------------------------------- */

/* A pair of neighbours, as it was when pushed.  It is stale once either token has changed. */
struct candidate {
    int32_t rank;
    int32_t at; /* place of the left token */
    int32_t left, right, token;
};

struct piece {
    const struct bpe *b;
    int32_t *token, *before, *behind; /* lists of the tokens that remain; -1: none */
    struct candidate *heap;
    int64_t n, room;
    bool failed;
};

static bool comes_first(const struct candidate *a, const struct candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void push(struct piece *p, struct candidate c)
{
    if (p->n == p->room) {
        int64_t room = 2 * p->room + 64;
        struct candidate *grown = realloc(p->heap, (size_t)room * sizeof *grown);
        p->failed |= !grown;
        if (!grown)
            return;
        p->heap = grown;
        p->room = room;
    }
    int64_t i = p->n++;
    for (; i && comes_first(&c, &p->heap[(i - 1) / 2]); i = (i - 1) / 2)
        p->heap[i] = p->heap[(i - 1) / 2];
    p->heap[i] = c;
}

static struct candidate pop(struct piece *p)
{
    struct candidate first = p->heap[0], last = p->heap[--p->n];
    int64_t i = 0;

    for (int64_t child; (child = 2 * i + 1) < p->n; i = child) {
        if (child + 1 < p->n && comes_first(&p->heap[child + 1], &p->heap[child]))
            child++;
        if (!comes_first(&p->heap[child], &last))
            break;
        p->heap[i] = p->heap[child];
    }
    p->heap[i] = last;
    return first;
}

/* Pushes the pair of `at` and its successor if the tokenizer can merge it. */
static void consider(struct piece *p, int32_t at)
{
    int32_t next = at < 0 ? -1 : p->behind[at];

    if (next < 0)
        return;
    const struct bpe_pair *found = find_pair(p->b, p->token[at], p->token[next]);
    if (found->left >= 0)
        push(p, (struct candidate){found->rank, at, found->left, found->right, found->token});
}

static void join(struct piece *p, const struct candidate *c)
{
    int32_t next = p->behind[c->at];

    if (p->token[c->at] != c->left || next < 0 || p->token[next] != c->right)
        return;
    p->token[c->at] = c->token;
    p->token[next] = -1;
    p->behind[c->at] = p->behind[next];
    if (p->behind[next] >= 0)
        p->before[p->behind[next]] = c->at;
    consider(p, p->before[c->at]);
    consider(p, c->at);
}

/* A token for each character, or for each byte of one that is unknown. */
static int begin(const struct token_model *m, const char *piece, int64_t bytes, struct ids *to)
{
    bool follows_unknown = false;
    int rc = 0;

    for (int64_t at = 0, n; at < bytes && !rc; at += n) {
        n = utf8_length(piece + at, bytes - at);
        n = n ? n : 1;
        int32_t token = vocabulary_find(m->vocabulary, piece + at, n);
        bool unknown = token < 0 && !model_bytes(m, piece + at, n, to, &rc);
        if (token >= 0)
            rc = ids_add(to, token);
        else if (unknown && m->unknown >= 0 && !(m->fuses_unknown && follows_unknown))
            rc = ids_add(to, m->unknown);
        follows_unknown = unknown;
    }
    return rc;
}

/* Merges the tokens from `first` on. */
static int merge(struct piece *p, struct ids *to, int64_t first)
{
    int32_t n = (int32_t)(to->n - first);

    p->token = to->id + first;
    for (int32_t i = 0; i < n; i++) {
        p->before[i] = i - 1;
        p->behind[i] = i + 1 < n ? i + 1 : -1;
    }
    for (int32_t i = 0; i < n && !p->failed; i++)
        consider(p, i);
    while (p->n && !p->failed) {
        struct candidate c = pop(p);
        join(p, &c);
    }
    to->n = first;
    for (int32_t i = n ? 0 : -1; i >= 0; i = p->behind[i])
        to->id[to->n++] = p->token[i];
    return p->failed ? -1 : 0;
}

/* A short piece needs no memory: a candidate per token at the start, two more per merge. */
static int merge_short(const struct bpe *b, struct ids *to, int64_t first)
{
    enum { SHORT = 64 };
    int32_t before[SHORT], behind[SHORT];
    struct candidate few[3 * SHORT];
    struct piece p = {.b = b, .before = before, .behind = behind, .heap = few, .room = 3 * SHORT};

    return to->n - first > SHORT ? 1 : merge(&p, to, first);
}

int bpe_encode(const struct bpe *b, const char *text, int64_t bytes, struct ids *to)
{
    int32_t whole = b->model.whole_first ? vocabulary_find(b->model.vocabulary, text, bytes) : -1;
    struct piece p = {.b = b};
    int64_t first = to->n;

    if (whole >= 0)
        return ids_add(to, whole);
    if (begin(&b->model, text, bytes, to) || to->n - first > INT32_MAX / 4)
        return -1;
    int rc = merge_short(b, to, first);
    if (rc <= 0)
        return rc;
    p.before = malloc(2 * (size_t)(to->n - first) * sizeof *p.before);
    p.behind = p.before + (to->n - first);
    rc = p.before ? merge(&p, to, first) : -1;
    free(p.before);
    free(p.heap);
    return rc;
}
