/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of a run's samples: consecutive epochs, each of which has every row once.  Epoch e is
 * torch.randperm(rows) with seed + e, as torch's DistributedSampler shuffles.  So a sample's number
 * determines its row, independent of ranks and batch size, and a run can resume in the middle of an
 * epoch.
 */
#ifndef EXAMPLES_ORDER_H
#define EXAMPLES_ORDER_H

#include <stdbool.h>
#include <stdint.h>

struct sample_order {
    int64_t rows;
    uint64_t seed;
    int64_t epoch; /* epoch of the order in row; -1: none yet */
    int64_t *row;  /* [rows]; NULL: rows are used in file order */
};

/* keeps: rows are used in file order.  Returns 0, or -1 after an error message. */
int sample_order_open(struct sample_order *o, int64_t rows, uint64_t seed, bool keeps);
void sample_order_close(struct sample_order *o);

/* The row of a sample; samples are counted over all epochs. */
int64_t sample_order_row(struct sample_order *o, int64_t sample);

#endif
