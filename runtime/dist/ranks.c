/* SPDX-License-Identifier: Apache-2.0 */
/* Joining ranks; buckets as hidden parameters; values of parameters stored in shares. */
#include <stdlib.h>
#include <string.h>
#include "dist/peers.h"
#include "dist/ranks.h"

static void set_sequence(struct ranks *job)
{
    job->sharing.sequence = (int)job->options->sequence;
    job->sharing.sequence_place = job->sharing.sequence > 1 ? job->rank % job->sharing.sequence : 0;
}

/* Each rank is a stage, with parameters that it shares with that stage of other pipelines. */
static void set_stages(struct ranks *job)
{
    struct sharing *s = &job->sharing;
    if (job->options->stages < 2)
        return;
    s->stages = (int)job->options->stages;
    s->stage = job->rank % s->stages;
    s->place = job->rank / s->stages;
    s->group_ranks = s->ranks / s->stages;
    s->replicas = 1;
    if (!sharing_has_pipelines(s))
        s->zero = job->requested_zero = 0;
}

void ranks_join(struct ranks *job, struct comm *comm, int zero)
{
    job->comm = comm;
    job->rank = comm->rank;
    job->sharing.ranks = comm->size;
    job->sharing.zero = job->requested_zero = zero;
    job->sharing.drop_after_forward = job->options->zero == 3;
    set_sequence(job);
    job->sharing.tensor = (int)job->options->tensor;
    set_stages(job);
    job->host = ranks_host_name();
    if (job->rank) /* rank 0 alone writes files that would be the same on all ranks */
        job->options->plan_out = job->options->graph_out = job->options->machine_out =
            job->options->trace_out = job->options->dump_tape = NULL;
}

static int take_number(const char *option, int64_t *own, int32_t of_first)
{
    if (*own == CKPT_AUTO)
        *own = of_first;
    return *own != CKPT_AUTO
               ? 0
               : error_set(CKPT_EINVAL,
                           "%s auto: a program chooses it before rank 0 opens its context; this "
                           "one does not: give a number",
                           option);
}

/* Numbers that are auto are those of rank 0; one rank alone splits nothing. */
static int find_groups(struct ranks *job)
{
    struct ckpt_options *o = job->options;
    const bool alone = job->sharing.ranks == 1;
    struct ranks_first l = {.sequence = alone ? 1 : (int32_t)o->sequence,
                            .tensor = alone ? 1 : (int32_t)o->tensor,
                            .stages = alone ? 1 : (int32_t)o->stages};
    int rc = ranks_follow(job, &l);
    if (!rc)
        rc = take_number("--sequence", &o->sequence, l.sequence);
    if (!rc)
        rc = take_number("--tensor", &o->tensor, l.tensor);
    if (!rc)
        rc = take_number("--stages", &o->stages, l.stages);
    if (rc)
        return rc;
    set_sequence(job);
    set_stages(job);
    job->sharing.tensor = (int)o->tensor;
    return 0;
}

/* Whether the ranks divide into groups of n. */
static int check_groups(const struct ranks *job, const char *option, int64_t n)
{
    if (n < 2 || job->sharing.ranks % n == 0)
        return 0;
    return error_set(CKPT_EINVAL, "%s %lld: %d rank%s not divide into groups of %lld; see --ranks",
                     option, (long long)n, job->sharing.ranks,
                     job->sharing.ranks > 1 ? "s do" : " does", (long long)n);
}

/* What ranks with parts of parameters cannot do besides. */
static int check_tensor(const struct ranks *job)
{
    const struct ckpt_options *o = job->options;
    const char *other = o->sequence > 1                                   ? "--sequence"
                        : o->shard_over && !strcmp(o->shard_over, "host") ? "--shard-over host"
                        : job->params->half_state                         ? "--state"
                        : job->peers                                      ? "an elastic job"
                                                                          : NULL;
    if (o->tensor < 2 || !other)
        return 0;
    return error_set(CKPT_EINVAL, "--tensor %lld does not go together with %s",
                     (long long)o->tensor, other);
}

/* Whether the ranks do nothing that stages cannot do. */
static int check_stages(const struct ranks *job)
{
    const struct ckpt_options *o = job->options;
    const long long n = o->stages;
    if (n < 2)
        return 0;
    if (o->sequence > 1)
        return error_set(CKPT_EINVAL,
                         "--stages %lld: stages do not split sequences; leave out "
                         "--sequence or --stages",
                         n);
    if (o->tensor > 1)
        return error_set(CKPT_EINVAL,
                         "--stages %lld: a stage has whole layers; leave out --tensor or --stages",
                         n);
    if (o->zero != CKPT_AUTO && !sharing_stages_may(job->sharing.ranks, n, o->zero, false))
        return error_set(
            CKPT_EINVAL,
            "--stages %lld: with %lld ranks a stage is one rank, which shares nothing; "
            "leave out --zero %lld",
            n, n, (long long)o->zero);
    if (!sharing_stages_may(job->sharing.ranks, n, 0,
                            o->shard_over && !strcmp(o->shard_over, "host")))
        return error_set(CKPT_EINVAL,
                         "--stages %lld: parameters are shared over all pipelines; leave out "
                         "--shard-over host",
                         n);
    if (o->micro_batch == CKPT_AUTO)
        return error_set(CKPT_EINVAL,
                         "--stages %lld: give --micro-batch a number of samples: stages work at "
                         "once on different micro-steps",
                         n);
    if (o->plan_in || o->plan_out)
        return error_set(CKPT_EINVAL,
                         "--stages %lld: each stage has a plan of its own; leave out --plan-in and "
                         "--plan-out",
                         n);
    if (o->graph_out && job->comm)
        return error_set(CKPT_EINVAL,
                         "--stages %lld: each stage has a graph of its own, which --graph-out "
                         "writes with --plan-only and a number of --ranks; leave it out",
                         n);
    if (job->peers)
        return error_set(CKPT_EINVAL,
                         "--stages %lld: a job of stages cannot lose a rank; leave out --elastic",
                         n);
    return 0;
}

/* --ranks N plans for N ranks without starting any. */
static int plan_for_ranks(struct ranks *job, const char *where)
{
    char *end;
    long n = strtol(where, &end, 10);
    if (*end || n < 1 || n > 1 << 20)
        return error_set(CKPT_EINVAL, "--ranks %.80s: a number of ranks is 1 to %d", where,
                         1 << 20);
    if (n == 1)
        return 0;
    if (!job->options->plan_only)
        return error_set(CKPT_EINVAL,
                         "--ranks %ld: a number of ranks is only planned: add --plan-only, or give "
                         "a rendezvous such as mpi or tcp:HOST:PORT",
                         n);
    job->sharing.ranks = (int)n;
    job->sharing.zero = job->requested_zero =
        job->options->zero == CKPT_AUTO ? 3 : (int)job->options->zero;
    job->sharing.drop_after_forward = job->options->zero == 3;
    return 0;
}

/* Replaces "env" by what the launcher says. */
static int find_where(struct comm_rendezvous *m, char *text, size_t size)
{
    int rc = strcmp(m->where, "env") ? 0 : comm_launched_where(text, size);
    if (!rc && !strcmp(m->where, "env"))
        m->where = text;
    return rc;
}

/* "elastic:N:WHERE". */
static int open_elastic(struct ranks *job, struct comm_rendezvous *m, char *text, size_t size)
{
    char *end = "";
    if (strncmp(m->where, "elastic:", 8))
        return 0;
    m->divides = strtoll(m->where + 8, &end, 10);
    if (*end != ':' || m->divides < 1)
        return error_set(CKPT_EINVAL,
                         "--ranks %.200s: give elastic:N:WHERE, with the number N that "
                         "ranks divide",
                         m->where);
    m->where = end + 1;
    m->lobby = &job->lobby;
    int rc = find_where(m, text, size);
    if (rc)
        return rc;
    if (strncmp(m->where, "tcp:", 4) && strncmp(m->where, "file:", 5))
        return error_set(CKPT_EINVAL,
                         "--elastic: ranks that are lost are replaced by a rendezvous of our own: "
                         "give --ranks tcp:HOST:PORT or file:PATH, not %.200s",
                         m->where);
    return peers_open(&job->peers, &m->former_rank, &m->former_size);
}

/* While rank 0 plans, the deadline of the other ranks is this many times the usual one. */
enum { PLAN_PATIENCE = 20 };

/* gives_up: NULL, or why this process joins only to end. */
static int open_ranks(struct ranks *job, const char *gives_up)
{
    const char *where = job->options->ranks;
    char found[256];
    struct comm_rendezvous m = {.where = where,
                                .job = getenv("SLURM_JOB_ID"),
                                .token = getenv("CKPT_JOB_TOKEN"),
                                .gives_up = gives_up};
    struct comm *comm = NULL;
    if (job->options->sequence == CKPT_AUTO || job->options->tensor == CKPT_AUTO ||
        job->options->stages == CKPT_AUTO)
        m.patience = PLAN_PATIENCE;
    double deadline = job->options->comm_deadline > 0 ? job->options->comm_deadline : COMM_DEADLINE;
    int rc = 0;
    job->sharing.ranks = 1;
    if (!where || !*where || !strcmp(where, "none"))
        return 0;
    if (*where >= '0' && *where <= '9')
        return plan_for_ranks(job, where);
    rc = find_where(&m, found, sizeof found);
    if (!rc)
        rc = open_elastic(job, &m, found, sizeof found);
    if (rc)
        return rc;
    if (!strcmp(where, "mpi"))
        rc = comm_open_mpi(&comm, deadline);
    else
        rc = comm_launched_as(&m.rank, &m.size);
    if (!rc && !comm && m.size == 1 && !strncmp(m.where, "tcp:", 4) && !comm_is_launched())
        return error_set(
            CKPT_EINVAL,
            "--ranks %s: neither RANK and WORLD_SIZE nor a launcher's variables are in "
            "the environment, so this process would train alone; set RANK=0 "
            "WORLD_SIZE=1 if that is meant",
            where);
    if (!rc && !comm)
        rc = comm_open_tcp(&comm, &m, deadline);
    if (rc && !m.former_size) { /* its states are out of date: it does not begin again */
        peers_close(job->peers);
        job->peers = NULL;
    }
    if (rc || !comm)
        return rc;
    if (comm->size == 1)
        comm_close(comm); /* a single rank runs as without --ranks */
    else
        ranks_join(job, comm, job->options->zero == CKPT_AUTO ? 3 : (int)job->options->zero);
    return job->peers ? peers_join(job->peers, ranks_all(job)) : 0;
}

int ranks_open(struct ranks *job)
{
    int rc = open_ranks(job, NULL);
    if (!rc)
        rc = find_groups(job);
    if (!rc)
        rc = check_groups(job, "--sequence", job->options->sequence);
    if (!rc)
        rc = check_groups(job, "--tensor", job->options->tensor);
    if (!rc)
        rc = check_groups(job, "--stages", job->options->stages);
    if (!rc)
        rc = check_tensor(job);
    return rc ? rc : check_stages(job);
}

int ranks_refuse(struct ranks *job, const char *reason)
{
    int rc = open_ranks(job, reason);
    if (!rc && job->comm) /* MPI begins with all ranks */
        job->comm->ops->give_up(job->comm, reason);
    ranks_close(job, 0);
    return rc;
}

void ranks_close(struct ranks *job, int code)
{
    if (job->comm && code)
        job->comm->ops->give_up(job->comm, error_get());
    ranks_close_groups(job);
    comm_close(job->previous);
    comm_close(job->next);
    comm_close(job->sequence);
    comm_close(job->tensor);
    comm_close(job->data);
    comm_close(job->pipeline);
    comm_close(job->comm);
    comm_lobby_close(job->lobby);
    if (code == CKPT_ECOMM) /* another rank was lost while the job formed again */
        peers_leave(job->peers);
    else
        peers_close(job->peers);
    pace_close(&job->pace);
    job->comm = job->sequence = job->tensor = job->data = job->previous = job->next = NULL;
    job->pipeline = NULL;
    job->lobby = NULL;
    job->peers = NULL;
    free(job->limits);
    free(job->tries);
    free(job->placements);
    free(job->places);
    free(job->groups);
    job->sharing.limits = job->limits = NULL;
    job->sharing.tries = job->tries = NULL;
    job->placements = NULL;
    job->places = NULL;
    job->groups = NULL;
}

int ranks_take_request(struct ranks *job, int request)
{
    bool requested = job->request[request] != 0;
    /* A second request made by a signal in between merges with this one. */
    if (requested && request != CKPT_REQUEST_STOP)
        job->request[request] = 0;
    return requested;
}

/* ---- the layout ------------------------------------------------------------------------------ */

static int make_layout(struct ranks *job)
{
    struct layout_param *params = calloc((size_t)job->params->n + 1, sizeof *params);
    int rc = params ? 0 : CKPT_ENOMEM;
    for (int32_t i = 0; i < job->params->n && !rc; i++) {
        const struct param *p = &job->params->data[i];
        const struct ckpt_desc part = param_part_of(p);
        int32_t group = job->groups ? job->groups[i] : 0;
        params[i] =
            (struct layout_param){p->name,
                                  p->desc.dtype,
                                  desc_numel(&part),
                                  p->trainable && group != LAYOUT_FROZEN,
                                  group,
                                  p->place.stage,
                                  p->split.ranks > 1 ? job->sharing.ranks / p->split.ranks : 0};
    }
    if (!rc)
        rc = layout_make(&job->sharing.layout, params, job->params->n, job->sharing.group_ranks);
    free(params);
    return rc;
}

/* A bucket is trained like a parameter, but it is hidden from callers. */
static int add_bucket(struct ranks *job, const struct layout_bucket *b)
{
    struct param p = {.desc = {.dtype = b->dtype, .ndim = 1, .stride = {1}}, .place.bucket = true};
    p.desc.shape[0] = job->sharing.zero > 1 ? b->share : b->padded;
    p.training.half_state = job->params->half_state && b->dtype == CKPT_BF16;
    p.training.byte_state = job->params->byte_state && b->dtype == CKPT_BF16;
    p.place.part = job->sharing.zero == 1 ? b->share : 0;
    p.place.part_first = sharing_place(&job->sharing, b) * p.place.part;
    p.place.stage = job->params->data[job->sharing.layout->order[b->first]].place.stage;
    for (int s = 0; s < SLOT_COUNT; s++)
        p.place.offset[s] = -1;
    p.name = strdup(b->name);
    if (!p.name || ARRAY_RESERVE(job->params, job->params->n)) {
        free(p.name);
        return CKPT_ENOMEM;
    }
    job->params->data[job->params->n++] = p;
    job->params->n_hidden++;
    return 0;
}

/* Called only before anything was placed or filled. */
static void drop_layout(struct ranks *job)
{
    for (; job->params->n_hidden; job->params->n_hidden--)
        free(job->params->data[--job->params->n].name);
    layout_free(job->sharing.layout);
    job->sharing.layout = NULL;
}

static int lay_out(struct ranks *job)
{
    int rc = make_layout(job);
    for (int32_t i = 0; !rc && i < job->sharing.layout->n_buckets; i++)
        rc = add_bucket(job, &job->sharing.layout->buckets[i]);
    return rc ? error_set(rc, "no memory for the layout of %d ranks", job->sharing.ranks) : 0;
}

int ranks_share(struct ranks *job, enum ranks_over over)
{
    if (job->sharing.ranks < 2 || job->groups_fixed || job->sharing.stages > 1)
        return 0;
    drop_layout(job);
    const int rc = ranks_choose_group(job, over);
    return rc ? rc : lay_out(job);
}

void ranks_forget_stages(struct ranks *job)
{
    drop_layout(job);
    for (int32_t i = 0; i < job->params->n; i++)
        job->params->data[i].place.stage = 0;
}

int ranks_share_stages(struct ranks *job)
{
    return sharing_has_pipelines(&job->sharing) ? lay_out(job) : 0;
}

void ranks_fix_groups(struct ranks *job)
{
    if (job->sharing.replicas < 2)
        ranks_close_groups(job);
    job->groups_fixed = true;
}

/* Hidden parameters are appended later and have no entry. */
static int keep_groups(struct ranks *job, const int32_t *groups)
{
    size_t bytes = (size_t)job->params->n * sizeof *groups;
    free(job->groups); /* from a program whose compilation failed */
    job->groups = NULL;
    if (!groups)
        return 0;
    job->groups = malloc(bytes + 1);
    if (!job->groups)
        return error_set(CKPT_ENOMEM, "no memory for the layout of %d ranks", job->sharing.ranks);
    memcpy(job->groups, groups, bytes);
    return 0;
}

int ranks_lay_out(struct ranks *job, const int32_t *groups)
{
    if (job->sharing.ranks < 2 || job->sharing.layout || job->laid_out)
        return 0;
    int rc = keep_groups(job, groups);
    if (!rc && !job->pace.seconds && pace_open(&job->pace, job->sharing.ranks, job->rank))
        rc = error_set(CKPT_ENOMEM, "no memory for the layout of %d ranks", job->sharing.ranks);
    if (!rc)
        rc = ranks_find_hosts(job);
    if (!rc)
        rc = ranks_time_copies(job);
    if (!rc)
        rc = ranks_open_sequence(job);
    if (!rc)
        rc = ranks_open_tensor(job);
    if (!rc)
        rc = ranks_open_stages(job);
    job->laid_out = !rc && job->sharing.stages > 1;
    return rc ? rc : ranks_share(job, ranks_may_share(job, OVER_HOST) ? OVER_HOST : OVER_ALL);
}

struct comm *ranks_hosts(struct ranks *job)
{
    struct comm *hosts = comm_of_hosts(job->comm);
    job->comm->step = hosts->step = job->params->updates;
    return hosts;
}

struct comm *ranks_all(struct ranks *job)
{
    return job->comm ? ranks_hosts(job) : NULL;
}

void ranks_await_plan(struct ranks *job, bool begins)
{
    double *deadline = &ranks_hosts(job)->deadline;
    *deadline = begins ? *deadline * PLAN_PATIENCE : *deadline / PLAN_PATIENCE;
}

int ranks_give_up(struct ranks *job, int code)
{
    if (job->comm && code && code != CKPT_ECOMM)
        job->comm->ops->give_up(job->comm, error_get());
    return code;
}

bool ranks_are_laid_out(const struct ranks *job)
{
    return job->sharing.layout || job->laid_out;
}

/* ---- values ---------------------------------------------------------------------------------- */

static int32_t index_of(const struct ranks *job, const struct param *p)
{
    return (int32_t)(p - job->params->data);
}

bool ranks_is_bucket(const struct ranks *job, const struct param *p)
{
    return index_of(job, p) >= job->params->n - job->params->n_hidden;
}

struct param *ranks_bucket_at(const struct ranks *job, const struct param *p)
{
    const struct layout *l = job->sharing.layout;
    int32_t i = index_of(job, p);
    if (!l || i >= l->n_params || l->places[i].bucket < 0)
        return NULL;
    return &job->params->data[job->params->n - job->params->n_hidden + l->places[i].bucket];
}

struct param *ranks_bucket_of(const struct ranks *job, const struct param *p)
{
    struct param *b = ranks_bucket_at(job, p);
    return b && b->place.filled[SLOT_VALUE] ? b : NULL;
}

/* The bucket of parameter i, which has one. */
static const struct layout_bucket *bucket_of(const struct ranks *job, int32_t i)
{
    return &job->sharing.layout->buckets[job->sharing.layout->places[i].bucket];
}

bool ranks_is_whole(const struct ranks *job, int slot)
{
    return job->sharing.zero == 0 || (job->sharing.zero == 1 && slot == SLOT_VALUE);
}

int64_t ranks_own_part(const struct ranks *job, int32_t i, int slot, int64_t *at,
                       int64_t *in_bucket)
{
    const struct layout_place *place = &job->sharing.layout->places[i];
    const struct layout_bucket *b = place->bucket < 0 ? NULL : bucket_of(job, i);
    int64_t first = b ? sharing_part(&job->sharing, b, job->rank) * place->numel : 0;
    int64_t n = place->numel;
    *at = 0;
    *in_bucket = place->offset;
    if (b && !ranks_is_whole(job, slot))
        n = layout_part(job->sharing.layout, i, sharing_place(&job->sharing, b), at, in_bucket);
    *at += first;
    return n;
}

void ranks_initial(const struct ranks *job, const struct param *bucket, float *dst)
{
    const struct layout *l = job->sharing.layout;
    const struct layout_bucket *b =
        &l->buckets[index_of(job, bucket) - (job->params->n - job->params->n_hidden)];
    for (int32_t k = b->first; k < b->first + b->n; k++) {
        const struct param *p = &job->params->data[l->order[k]];
        int64_t at = 0, in_bucket = 0,
                n = ranks_own_part(job, l->order[k], SLOT_VALUE, &at, &in_bucket);
        if (!n || (bucket->place.filled[SLOT_VALUE] && !p->place.initial && p->place.set_narrow))
            continue;
        if (p->place.initial)
            param_read_initial(p, at, n, dst + in_bucket);
        else
            param_initialize(p, (uint64_t)job->options->seed, at, n, dst + in_bucket);
    }
}

static int exact_slot(const struct param *bucket, int slot)
{
    return slot == SLOT_VALUE && bucket->place.filled[SLOT_MASTER] ? SLOT_MASTER : slot;
}

/* A slot of a bucket as far as this rank holds it, as fp32. The caller frees it. */
static float *read_bucket(struct ranks *job, const struct param *bucket, int slot)
{
    int64_t n = param_slot_numel(bucket, slot);
    float *values = malloc((size_t)n * sizeof *values);
    if (values && memory_read(job->memory, bucket, slot, values, n) == 0)
        return values;
    free(values);
    return NULL;
}

/* A rank gives n elements to all. */
static int broadcast(struct ranks *job, const char *name, int owner, int64_t n, const float *src,
                     float *dst)
{
    struct comm *hosts = ranks_alike(job);
    int rc = comm_run(hosts,
                      &(struct comm_call){.kind = COMM_BROADCAST,
                                          .dtype = CKPT_F32,
                                          .root = owner,
                                          .count = n,
                                          .src = src,
                                          .dst = dst,
                                          .name = name},
                      NULL);
    if (owner == hosts->rank)
        memcpy(dst, src, (size_t)n * sizeof *dst);
    return rc ? error_set(rc, "%s", hosts->reason) : 0;
}

/* The owner of each share (in the first replica) broadcasts it to all ranks; of a split parameter
 * the ranks of the first group with a part do, if each of them has all of that part. */
static int broadcast_parts(struct ranks *job, const struct param *p, bool whole, const float *own,
                           float *dst)
{
    const int32_t i = index_of(job, p);
    const struct layout *l = job->sharing.layout;
    const struct layout_place *place = &l->places[i];
    const int parts = p->split.ranks > 1 ? p->split.ranks : 1;
    const int32_t first = whole ? 0 : place->first_owner, last = whole ? 0 : place->owner;
    int rc = 0;
    for (int part = 0; part < parts; part++)
        for (int32_t r = first; r <= last && !rc; r++) {
            int64_t at = 0, in_share = place->offset, n = place->numel;
            if (!whole)
                n = layout_part(l, i, r, &at, &in_share);
            rc = broadcast(job, p->name, parts > 1 ? r * parts + part : ranks_owner(job, r), n,
                           own + in_share, dst + part * place->numel + at);
        }
    return rc;
}

int ranks_get(struct ranks *job, const struct param *p, int slot, float *dst)
{
    const struct param *bucket = ranks_bucket_of(job, p);
    slot = exact_slot(bucket, slot);
    float *own = read_bucket(job, bucket, slot);
    if (!own)
        return error_set(CKPT_ENOMEM, "cannot read parameter '%s'", p->name);
    int rc = 0;
    if (!ranks_is_whole(job, slot) || p->split.ranks > 1)
        rc = broadcast_parts(job, p, ranks_is_whole(job, slot), own, dst);
    else
        memcpy(dst, own + job->sharing.layout->places[index_of(job, p)].offset,
               (size_t)desc_numel(&p->desc) * sizeof *dst);
    free(own);
    return rc;
}

static const struct param *find_nonfinite(struct ranks *job, const struct layout_bucket *b,
                                          const struct param *bucket)
{
    int slot = exact_slot(bucket, SLOT_VALUE);
    float *own = bucket->place.filled[slot] ? read_bucket(job, bucket, slot) : NULL;
    const struct param *found = NULL;
    for (int32_t k = b->first; own && k < b->first + b->n && !found; k++) {
        int32_t i = job->sharing.layout->order[k];
        int64_t at = 0, in_bucket = 0, n = ranks_own_part(job, i, slot, &at, &in_bucket);
        if (n && !floats_are_finite(own + in_bucket, n))
            found = &job->params->data[i];
    }
    free(own);
    return found;
}

const struct param *ranks_find_broken(struct ranks *job)
{
    const struct param *buckets = job->params->data + job->params->n - job->params->n_hidden;
    const struct param *found = NULL;
    for (int32_t i = 0; i < job->params->n_hidden && !found; i++)
        found = find_nonfinite(job, &job->sharing.layout->buckets[i], &buckets[i]);
    return found;
}

static int write_part(struct ranks *job, const struct param *p, const struct param *bucket,
                      int slot, const float *src)
{
    int64_t at = 0, in_bucket = 0, n = ranks_own_part(job, index_of(job, p), slot, &at, &in_bucket);
    if (!n)
        return 0;
    float *own = read_bucket(job, bucket, slot);
    if (!own)
        return error_set(CKPT_ENOMEM, "cannot read parameter '%s'", p->name);
    memcpy(own + in_bucket, src + at, (size_t)n * sizeof *own);
    int rc = memory_write(job->memory, bucket, slot, own, param_slot_numel(bucket, slot));
    free(own);
    return rc;
}

int ranks_set(struct ranks *job, const struct param *p, int slot, const float *src)
{
    const struct param *bucket = ranks_bucket_of(job, p);
    int rc = write_part(job, p, bucket, slot, src);
    if (!rc && slot == SLOT_VALUE && bucket->place.filled[SLOT_MASTER])
        rc = write_part(job, p, bucket, SLOT_MASTER, src);
    if (!rc && slot == SLOT_VALUE && bucket->place.filled[SLOT_EMA] && job->params->updates == 0)
        rc = write_part(job, p, bucket, SLOT_EMA, src);
    return rc;
}
