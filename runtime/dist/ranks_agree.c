/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state that ranks compare, so that no rank trains on different input:
 *
 *   before a plan       model, options that shape it, optimizer, program
 *   ckpt_agree          facts of the training program: its options, its data
 *   before a first step, and after a load
 *                       the values that every parameter was set to.  A rank that shards a parameter
 *                                                                    keeps only its part, so it
 *                                                                    keeps a digest of the whole
 *                                                                    value when the value is set
 *   every N steps       the bytes that several ranks hold, and the learning rates since the start
 */
#include <stdlib.h>
#include <string.h>
#include "core/bits.h"
#include "core/checksum.h"
#include "core/fp8.h"
#include "ckpt_dist.h"
#include "dist/ranks.h"

enum { HOW_BYTES = 64, TEXT_BYTES = 48 };

/* Growing list of terms. */
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

/* No rank can tell which rank is right, so all stop, and none overwrites a good checkpoint. */
static int stop_if_different(struct ranks *job, int rc)
{
    if (rc == CKPT_ECOMM && !job->params->lost) {
        job->params->lost = job->params->updates + 1;
        job->params->differ = true;
    }
    return ranks_give_up(job, rc);
}

/* step: the step that all ranks reached; 0 where the step is what may differ. */
static int agree(struct ranks *job, int64_t step, const char *how, const struct comm_term *terms,
                 int n)
{
    struct comm *hosts = ranks_hosts(job);
    hosts->step = step;
    int rc = comm_agree(hosts, how, terms, n);
    return rc ? error_set(rc, "%s", hosts->reason) : 0;
}

/* ---- before a plan --------------------------------------------------------------------------- */

static uint64_t mix_float(uint64_t h, float f)
{
    return hash_mix(h, (int32_t)float_bits(f));
}

/* Signature of the codes in which frozen weights are stored. */
static uint64_t codes_signature(const struct params *ps)
{
    uint64_t h = HASH_START;
    for (int32_t i = 0; i < ps->n; i++)
        h = hash_mix(h, ps->data[i].training.codes);
    return h;
}

/* Stages have no layout. */
static uint64_t model_signature(const struct ranks *job)
{
    uint64_t h = HASH_START;
    if (job->sharing.layout)
        return layout_signature(job->sharing.layout);
    for (int32_t i = 0; i < job->params->n; i++) {
        const struct param *p = &job->params->data[i];
        h = hash_mix(hash_mix(h, (int64_t)hash_text(p->name)), desc_numel(&p->desc));
        h = hash_mix(hash_mix(h, p->desc.dtype), p->trainable);
    }
    return h;
}

int ranks_agree(struct ranks *job, int64_t batch, uint64_t program, uint64_t optimizer)
{
    const struct ckpt_options *o = job->options;
    char samples[TEXT_BYTES];
    snprintf(samples, sizeof samples, "%lld", (long long)batch);
    const struct comm_term terms[] = {
        {.name = "--seed", .value = (uint64_t)o->seed},
        {.name = "--qat",
         .value = o->qat ? hash_text(o->qat_ranges ? o->qat_ranges : "average") : 0},
        {.name = "--stages", .value = (uint64_t)o->stages},
        {.name = "--micro-batch", .value = o->stages > 1 ? (uint64_t)o->micro_batch : 0},
        {.name = "model", .value = model_signature(job)},
        {.name = "--zero", .value = (uint64_t)job->sharing.zero},
        {.name = "--check-ranks", .value = (uint64_t)o->check_ranks},
        {.name = "--unordered", .value = o->unordered},
        {.name = "--plan-only", .value = o->plan_only},
        {.name = "--state", .value = (uint64_t)job->params->half_state + job->params->byte_state},
        {.name = "frozen weights", .value = codes_signature(job->params)},
        {.name = "--matmul", .value = (uint64_t)matmul_dtype_of(o->matmul)},
        {.name = "--activations", .value = o->activations && !strcmp(o->activations, "8bit")},
        {.name = "optimizer", .value = optimizer},
        {.name = "batch", .value = (uint64_t)batch, .text = samples},
        {.name = "program", .value = program}};
    return agree(job, 0, "started with", terms, (int)(sizeof terms / sizeof *terms));
}

/* ---- what a trainer does by itself ----------------------------------------------------------- */

/* Copies short printable text, which error messages can show. */
static void copy_text(char *dst, const struct ckpt_fact *f)
{
    const char *text = f->data;
    size_t n = 0;
    while (n < f->bytes && n < TEXT_BYTES - 1 && text[n] >= ' ' && text[n] <= '~')
        n++;
    bool whole = n == f->bytes || (n < f->bytes && !text[n]);
    snprintf(dst, TEXT_BYTES, "%.*s", whole ? (int)n : 0, whole ? text : "");
}

int ranks_agree_facts(struct ranks *job, const struct ckpt_fact *facts, int n)
{
    if (!job->comm)
        return 0;
    struct comm_term *terms = calloc((size_t)n + 1, sizeof *terms);
    char(*text)[TEXT_BYTES] = calloc((size_t)n + 1, sizeof *text);
    int rc = terms && text ? 0 : error_set(CKPT_ENOMEM, "no memory to compare ranks");
    if (!rc) /* random numbers of the caller depend on the seed too */
        *terms = (struct comm_term){.name = "--seed", .value = (uint64_t)job->options->seed};
    for (int i = 0; i < n && !rc; i++) {
        copy_text(text[i], &facts[i]);
        terms[i + 1] = (struct comm_term){.name = facts[i].name,
                                          .value = checksum(facts[i].data, (int64_t)facts[i].bytes),
                                          .text = text[i]};
    }
    if (!rc)
        rc = agree(job, 0, "started with", terms, n + 1);
    free(terms);
    free(text);
    return ranks_give_up(job, rc);
}

/* ---- what was set ---------------------------------------------------------------------------- */

void ranks_note_set(struct ranks *job, struct param *p, enum ckpt_slot slot, const float *src,
                    int64_t n)
{
    if (!job->comm)
        return;
    p->place.set[slot] =
        hash_mix(hash_mix(HASH_START, job->params->updates), (int64_t)checksum(src, n * 4));
    job->values_agreed = false;
}

static const char *const slot_names[] = {"value",          "exp_avg",        "exp_avg_sq",
                                         "moving average", "exp_avg_sq_row", "exp_avg_sq_col"};

/* An initial value follows from the seed (compared separately), the name and the kind. */
static uint64_t initial_signature(const struct param *p)
{
    return mix_float(hash_mix(HASH_START, p->init.kind), p->init.a);
}

static int add_set(struct terms *t, const struct param *p)
{
    int rc = 0;
    for (int s = CKPT_VALUE; s <= CKPT_EXP_AVG_SQ_COL && !rc; s++) {
        bool initial = s == CKPT_VALUE && !p->place.set[s];
        rc = add(t, (struct comm_term){.name = slot_names[s],
                                       .of = p->name,
                                       .value = initial ? initial_signature(p) : p->place.set[s]});
    }
    return rc;
}

static int fail_memory(void)
{
    return error_set(CKPT_ENOMEM, "no memory to compare the parameters of ranks");
}

/* steps: digest of the numbers of steps per program. lr: learning rate of the next step, or 0. */
static int agree_values(struct ranks *job, const char *how, uint64_t steps, float lr)
{
    struct terms t = {0};
    char text[TEXT_BYTES];
    snprintf(text, sizeof text, "%g", (double)lr);
    int rc = add(&t, (struct comm_term){.name = "number of steps", .value = steps});
    for (int i = 0; i < job->params->n - job->params->n_hidden && !rc; i++)
        rc = add_set(&t, &job->params->data[i]);
    if (!rc)
        rc =
            add(&t, (struct comm_term){
                        .name = "learning rate", .value = mix_float(HASH_START, lr), .text = text});
    rc = rc ? fail_memory() : agree(job, 0, how, t.data, t.n);
    free(t.data);
    return rc;
}

int ranks_agree_loaded(struct ranks *job, uint64_t steps)
{
    if (!job->comm || !ranks_are_laid_out(job))
        return 0;
    int rc = agree_values(job, "loaded", steps, 0.f);
    job->values_agreed = !rc;
    return stop_if_different(job, rc);
}

/* ---- what several ranks have ----------------------------------------------------------------- */

static const char *const home_names[SLOT_COUNT] = {[SLOT_VALUE] = "value",
                                                   [SLOT_MASTER] = "fp32 value",
                                                   [SLOT_EXP_AVG] = "exp_avg",
                                                   [SLOT_EXP_AVG_SQ] = "exp_avg_sq",
                                                   [SLOT_EMA] = "moving average",
                                                   [SLOT_EXP_AVG_SQ_ROW] = "exp_avg_sq_row",
                                                   [SLOT_EXP_AVG_SQ_COL] = "exp_avg_sq_col"};

static int add_bytes(struct terms *t, int slot, const struct param *p, const float *values,
                     int64_t n, int64_t group)
{
    return add(t, (struct comm_term){.name = home_names[slot],
                                     .of = p->name,
                                     .value = checksum(values, n * 4),
                                     .group = group});
}

/* Of ranks that have the whole of a bucket, or the same parts of split parameters; 0: all. */
static int64_t own_group(const struct ranks *job, const struct layout_bucket *b)
{
    return sharing_is_split(&job->sharing, b) ? 1 + sharing_part(&job->sharing, b, job->rank) : 0;
}

/* Adds a term for each parameter of a bucket.  A part that only this rank of the replica holds gets
 * a group of its own: it is compared between replicas only. */
static int add_bucket(struct ranks *job, struct terms *t, int32_t b, int slot, const float *values)
{
    const struct layout *l = job->sharing.layout;
    int rc = 0;
    for (int32_t k = l->buckets[b].first; k < l->buckets[b].first + l->buckets[b].n && !rc; k++) {
        int32_t i = l->order[k];
        int64_t at = 0, in_bucket = 0, n = ranks_own_part(job, i, slot, &at, &in_bucket);
        rc = add_bytes(t, slot, &job->params->data[i], values + in_bucket, n,
                       ranks_is_whole(job, slot) ? own_group(job, &l->buckets[b])
                                                 : job->sharing.place + 1);
    }
    return rc;
}

/* Adds the terms of parameter i, which may be a bucket. buffer holds its largest slot. */
static int add_param(struct ranks *job, struct terms *t, int32_t i, float *buffer)
{
    const struct param *p = &job->params->data[i];
    int rc = 0;
    for (int s = 0; s < SLOT_COUNT && !rc; s++) {
        bool bucket = ranks_is_bucket(job, p);
        if (!p->place.filled[s] || p->cache ||
            (bucket && !ranks_is_whole(job, s) && job->sharing.replicas < 2))
            continue;
        rc = memory_read(job->memory, p, s, buffer, param_slot_numel(p, s));
        if (rc)
            return rc;
        rc = bucket ? add_bucket(job, t, i - (job->params->n - job->params->n_hidden), s, buffer)
                    : add_bytes(t, s, p, buffer, param_slot_numel(p, s), 0);
        rc = rc ? fail_memory() : 0;
    }
    return rc;
}

static float *make_buffer(const struct ranks *job)
{
    int64_t largest = 1;
    for (int32_t i = 0; i < job->params->n; i++)
        for (int s = 0; s < SLOT_COUNT; s++)
            if (job->params->data[i].place.filled[s])
                largest = max_i64(largest, param_slot_numel(&job->params->data[i], s));
    return malloc((size_t)largest * sizeof(float));
}

/* Stages have different terms, so the ranks of each compare theirs, and tell the others. */
static int agree_in_stage(struct ranks *job, const char *how, const struct terms *t)
{
    struct comm *alike = ranks_alike(job);
    if (!comm_agree(alike, how, t->data, t->n))
        return 0;
    error_set(CKPT_ECOMM, "stage %d, whose rank of pipeline n is rank n here: %s",
              job->sharing.stage + 1, alike->reason);
    job->comm->ops->give_up(job->comm, error_get());
    return CKPT_ECOMM;
}

static int agree_copies(struct ranks *job, int64_t updates, const char *how)
{
    struct terms t = {0};
    float *buffer = make_buffer(job);
    int rc = buffer ? 0 : fail_memory();
    for (int32_t i = 0; i < job->params->n && !rc; i++)
        rc = add_param(job, &t, i, buffer);
    if (!rc &&
        add(&t, (struct comm_term){.name = "history of learning rates", .value = job->rates}))
        rc = fail_memory();
    if (!rc)
        rc = job->sharing.stages > 1 ? agree_in_stage(job, how, &t)
                                     : agree(job, updates, how, t.data, t.n);
    free(buffer);
    free(t.data);
    return rc;
}

/* ---- steps ----------------------------------------------------------------------------------- */

int ranks_before_step(struct ranks *job, const struct ranks_step *s)
{
    int64_t updates = s->updates, every = job->options->check_ranks;
    char how[HOW_BYTES];
    int rc = 0;
    if (!job->comm)
        return 0;
    snprintf(how, sizeof how, "reached step %lld with", (long long)updates + 1);
    bool values = s->first || !job->values_agreed;
    /* Of one pipeline each stage has its own. */
    bool copies = every && updates && updates % every == 0 &&
                  (job->sharing.stages < 2 || sharing_has_pipelines(&job->sharing));
    /* Collectives of a step in progress must end first: on CPUs they use the same link. */
    if (values || copies)
        rc = memory_sync(job->memory);
    if (rc)
        return rc;
    if (values)
        rc = agree_values(job, how, s->steps, s->lr);
    job->values_agreed = !rc;
    if (!rc && copies)
        rc = agree_copies(job, updates, how);
    job->rates = mix_float(job->rates, s->lr);
    return stop_if_different(job, rc);
}

/* Messages consist of whole 32-bit words: each part is padded. */
static int gather_filled(struct ranks *job, const char *own, size_t bytes, char *all)
{
    int n = job->sharing.ranks;
    size_t filled = (size_t)round_up((int64_t)bytes, sizeof(int32_t));
    char *parts = calloc((size_t)n + 1, filled);
    struct comm *hosts = ranks_hosts(job);
    if (!parts)
        return error_set(CKPT_ENOMEM, "no memory for the messages of ranks");
    memcpy(parts + (size_t)n * filled, own, bytes);
    int rc = comm_gather(hosts, parts + (size_t)n * filled, parts, filled, "gather");
    for (int r = 0; r < n && !rc; r++)
        memcpy(all + (size_t)r * bytes, parts + (size_t)r * filled, bytes);
    free(parts);
    return rc ? error_set(rc, "%s", hosts->reason) : 0;
}

int ranks_gather(struct ranks *job, const void *own, size_t bytes, void *all)
{
    if (!bytes)
        return 0;
    if (job->comm)
        return ranks_give_up(job, gather_filled(job, own, bytes, all));
    for (int r = 0; r < job->sharing.ranks;
         r++) /* planned ranks that do not exist: the same data for each */
        memmove((char *)all + (size_t)r * bytes, own, bytes);
    return 0;
}

/* What a rank tells the others of its own work. */
struct outcome {
    int32_t code;
    char text[CKPT_MESSAGE];
};

int ranks_agree_code(struct ranks *job, int own)
{
    const int n = job->sharing.ranks;
    struct outcome here = {.code = own}, *all = calloc((size_t)n, sizeof *all);
    if (own)
        snprintf(here.text, sizeof here.text, "%s", error_get());
    int rc = all ? ranks_gather(job, &here, sizeof here, all)
                 : error_set(CKPT_ENOMEM, "no memory for the codes of the ranks");
    for (int r = 0; r < n && !rc; r++)
        if (all[r].code)
            rc = own ? error_set(all[r].code, "%s", here.text)
                     : error_set(all[r].code, "rank %d: %s", r, all[r].text);
    free(all);
    return rc;
}
