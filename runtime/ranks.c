/* Joining ranks; buckets as hidden parameters; values of parameters that stand in shares. */
#include <stdlib.h>
#include <string.h>
#include "ckpt_ranks.h"
#include "homes.h"
#include "ranks.h"
#include "shard/layout.h"

void ranks_join(ckpt *c, struct comm *comm, int zero)
{
    c->comm = comm;
    c->rank = comm->rank;
    c->sharing.ranks = comm->size;
    c->sharing.zero = c->asked_zero = zero;
    c->sharing.drop_after_forward = c->options.zero == 3;
    c->host = ranks_host_name();
    if (c->rank) /* one writes what would be the same on all */
        c->options.plan_out = c->options.graph_out = c->options.machine_out = NULL;
}

/* A number stands for so many ranks of which none is there: enough to plan. */
static int imagine(ckpt *c, const char *where)
{
    char *end;
    long n = strtol(where, &end, 10);
    if (*end || n < 1 || n > 1 << 20)
        return error_set(CKPT_EINVAL, "--ranks %.80s: a number of ranks is 1 to %d", where,
                         1 << 20);
    if (n == 1)
        return 0;
    if (!c->options.plan_only)
        return error_set(CKPT_EINVAL,
                         "--ranks %ld: with a number of ranks there is only a plan: add "
                         "--plan-only, or say where they meet",
                         n);
    c->sharing.ranks = (int)n;
    c->sharing.zero = c->asked_zero = c->options.zero == CKPT_AUTO ? 3 : (int)c->options.zero;
    c->sharing.drop_after_forward = c->options.zero == 3;
    return 0;
}

int ranks_open(ckpt *c)
{
    const char *where = c->options.ranks;
    struct comm_rendezvous m = {
        .where = where, .job = getenv("SLURM_JOB_ID"), .token = getenv("CKPT_JOB_TOKEN")};
    struct comm *comm = NULL;
    double deadline = c->options.comm_deadline > 0 ? c->options.comm_deadline : COMM_DEADLINE;
    int rc = 0;
    c->sharing.ranks = 1;
    if (!where || !*where || !strcmp(where, "none"))
        return 0;
    if (*where >= '0' && *where <= '9')
        return imagine(c, where);
    if (!strcmp(where, "mpi"))
        rc = comm_open_mpi(&comm, deadline);
    else
        rc = comm_launched_as(&m.rank, &m.size);
    if (!rc && !comm)
        rc = comm_open_tcp(&comm, &m, deadline);
    if (rc)
        return rc;
    if (comm->size == 1)
        comm_close(comm); /* one rank has nobody to agree with: it is as without --ranks */
    else
        ranks_join(c, comm, c->options.zero == CKPT_AUTO ? 3 : (int)c->options.zero);
    return 0;
}

void ranks_close(ckpt *c, int code)
{
    if (c->comm && code)
        c->comm->ops->give_up(c->comm, error_get());
    ranks_close_groups(c);
    comm_close(c->comm);
    c->comm = NULL;
    free(c->seats);
    free(c->places);
    c->seats = NULL;
    c->places = NULL;
}

int ckpt_rank(const ckpt *c)
{
    if (!c)
        return 0;
    return c->rank;
}

int ckpt_ranks(const ckpt *c)
{
    if (!c)
        return 1;
    return c->sharing.ranks;
}

void ckpt_request_stop(ckpt *c)
{
    if (c)
        c->request[CKPT_REQUEST_STOP] = 1;
}

bool ckpt_stop_requested(const ckpt *c)
{
    if (!c)
        return false;
    return c->sharing.ranks > 1 ? c->requested[CKPT_REQUEST_STOP]
                                : c->request[CKPT_REQUEST_STOP] != 0;
}

void ckpt_request_save(ckpt *c)
{
    if (c)
        c->request[CKPT_REQUEST_SAVE] = 1;
}

bool ckpt_save_requested(ckpt *c)
{
    if (!c)
        return false;
    bool requested = c->requested[CKPT_REQUEST_SAVE];
    if (c->sharing.ranks < 2)
        requested = ranks_take_request(c, CKPT_REQUEST_SAVE) > 0;
    c->requested[CKPT_REQUEST_SAVE] = false;
    return requested;
}

int ranks_take_request(ckpt *c, int request)
{
    int asked = c->request[request];
    /* One that a signal makes in between is the same one. */
    if (asked && request != CKPT_REQUEST_STOP)
        c->request[request] = 0;
    return asked;
}

/* ---- the layout ------------------------------------------------------------------------------ */

static int make_layout(ckpt *c)
{
    struct layout_param *params = calloc((size_t)c->params.n + 1, sizeof *params);
    int rc = params ? 0 : CKPT_ENOMEM;
    for (int32_t i = 0; i < c->params.n && !rc; i++) {
        const struct param *p = &c->params.data[i];
        params[i] =
            (struct layout_param){p->name, p->desc.dtype, desc_numel(&p->desc), p->trainable};
    }
    if (!rc)
        rc = layout_make(&c->sharing.layout, params, c->params.n, c->sharing.sharers);
    free(params);
    return rc;
}

/* A bucket is trained as a parameter is, but is not one that anybody asks for. */
static int add_bucket(ckpt *c, const struct layout_bucket *b)
{
    struct param p = {.desc = {.dtype = b->dtype, .ndim = 1, .stride = {1}}};
    p.desc.shape[0] = c->sharing.zero > 1 ? b->share : b->padded;
    p.part = c->sharing.zero == 1 ? b->share : 0;
    p.part_first = c->sharing.place * p.part;
    for (int s = 0; s < SLOT_COUNT; s++)
        p.offset[s] = -1;
    p.name = strdup(b->name);
    if (!p.name || ARRAY_RESERVE(&c->params, c->params.n)) {
        free(p.name);
        return CKPT_ENOMEM;
    }
    c->params.data[c->params.n++] = p;
    c->params.n_hidden++;
    return 0;
}

/* Nothing has been placed or filled yet. */
static void drop_layout(ckpt *c)
{
    for (; c->params.n_hidden; c->params.n_hidden--)
        free(c->params.data[--c->params.n].name);
    layout_free(c->sharing.layout);
    c->sharing.layout = NULL;
}

int ranks_share(ckpt *c, enum ranks_over over)
{
    if (c->sharing.ranks < 2 || c->settled)
        return 0;
    drop_layout(c);
    int rc = ranks_choose_sharers(c, over);
    if (rc)
        return rc;
    rc = make_layout(c);
    for (int32_t i = 0; !rc && i < c->sharing.layout->n_buckets; i++)
        rc = add_bucket(c, &c->sharing.layout->buckets[i]);
    return rc ? context_fail(c, rc, "no memory for the layout of %d ranks", c->sharing.ranks) : 0;
}

void ranks_settle(ckpt *c)
{
    if (c->sharing.replicas < 2)
        ranks_close_groups(c);
    c->settled = true;
}

int ranks_lay_out(ckpt *c)
{
    if (c->sharing.ranks < 2 || c->sharing.layout)
        return 0;
    int rc = ranks_find_hosts(c);
    if (!rc)
        rc = ranks_time_copies(c);
    return rc ? rc : ranks_share(c, ranks_may_share(c, OVER_HOST) ? OVER_HOST : OVER_ALL);
}

struct comm *ranks_hosts(ckpt *c)
{
    struct comm *hosts = comm_of_hosts(c->comm);
    hosts->step = c->updates;
    return hosts;
}

int ranks_give_up(ckpt *c, int code)
{
    if (c->comm && code && code != CKPT_ECOMM)
        c->comm->ops->give_up(c->comm, c->message);
    return code;
}

/* ---- values ---------------------------------------------------------------------------------- */

static int32_t index_of(const ckpt *c, const struct param *p)
{
    return (int32_t)(p - c->params.data);
}

bool ranks_is_bucket(const ckpt *c, const struct param *p)
{
    return index_of(c, p) >= c->params.n - c->params.n_hidden;
}

struct param *ranks_bucket_of(const ckpt *c, const struct param *p)
{
    int32_t i = index_of(c, p);
    if (!c->sharing.layout || i >= c->sharing.layout->n_params ||
        c->sharing.layout->places[i].bucket < 0)
        return NULL;
    struct param *b =
        &c->params.data[c->params.n - c->params.n_hidden + c->sharing.layout->places[i].bucket];
    return b->filled[SLOT_VALUE] ? b : NULL;
}

bool ranks_is_whole(const ckpt *c, int slot)
{
    return c->sharing.zero == 0 || (c->sharing.zero == 1 && slot == SLOT_VALUE);
}

int64_t ranks_own_part(const ckpt *c, int32_t i, int slot, int64_t *at, int64_t *in_bucket)
{
    const struct layout_place *place = &c->sharing.layout->places[i];
    if (!ranks_is_whole(c, slot))
        return layout_part(c->sharing.layout, i, c->sharing.place, at, in_bucket);
    *at = 0;
    *in_bucket = place->offset;
    return place->numel;
}

void ranks_initial(const ckpt *c, const struct param *bucket, float *dst)
{
    const struct layout *l = c->sharing.layout;
    const struct layout_bucket *b =
        &l->buckets[index_of(c, bucket) - (c->params.n - c->params.n_hidden)];
    memset(dst, 0, (size_t)desc_numel(&bucket->desc) * sizeof *dst);
    for (int32_t k = b->first; k < b->first + b->n; k++) {
        const struct param *p = &c->params.data[l->order[k]];
        int64_t at = 0, in_bucket = 0,
                n = ranks_own_part(c, l->order[k], SLOT_VALUE, &at, &in_bucket);
        if (!n)
            continue;
        if (p->initial)
            memcpy(dst + in_bucket, p->initial + at, (size_t)n * sizeof *dst);
        else
            param_initialize(p, (uint64_t)c->options.seed, at, n, dst + in_bucket);
    }
}

static int exact_slot(const struct param *bucket, int slot)
{
    return slot == SLOT_VALUE && bucket->filled[SLOT_MASTER] ? SLOT_MASTER : slot;
}

/* All of a slot of a bucket that this rank has, as fp32; to be freed. */
static float *read_bucket(ckpt *c, const struct param *bucket, int slot)
{
    int64_t n = param_slot_numel(bucket, slot);
    float *values = malloc((size_t)n * sizeof *values);
    if (values && homes_read(c, bucket, slot, values, n) == 0)
        return values;
    free(values);
    return NULL;
}

/* Every owner, of the first copy where there are several, sends its part to all. */
static int collect(ckpt *c, const struct param *p, const float *own, float *dst)
{
    int32_t i = index_of(c, p);
    const struct layout_place *place = &c->sharing.layout->places[i];
    struct comm *hosts = ranks_hosts(c);
    int rc = 0;
    for (int32_t r = place->first_owner; r <= place->owner && !rc; r++) {
        int64_t at = 0, in_share = 0, n = layout_part(c->sharing.layout, i, r, &at, &in_share);
        int owner = ranks_owner(c, r);
        rc = comm_run(hosts,
                      &(struct comm_call){.kind = COMM_BROADCAST,
                                          .dtype = CKPT_F32,
                                          .root = owner,
                                          .count = n,
                                          .src = own + in_share,
                                          .dst = dst + at,
                                          .name = p->name},
                      NULL);
        if (owner == c->rank)
            memcpy(dst + at, own + in_share, (size_t)n * sizeof *dst);
    }
    return rc ? context_fail(c, rc, "%s", hosts->reason) : 0;
}

int ranks_get(ckpt *c, const struct param *p, int slot, float *dst)
{
    const struct param *bucket = ranks_bucket_of(c, p);
    slot = exact_slot(bucket, slot);
    float *own = read_bucket(c, bucket, slot);
    if (!own)
        return context_fail(c, CKPT_ENOMEM, "cannot read parameter '%s'", p->name);
    int rc = 0;
    if (!ranks_is_whole(c, slot))
        rc = collect(c, p, own, dst);
    else
        memcpy(dst, own + c->sharing.layout->places[index_of(c, p)].offset,
               (size_t)desc_numel(&p->desc) * sizeof *dst);
    free(own);
    return rc;
}

static int patch(ckpt *c, const struct param *p, const struct param *bucket, int slot,
                 const float *src)
{
    int64_t at = 0, in_bucket = 0, n = ranks_own_part(c, index_of(c, p), slot, &at, &in_bucket);
    if (!n)
        return 0;
    float *own = read_bucket(c, bucket, slot);
    if (!own)
        return context_fail(c, CKPT_ENOMEM, "cannot read parameter '%s'", p->name);
    memcpy(own + in_bucket, src + at, (size_t)n * sizeof *own);
    int rc = homes_write(c, bucket, slot, own, param_slot_numel(bucket, slot));
    free(own);
    return rc;
}

int ranks_set(ckpt *c, const struct param *p, int slot, const float *src)
{
    const struct param *bucket = ranks_bucket_of(c, p);
    int rc = patch(c, p, bucket, slot, src);
    if (!rc && slot == SLOT_VALUE && bucket->filled[SLOT_MASTER])
        rc = patch(c, p, bucket, SLOT_MASTER, src);
    if (!rc && slot == SLOT_VALUE && bucket->filled[SLOT_EMA] && c->updates == 0)
        rc = patch(c, p, bucket, SLOT_EMA, src);
    return rc;
}
