/* SPDX-License-Identifier: Apache-2.0 */
/* Buckets and shares: see layout.h. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "dist/shard/layout.h"

/* Length of the block's name in a parameter name: up to the last component that is a number. */
static size_t block_length(const char *name)
{
    size_t length = 0;
    for (const char *part = name; *part;) {
        const char *end = strchr(part, '.');
        if (!end)
            break; /* the last component names the tensor itself */
        bool number = end > part;
        for (const char *c = part; c < end; c++)
            number &= isdigit((unsigned char)*c) != 0;
        if (number)
            length = (size_t)(end - name);
        part = end + 1;
    }
    return length;
}

static bool same_block(const char *a, const char *b)
{
    size_t n = block_length(a);
    return n == block_length(b) && memcmp(a, b, n) == 0;
}

static void name_bucket(struct layout_bucket *b, const struct layout_param *p)
{
    size_t n = block_length(p->name);
    snprintf(b->name, sizeof b->name, "%.*s%s", n ? (int)n : 5, n ? p->name : "other",
             p->dtype == CKPT_BF16 ? " (bf16)" : "");
}

static bool goes_with(const struct layout_param *p, const struct layout_param *head)
{
    return p->dtype == head->dtype && p->group == head->group && p->stage == head->stage &&
           p->ranks == head->ranks;
}

/* A bucket collects the following parameters of the same block and kind. */
static void fill_bucket(struct layout *l, const struct layout_param *params, int32_t first)
{
    struct layout_bucket *b = &l->buckets[l->n_buckets];
    const struct layout_param *head = &params[first];
    *b = (struct layout_bucket){.dtype = head->dtype,
                                .ranks = head->ranks ? head->ranks : l->world,
                                .first = l->n_buckets ? b[-1].first + b[-1].n : 0};
    name_bucket(b, head);
    for (int32_t i = first; i < l->n_params && b->n < LAYOUT_PARTS; i++) {
        const struct layout_param *p = &params[i];
        if (!p->trainable)
            continue;
        if (!same_block(p->name, head->name))
            break;
        if (!goes_with(p, head) || l->places[i].bucket >= 0)
            continue;
        int64_t offset = round_up(b->numel, LAYOUT_ALIGN);
        l->places[i] =
            (struct layout_place){.bucket = l->n_buckets, .offset = offset, .numel = p->numel};
        b->numel = offset + p->numel;
        l->order[b->first + b->n++] = i;
    }
    b->share = round_up((b->numel + b->ranks - 1) / b->ranks, LAYOUT_ALIGN);
    b->padded = b->share * b->ranks;
    l->n_buckets++;
}

static void find_owners(struct layout *l)
{
    for (int32_t i = 0; i < l->n_params; i++) {
        struct layout_place *p = &l->places[i];
        if (p->bucket < 0)
            continue;
        int64_t share = l->buckets[p->bucket].share;
        p->first_owner = (int32_t)(p->offset / share);
        p->owner = (int32_t)((p->offset + p->numel - 1) / share);
    }
}

int layout_make(struct layout **out, const struct layout_param *params, int32_t n, int32_t world)
{
    struct layout *l = calloc(1, sizeof *l);
    size_t capacity = (size_t)n + 1;
    if (!l)
        return CKPT_ENOMEM;
    *l = (struct layout){.world = world, .n_params = n};
    l->buckets = calloc(capacity, sizeof *l->buckets);
    l->places = calloc(capacity, sizeof *l->places);
    l->order = calloc(capacity, sizeof *l->order);
    if (!l->buckets || !l->places || !l->order) {
        layout_free(l);
        return CKPT_ENOMEM;
    }
    for (int32_t i = 0; i < n; i++)
        l->places[i].bucket = -1;
    for (int32_t i = 0; i < n; i++)
        if (params[i].trainable && l->places[i].bucket < 0)
            fill_bucket(l, params, i);
    find_owners(l);
    *out = l;
    return 0;
}

void layout_free(struct layout *l)
{
    if (!l)
        return;
    free(l->buckets);
    free(l->places);
    free(l->order);
    free(l);
}

int64_t layout_part(const struct layout *l, int32_t param, int32_t rank, int64_t *at,
                    int64_t *in_share)
{
    const struct layout_place *p = &l->places[param];
    if (p->bucket < 0)
        return 0;
    int64_t share = l->buckets[p->bucket].share, begin = rank * share;
    int64_t first = max_i64(p->offset, begin);
    int64_t end = min_i64(p->offset + p->numel, begin + share);
    *at = first - p->offset;
    *in_share = first - begin;
    return max_i64(0, end - first);
}

uint64_t layout_signature(const struct layout *l)
{
    uint64_t h = hash_mix(hash_mix(HASH_START, l->world), l->n_params);
    for (int32_t i = 0; i < l->n_params; i++) {
        const struct layout_place *p = &l->places[i];
        h = hash_mix(hash_mix(hash_mix(h, p->bucket), p->offset), p->numel);
    }
    for (int32_t i = 0; i < l->n_buckets; i++)
        h = hash_mix(hash_mix(hash_mix(h, l->buckets[i].dtype), l->buckets[i].share),
                     l->buckets[i].ranks);
    return h;
}
