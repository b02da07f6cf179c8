/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order in which a run takes its samples: epochs, one after the other, each of which has every
 * row once.  Epoch e is torch.randperm(rows) of seed + e, as torch's DistributedSampler shuffles.
 * So the number of a sample tells its row: it depends on no rank and no batch, and a run goes on in
 * the middle of an epoch.
 */
#ifndef EXAMPLES_ORDER_H
#define EXAMPLES_ORDER_H

#include <stdbool.h>
#include <stdint.h>

struct sample_order {
    int64_t rows;
    uint64_t seed;
    int64_t epoch; /* that row is of; -1: of none yet */
    int64_t *row;  /* [rows]; NULL: rows are taken in turn */
};

/* keeps: rows are taken in turn.  Returns 0, or -1 after a sentence. */
int sample_order_open(struct sample_order *o, int64_t rows, uint64_t seed, bool keeps);
void sample_order_close(struct sample_order *o);

/* The row of a sample, counted over all epochs. */
int64_t sample_order_row(struct sample_order *o, int64_t sample);

#endif
