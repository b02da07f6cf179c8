/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and writing parameter values, and initial values where none were set. */
#include <stdlib.h>
#include <string.h>
#include "dist/values.h"

static const int slot_of[] = {[CKPT_VALUE] = SLOT_VALUE,
                              [CKPT_EXP_AVG] = SLOT_EXP_AVG,
                              [CKPT_EXP_AVG_SQ] = SLOT_EXP_AVG_SQ,
                              [CKPT_EMA] = SLOT_EMA,
                              [CKPT_EXP_AVG_SQ_ROW] = SLOT_EXP_AVG_SQ_ROW,
                              [CKPT_EXP_AVG_SQ_COL] = SLOT_EXP_AVG_SQ_COL};

/* Index of the slot's first element in the whole parameter, which callers pass. */
static int64_t slot_first(const struct param *p, int slot)
{
    return slot == SLOT_VALUE ? 0 : p->place.part_first;
}

static int write_slot(struct ranks *job, struct param *p, int slot, const float *value)
{
    p->place.filled[slot] = true;
    return memory_write(job->memory, p, slot, value + slot_first(p, slot),
                        param_slot_numel(p, slot));
}

static int read_slot(struct ranks *job, const struct param *p, int slot, float *value)
{
    return memory_read(job->memory, p, slot, value + slot_first(p, slot),
                       param_slot_numel(p, slot));
}

/* Does `in` store the value with all the precision a later program may need?  After an inference
 * program it may hold bf16 of an fp32 value, whereas a master created later starts from fp32. */
static bool has_exact(const struct param *in)
{
    return in->place.filled[SLOT_VALUE] &&
           (in->place.filled[SLOT_MASTER] || in->desc.dtype == CKPT_F32 || in->training.codes ||
            param_is_narrow(in));
}

/* The slot of `in` (p or its bucket) that holds the most exact value of p.  SLOT_COUNT if only the
 * host has that value: it was set, or follows from the seed. */
static int exact_slot(const struct param *p, const struct param *in)
{
    if (in->place.filled[SLOT_MASTER])
        return SLOT_MASTER;
    if (p->place.initial || !in->place.filled[SLOT_VALUE])
        return SLOT_COUNT;
    return has_exact(in) || p->place.set_narrow ? SLOT_VALUE : SLOT_COUNT;
}

static int fail_memory(const struct param *p)
{
    return error_set(CKPT_ENOMEM, "no memory for parameter '%s'", p->name);
}

/* Initial values of a parameter stored in codes: the decoded values. */
static int read_coded(struct ranks *job, const struct param *p, float *dst)
{
    const int64_t n = desc_numel(&p->desc);
    void *words = malloc((size_t)param_slot_bytes(p, SLOT_VALUE));
    if (!words)
        return fail_memory(p);
    param_initialize(p, (uint64_t)job->options->seed, 0, n, dst);
    param_slot_encode(p, SLOT_VALUE, dst, n, words);
    param_slot_decode(p, SLOT_VALUE, words, n, dst);
    free(words);
    return 0;
}

/* This rank's part of a bucket: the slot, overwritten by the values that only the host has. */
static int read_bucket(struct ranks *job, const struct param *bucket, float *dst)
{
    int rc = 0;
    if (bucket->place.filled[SLOT_VALUE])
        rc = read_slot(job, bucket, SLOT_VALUE, dst);
    else
        memset(dst, 0, (size_t)desc_numel(&bucket->desc) * sizeof *dst);
    ranks_initial(job, bucket, dst);
    return rc;
}

/* The value that was set, or the initial value from the seed. */
static int read_host(struct ranks *job, const struct param *p, float *dst)
{
    const int64_t n = desc_numel(&p->desc);
    int rc = 0;
    if (p->training.codes && !p->place.initial)
        return read_coded(job, p, dst);
    if (ranks_is_bucket(job, p))
        rc = read_bucket(job, p, dst);
    else if (p->place.initial)
        param_read_initial(p, 0, n, dst);
    else
        param_initialize(p, (uint64_t)job->options->seed, 0, n, dst);
    if (param_is_narrow(p) && !p->training.codes)
        param_narrow(dst, n);
    return rc;
}

static int read_value(struct ranks *job, const struct param *p, float *dst)
{
    const int slot = exact_slot(p, p);
    return slot != SLOT_COUNT ? read_slot(job, p, slot, dst) : read_host(job, p, dst);
}

static bool is_full(const struct param *p)
{
    for (int s = 0; s < SLOT_COUNT; s++)
        if (p->place.offset[s] >= 0 && !p->place.filled[s])
            return false;
    return true;
}

/* Running means of gradients start at 0. */
static bool is_mean(int slot)
{
    return slot != SLOT_VALUE && slot != SLOT_MASTER && slot != SLOT_EMA;
}

static int fill_param(struct ranks *job, struct param *p, float *value)
{
    if (p->place.elsewhere)
        param_drop_initial(p);
    if (is_full(p))
        return 0;
    int rc = read_value(job, p, value);
    for (int s = 0; s < SLOT_COUNT && !rc; s++) {
        if (p->place.offset[s] < 0 || p->place.filled[s] || is_mean(s))
            continue;
        rc = write_slot(job, p, s, value); /* the EMA starts as the value */
    }
    for (int s = 0; s < SLOT_COUNT && !rc; s++) {
        if (p->place.offset[s] < 0 || p->place.filled[s] || !is_mean(s))
            continue;
        p->place.filled[s] = true;
        rc = memory_clear(job->memory, p, s);
    }
    return rc;
}

/* Whether this rank has a slot of p, or a part of it. */
static bool has_slot(const struct ranks *job, const struct param *p, int slot)
{
    const struct param *bucket = ranks_bucket_of(job, p);
    return p->place.filled[slot] || (bucket && bucket->place.filled[slot]);
}

int values_tell_stages(struct ranks *job)
{
    const int32_t n = job->params->n;
    unsigned *own = calloc((size_t)n + 1, sizeof *own);
    unsigned *all = calloc((size_t)job->sharing.ranks * (size_t)n + 1, sizeof *all);
    int rc = own && all ? 0 : error_set(CKPT_ENOMEM, "no memory for the parameters of stages");
    for (int32_t i = 0; i < n && !rc; i++)
        for (int s = CKPT_VALUE; s <= CKPT_EXP_AVG_SQ_COL; s++)
            own[i] |= (unsigned)has_slot(job, &job->params->data[i], slot_of[s]) << s;
    if (!rc)
        rc = ranks_gather(job, own, (size_t)n * sizeof *own, all);
    for (int32_t i = 0; i < n && !rc; i++) {
        struct param_place *p = &job->params->data[i].place;
        p->kept = p->stage ? all[(int64_t)(p->stage - 1) * n + i] : 0;
    }
    free(own);
    free(all);
    return rc;
}

/* The parameter that stores the value of p: p or its bucket. */
static const struct param *place_of(const struct ranks *job, const struct param *p)
{
    const struct param *bucket = ranks_bucket_of(job, p);
    return bucket ? bucket : p;
}

/* Frees the host copy of a value once a slot of p or of its bucket holds it.  Returns whether it
 * was freed. */
static bool drop_copy(struct ranks *job, struct param *p)
{
    const struct param *in = place_of(job, p);
    bool drop = p->place.initial &&
                (has_exact(in) || (in->place.filled[SLOT_VALUE] && p->place.initial_narrow));
    if (!drop)
        return false;
    p->place.set_narrow = p->place.initial_narrow;
    param_drop_initial(p);
    return true;
}

/* Host copies are freed as slots are filled, so that few values exist twice. */
static int fill_one(struct ranks *job, int32_t i, float *value, bool *dropped)
{
    struct param *p = &job->params->data[i];
    int rc = fill_param(job, p, value);
    for (int32_t k = ranks_is_bucket(job, p) ? 0 : i; k <= i && !rc; k++)
        *dropped |= drop_copy(job, &job->params->data[k]);
    return rc;
}

int values_fill(struct ranks *job)
{
    struct device *d = job->memory->device;
    int64_t largest = 1;
    bool dropped = false;
    for (int32_t i = 0; i < job->params->n; i++)
        largest = max_i64(largest, desc_numel(&job->params->data[i].desc));
    float *value = d->ops->host_alloc(d, largest * 4);
    if (!value)
        return error_set(CKPT_ENOMEM, "no memory to set up the parameters");
    int rc = 0;
    for (int32_t i = 0; i < job->params->n && !rc; i++)
        rc = fill_one(job, i, value, &dropped);
    d->ops->host_free(d, value);
    if (dropped)
        params_trim_heap();
    return rc;
}

bool values_is_factor(enum ckpt_slot slot)
{
    return slot == CKPT_EXP_AVG_SQ_ROW || slot == CKPT_EXP_AVG_SQ_COL;
}

struct ckpt_desc values_file_desc(const struct param *p, enum ckpt_slot slot)
{
    return values_is_factor(slot) ? param_slot_desc(p, slot_of[slot]) : param_file_desc(p);
}

static bool values_are_coded(const struct param *p, enum ckpt_slot slot)
{
    return param_slot_is_coded(p, slot_of[slot]);
}

void values_encode(const struct param *p, enum ckpt_slot slot, const float *src, int64_t n,
                   void *words)
{
    param_slot_encode(p, slot_of[slot], src, n, words);
}

struct ckpt_desc values_state_desc(const struct param *p, enum ckpt_slot slot)
{
    const struct ckpt_desc kept = param_slot_desc(p, slot_of[slot]);
    if (values_are_coded(p, slot))
        return kept;
    struct ckpt_desc d = values_file_desc(p, slot);
    d.dtype = param_is_narrow(p) || p->training.half_state ? kept.dtype : CKPT_F32;
    return d;
}

/* The bucket that stores a slot of p, or NULL if p stores the slot itself.  Every rank holds all of
 * the slots that an optimizer keeps per whole parameter, such as factors. */
static const struct param *bucket_with(const struct ranks *job, const struct param *p, int slot)
{
    return p->place.filled[slot] && slot != SLOT_VALUE ? NULL : ranks_bucket_of(job, p);
}

bool values_kept(const struct ranks *job, const struct param *p, enum ckpt_slot slot)
{
    return values_planned(job, p, slot, NULL);
}

static int write_value(struct ranks *job, struct param *p, const float *src)
{
    int rc = p->place.filled[SLOT_VALUE] ? write_slot(job, p, SLOT_VALUE, src) : 0;
    if (!rc && p->place.filled[SLOT_MASTER])
        rc = write_slot(job, p, SLOT_MASTER, src);
    if (!rc && p->place.filled[SLOT_EMA] && job->params->updates == 0)
        rc = write_slot(job, p, SLOT_EMA, src);
    return rc;
}

/* The host keeps a copy until a slot holds the exact value. */
static int set_value(struct ranks *job, struct param *p, const float *src)
{
    const struct param *in = place_of(job, p);
    int rc = 0;
    if (!has_exact(in) && param_keep_initial(p, src))
        rc = fail_memory(p);
    if (!rc)
        rc = in != p ? ranks_set(job, p, SLOT_VALUE, src) : write_value(job, p, src);
    if (!rc)
        drop_copy(job, p);
    return rc;
}

/* The ranks of the stage that has p put its parts together; the first one broadcasts it to all. */
static int get_from_stage(struct ranks *job, const struct param *p, enum ckpt_slot slot, float *dst)
{
    const struct ckpt_desc d = values_file_desc(p, slot);
    const int owner = p->place.stage - 1;
    int rc = memory_sync(job->memory); /* steps under way use the same link */
    if (!rc && owner == job->sharing.stage)
        rc = values_read(job, p, slot, dst);
    struct comm *hosts = ranks_hosts(job);
    const struct comm_call call = {.kind = COMM_BROADCAST,
                                   .dtype = CKPT_F32,
                                   .root = owner,
                                   .count = desc_numel(&d),
                                   .src = dst,
                                   .dst = dst,
                                   .name = p->name};
    if (rc)
        return ranks_give_up(job, rc);
    return comm_run(hosts, &call, NULL) ? error_set(CKPT_ECOMM, "%s", hosts->reason) : 0;
}

/* All values of a slot, of a split parameter in the order of parts. */
int values_read(struct ranks *job, const struct param *p, enum ckpt_slot slot, float *dst)
{
    const struct param *bucket = bucket_with(job, p, slot_of[slot]);
    if (bucket && slot == CKPT_VALUE && exact_slot(p, bucket) == SLOT_COUNT)
        return read_host(job, p, dst);
    if (bucket)
        return ranks_get(job, p, slot_of[slot], dst);
    return slot == CKPT_VALUE ? read_value(job, p, dst) : read_slot(job, p, slot_of[slot], dst);
}

/* The same in the order of callers, without the other stages. */
static int get_order(struct ranks *job, const struct param *p, enum ckpt_slot slot, float *dst)
{
    if (p->split.ranks < 2)
        return values_read(job, p, slot, dst);
    float *parts = malloc((size_t)desc_numel(&p->desc) * sizeof *parts);
    int rc = parts ? values_read(job, p, slot, parts) : fail_memory(p);
    if (!rc)
        param_from_parts(p, parts, dst);
    free(parts);
    return rc;
}

int values_get(struct ranks *job, const struct param *p, enum ckpt_slot slot, float *dst)
{
    return p->place.stage && job->comm ? get_from_stage(job, p, slot, dst)
                                       : get_order(job, p, slot, dst);
}

/* ---- runs ------------------------------------------------------------------------------------ */

static bool will_have(const struct ranks *job, const struct param *in, int slot,
                      const bool *planned)
{
    return in->place.filled[slot] ||
           (planned && planned[(in - job->params->data) * SLOT_COUNT + slot]);
}

/* The parameter or bucket with a slot of p. */
static const struct param *find_home(const struct ranks *job, const struct param *p, int slot,
                                     const bool *planned)
{
    const struct param *bucket = ranks_bucket_at(job, p);
    bool own = slot != SLOT_VALUE && will_have(job, p, slot, planned);
    return bucket && !own && will_have(job, bucket, SLOT_VALUE, planned) ? bucket : p;
}

bool values_planned(const struct ranks *job, const struct param *p, enum ckpt_slot slot,
                    const bool *planned)
{
    const int s = slot_of[slot];
    if (p->place.elsewhere)
        return slot == CKPT_VALUE || p->place.kept >> slot & 1;
    return slot == CKPT_VALUE || will_have(job, find_home(job, p, s, planned), s, planned);
}

struct values_run values_find_run(const struct ranks *job, const struct param *p,
                                  enum ckpt_slot slot, const bool *planned)
{
    const struct ckpt_desc d = values_file_desc(p, slot);
    const struct param *in = find_home(job, p, slot_of[slot], planned);
    struct values_run run = {.in = in, .slot = slot_of[slot], .n = desc_numel(&d), .shared = true};
    const bool staged = p->place.stage != 0;
    if (staged)
        run.shared = false;
    if (staged && p->place.stage != job->sharing.stage + 1)
        run.n = 0;
    else if (staged && in == p && job->sharing.place) /* of several pipelines one writes it */
        run.n = 0;
    if (!run.n)
        return run;
    if (slot == CKPT_VALUE && !planned && exact_slot(p, in) == SLOT_COUNT) {
        run.in = NULL;
        run.n = staged && job->sharing.place ? 0 : run.n;
        return run;
    }
    if (slot == CKPT_VALUE && will_have(job, in, SLOT_MASTER, planned))
        run.slot = SLOT_MASTER;
    if (in == p)
        return run;
    const int32_t i = (int32_t)(p - job->params->data);
    const bool all = p->split.ranks < 2 && !staged; /* they have the same part of the model */
    run.shared = ranks_is_whole(job, run.slot) && all;
    run.n = ranks_own_part(job, i, run.slot, &run.first, &run.at);
    if (!all && ranks_is_whole(job, run.slot) && job->rank >= sharing_stride(&job->sharing))
        run.n = 0;
    if (!run.shared &&
        job->sharing.layout->places[i].bucket % job->sharing.replicas != job->sharing.replica)
        run.n = 0;
    return run;
}

void values_cache_free(struct values_cache *k)
{
    for (int i = 0; i < VALUES_KEPT; i++)
        free(k->values[i]);
    *k = (struct values_cache){.next = 0};
}

/* All values of the slot with a run; NULL: no memory, or it cannot be read. */
static const float *read_whole(struct ranks *job, const struct values_run *run,
                               struct values_cache *k)
{
    const int64_t n = param_slot_numel(run->in, run->slot);
    for (int i = 0; i < VALUES_KEPT; i++)
        if (k->values[i] && k->in[i] == run->in && k->slot[i] == run->slot)
            return k->values[i];
    const int i = k->next;
    free(k->values[i]);
    k->in[i] = run->in;
    k->slot[i] = run->slot;
    k->next = (i + 1) % VALUES_KEPT;
    k->values[i] = malloc((size_t)n * sizeof *k->values[i] + 1);
    if (k->values[i] && !memory_read(job->memory, run->in, run->slot, k->values[i], n))
        return k->values[i];
    free(k->values[i]);
    return k->values[i] = NULL;
}

int values_read_run(struct ranks *job, const struct param *p, const struct values_run *run,
                    struct values_cache *cache, float *dst)
{
    if (!run->n)
        return 0;
    if (!run->in)
        return get_order(job, p, CKPT_VALUE, dst);
    if (memory_reads_runs(run->in, run->slot))
        return memory_read_run(job->memory, run->in, run->slot, run->at, dst, run->n);
    if (run->n == param_slot_numel(run->in, run->slot))
        return memory_read(job->memory, run->in, run->slot, dst, run->n);
    const float *all = read_whole(job, run, cache);
    if (!all)
        return error_set(CKPT_ENOMEM, "cannot read parameter '%s'", p->name);
    memcpy(dst, all + run->at, (size_t)run->n * sizeof *dst);
    return 0;
}

/* ---- writing --------------------------------------------------------------------------------- */

static int set_slot(struct ranks *job, struct param *p, enum ckpt_slot slot, const float *src)
{
    if (slot == CKPT_VALUE)
        return set_value(job, p, src);
    if (bucket_with(job, p, slot_of[slot]))
        return ranks_set(job, p, slot_of[slot], src);
    return write_slot(job, p, slot_of[slot], src);
}

/* Without a master the value is rounded to bf16, also for the EMA that starts from it. */
static int set_narrow(struct ranks *job, struct param *p, const float *src)
{
    int64_t n = desc_numel(&p->desc);
    float *value = malloc((size_t)n * sizeof *value);
    if (!value)
        return fail_memory(p);
    memcpy(value, src, (size_t)n * sizeof *value);
    param_narrow(value, n);
    int rc = set_slot(job, p, CKPT_VALUE, value);
    free(value);
    return rc;
}

static int set_order(struct ranks *job, struct param *p, enum ckpt_slot slot, const float *src)
{
    if (p->place.elsewhere)
        return 0;
    if (slot == CKPT_VALUE && p->training.half_state && !p->training.codes)
        return set_narrow(job, p, src);
    return set_slot(job, p, slot, src);
}

int values_set(struct ranks *job, struct param *p, enum ckpt_slot slot, const float *src)
{
    ranks_note_set(job, p, slot, src, desc_numel(&p->desc));
    if (slot == CKPT_VALUE)
        p->place.base = 0;
    if (p->split.ranks < 2)
        return set_order(job, p, slot, src);
    float *parts = malloc((size_t)desc_numel(&p->desc) * sizeof *parts);
    if (!parts)
        return fail_memory(p);
    param_to_parts(p, src, parts);
    int rc = set_order(job, p, slot, parts);
    free(parts);
    return rc;
}
