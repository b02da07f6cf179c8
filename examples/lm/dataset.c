/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of tokens: see dataset.h. */
#include <stdlib.h>
#include <string.h>
#include "../common/say.h"
#include "ckpt_tools.h"
#include "dataset.h"

/* ---- sample order -------------------------------------------------------------------------- */

/* The random stream of the sample order; no op of a tape uses this number. */
enum { STREAM_ORDER = 0x4c4d0001, ROUNDS = 6 };

/* A bijection on 32 bits that depends on a key: the finaliser of MurmurHash3 (Appleby 2011). */
static uint32_t mix(uint32_t x, uint32_t key)
{
    x ^= key;
    x = (x ^ x >> 16) * 0x85ebca6b;
    x = (x ^ x >> 13) * 0xc2b2ae35;
    return x ^ x >> 16;
}

/* A Feistel network (Luby & Rackoff 1988) on numbers of 2 * half bits. */
static uint64_t permute(uint64_t x, int half, const uint32_t key[ROUNDS])
{
    uint64_t mask = ((uint64_t)1 << half) - 1, left = x >> half, right = x & mask;

    for (int i = 0; i < ROUNDS; i++) {
        uint64_t next = left ^ (mix((uint32_t)right, key[i]) & mask);
        left = right;
        right = next;
    }
    return left << half | right;
}

/* The permutation covers at least as many numbers as there are rows; it is applied again until the
 * result is a row (cycle walking). */
static int64_t shuffled_row(const struct dataset *d, int64_t epoch, int64_t at)
{
    float drawn[ROUNDS];
    uint32_t key[ROUNDS];
    uint64_t x = (uint64_t)at;
    int half = 1;

    while (half < 31 && (int64_t)1 << 2 * half < d->rows)
        half++;
    ckpt_fill_uniform(d->seed, (uint64_t)epoch, STREAM_ORDER, drawn, ROUNDS);
    for (int i = 0; i < ROUNDS; i++)
        key[i] = (uint32_t)(drawn[i] * 16777216.f) * 0x9e3779b1;
    do
        x = permute(x, half, key);
    while (x >= (uint64_t)d->rows);
    return (int64_t)x;
}

int64_t dataset_row(const struct dataset *d, int64_t sample)
{
    int64_t at = sample % d->rows;

    return d->shuffled ? shuffled_row(d, sample / d->rows, at) : at;
}

/* ---- rows ---------------------------------------------------------------------------------- */

/* Tokens that are in memory are checked now, those in files when they are read. */
int dataset_check_vocabulary(const struct dataset *d)
{
    for (int i = 0; i < d->tokens.n; i++) {
        const struct token_shard *s = &d->tokens.shard[i];
        if (s->vocabulary > d->limit)
            return say_fail("%s: its vocabulary has %lld tokens, the model's has %lld", s->path,
                            (long long)s->vocabulary, (long long)d->limit);
        if (s->held && tokens_check(s, 0, s->count, d->limit, s->held))
            return -1;
    }
    return 0;
}

int dataset_cut(struct dataset *d, int64_t length)
{
    if (!d->first_row)
        d->first_row = calloc((size_t)d->tokens.n + 1, sizeof *d->first_row);
    if (!d->first_row)
        return say_fail("no memory for %d files of tokens", d->tokens.n);
    d->length = length;
    for (int i = 0; i < d->tokens.n; i++) {
        int64_t count = d->tokens.shard[i].count;
        d->first_row[i + 1] = d->first_row[i] + (count > 0 ? (count - 1) / length : 0);
    }
    d->rows = d->first_row[d->tokens.n];
    if (d->rows)
        return 0;
    return say_fail("%s: %lld tokens are too few for a sample of %lld and the next token; give a "
                    "longer text or a shorter --length",
                    d->tokens.shard[0].path, (long long)d->tokens.count, (long long)length);
}

int dataset_open(struct dataset *d, const struct tokens *tokens, int64_t length, int64_t limit,
                 uint64_t seed, bool shuffled, const struct document_ends *ends)
{
    *d = (struct dataset){
        .tokens = *tokens, .length = length, .limit = limit, .seed = seed, .shuffled = shuffled};
    if (!dataset_check_vocabulary(d) &&
        !(ends ? dataset_find_documents(d, ends) : dataset_cut(d, length)))
        return 0;
    dataset_close(d);
    return -1;
}

void dataset_close(struct dataset *d)
{
    if (d->tokens.shard)
        tokens_close(&d->tokens);
    free(d->first_row);
    free(d->piece);
    free(d->first_piece);
    *d = (struct dataset){.rows = 0};
}

int dataset_shard(const struct dataset *d, int64_t row)
{
    int low = 0, high = d->tokens.n - 1;

    while (low < high) {
        int middle = (low + high) / 2;
        if (row < d->first_row[middle + 1])
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* buffer and trained have room for length + 1 tokens. */
static int read_row(struct dataset *d, int64_t row, int32_t *buffer, bool *trained, int32_t *inputs,
                    int32_t *targets)
{
    int shard = dataset_shard(d, row);
    int64_t first = (row - d->first_row[shard]) * d->length;

    if (tokens_read(&d->tokens, shard, first, d->length + 1, d->limit, buffer, trained))
        return -1;
    memcpy(inputs, buffer, (size_t)d->length * sizeof *inputs);
    for (int64_t i = 0; i < d->length; i++)
        targets[i] = trained[i + 1] ? buffer[i + 1] : DATASET_IGNORED;
    return 0;
}

int dataset_read(struct dataset *d, int64_t first, int64_t n, int32_t *inputs, int32_t *targets)
{
    size_t room = (size_t)d->length + 1;
    int32_t *buffer = malloc(room * sizeof *buffer);
    bool *trained = malloc(room * sizeof *trained);
    int rc = buffer && trained ? 0 : say_fail("no memory for a row of %zu tokens", room);

    for (int64_t i = 0; i < n && !rc; i++)
        rc = read_row(d, dataset_row(d, first + i), buffer, trained, inputs + i * d->length,
                      targets + i * d->length);
    free(buffer);
    free(trained);
    return rc;
}
