/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a state that ranks write: see parts.h. */
#include <stdlib.h>
#include "dist/parts.h"

bool part_is_cut(const struct part_item *item)
{
    const struct ckpt_desc d = values_file_desc(item->p, item->slot);
    return item->run.n < desc_numel(&d);
}

struct ckpt_desc part_desc(const struct part_item *item)
{
    const struct ckpt_desc d = values_state_desc(item->p, item->slot);
    if (!part_is_cut(item))
        return d;
    return (struct ckpt_desc){.dtype = d.dtype == CKPT_I32 ? CKPT_BF16 : d.dtype,
                              .ndim = 1,
                              .shape = {item->run.n},
                              .stride = {1}};
}

/* The rank that writes bytes [before, before + bytes) of `all` that every rank has. */
static int find_owner(const struct ranks *job, int64_t before, int64_t bytes, int64_t all)
{
    const int n = job->sharing.ranks;
    return all ? (int)min_i64(n - 1, (before + bytes / 2) * n / all) : 0;
}

int part_divide(const struct ranks *job, struct part_item *items, int n, const bool *planned)
{
    int64_t all = 0, before = 0;
    int kept = 0;
    for (int i = 0; i < n; i++) {
        struct part_item *x = &items[i];
        x->run = values_find_run(job, x->p, x->slot, planned);
        const struct ckpt_desc d = part_desc(x);
        x->bytes = desc_numel(&d) * ckpt_dtype_size(d.dtype);
        all += x->run.shared ? x->bytes : 0;
    }
    for (int i = 0; i < n; i++) {
        const struct part_item x = items[i];
        const bool own =
            x.run.shared ? find_owner(job, before, x.bytes, all) == job->rank : x.run.n > 0;
        before += x.run.shared ? x.bytes : 0;
        if (own)
            items[kept++] = x;
    }
    return kept;
}

int64_t part_bytes(const struct ranks *job, const bool *planned)
{
    const int32_t visible = job->params->n - job->params->n_hidden;
    struct part_item *items =
        calloc((size_t)visible * (CKPT_EXP_AVG_SQ_COL + 1) + 1, sizeof *items);
    int64_t bytes = 0;
    int n = 0;
    if (!items)
        return error_set(CKPT_ENOMEM, "no memory for the size of a state");
    for (int32_t i = 0; i < visible; i++)
        for (int s = CKPT_VALUE; s < (CKPT_EXP_AVG_SQ_COL + 1); s++) {
            const struct param *p = &job->params->data[i];
            const bool left_out = p->cache || (s == CKPT_VALUE && param_is_apart(job->params, p));
            if (!left_out && values_planned(job, p, (enum ckpt_slot)s, planned))
                items[n++] = (struct part_item){.p = p, .slot = (enum ckpt_slot)s};
        }
    n = part_divide(job, items, n, planned);
    for (int i = 0; i < n; i++)
        bytes += round_up(items[i].bytes, CKPT_ALIGN);
    free(items);
    return bytes;
}
