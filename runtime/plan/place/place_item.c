/* SPDX-License-Identifier: Apache-2.0 */
/* The order of items: see place_item.h. */
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
