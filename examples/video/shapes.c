/* SPDX-License-Identifier: Apache-2.0 */
/* The shapes of the clips of a run, apart for tests that take no data with them. */
#include "shapes.h"
#include <stdlib.h>
#include "../common/say.h"

int video_shapes_make(struct video_shapes *d, int n)
{
    d->shape = calloc((size_t)n, sizeof *d->shape);
    d->n = n;
    return d->shape ? 0 : say_fail("no memory for %d shapes of clips", n);
}

void video_shapes_free(struct video_shapes *d)
{
    buckets_free(&d->buckets);
    free(d->size);
    free(d->own);
    free(d->shape);
}
