/* SPDX-License-Identifier: Apache-2.0 */
/* Maps elements of an operand to elements of parameters: see struct rounding in ops/attr.h. */
#include "optim/optim.h"

int optim_parts(const ckpt_tape *t, int32_t param)
{
    const struct layout *l = t->env.sharing.layout;
    return optim_bucket_of(t, param) < 0 ? 1 : l->buckets[optim_bucket_of(t, param)].n;
}

static struct rounding_part part_of(const ckpt_tape *t, int32_t param, int64_t first)
{
    return (struct rounding_part){.name = hash_text(t->env.params->data[param].name),
                                  .first = first};
}

/* Of a bucket, this rank updates either all elements or only its share; the operand is then the
 * share. */
void optim_round(const ckpt_tape *t, int32_t param, int k, struct rounding *r)
{
    const struct sharing *s = &t->env.sharing;
    const int32_t bucket = optim_bucket_of(t, param);
    const struct layout_bucket *b = bucket < 0 ? NULL : &s->layout->buckets[bucket];
    const int64_t begin = b && s->zero ? s->place * b->share : 0;
    int n = r->begin[k];
    if (!b)
        r->part[n++] = part_of(t, param, 0);
    for (int32_t i = 0; b && i < b->n; i++) {
        int32_t part = s->layout->order[b->first + i];
        r->part[n++] = part_of(t, part, s->layout->places[part].offset - begin);
    }
    r->begin[k + 1] = (uint8_t)n;
}
