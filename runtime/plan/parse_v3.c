/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plan files of version 3, which had three lists instead of the record:
 *
 *     storage S FIRST LAST OFFSET      a residence on the device; one that runs into the next step
 *                                      is two, to the last step and from step 0 on
 *     workspace STEP OFFSET
 *     park|clean host|nvme S OUT FREE IN USE OFFSET       S is offloaded; clean: without a copy out
 *     lodging S OUT IN OFFSET          bytes in host memory for steps on the host; OUT and IN -1:
 *                                      the backing of S, else copied out after OUT, back from IN
 *     times OUT_START OUT_END IN_START IN_END             after each of the last two
 */
#include <stdlib.h>
#include "plan/parse.h"
#include "plan/plan_record.h"

static int32_t get_storage(struct reader *r)
{
    return get_index(r, 0, r->g->n_storages - 1);
}

static void get_device(struct reader *r, void *element)
{
    struct residence *t = element;
    bool workspace = lines_take(r->l, "workspace");
    if (!workspace && !lines_take(r->l, "storage"))
        lines_fail(r->l, CKPT_EFORMAT, "expected storage or workspace");
    t->tier = TIER_DEVICE;
    t->storage = workspace ? 0 : get_storage(r);
    t->first = t->last = get_index(r, 0, r->p->n_steps - 1);
    if (workspace)
        t->storage = -1 - t->first;
    else
        t->last = get_index(r, t->first, r->p->n_steps - 1);
    t->offset = get_offset(r);
    if (workspace)
        lines_end(r->l);
    else
        lines_name(r->l);
}

static void get_times(struct reader *r, struct copy *out, struct copy *in)
{
    double *times[] = {&out->start, &out->end, &in->start, &in->end};
    lines_name(r->l);
    if (lines_next(r->l) && !lines_take(r->l, "times"))
        lines_fail(r->l, CKPT_EFORMAT, "expected times and four times in seconds");
    for (int i = 0; i < 4; i++)
        *times[i] = lines_real(r->l, "a time in seconds", 0, 1e300);
    lines_end(r->l);
}

/* ---- residences read so far ------------------------------------------------------------------ */

/* The device residence of a storage that begins at a step, ends with it, or contains it.  Fails if
 * there is none. */
enum at { BEGINS, ENDS, INSIDE };

static struct residence *find(struct reader *r, int32_t s, enum at at, int32_t step)
{
    for (int32_t i = 0; i < r->p->n_residences && !r->l->rc; i++) {
        struct residence *t = &r->p->residences[i];
        if (t->storage == s && t->tier == TIER_DEVICE && (at == BEGINS || t->last >= step) &&
            (at == ENDS || t->first <= step) && (at != BEGINS || t->first == step) &&
            (at != ENDS || t->last == step))
            return t;
    }
    lines_fail(r->l, CKPT_EPLAN, "no residence of storage %d %s step %d", (int)s,
               at == BEGINS ? "begins at"
               : at == ENDS ? "ends with"
                            : "has",
               (int)step);
    return NULL;
}

/* The first or the last step from `from` on that uses a storage, on the host or on the device. */
static int32_t find_step(const struct reader *r, int32_t s, int32_t from, bool on_host, bool last)
{
    int32_t found = -1;
    for (int32_t k = from; k < r->p->n_steps && (found < 0 || last); k++) {
        const struct graph_op *o = &r->g->ops[r->p->steps[k].op];
        if (r->p->steps[k].on_host == on_host &&
            (graph_op_reads(r->g, o, s) || graph_op_writes(r->g, o, s)))
            found = k;
    }
    return found;
}

static int32_t add(struct reader *r, struct residence t)
{
    if (!plan_reserve(r->p, 1, 0))
        return plan_add_residence(r->p, t);
    lines_fail(r->l, CKPT_ENOMEM, "out of host memory");
    return -1;
}

/* The backing residence of a persistent storage; adds it if it does not exist yet. */
static int32_t backing_of(struct reader *r, int32_t s, int8_t tier, int64_t offset)
{
    for (int32_t i = 0; i < r->p->n_residences; i++) {
        const struct residence *t = &r->p->residences[i];
        if (t->storage != s || !plan_is_backing(r->g, r->p, t))
            continue;
        if (t->tier != tier || t->offset != offset)
            lines_fail(r->l, CKPT_EPLAN, "storage %d has two backing residences", (int)s);
        return i;
    }
    return add(r, (struct residence){s, tier, 0, r->p->n_steps - 1, offset});
}

static void add_copy(struct reader *r, struct copy c, int32_t from, int32_t to)
{
    c.from = from;
    c.to = to;
    if (plan_reserve(r->p, 0, 1))
        lines_fail(r->l, CKPT_ENOMEM, "out of host memory");
    if (!r->l->rc)
        r->p->copies[r->p->n_copies++] = c;
}

/* ---- offloads -----------------------------------------------------------------------------------
 */

/* Joins the two residences of a storage that is freed in the next step.  The second one is marked
 * dead by tier TIER_COUNT, which sorts it last. */
static void join(struct reader *r, int32_t s, int32_t freed)
{
    struct residence *t = find(r, s, ENDS, r->p->n_steps - 1), *second = find(r, s, ENDS, freed);
    if (!t || !second)
        return;
    if (second->first || second->offset != t->offset)
        lines_fail(r->l, CKPT_EPLAN, "storage %d does not stay at one address", (int)s);
    t->last += freed + 1;
    second->tier = TIER_COUNT;
}

static void get_offload(struct reader *r)
{
    struct copy out = {0}, in = {0};
    int32_t n = r->p->n_steps;
    bool clean = lines_take(r->l, "clean");
    if (!clean && !lines_take(r->l, "park"))
        lines_fail(r->l, CKPT_EFORMAT, "expected park or clean");
    int8_t tier = lines_take(r->l, "nvme") ? TIER_NVME : TIER_HOST;
    if (tier == TIER_HOST && !lines_take(r->l, "host"))
        lines_fail(r->l, CKPT_EFORMAT, "expected host or nvme");
    int32_t s = get_storage(r);
    out.after = get_index(r, 0, n - 1);
    int32_t freed = get_index(r, 0, n - 1);
    in.after = get_index(r, 0, n - 1) - 1;
    in.before = get_index(r, 0, n - 1);
    int64_t offset = get_offset(r);
    get_times(r, &out, &in);
    if (!r->l->rc && freed < out.after)
        join(r, s, freed);
    out.before = freed + 1 + (freed < out.after ? n : 0);
    const struct residence *from = find(r, s, ENDS, out.before - 1);
    const struct residence *to = find(r, s, BEGINS, in.after + 1);
    if (!from || !to)
        return;
    int32_t before = (int32_t)(from - r->p->residences),
            following = (int32_t)(to - r->p->residences);
    int32_t below = r->g->storages[s].persistent
                        ? backing_of(r, s, tier, offset)
                        : add(r, (struct residence){s, tier, out.after, in.before, offset});
    if (!clean)
        add_copy(r, out, before, below);
    add_copy(r, in, below, following);
}

/* ---- host-resident state --------------------------------------------------------------------- */

/* Reads the current line, and the one after it, if it describes host-resident bytes. */
static bool get_lodging(struct reader *r)
{
    struct copy out = {0}, in = {0};
    if (!lines_take(r->l, "lodging"))
        return false;
    int32_t s = get_storage(r), n = r->p->n_steps;
    out.after = get_index(r, -1, n - 1);
    int32_t back = get_index(r, -1, n);
    int64_t offset = get_offset(r);
    get_times(r, &out, &in);
    if (r->l->rc)
        return true;
    if (out.after < 0 && back < 0) {
        backing_of(r, s, TIER_HOST, offset);
        return true;
    }
    int32_t from = (int32_t)max_i64(out.after, 0);
    int32_t made = find_step(r, s, from, true, false), last = find_step(r, s, from, true, true);
    int32_t first = out.after >= 0 ? out.after : made, here;
    if (made < 0 || (back >= 0 && back <= first)) {
        lines_fail(r->l, CKPT_EPLAN, "no step on the host uses storage %d then", (int)s);
        return true;
    }
    out.before = made;
    if (r->g->storages[s].persistent) {
        here = backing_of(r, s, TIER_DEVICE, -1);
    } else {
        const struct residence *t = find(r, s, INSIDE, from);
        here = t ? (int32_t)(t - r->p->residences) : -1;
        out.before = t && t->last < made ? t->last + 1 : made;
    }
    int32_t below =
        add(r, (struct residence){s, TIER_HOST, first, back >= 0 ? back - 1 : last, offset});
    in.after = back - 1;
    in.before = n + (int32_t)max_i64(find_step(r, s, 0, false, false), 0);
    if (out.after >= 0)
        add_copy(r, out, here, below);
    if (back >= 0)
        add_copy(r, in, below, here);
    return true;
}

/* ---- all of it ------------------------------------------------------------------------------- */

void get_version_3(struct reader *r, void (*get_step)(struct reader *r, void *element))
{
    struct plan *p = r->p;
    p->n_residences = (int32_t)lines_total(r->l, "instances", 0, INT32_MAX / 4);
    int32_t offloads = (int32_t)lines_total(r->l, "parks", 0, INT32_MAX / 4), dead = 0;
    get_list(r, (void **)&p->steps, p->n_steps, sizeof(*p->steps), get_step);
    get_list(r, (void **)&p->residences, p->n_residences, sizeof(*p->residences), get_device);
    for (int32_t i = 0; i < offloads && lines_next(r->l); i++)
        get_offload(r);
    while (lines_next(r->l) && get_lodging(r))
        ;
    if (!r->l->rc && plan_add_backings(r->g, p))
        lines_fail(r->l, CKPT_ENOMEM, "out of host memory");
    while (dead < p->n_residences && !r->l->rc &&
           p->residences[p->n_residences - 1 - dead].tier == TIER_COUNT)
        dead++;
    p->n_residences -= dead;
}
