/* SPDX-License-Identifier: Apache-2.0 */
/* The order of keys, and size classes; see place_item.h. */
#include "plan/place/place_item.h"
#include <stdlib.h>
#include <string.h>

#define FEW 12 /* so many keys are sorted by insertion */

static inline bool is_before(const struct place_key *a, const struct place_key *b)
{
    if (a->major != b->major)
        return a->major < b->major;
    return a->minor != b->minor ? a->minor < b->minor : a->item < b->item;
}

static void insert_keys(struct place_key *keys, int32_t n)
{
    for (int32_t i = 1; i < n; i++) {
        struct place_key key = keys[i];
        int32_t j = i;
        for (; j > 0 && is_before(&key, &keys[j - 1]); j--)
            keys[j] = keys[j - 1];
        keys[j] = key;
    }
}

/* Merges two halves, each in order; first has room for one of them. */
static void merge_keys(struct place_key *keys, int32_t n, struct place_key *first)
{
    int32_t half = n / 2, i = 0, j = half;
    memcpy(first, keys, (size_t)half * sizeof(*keys));
    for (int32_t k = 0; i < half; k++)
        keys[k] = j < n && is_before(&keys[j], &first[i]) ? keys[j++] : first[i++];
}

static void sort_keys(struct place_key *keys, int32_t n, struct place_key *first)
{
    int32_t half = n / 2;
    if (n <= FEW) {
        insert_keys(keys, n);
        return;
    }
    sort_keys(keys, half, first);
    sort_keys(keys + half, n - half, first);
    if (is_before(&keys[half], &keys[half - 1]))
        merge_keys(keys, n, first);
}

void place_sort_keys(struct place_key *keys, int32_t n)
{
    struct place_key *first = malloc(((size_t)n / 2 + 1) * sizeof(*first));
    if (first)
        sort_keys(keys, n, first);
    else
        insert_keys(keys, n); /* slow, and needs no memory */
    free(first);
}

uint8_t half_octaves(int64_t x)
{
    int32_t k = x > 1 ? 63 - __builtin_clzll((uint64_t)x) : 0;
    return (uint8_t)(2 * k + (k > 0 && (x >> (k - 1) & 1)));
}
