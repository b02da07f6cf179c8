/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packed rows whose attention takes as long on every rank: --balance.  All rows have as many
 * places, so the rest of the model takes as long for each, and what differs is the pairs of tokens
 * that attend: of a row with one sample many times those of a row with many.  A step has the same
 * rows as without; only the ranks that compute them differ.
 */
#include <stdlib.h>
#include "../common/balance.h"
#include "../common/say.h"
#include "ckpt_dist.h"
#include "run.h"

/* The pairs that a causal layer computes for a sample of n tokens; window 0: none. */
static double pairs(int64_t n, int64_t window)
{
    const double beyond = window && n > window ? (double)(n - window) : 0;

    return ((double)n * (double)n - beyond * beyond) / 2;
}

/* Of a row: its tokens, or its pairs in all layers. */
static double weigh(const struct lm_run *r, int64_t row, enum balance kind)
{
    const struct lm_config *c = &r->options.config;
    const struct dataset *d = &r->data;
    int64_t windows = 0;
    double weight = 0;

    for (int64_t i = 0; i < c->layers && c->window; i++)
        windows += (c->layer[i] & LM_LAYER_WINDOW) != 0;
    for (int64_t i = d->first_piece[row]; i < d->first_piece[row + 1]; i++) {
        const int64_t n = d->piece[i].n;
        weight += kind == BALANCE_TOKENS ? (double)n
                                         : (double)windows * pairs(n, c->window) +
                                               (double)(c->layers - windows) * pairs(n, 0);
    }
    return weight;
}

int lm_balance(const struct lm_run *r, int64_t step, int64_t *samples)
{
    const int64_t batch = r->options.train.batch, groups = ckpt_sample_groups(r->context);
    const int64_t n = groups * batch, first = step * n;
    double *weight = calloc((size_t)n, sizeof *weight);
    int64_t *dealt = calloc((size_t)n, sizeof *dealt);
    int rc = weight && dealt ? 0 : say_fail("no memory to deal %lld rows", (long long)n);

    for (int64_t i = 0; i < n && !rc; i++)
        weight[i] = weigh(r, dataset_row(&r->data, first + i), r->options.balance);
    rc = rc ? rc : balance_deal(weight, n, (int)groups, dealt);
    for (int64_t i = 0; i < batch && !rc; i++)
        samples[i] = first + dealt[ckpt_sample_group(r->context) * batch + i];
    free(weight);
    free(dealt);
    return rc;
}
