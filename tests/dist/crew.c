/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that train: see crew.h. */
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt_files.h"
#include "ckpt_tools.h"
#include "dist/comm_threads.h"
#include "dist/crew.h"
#include "context/context.h"
#include "exec/program.h"
#include "memory/memory.h"
#include "dist/ranks.h"
#include "dist/shard/layout.h"

struct member {
    const struct crew *crew;
    struct crew_result *result;
    struct comm *comm;
    int rank;
    pthread_t thread;
};

/* Every rank has its part of the common batch. */
static int feed(const struct member *m, ckpt_program *p, int step)
{
    const struct tiny *t = &m->crew->model;
    int64_t row = t->length * t->width, nx = t->batch * row, nc = t->batch * t->width;
    int64_t own = t->batch / m->crew->ranks, first = m->rank * own;
    float *x = malloc((size_t)(nx + nc) * sizeof *x);
    ckpt_fill_normal(7, (uint64_t)step, 1, x, nx + nc);
    if (m->crew->faulty == m->rank && m->crew->nan_step == step + 1)
        x[first * row] = NAN;
    int rc = ckpt_feed(p, "x", x + first * row, own * row * 4);
    if (!rc)
        rc = ckpt_feed(p, "c", x + nx + first * t->width, own * t->width * 4);
    free(x);
    return rc;
}

static int collect(const struct member *m, ckpt *c, const struct tiny *model)
{
    struct crew_result *r = m->result;
    struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
    int64_t numel = 0, at = 0;
    int rc = 0;
    for (int i = 0; i < model->n; i++) {
        ckpt_param_info(c, model->param[i], &info);
        numel += info.numel;
    }
    r->values[m->rank] = calloc((size_t)numel, 4);
    r->ema[m->rank] = calloc((size_t)numel, 4);
    for (int i = 0; i < model->n && !rc; i++) {
        ckpt_param_info(c, model->param[i], &info);
        rc = ckpt_param_get(c, model->param[i], CKPT_VALUE, r->values[m->rank] + at, info.numel);
        if (!rc)
            rc = ckpt_param_get(c, model->param[i], CKPT_EMA, r->ema[m->rank] + at, info.numel);
        if (rc == CKPT_ENAME && m->crew->optimizer) /* of a frozen one */
            rc = 0;
        at += info.numel;
    }
    if (m->rank == 0)
        r->numel = numel;
    return rc;
}

static int32_t count_gathers(const ckpt_program *p)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->plan->n_steps; i++) {
        const struct graph_op *o = &p->graph->ops[p->plan->steps[i].op];
        n += !strcmp(p->tape->ops.data[o->tape_op].def->name, "all_gather");
    }
    return n;
}

static uint64_t digest_calls(const ckpt_program *p)
{
    uint64_t h = HASH_START;
    for (int32_t i = 0; i < p->lowered.n_instrs; i++) {
        const struct instr *k = &p->lowered.instrs.data[i];
        if (k->kind != INSTR_COMPUTE || k->queue != QUEUE_COMM)
            continue;
        const struct collective_attr *attr = p->tape->ops.data[k->op].attr;
        h = hash_mix(hash_mix(hash_mix(h, k->op), attr->ranks), attr->replicas);
    }
    return h;
}

static void look_at_plan(const ckpt_program *p, struct crew_result *r)
{
    const struct layout *l = p->programs->ranks->sharing.layout;
    r->order = HASH_START;
    for (int32_t i = 0; i < p->plan->n_steps; i++)
        r->order = hash_mix(r->order, p->plan->steps[i].op);
    r->group_ranks = p->programs->ranks->sharing.group_ranks;
    r->n_buckets = l ? l->n_buckets : 0;
    for (int32_t i = 0; i < p->plan->n_residences; i++) {
        const struct residence *k = &p->plan->residences[i];
        if (k->storage >= 0 && k->tier == TIER_DEVICE && !plan_is_backing(p->graph, p->plan, k) &&
            k->first < p->plan->n_body && k->last >= p->plan->n_body)
            r->left += p->graph->storages[k->storage].bytes;
    }
    for (int32_t i = 0; l && i < l->n_buckets; i++) {
        r->narrow_shares += round_up(l->buckets[i].share * 2, CKPT_ALIGN);
        r->shares += round_up(l->buckets[i].share * 4, CKPT_ALIGN);
        r->buckets += round_up(l->buckets[i].padded * 4, CKPT_ALIGN);
    }
    for (int32_t i = 0; i < p->graph->n_storages; i++)
        if (p->graph->storages[i].kind == KIND_GRADIENT)
            r->gradients += p->graph->storages[i].bytes;
    FILE *f = fmemopen(r->table, sizeof r->table, "w");
    ckpt_plan_print(p, f);
    fclose(f);
    r->least = p->plan->min_budget - p->plan->persistent;
    r->gathers = count_gathers(p);
}

/* Flips a bit in the first value of the first bucket that the next update does not round away. */
static int flip_bit(ckpt *c, int slot)
{
    const struct param *p = &c->params.data[c->params.n - c->params.n_hidden];
    int64_t n = param_slot_numel(p, slot);
    uint32_t bits;
    float *values = malloc((size_t)n * sizeof *values);
    int rc = values ? memory_read(&c->memory, p, slot, values, n) : CKPT_ENOMEM;
    if (!rc) {
        memcpy(&bits, values, sizeof bits);
        bits ^= 1u << 20;
        memcpy(values, &bits, sizeof bits);
        rc = memory_write(&c->memory, p, slot, values, n);
    }
    free(values);
    return rc;
}

static int set_other(ckpt *c, ckpt_tensor x)
{
    struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
    ckpt_param_info(c, x, &info);
    float *values = calloc((size_t)info.numel, sizeof *values);
    int rc = values ? ckpt_param_set(c, x, CKPT_VALUE, values, info.numel) : CKPT_ENOMEM;
    free(values);
    return rc;
}

/* Faults of the faulty rank after a given number of steps, or before the next step. */
static int misbehave(const struct crew *crew, ckpt *c, ckpt_program *p, ckpt_tensor x, int steps)
{
    int rc = 0;
    if (crew->flip_step && steps == crew->flip_step)
        rc = flip_bit(c, crew->flip_slot);
    if (!rc && crew->set_step && steps == crew->set_step)
        rc = set_other(c, x);
    if (crew->lr_step && steps + 1 == crew->lr_step)
        ckpt_set_lr(p, 2 * crew->adamw.lr);
    return rc;
}

static int train(const struct member *m, ckpt *c)
{
    struct tiny model = m->crew->model;
    struct ckpt_adamw adamw = m->crew->adamw;
    ckpt_program *p;
    tiny_create(&model, c);
    model.batch /= m->crew->ranks;
    ckpt_optimizer *o = m->crew->optimizer ? m->crew->optimizer(c, &adamw) : ckpt_adamw(c, &adamw);
    int rc = ckpt_compile(c, tiny_record, &model, o, model.batch, &p);
    if (c->ranks.comm && m->crew->deadline > 0)
        c->ranks.comm->deadline = m->crew->deadline;
    int steps = m->crew->steps ? m->crew->steps : CREW_STEPS;
    if (!rc && m->crew->load)
        rc = ckpt_load_params(c, m->crew->load, NULL, NULL, NULL);
    if (!rc && m->crew->load_state)
        rc = ckpt_load_state(c, m->crew->load_state);
    for (int s = (int)ckpt_updates(c); s < steps && !rc; s++) {
        if (m->crew->halt && m->rank == m->crew->faulty && s == CREW_STEPS / 2)
            raise(m->crew->halt);
        rc = feed(m, p, s);
        if (!rc && m->rank == m->crew->faulty)
            rc = misbehave(m->crew, c, p, model.param[0], s);
        if (!rc)
            rc = ckpt_step(p, &m->result->loss[m->rank][s]);
        if (rc)
            break;
        m->result->info[m->rank] = (struct ckpt_program_info)CKPT_PROGRAM_INFO_INIT;
        ckpt_program_info(p, &m->result->info[m->rank]);
        m->result->norm[m->rank][s] = m->result->info[m->rank].grad_norm;
    }
    if (!rc && m->rank == 0)
        look_at_plan(p, m->result);
    if (!rc) {
        m->result->taken[m->rank] = programs_arena_bytes(&c->programs);
        m->result->calls[m->rank] = digest_calls(p);
    }
    if (!rc && c->ranks.comm)
        c->ranks.comm->step += m->rank; /* as ranks may on a GPU, where each looks when it waits */
    if (!rc && m->rank == 0 && m->crew->look)
        m->crew->look(p, m->crew->user);
    if (!rc)
        rc = collect(m, c, &model);
    if (!rc && m->crew->save)
        rc = ckpt_save_params(c, m->crew->save, CKPT_VALUE);
    if (!rc && m->crew->save_state)
        rc = ckpt_save_state(c, m->crew->save_state);
    return rc;
}

struct crew crew_small(int ranks, int zero, int64_t micro)
{
    struct crew crew = {
        .ranks = ranks,
        .zero = zero,
        .model = {.dtype = CKPT_F32, .batch = 12, .length = 5, .width = 12, .heads = 2},
        .options = CKPT_OPTIONS_INIT,
        .adamw = tiny_adamw(),
        .deadline = 60,
        .faulty = -1};
    crew.options.device = "cpu";
    crew.options.threads = 1;
    crew.options.micro_batch = micro;
    return crew;
}

static uint64_t mix(uint64_t h, const void *data, size_t bytes)
{
    for (size_t i = 0; i + 4 <= bytes; i += 4) {
        int32_t word;
        memcpy(&word, (const char *)data + i, 4);
        h = hash_mix(h, word);
    }
    return h;
}

uint64_t crew_digest(const struct crew_result *r)
{
    uint64_t h = mix(HASH_START, r->loss[0], sizeof r->loss[0]);
    h = mix(h, r->norm[0], sizeof r->norm[0]);
    h = mix(h, r->values[0], (size_t)r->numel * 4);
    return mix(h, r->ema[0], (size_t)r->numel * 4);
}

int crew_member(const struct crew *crew, ckpt *c, int rank, struct crew_result *r)
{
    return train(&(struct member){.crew = crew, .result = r, .rank = rank}, c);
}

static uint64_t host_of(const struct crew *crew, int rank)
{
    if (crew->in_turns)
        return (uint64_t)(rank % (crew->ranks / crew->per_host));
    return crew->per_host ? (uint64_t)(rank / crew->per_host) : 0;
}

static void *member_main(void *arg)
{
    struct member *m = arg;
    ckpt *c;
    int rc = ckpt_open(&c, &m->crew->options);
    if (rc) {
        snprintf(m->result->message[m->rank], 1024, "%s", ckpt_error(NULL));
    } else {
        if (m->comm) {
            ranks_join(&c->ranks, m->comm, m->crew->zero);
            c->ranks.host = host_of(m->crew, m->rank);
        }
        ckpt_plan_in_full(c, m->crew->in_full);
        rc = train(m, c);
        snprintf(m->result->message[m->rank], 1024, "%s", rc ? ckpt_error(c) : "");
        ckpt_close(c);
    }
    m->result->rc[m->rank] = rc;
    return NULL;
}

void crew_train(const struct crew *crew, struct crew_result *r)
{
    struct comm *comms[CREW_MOST] = {NULL};
    struct member members[CREW_MOST];
    memset(r, 0, sizeof *r);
    if (crew->ranks > 1 && comm_open_threads(comms, crew->ranks, 120))
        abort();
    if (crew->fault.kind != COMM_FAULT_NONE)
        comm_inject(comms[crew->faulty], &crew->fault);
    for (int i = 0; i < crew->ranks; i++) {
        const struct crew *own = crew->other && i == crew->faulty ? crew->other : crew;
        members[i] = (struct member){.crew = own, .result = r, .comm = comms[i], .rank = i};
        if (pthread_create(&members[i].thread, NULL, member_main, &members[i]))
            abort();
    }
    for (int i = 0; i < crew->ranks; i++)
        pthread_join(members[i].thread, NULL);
}

void crew_free(struct crew_result *r)
{
    for (int i = 0; i < CREW_MOST; i++) {
        free(r->values[i]);
        free(r->ema[i]);
    }
    memset(r, 0, sizeof *r);
}

bool crew_same(const struct crew_result *a, int a_ranks, const struct crew_result *b, int b_ranks)
{
    size_t bytes = (size_t)a->numel * 4;
    for (int i = 0; i < a_ranks; i++)
        for (int k = 0; k < b_ranks; k++)
            if (memcmp(a->loss[i], b->loss[k], sizeof a->loss[i]) ||
                memcmp(a->norm[i], b->norm[k], sizeof a->norm[i]) ||
                memcmp(a->values[i], b->values[k], bytes) || memcmp(a->ema[i], b->ema[k], bytes))
                return false;
    return true;
}

double crew_distance(const struct crew_result *a, const struct crew_result *b)
{
    double values = 0, difference = 0, loss = 0;
    for (int s = 0; s < CREW_STEPS; s++)
        loss = fmax(loss, fabs((double)a->loss[0][s] - b->loss[0][s]) / fabs(b->loss[0][s]));
    for (int64_t i = 0; i < a->numel; i++) {
        double d = (double)a->values[0][i] - b->values[0][i];
        difference += d * d;
        values += (double)b->values[0][i] * b->values[0][i];
    }
    return fmax(loss, sqrt(difference / values));
}
