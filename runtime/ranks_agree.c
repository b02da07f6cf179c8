/*
 * What ranks compare, so that none trains on something else than the others:
 *
 *   before a plan       model, options that shape it, optimizer, program
 *   ckpt_agree          what a trainer does by itself: its options, its data
 *   before a first step, and after a load
 *                       what every parameter was set to.  A rank that shares parameters keeps only
 *                       its part, but it saw all of each, and kept a digest of that
 *   every N steps       the bytes of all that several ranks have, and the learning rates since
 */
#include <stdlib.h>
#include <string.h>
#include "ckpt_ranks.h"
#include "exec/program.h"
#include "homes.h"
#include "ranks.h"
#include "shard/layout.h"
#include "checksum.h"

enum { HOW_BYTES = 64, TEXT_BYTES = 48 };

/* A list of terms that grows. */
struct terms {
    struct comm_term *data;
    int64_t capacity;
    int n;
};

static int add(struct terms *t, struct comm_term term)
{
    if (ARRAY_RESERVE(t, t->n))
        return CKPT_ENOMEM;
    t->data[t->n++] = term;
    return 0;
}

/* Nobody knows which rank is right: none goes on, or saves over what was good. */
static int part(ckpt *c, int rc)
{
    if (rc == CKPT_ECOMM && !c->lost) {
        c->lost = c->updates + 1;
        c->differ = true;
    }
    return ranks_give_up(c, rc);
}

/* step: that which all have come to; 0 where that is the question. */
static int agree(ckpt *c, int64_t step, const char *how, const struct comm_term *terms, int n)
{
    struct comm *hosts = ranks_hosts(c);
    hosts->step = step;
    int rc = comm_agree(hosts, how, terms, n);
    return rc ? context_fail(c, rc, "%s", hosts->reason) : 0;
}

/* ---- before a plan --------------------------------------------------------------------------- */

static uint64_t mix_float(uint64_t h, float f)
{
    int32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return hash_mix(h, bits);
}

static uint64_t optimizer_signature(const struct ckpt_adamw *o)
{
    uint64_t h = HASH_START;
    const float values[] = {o->lr,           o->beta1,     o->beta2,    o->eps,
                            o->weight_decay, o->clip_norm, o->ema_decay};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        h = mix_float(h, values[i]);
    return hash_mix(h, o->grad_dtype);
}

int ranks_agree(ckpt *c, const struct graph *g, const struct ckpt_adamw *opt)
{
    const struct ckpt_options *o = &c->options;
    const struct comm_term terms[] = {
        {.name = "--seed", .value = (uint64_t)o->seed},
        {.name = "model", .value = layout_signature(c->sharing.layout)},
        {.name = "--zero", .value = (uint64_t)c->sharing.zero},
        {.name = "--check-ranks", .value = (uint64_t)o->check_ranks},
        {.name = "--deterministic", .value = o->deterministic},
        {.name = "--plan-only", .value = o->plan_only},
        {.name = "optimizer", .value = opt ? optimizer_signature(opt) : 0},
        {.name = "program", .value = graph_signature(g)}};
    return agree(c, 0, "started with", terms, (int)(sizeof terms / sizeof *terms));
}

/* ---- what a trainer does by itself ----------------------------------------------------------- */

/* Short words can be shown. */
static void show(char *dst, const struct ckpt_fact *f)
{
    const char *text = f->data;
    size_t n = 0;
    while (n < f->bytes && n < TEXT_BYTES - 1 && text[n] >= ' ' && text[n] <= '~')
        n++;
    bool whole = n == f->bytes || (n < f->bytes && !text[n]);
    snprintf(dst, TEXT_BYTES, "%.*s", whole ? (int)n : 0, whole ? text : "");
}

int ckpt_agree(ckpt *c, const struct ckpt_fact *facts, int n)
{
    NOT_NULL(NULL, c);
    if (n < 0 || (n && !facts))
        return context_fail(c, CKPT_EINVAL, "ckpt_agree: %d facts, and no table", n);
    if (!c->comm)
        return 0;
    struct comm_term *terms = calloc((size_t)n + 1, sizeof *terms);
    char(*text)[TEXT_BYTES] = calloc((size_t)n + 1, sizeof *text);
    int rc = terms && text ? 0 : context_fail(c, CKPT_ENOMEM, "no memory to compare ranks");
    if (!rc) /* what is drawn from it would be another, too */
        *terms = (struct comm_term){.name = "--seed", .value = (uint64_t)c->options.seed};
    for (int i = 0; i < n && !rc; i++) {
        show(text[i], &facts[i]);
        terms[i + 1] = (struct comm_term){.name = facts[i].name,
                                          .value = checksum(facts[i].data, (int64_t)facts[i].bytes),
                                          .text = text[i]};
    }
    if (!rc)
        rc = agree(c, 0, "started with", terms, n + 1);
    free(terms);
    free(text);
    return ranks_give_up(c, rc);
}

/* ---- what was set ---------------------------------------------------------------------------- */

void ranks_note_set(ckpt *c, struct param *p, enum ckpt_slot slot, const float *src, int64_t n)
{
    if (!c->comm)
        return;
    p->set[slot] = hash_mix(hash_mix(HASH_START, c->updates), (int64_t)checksum(src, n * 4));
    c->values_agreed = false;
}

static const char *const slot_names[] = {"value", "exp_avg", "exp_avg_sq", "moving average"};

/* A value that nobody set follows from seed, which was compared, name and kind. */
static uint64_t initial_signature(const struct param *p)
{
    return mix_float(hash_mix(HASH_START, p->init.kind), p->init.a);
}

static int add_set(struct terms *t, const struct param *p)
{
    int rc = 0;
    for (int s = CKPT_VALUE; s <= CKPT_EMA && !rc; s++) {
        bool initial = s == CKPT_VALUE && !p->set[s];
        rc = add(t, (struct comm_term){.name = slot_names[s],
                                       .of = p->name,
                                       .value = initial ? initial_signature(p) : p->set[s]});
    }
    return rc;
}

static int add_counts(struct terms *t, const ckpt *c)
{
    uint64_t steps = HASH_START;
    for (const struct ckpt_program *p = c->programs; p; p = p->next)
        if (p->trains)
            steps = hash_mix(steps, p->before + p->submitted);
    return add(t, (struct comm_term){.name = "number of steps", .value = steps});
}

static int fail_memory(ckpt *c)
{
    return context_fail(c, CKPT_ENOMEM, "no memory to compare the parameters of ranks");
}

/* lr: of the step that comes; NaN where none does. */
static int agree_values(ckpt *c, const char *how, float lr)
{
    struct terms t = {0};
    char text[TEXT_BYTES];
    snprintf(text, sizeof text, "%g", (double)lr);
    int rc = add_counts(&t, c);
    for (int i = 0; i < ckpt_param_count(c) && !rc; i++)
        rc = add_set(&t, &c->params.data[i]);
    if (!rc)
        rc =
            add(&t, (struct comm_term){
                        .name = "learning rate", .value = mix_float(HASH_START, lr), .text = text});
    rc = rc ? fail_memory(c) : agree(c, 0, how, t.data, t.n);
    free(t.data);
    return rc;
}

int ranks_agree_loaded(ckpt *c)
{
    if (!c->comm || !c->sharing.layout)
        return 0;
    int rc = agree_values(c, "loaded", 0.f);
    c->values_agreed = !rc;
    return part(c, rc);
}

/* ---- what several ranks have ----------------------------------------------------------------- */

static const char *const home_names[SLOT_COUNT] = {[SLOT_VALUE] = "value",
                                                   [SLOT_MASTER] = "fp32 value",
                                                   [SLOT_EXP_AVG] = "exp_avg",
                                                   [SLOT_EXP_AVG_SQ] = "exp_avg_sq",
                                                   [SLOT_EMA] = "moving average"};

static int add_bytes(struct terms *t, int slot, const struct param *p, const float *values,
                     int64_t n, int64_t group)
{
    return add(t, (struct comm_term){.name = home_names[slot],
                                     .of = p->name,
                                     .value = checksum(values, n * 4),
                                     .group = group});
}

/* Of a bucket: parameter by parameter.  What only this rank has, of this copy, is its own group. */
static int add_bucket(ckpt *c, struct terms *t, int32_t b, int slot, const float *values)
{
    const struct layout *l = c->sharing.layout;
    int rc = 0;
    for (int32_t k = l->buckets[b].first; k < l->buckets[b].first + l->buckets[b].n && !rc; k++) {
        int32_t i = l->order[k];
        int64_t at = 0, in_bucket = 0, n = ranks_own_part(c, i, slot, &at, &in_bucket);
        rc = add_bytes(t, slot, &c->params.data[i], values + in_bucket, n,
                       ranks_is_whole(c, slot) ? 0 : c->sharing.place + 1);
    }
    return rc;
}

/* Of parameter i, which may be a bucket; buffer has room for its largest slot. */
static int add_param(ckpt *c, struct terms *t, int32_t i, float *buffer)
{
    const struct param *p = &c->params.data[i];
    int rc = 0;
    for (int s = 0; s < SLOT_COUNT && !rc; s++) {
        bool bucket = ranks_is_bucket(c, p);
        if (!p->filled[s] || (bucket && !ranks_is_whole(c, s) && c->sharing.replicas < 2))
            continue;
        rc = homes_read(c, p, s, buffer, param_slot_numel(p, s));
        if (rc)
            return rc;
        rc = bucket ? add_bucket(c, t, i - (c->params.n - c->params.n_hidden), s, buffer)
                    : add_bytes(t, s, p, buffer, param_slot_numel(p, s), 0);
        rc = rc ? fail_memory(c) : 0;
    }
    return rc;
}

static float *make_buffer(const ckpt *c)
{
    int64_t largest = 1;
    for (int32_t i = 0; i < c->params.n; i++)
        for (int s = 0; s < SLOT_COUNT; s++)
            if (c->params.data[i].filled[s])
                largest = max_i64(largest, param_slot_numel(&c->params.data[i], s));
    return malloc((size_t)largest * sizeof(float));
}

static int agree_copies(ckpt *c, int64_t updates, const char *how)
{
    struct terms t = {0};
    float *buffer = make_buffer(c);
    int rc = buffer ? 0 : fail_memory(c);
    for (int32_t i = 0; i < c->params.n && !rc; i++)
        rc = add_param(c, &t, i, buffer);
    if (!rc && add(&t, (struct comm_term){.name = "history of learning rates", .value = c->rates}))
        rc = fail_memory(c);
    if (!rc)
        rc = agree(c, updates, how, t.data, t.n);
    free(buffer);
    free(t.data);
    return rc;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* How many updates there are, those under way included. */
static int64_t count_updates(const ckpt *c)
{
    int64_t n = c->updates;
    for (const struct ckpt_program *p = c->programs; p; p = p->next)
        n += p->trains ? p->submitted - p->steps : 0;
    return n;
}

int ranks_before_step(ckpt *c, bool first, float lr)
{
    int64_t updates = count_updates(c), every = c->options.check_ranks;
    char how[HOW_BYTES];
    int rc = 0;
    if (!c->comm)
        return 0;
    snprintf(how, sizeof how, "came to step %lld with", (long long)updates + 1);
    bool values = first || !c->values_agreed;
    bool copies = every && updates && updates % every == 0;
    /* Collectives of a step under way come first: on CPUs they take the same link. */
    if (values || copies)
        rc = c->device->ops->sync(c->device);
    if (rc)
        return context_fail_device(c, NULL, rc);
    if (values)
        rc = agree_values(c, how, lr);
    c->values_agreed = !rc;
    if (!rc && copies)
        rc = agree_copies(c, updates, how);
    c->rates = mix_float(c->rates, lr);
    return part(c, rc);
}
