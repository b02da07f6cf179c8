/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that are pieces of documents: see dataset.h. */
#include <stdlib.h>
#include "../common/say.h"
#include "dataset.h"

/* Pieces that grow, and the one that is being read; n 0: none. */
struct scan {
    struct dataset *d;
    struct piece now;
    int64_t room;
    int32_t document;
};

static int put(struct scan *s)
{
    struct dataset *d = s->d;

    if (!s->now.n)
        return 0;
    if (d->rows == s->room) {
        s->room = 2 * s->room + 1024;
        struct piece *grown = realloc(d->piece, (size_t)s->room * sizeof *grown);
        if (!grown)
            return say_fail("no memory for %lld samples", (long long)s->room);
        d->piece = grown;
    }
    s->now.document = s->document;
    d->padded |= s->now.n < d->length;
    d->piece[d->rows++] = s->now;
    s->now.n = 0;
    return 0;
}

static bool is_end(const struct document_ends *ends, int32_t token)
{
    for (int i = 0; i < DOCUMENT_ENDS; i++)
        if (token == ends->token[i])
            return true;
    return false;
}

/* The tokens of a shard from `first` on. */
static int scan_tokens(struct scan *s, const struct document_ends *ends, int64_t first,
                       const int32_t *token, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        bool end = is_end(ends, token[i]), begun = s->now.n > 0;
        if ((end || s->now.n == s->d->length) && put(s))
            return -1;
        if (end) {
            s->document += begun;
            continue;
        }
        if (!s->now.n)
            s->now.begin = first + i;
        s->now.n++;
    }
    return 0;
}

static int scan_shard(struct scan *s, const struct document_ends *ends, int shard)
{
    enum { PART = 1 << 14 };
    static int32_t token[PART];
    struct dataset *d = s->d;
    const struct token_shard *of = &d->tokens.shard[shard];

    if (of->mask_begin)
        return say_fail("%s: has a mask of the tokens to train on; BERT draws its own", of->path);
    for (int64_t at = 0; at < of->count; at += PART) {
        int64_t n = of->count - at < PART ? of->count - at : PART;
        if (tokens_read(&d->tokens, shard, at, n, d->limit, token, NULL) ||
            scan_tokens(s, ends, at, token, n))
            return -1;
    }
    if (put(s))
        return -1;
    s->document++;
    d->first_row[shard + 1] = d->rows;
    return 0;
}

int dataset_find_documents(struct dataset *d, const struct document_ends *ends)
{
    struct scan s = {.d = d};
    int rc = 0;

    d->rows = 0;
    d->first_row = calloc((size_t)d->tokens.n + 1, sizeof *d->first_row);
    if (!d->first_row)
        return say_fail("no memory for %d files of tokens", d->tokens.n);
    for (int i = 0; i < d->tokens.n && !rc; i++)
        rc = scan_shard(&s, ends, i);
    if (!rc && !d->rows)
        rc = say_fail("%s: there is no document in it", d->tokens.shard[0].path);
    return rc;
}

int dataset_read_piece(struct dataset *d, int64_t row, int64_t most, int32_t *tokens)
{
    const struct piece *p = &d->piece[row];
    int64_t n = p->n < most ? p->n : most;

    return tokens_read(&d->tokens, dataset_shard(d, row), p->begin, n, d->limit, tokens, NULL)
               ? -1
               : (int)n;
}
