/* SPDX-License-Identifier: Apache-2.0 */
/* Comparison of keys and size classes; see place_item.h. */
#include "plan/place/place_item.h"

int place_compare_keys(const void *a, const void *b)
{
    const struct place_key *x = a, *y = b;
    if (x->major != y->major)
        return x->major < y->major ? -1 : 1;
    if (x->minor != y->minor)
        return x->minor < y->minor ? -1 : 1;
    return (x->item > y->item) - (x->item < y->item);
}

uint8_t half_octaves(int64_t x)
{
    int32_t k = 0;
    while (x >> k > 1)
        k++;
    return (uint8_t)(2 * k + (k > 0 && (x >> (k - 1) & 1)));
}
