/* SPDX-License-Identifier: Apache-2.0 */
/* The order of a run's samples: see order.h. */
#include <stdlib.h>
#include "memory.h"
#include "order.h"
#include "say.h"
#include "torch_random.h"

int sample_order_open(struct sample_order *o, int64_t rows, uint64_t seed, bool keeps)
{
    *o = (struct sample_order){.rows = rows, .seed = seed, .epoch = -1};
    if (keeps)
        return 0;
    if (rows >= TORCH_PERMUTATION_MAX)
        return say_fail("%lld samples: only fewer than %lld can be shuffled; give --keep-order",
                        (long long)rows, (long long)TORCH_PERMUTATION_MAX);
    o->row = MEMORY_FOR(sizeof *o->row, rows);
    return o->row ? 0 : say_fail("no memory for the order of %lld samples", (long long)rows);
}

void sample_order_close(struct sample_order *o)
{
    free(o->row);
    o->row = NULL;
}

static void draw(struct sample_order *o, int64_t epoch)
{
    struct torch_random random;

    torch_random_seed(&random, o->seed + (uint64_t)epoch);
    torch_random_permutation(&random, o->rows, o->row);
    o->epoch = epoch;
}

int64_t sample_order_row(struct sample_order *o, int64_t sample)
{
    int64_t epoch = sample / o->rows, place = sample % o->rows;

    if (!o->row)
        return place;
    if (epoch != o->epoch)
        draw(o, epoch);
    return o->row[place];
}
