/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters of which each rank has a part: the order of their values.
 *
 * The split axis is [blocks, ranks, n].  So the whole is rows of [ranks, run], where a run is what
 * of a row one rank has: n elements of the axis with all that is behind it.  Values lie as [ranks,
 * rows, run], so that each part is one interval, which buckets, states and loads can cut anywhere.
 */
#include <string.h>
#include "core/params.h"

static int64_t run_of(const struct param *p)
{
    int64_t n = p->desc.shape[p->split.axis] / p->split.blocks / p->split.ranks;

    for (int i = p->split.axis + 1; i < p->desc.ndim; i++)
        n *= p->desc.shape[i];
    return n;
}

struct ckpt_desc param_part_of(const struct param *p)
{
    struct ckpt_desc d = p->desc;

    if (p->split.ranks > 1)
        d.shape[p->split.axis] /= p->split.ranks;
    desc_dense(&d);
    return d;
}

int64_t param_split_element(const struct param *p, int64_t at, int64_t *run)
{
    const int64_t n = run_of(p), part = desc_numel(&p->desc) / p->split.ranks;
    const int64_t rank = at / part, row = at % part / n, in_run = at % n;

    *run = n - in_run;
    return (row * p->split.ranks + rank) * n + in_run;
}

static void copy_runs(const struct param *p, const float *src, float *dst, bool to_parts)
{
    const int64_t n = desc_numel(&p->desc);
    int64_t run;

    for (int64_t at = 0; at < n; at += run) {
        const int64_t whole = param_split_element(p, at, &run);
        memcpy(to_parts ? dst + at : dst + whole, to_parts ? src + whole : src + at,
               (size_t)run * sizeof *dst);
    }
}

void param_to_parts(const struct param *p, const float *src, float *dst)
{
    copy_runs(p, src, dst, true);
}

void param_from_parts(const struct param *p, const float *src, float *dst)
{
    copy_runs(p, src, dst, false);
}

/* An axis of the view that files have, or a piece of it. */
struct piece {
    int64_t size;
    int axis;   /* of the view */
    bool ranks; /* it counts parts */
};

/* Cuts the first piece so that all behind a cut are `inner` elements; *behind: those behind it. */
static bool cut(struct piece *all, int *n, int64_t behind, int64_t inner)
{
    if (inner <= behind || inner >= behind * all[0].size)
        return true;
    if (*n == CKPT_MAX_DIMS || inner % behind || behind * all[0].size % inner)
        return false;
    memmove(all + 1, all, (size_t)(*n)++ * sizeof *all);
    all[1].size = inner / behind;
    all[0].size /= all[1].size;
    return true;
}

bool param_split_view(const struct param *p, struct ckpt_desc *view, int *axes)
{
    const struct ckpt_desc *own = p->file_view.ndim ? &p->file_view : &p->desc;
    const int64_t run = run_of(p), row = run * p->split.ranks;
    struct piece piece[CKPT_MAX_DIMS];
    int place[CKPT_MAX_DIMS], n = 0, k = 0;
    int64_t behind = 1;

    for (int i = own->ndim; i-- > 0; behind *= own->shape[i]) { /* pieces from the last axis on */
        if (n == CKPT_MAX_DIMS)
            return false;
        memmove(piece + 1, piece, (size_t)n++ * sizeof *piece);
        piece[0] = (struct piece){.size = own->shape[i], .axis = i};
        int64_t inner = behind;
        for (int c = 0; c < 2; c++) {
            const int before = n;
            if (!cut(piece, &n, inner, c ? row : run))
                return false;
            inner *= n > before ? piece[1].size : 1;
        }
    }
    behind = 1;
    for (int i = n; i-- > 0; behind *= piece[i].size)
        piece[i].ranks = behind >= run && behind * piece[i].size <= row && piece[i].size > 1;
    *view = (struct ckpt_desc){.dtype = p->desc.dtype, .ndim = n};
    for (int ranks = 1; ranks >= 0; ranks--)
        for (int i = 0; i < n; i++)
            if (piece[i].ranks == ranks) {
                view->shape[k] = piece[i].size;
                place[i] = k++;
            }
    desc_dense(view);
    k = 0;
    for (int i = 0; i < own->ndim; i++)
        for (int j = 0; j < n; j++)
            if (piece[j].axis == (p->reordered ? p->file_axes[i] : i))
                axes[k++] = place[j];
    return true;
}
