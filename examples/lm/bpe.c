/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Byte-pair encoding of a piece: while two neighbouring tokens form a known pair, merges the pair
 * of lowest rank, the leftmost one of equals (Sennrich et al. 2016).  Candidate pairs are kept in a
 * heap, so a piece of n bytes takes O(n log n) time.
 */
#include <stdlib.h>
#include <string.h>
#include "tokenizer.h"

struct bpe_pair *bpe_find(const struct tokenizer *t, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint64_t at = key * 0x9e3779b97f4a7c15u;

    for (at ^= at >> 29;; at++) {
        struct bpe_pair *p = &t->pair[at & (uint64_t)(t->pairs - 1)];
        if (p->left < 0 || (p->left == left && p->right == right))
            return p;
    }
}

/* A pair of neighbours, as it was when pushed.  It is stale once either token has changed. */
struct candidate {
    int32_t rank;
    int32_t at; /* byte index of the left token */
    int32_t left, right, token;
};

struct piece {
    const struct tokenizer *t;
    int32_t *token, *before, *behind; /* per byte: list of remaining tokens; -1: none */
    struct candidate *heap;
    int64_t n;
};

static bool comes_first(const struct candidate *a, const struct candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void push(struct piece *p, struct candidate c)
{
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
    const struct bpe_pair *found = bpe_find(p->t, p->token[at], p->token[next]);
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

static int64_t merge(struct piece *p, const char *text, int32_t bytes, int32_t *dst)
{
    int64_t n = 0;

    for (int32_t i = 0; i < bytes; i++) {
        p->token[i] = p->t->of_byte[(unsigned char)text[i]];
        p->before[i] = i - 1;
        p->behind[i] = i + 1 < bytes ? i + 1 : -1;
    }
    for (int32_t i = 0; i < bytes; i++)
        consider(p, i);
    while (p->n) {
        struct candidate c = pop(p);
        join(p, &c);
    }
    for (int32_t i = 0; i >= 0; i = p->behind[i])
        dst[n++] = p->token[i];
    return n;
}

int64_t bpe_merge(const struct tokenizer *t, const char *text, int64_t bytes, int32_t *dst)
{
    enum { SHORT = 64 };
    int32_t links[3][SHORT];
    struct candidate few[3 * SHORT];
    struct piece p = {t, links[0], links[1], links[2], few, 0};
    int32_t whole = t->whole_first ? tokenizer_find(t, text, bytes) : -1;
    void *room = NULL;

    if (whole >= 0) {
        *dst = whole;
        return 1;
    }
    if (bytes > INT32_MAX / 4)
        return -1;
    if (bytes > SHORT) { /* one candidate per byte at the start, two more per merge */
        size_t n = (size_t)bytes;
        room = malloc(n * (3 * sizeof *p.token + 3 * sizeof *p.heap));
        if (!room)
            return -1;
        p.heap = room;
        p.token = (int32_t *)(p.heap + 3 * n);
        p.before = p.token + n;
        p.behind = p.before + n;
    }
    int64_t n = merge(&p, text, (int32_t)bytes, dst);
    free(room);
    return n;
}
