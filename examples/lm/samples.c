/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of samples that have lengths of their own: see dataset.h.  Packing is best fit decreasing:
 * the longest sample first, each into the row with the least room that is enough.  It depends on
 * the data and the length alone, so every rank and every resumed run finds the same rows.
 */
#include <stdlib.h>
#include <string.h>
#include "../common/say.h"
#include "dataset.h"

/* ---- packing --------------------------------------------------------------------------------- */

/* Rows by the room that they have left: lists, and a bit for each room that has a row. */
struct packing {
    int64_t length, rows;
    int64_t *last;    /* [length + 1]: the last row with this room, or -1 */
    int64_t *before;  /* [samples]: the row before a row in its list */
    uint64_t *filled; /* [length / 64 + 1] */
    int64_t *row;     /* [samples]: of each sample */
};

static void put_row(struct packing *p, int64_t room, int64_t row)
{
    p->before[row] = p->last[room];
    p->last[room] = row;
    p->filled[room / 64] |= (uint64_t)1 << room % 64;
}

/* A row with the least room of at least n; or a new one. */
static int64_t take_row(struct packing *p, int64_t n, int64_t *room)
{
    uint64_t mask = ~(uint64_t)0 << n % 64;

    for (int64_t word = n / 64; word <= p->length / 64; word++, mask = ~(uint64_t)0) {
        const uint64_t bits = p->filled[word] & mask;
        if (!bits)
            continue;
        *room = word * 64 + __builtin_ctzll(bits);
        const int64_t row = p->last[*room];
        p->last[*room] = p->before[row];
        if (p->last[*room] < 0)
            p->filled[word] &= ~((uint64_t)1 << *room % 64);
        return row;
    }
    *room = p->length;
    return p->rows++;
}

static int by_length(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;

    if (x->n != y->n)
        return x->n > y->n ? -1 : 1;
    if (x->document != y->document)
        return x->document < y->document ? -1 : 1;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static void fill_rows(struct packing *p, const struct piece *sample, int64_t n)
{
    for (int64_t i = 0; i <= p->length; i++)
        p->last[i] = -1;
    for (int64_t i = 0; i < n; i++) {
        int64_t room;
        p->row[i] = take_row(p, sample[i].n, &room);
        put_row(p, room - sample[i].n, p->row[i]);
    }
}

/* Sorts the samples by row; within a row they stay in their order. */
static void sort_rows(struct dataset *d, const struct packing *p, const struct piece *sample,
                      int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        d->first_piece[p->row[i] + 1]++;
    for (int64_t r = 0; r < p->rows; r++)
        d->first_piece[r + 1] += d->first_piece[r];
    for (int64_t i = 0; i < n; i++)
        d->piece[d->first_piece[p->row[i]]++] = sample[i];
    for (int64_t r = p->rows; r > 0; r--)
        d->first_piece[r] = d->first_piece[r - 1];
    d->first_piece[0] = 0;
}

/* d->piece has room for n samples. */
static int pack(struct dataset *d, struct piece *sample, int64_t n)
{
    struct packing p = {.length = d->length};

    p.last = malloc(((size_t)d->length + 1) * sizeof *p.last);
    p.filled = calloc((size_t)d->length / 64 + 1, sizeof *p.filled);
    p.before = malloc((size_t)n * sizeof *p.before);
    p.row = malloc((size_t)n * sizeof *p.row);
    const bool whole = p.last && p.filled && p.before && p.row;
    if (whole) {
        qsort(sample, (size_t)n, sizeof *sample, by_length);
        fill_rows(&p, sample, n);
        sort_rows(d, &p, sample, n);
        d->rows = p.rows;
    }
    free(p.last);
    free(p.filled);
    free(p.before);
    free(p.row);
    return whole ? 0 : say_fail("no memory to pack %lld samples", (long long)n);
}

static int lay_out(struct dataset *d, struct piece *sample, int64_t n, bool packs)
{
    d->piece = calloc((size_t)n, sizeof *d->piece);
    d->first_piece = calloc((size_t)n + 1, sizeof *d->first_piece);
    if (!d->piece || !d->first_piece)
        return say_fail("no memory for %lld samples", (long long)n);
    if (packs)
        return pack(d, sample, n);
    for (int64_t i = 0; i < n; i++) {
        d->piece[i] = sample[i];
        d->first_piece[i + 1] = i + 1;
    }
    d->rows = n;
    return 0;
}

int dataset_open_samples(struct dataset *d, const struct tokens *tokens, struct piece *sample,
                         int64_t n, bool packs, int64_t length, int64_t limit, uint64_t seed,
                         bool shuffled)
{
    *d = (struct dataset){
        .tokens = *tokens, .length = length, .limit = limit, .seed = seed, .shuffled = shuffled};
    int rc = dataset_check_vocabulary(d) ? -1 : lay_out(d, sample, n, packs);

    free(sample);
    if (rc)
        dataset_close(d);
    return rc;
}

int64_t dataset_filled(const struct dataset *d)
{
    int64_t n = 0;

    for (int64_t i = 0; d->first_piece && i < d->first_piece[d->rows]; i++)
        n += d->piece[i].n;
    return n;
}

/* ---- reading --------------------------------------------------------------------------------- */

struct row {
    struct dataset *d;
    int32_t *buffer; /* [length + 1] */
    bool *trained;
    int32_t *inputs, *targets, *starts;
    int64_t at;
};

static int read_sample(struct row *r, const struct piece *p)
{
    struct dataset *d = r->d;

    if (tokens_read(&d->tokens, p->document, p->begin, p->n + 1, d->limit, r->buffer, r->trained))
        return -1;
    for (int64_t i = 0; i < p->n; i++) {
        r->inputs[r->at + i] = r->buffer[i];
        r->targets[r->at + i] = r->trained[i + 1] ? r->buffer[i + 1] : DATASET_IGNORED;
        if (r->starts)
            r->starts[r->at + i] = (int32_t)r->at;
    }
    r->at += p->n;
    return 0;
}

static int read_row(struct row *r, int64_t row)
{
    const struct dataset *d = r->d;
    int rc = 0;

    r->at = 0;
    for (int64_t i = d->first_piece[row]; i < d->first_piece[row + 1] && !rc; i++)
        rc = read_sample(r, &d->piece[i]);
    for (int64_t i = r->at; i < d->length; i++) {
        r->inputs[i] = 0;
        r->targets[i] = DATASET_IGNORED;
        if (r->starts)
            r->starts[i] = (int32_t)i;
    }
    return rc;
}

int dataset_read_samples(struct dataset *d, int64_t first, int64_t n, int32_t *inputs,
                         int32_t *targets, int32_t *starts)
{
    const size_t room = (size_t)d->length + 1;
    struct row r = {.d = d,
                    .buffer = malloc(room * sizeof *r.buffer),
                    .trained = malloc(room * sizeof *r.trained)};
    int rc = r.buffer && r.trained ? 0 : say_fail("no memory for a row of %zu tokens", room);

    for (int64_t i = 0; i < n && !rc; i++) {
        r.inputs = inputs + i * d->length;
        r.targets = targets + i * d->length;
        r.starts = starts ? starts + i * d->length : NULL;
        rc = read_row(&r, dataset_row(d, first + i));
    }
    free(r.buffer);
    free(r.trained);
    return rc;
}
