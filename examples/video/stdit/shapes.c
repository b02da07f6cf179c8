/* SPDX-License-Identifier: Apache-2.0 */
/* The shapes of the clips of a run, apart for tests that take no data with them. */
#include <stdlib.h>
#include "dataset.h"

int64_t stdit_data_z(const struct stdit_data *d, const struct stdit_shape *s)
{
    const struct stdit_geometry *g = &s->geometry;
    return d->channels * g->frames * g->height * g->width;
}

int64_t stdit_data_y(const struct stdit_data *d)
{
    return d->tokens * d->caption_channels;
}

int stdit_data_shapes(struct stdit_data *d, int n)
{
    d->shape = calloc((size_t)n, sizeof *d->shape);
    d->n_shapes = n;
    return d->shape ? 0 : say_fail("no memory for %d shapes of clips", n);
}
