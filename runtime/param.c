/* Parameters: descriptions, their places, values in and out. */
#include <stdlib.h>
#include <string.h>
#include "context.h"
#include "exec/program.h"
#include "homes.h"
#include "ranks.h"

/* Makes the first failure of ckpt_param stick to the context. */
static ckpt_tensor param_fail(ckpt *c, int code, const char *name, const char *why)
{
    if (!c->error)
        c->error = context_fail(c, code, "parameter '%s': %s", name ? name : "", why);
    return CKPT_NONE;
}

static int param_desc(struct ckpt_desc *d, enum ckpt_dtype dtype, int ndim, const int64_t *shape)
{
    *d = (struct ckpt_desc){.dtype = dtype, .ndim = ndim};
    int64_t n = 1;
    for (int i = 0; i < ndim; i++) {
        d->shape[i] = shape[i];
        if (shape[i] <= 0 || __builtin_mul_overflow(n, shape[i], &n) || n > INT64_MAX / 64)
            return CKPT_ESHAPE;
    }
    desc_dense(d);
    return 0;
}

ckpt_tensor ckpt_param(ckpt *c, const char *name, enum ckpt_dtype dtype, int ndim,
                       const int64_t *shape, struct ckpt_init init, bool trainable)
{
    ckpt_tensor same;
    struct param p = {.init = init, .trainable = trainable};
    if (!c || c->error)
        return CKPT_NONE;
    if (c->sharing.layout)
        return param_fail(c, CKPT_EINVAL, name,
                          "with several ranks all are made before the first program is compiled");
    if (!name || !*name)
        return param_fail(c, CKPT_EINVAL, name, "it needs a name");
    if (!ckpt_param_find(c, name, &same))
        return param_fail(c, CKPT_EINVAL, name, "the name is used twice");
    if (dtype != CKPT_F32 && dtype != CKPT_BF16)
        return param_fail(c, CKPT_EINVAL, name, "its dtype must be fp32 or bf16");
    if (ndim < 0 || ndim > CKPT_MAX_DIMS || (ndim && !shape) ||
        param_desc(&p.desc, dtype, ndim, shape))
        return param_fail(c, CKPT_ESHAPE, name, "its shape has too many axes, or an empty one");
    for (int s = 0; s < SLOT_COUNT; s++)
        p.offset[s] = -1;
    p.name = strdup(name);
    if (!p.name || ARRAY_RESERVE(&c->params, c->params.n)) {
        free(p.name);
        return param_fail(c, CKPT_ENOMEM, name, "no memory");
    }
    c->params.data[c->params.n++] = p;
    return (ckpt_tensor){-c->params.n};
}

struct param *context_param(const ckpt *c, ckpt_tensor x)
{
    int64_t i = -(int64_t)x.id - 1;
    return x.id < 0 && i < c->params.n - c->params.n_hidden ? &c->params.data[i] : NULL;
}

int ckpt_param_count(const ckpt *c)
{
    if (!c)
        return 0;
    return c->params.n - c->params.n_hidden;
}

ckpt_tensor ckpt_param_at(const ckpt *c, int i)
{
    return i >= 0 && i < ckpt_param_count(c) ? (ckpt_tensor){-i - 1} : CKPT_NONE;
}

int ckpt_param_find(const ckpt *c, const char *name, ckpt_tensor *param)
{
    NOT_NULL(c, c);
    NOT_NULL(c, name);
    NOT_NULL(c, param);
    for (int32_t i = 0; i < c->params.n - c->params.n_hidden; i++) {
        if (!strcmp(c->params.data[i].name, name)) {
            *param = (ckpt_tensor){-i - 1};
            return 0;
        }
    }
    return CKPT_ENAME;
}

int ckpt_param_info(const ckpt *c, ckpt_tensor x, struct ckpt_param_info *info)
{
    NOT_NULL(c, c);
    NOT_NULL(c, info);
    const struct param *p = context_param(c, x);
    if (!p)
        return CKPT_ENAME;
    *info = (struct ckpt_param_info){
        .name = p->name, .desc = p->desc, .numel = desc_numel(&p->desc), .trainable = p->trainable};
    return 0;
}

int64_t param_slot_numel(const struct param *p, int slot)
{
    return slot != SLOT_VALUE && p->part ? p->part : desc_numel(&p->desc);
}

int64_t param_slot_bytes(const struct param *p, int slot)
{
    int64_t size = slot == SLOT_VALUE ? ckpt_dtype_size(p->desc.dtype) : 4;
    return param_slot_numel(p, slot) * size;
}

void context_place_slot(ckpt *c, int32_t param, int slot, const struct plan_park *park)
{
    struct param *p = &c->params.data[param];
    if (p->offset[slot] >= 0)
        return;
    if (park) {
        p->home[slot] = park->tier == FATE_PARK_HOST ? HOME_HOST : HOME_NVME;
        p->offset[slot] = park->tier_offset;
        return;
    }
    p->home[slot] = HOME_DEVICE;
    p->offset[slot] = c->persistent;
    c->persistent += round_up(param_slot_bytes(p, slot), CKPT_ALIGN);
}

int64_t context_arena_bytes(const ckpt *c)
{
    int64_t transient = 0;
    for (const struct ckpt_program *p = c->programs; p; p = p->next)
        transient = max_i64(transient, p->plan->transient);
    return c->persistent + transient;
}

/* Where a slot begins among the elements of the whole parameter, which are given and taken. */
static int64_t slot_first(const struct param *p, int slot)
{
    return slot == SLOT_VALUE ? 0 : p->part_first;
}

static int write_slot(ckpt *c, struct param *p, int slot, const float *value)
{
    p->filled[slot] = true;
    return homes_write(c, p, slot, value + slot_first(p, slot), param_slot_numel(p, slot));
}

static int read_slot(ckpt *c, const struct param *p, int slot, float *value)
{
    return homes_read(c, p, slot, value + slot_first(p, slot), param_slot_numel(p, slot));
}

/* The slot that holds the value in fp32, or SLOT_COUNT while only the host has it. */
static int exact_slot(const struct param *p)
{
    if (p->filled[SLOT_MASTER])
        return SLOT_MASTER;
    if (p->initial || !p->filled[SLOT_VALUE])
        return SLOT_COUNT;
    return SLOT_VALUE;
}

static int read_value(ckpt *c, const struct param *p, float *dst)
{
    int slot = exact_slot(p);
    if (slot != SLOT_COUNT)
        return read_slot(c, p, slot, dst);
    if (ranks_is_bucket(c, p))
        ranks_initial(c, p, dst);
    else if (p->initial)
        memcpy(dst, p->initial, (size_t)desc_numel(&p->desc) * 4);
    else
        param_initialize(p, (uint64_t)c->options.seed, 0, desc_numel(&p->desc), dst);
    return 0;
}

static bool is_full(const struct param *p)
{
    for (int s = 0; s < SLOT_COUNT; s++)
        if (p->offset[s] >= 0 && !p->filled[s])
            return false;
    return true;
}

static int fill_param(ckpt *c, struct param *p, float *value)
{
    if (is_full(p))
        return 0;
    int rc = read_value(c, p, value);
    for (int s = 0; s < SLOT_COUNT && !rc; s++) {
        if (p->offset[s] < 0 || p->filled[s] || s == SLOT_EXP_AVG || s == SLOT_EXP_AVG_SQ)
            continue;
        rc = write_slot(c, p, s, value); /* the EMA starts as the value */
    }
    for (int s = SLOT_EXP_AVG; s <= SLOT_EXP_AVG_SQ && !rc; s++) {
        if (p->offset[s] < 0 || p->filled[s])
            continue;
        p->filled[s] = true;
        rc = homes_clear(c, p, s);
    }
    bool exact = p->filled[SLOT_MASTER] || p->desc.dtype == CKPT_F32;
    if (!rc && exact && p->filled[SLOT_VALUE]) {
        free(p->initial);
        p->initial = NULL;
    }
    return rc;
}

int context_fill_slots(ckpt *c)
{
    struct device *d = c->device;
    int64_t largest = 1;
    for (int32_t i = 0; i < c->params.n; i++)
        largest = max_i64(largest, desc_numel(&c->params.data[i].desc));
    float *value = d->ops->host_alloc(d, largest * 4);
    if (!value)
        return context_fail(c, CKPT_ENOMEM, "no memory to set up the parameters");
    int rc = 0;
    for (int32_t i = 0; i < c->params.n && !rc; i++)
        rc = fill_param(c, &c->params.data[i], value);
    d->ops->host_free(d, value);
    return rc;
}

static const int slot_of[] = {SLOT_VALUE, SLOT_EXP_AVG, SLOT_EXP_AVG_SQ, SLOT_EMA};

bool param_keeps(const ckpt *c, const struct param *p, enum ckpt_slot slot)
{
    const struct param *bucket = ranks_bucket_of(c, p);
    return slot == CKPT_VALUE || (bucket ? bucket : p)->filled[slot_of[slot]];
}

/* The parameter, if it exists, has n elements, and the slot is one. */
static int find_slot(ckpt *c, ckpt_tensor x, enum ckpt_slot slot, int64_t n, struct param **p)
{
    *p = context_param(c, x);
    if (!*p || slot < CKPT_VALUE || slot > CKPT_EMA)
        return context_fail(c, CKPT_ENAME, "no such parameter or slot");
    if (!param_keeps(c, *p, slot))
        return context_fail(c, CKPT_ENAME,
                            "parameter '%s' keeps no such state: no program trains it", (*p)->name);
    if (n != desc_numel(&(*p)->desc))
        return context_fail(c, CKPT_EINVAL, "parameter '%s' has %lld elements, not %lld",
                            (*p)->name, (long long)desc_numel(&(*p)->desc), (long long)n);
    return 0;
}

int ckpt_param_get(ckpt *c, ckpt_tensor x, enum ckpt_slot slot, float *dst, int64_t n)
{
    NOT_NULL(c, c);
    NOT_NULL(c, dst);
    struct param *p;
    int rc = find_slot(c, x, slot, n, &p);
    if (!rc)
        rc = context_check_whole(c);
    if (rc)
        return rc;
    if (ranks_bucket_of(c, p))
        return ranks_get(c, p, slot_of[slot], dst);
    return slot == CKPT_VALUE ? read_value(c, p, dst) : read_slot(c, p, slot_of[slot], dst);
}

/* Keeps the fp32 value on the host until the device has an fp32 copy. */
static int set_initial(ckpt *c, struct param *p, const float *src)
{
    size_t bytes = (size_t)desc_numel(&p->desc) * 4;
    if (!p->initial)
        p->initial = malloc(bytes);
    if (!p->initial)
        return context_fail(c, CKPT_ENOMEM, "no memory for parameter '%s'", p->name);
    memcpy(p->initial, src, bytes);
    return 0;
}

static int set_value(ckpt *c, struct param *p, const float *src)
{
    int rc = exact_slot(p) == SLOT_COUNT ? set_initial(c, p, src) : 0;
    if (!rc && p->filled[SLOT_VALUE])
        rc = write_slot(c, p, SLOT_VALUE, src);
    if (!rc && p->filled[SLOT_MASTER])
        rc = write_slot(c, p, SLOT_MASTER, src);
    if (!rc && p->filled[SLOT_EMA] && c->updates == 0)
        rc = write_slot(c, p, SLOT_EMA, src);
    return rc;
}

int ckpt_param_set(ckpt *c, ckpt_tensor x, enum ckpt_slot slot, const float *src, int64_t n)
{
    NOT_NULL(c, c);
    NOT_NULL(c, src);
    struct param *p;
    int rc = find_slot(c, x, slot, n, &p);
    if (!rc)
        rc = context_check_lost(c);
    if (rc)
        return rc;
    ranks_note_set(c, p, slot, src, n);
    if (ranks_bucket_of(c, p))
        return ranks_set(c, p, slot_of[slot], src);
    return slot == CKPT_VALUE ? set_value(c, p, src) : write_slot(c, p, slot_of[slot], src);
}
