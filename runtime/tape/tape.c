/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bookkeeping of the tape: storages, tensors, labels, the sticky error.
 *
 * What always holds: tensor 0 is no tensor, so a handle whose id is 0 stands for none; a handle
 * below 0 is the parameter -id - 1 of the context, before a tensor reads it.  After the first error
 * nothing is appended any more, every call returns CKPT_NONE, and the first sentence stays.  So a
 * recorder checks for errors once, at its end.
 */
#include <stdlib.h>
#include <string.h>
#include "dist/shard/layout.h"
#include "tape/tape.h"

int tape_new(ckpt_tape **out, const struct tape_env *env, int64_t micro_batch, int32_t n_micro)
{
    ckpt_tape *t = calloc(1, sizeof *t);
    if (!t)
        return CKPT_ENOMEM;
    t->env = *env;
    t->owner = handle_owner();
    t->micro_batch = micro_batch;
    t->n_micro = t->n_bodies = n_micro;
    t->n_params = env->params->n;
    size_t n = (size_t)max_i64(1, t->n_params);
    t->slots = calloc(n, sizeof *t->slots);
    t->param_gradient = calloc(n, sizeof *t->param_gradient);
    t->param_next = calloc(n, sizeof *t->param_next);
    t->param_stage = malloc(n * sizeof *t->param_stage); /* -1 below: no stage */
    t->rounded = calloc(n, sizeof *t->rounded);
    size_t buckets = (size_t)max_i64(1, env->params->n_hidden);
    t->buckets = calloc(buckets, sizeof *t->buckets);
    t->first_reader = calloc(buckets, sizeof *t->first_reader);
    int rc = ARRAY_RESERVE(&t->tensors, 0) | ARRAY_RESERVE(&t->labels, 0) |
             uses_reserve(&t->uses, 0, 0, 0);
    char *none = strdup("");
    if (rc || !t->slots || !t->param_gradient || !t->param_next || !t->param_stage ||
        !t->rounded || !t->buckets || !t->first_reader || !none) {
        free(none);
        tape_free(t);
        return CKPT_ENOMEM;
    }
    memset(t->param_stage, 0xff, n * sizeof *t->param_stage);
    memset(&t->tensors.data[0], 0, sizeof *t->tensors.data); /* no tensor */
    t->tensors.data[0].desc.ndim = -1;
    uses_clear(&t->uses, 1);
    t->n_tensors = 1;
    t->labels.data[0] = none;
    t->n_labels = 1;
    *out = t;
    return 0;
}

void counting_free(struct counting *c)
{
    if (!c)
        return;
    tape_free(c->tape);
    free(c->copy);
    free(c->counts.data);
    free(c);
}

void tape_free(ckpt_tape *t)
{
    if (!t)
        return;
    for (int32_t i = 0; i < t->n_ops; i++)
        free(t->ops.data[i].attr);
    for (int32_t i = 0; i < t->n_feeds; i++) {
        free(t->feeds.data[i].name);
        free(t->feeds.data[i].constant);
    }
    for (int32_t i = 0; i < t->n_fetches; i++)
        free(t->fetches.data[i].name);
    for (int32_t i = 0; i < t->n_labels; i++)
        free(t->labels.data[i]);
    while (t->copies) {
        struct op_copy *o = t->copies;
        t->copies = o->next;
        free(o);
    }
    free(t->storages.data);
    free(t->tensors.data);
    free(t->ops.data);
    free(t->operands.data);
    uses_free(&t->uses);
    free(t->feeds.data);
    free(t->fetches.data);
    free(t->labels.data);
    free(t->means.data);
    free(t->slots);
    free(t->param_gradient);
    free(t->param_next);
    free(t->param_stage);
    free(t->rounded);
    free(t->buckets);
    free(t->first_reader);
    counting_free(t->counting);
    free(t);
}

/* Inserts "name: " before the sentence that begins there, unless it begins so. */
static void name_call(char *sentence, size_t size, const char *name)
{
    const size_t n = strlen(name), length = strlen(sentence);
    if ((!strncmp(sentence, name, n) && sentence[n] == ':') || n + 2 >= size)
        return;
    const size_t kept = length < size - n - 3 ? length : size - n - 3;
    memmove(sentence + n + 2, sentence, kept);
    memcpy(sentence, name, n);
    memcpy(sentence + n, ": ", 2);
    sentence[n + 2 + kept] = 0;
}

/* The sentence begins with the line of the recorder and the call, "model.c:12: linear: ...". */
int tape_fail(ckpt_tape *t, int code, const char *fmt, ...)
{
    if (t->error.code)
        return t->error.code;
    int n = 0;
    if (t->file)
        n = snprintf(t->error.text, sizeof t->error.text, "%s:%d: ", t->file, t->line);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(t->error.text + n, sizeof t->error.text - (size_t)n, fmt, ap);
    va_end(ap);
    if (t->call)
        name_call(t->error.text + n, sizeof t->error.text - (size_t)n, t->call);
    t->error.code = code;
    return code;
}

/* Keeps the first reason only: one is enough to refuse micro-steps of another size. */
void tape_couple(ckpt_tape *t, const char *fmt, ...)
{
    va_list ap;
    if (*t->coupled)
        return;
    va_start(ap, fmt);
    vsnprintf(t->coupled, sizeof t->coupled, fmt, ap);
    va_end(ap);
}

/* For a tape that is NULL: a tape that has failed, so that calls on it do nothing. */
static ckpt_tape *tape_or_none(ckpt_tape *t)
{
    static struct tensor none = {.desc.ndim = -1};
    static ckpt_tape failed = {.error.code = CKPT_EINVAL, .tensors.data = &none, .n_tensors = 1};
    return t ? t : &failed;
}

void ckpt_tape_fail(ckpt_tape *t, int code, const char *fmt, ...)
{
    char text[CKPT_MESSAGE / 2];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt ? fmt : "the recorder failed", ap);
    va_end(ap);
    tape_fail(tape_or_none(t), code < 0 ? code : CKPT_EINVAL, "%s", text);
}

ckpt_tape *ckpt_tape_at(ckpt_tape *t, const char *file, int line)
{
    t = tape_or_none(t);
    if (!t->error.code) {
        t->file = file;
        t->line = line;
    }
    return t;
}

void ckpt_label(ckpt_tape *t, const char *fmt, ...)
{
    char text[160];
    va_list ap;
    if (!t || t->error.code)
        return;
    if (!fmt) {
        tape_fail(t, CKPT_EINVAL, "label: it has no text");
        return;
    }
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    char *copy = strdup(text);
    if (!copy || ARRAY_RESERVE(&t->labels, t->n_labels)) {
        free(copy);
        tape_fail(t, CKPT_ENOMEM, "no memory for a label");
        return;
    }
    t->labels.data[t->n_labels] = copy;
    t->label = t->n_labels++;
}

/* Appends a tensor; returns its id, or 0 with the tape's error set. */
static int32_t add_tensor(ckpt_tape *t, int32_t storage, const struct ckpt_desc *d, int32_t op,
                          int32_t index, bool needs_grad)
{
    struct ckpt_desc desc = *d; /* d may point into the array that grows */
    if (ARRAY_RESERVE(&t->tensors, t->n_tensors) || uses_reserve(&t->uses, 0, t->n_tensors, 0)) {
        tape_fail(t, CKPT_ENOMEM, "no memory for tensor %d", t->n_tensors);
        return 0;
    }
    t->tensors.data[t->n_tensors] = (struct tensor){
        .storage = storage, .desc = desc, .op = op, .index = index, .needs_grad = needs_grad};
    uses_add_tensor(&t->uses, t->n_tensors, storage);
    return t->n_tensors++;
}

/* Appends a storage whose first tensor is added next; returns its id, or -1 with the tape's error
 * set. */
static int32_t add_storage(ckpt_tape *t, int64_t bytes, enum storage_kind kind, int32_t param)
{
    if (ARRAY_RESERVE(&t->storages, t->n_storages) || uses_reserve(&t->uses, 0, 0, t->n_storages)) {
        tape_fail(t, CKPT_ENOMEM, "no memory for storage %d", t->n_storages);
        return -1;
    }
    t->storages.data[t->n_storages] = (struct storage){
        .bytes = bytes, .kind = kind, .param = param, .feed = -1, .tensor = t->n_tensors};
    t->uses.on.data[t->n_storages] = 0;
    return t->n_storages++;
}

/* Elements from the first to the last one of a tensor, which is the size of its storage. */
static int64_t desc_span(const struct ckpt_desc *d)
{
    int64_t span = 1;
    for (int i = 0; i < d->ndim; i++)
        span += (d->shape[i] - 1) * d->stride[i];
    return span;
}

bool tape_is_sharded(const ckpt_tape *t, int32_t param)
{
    const struct layout *l = t->env.sharing.layout;
    return l && param < l->n_params && l->places[param].bucket >= 0;
}

/* A shared parameter is read through a view of its gathered copy, which is made once: the slot has
 * that view. */
int32_t tape_param_of(const ckpt_tape *t, int32_t x)
{
    const struct tensor *v = &t->tensors.data[x];
    const struct storage *s = &t->storages.data[v->storage];
    if (v->op < 0)
        return s->kind == STORAGE_VALUE ? s->param : -1;
    if (!t->env.sharing.layout || !v->learned || !(t->ops.data[v->op].def->flags & CKPT_OP_VIEW))
        return -1;
    for (int32_t i = 0; i < t->env.sharing.layout->n_params; i++)
        if (t->slots[i][SLOT_VALUE] == x)
            return i;
    return -1;
}

int32_t tape_label_bucket(ckpt_tape *t, int32_t bucket)
{
    int32_t before = t->label;
    ckpt_label(t, "%s", t->env.sharing.layout->buckets[bucket].name);
    return before;
}

ckpt_tensor tape_new_tensor(ckpt_tape *t, const struct ckpt_desc *d, enum storage_kind kind)
{
    if (t->error.code)
        return CKPT_NONE;
    struct ckpt_desc own = *d;
    own.offset = 0;
    int32_t s = add_storage(t, desc_span(&own) * ckpt_dtype_size(own.dtype), kind, -1);
    return s < 0 ? CKPT_NONE : tape_handle(t, add_tensor(t, s, &own, -1, 0, false));
}

ckpt_tensor tape_view_tensor(ckpt_tape *t, ckpt_tensor base, const struct ckpt_desc *d)
{
    if (t->error.code)
        return CKPT_NONE;
    return tape_handle(t, add_tensor(t, t->tensors.data[base.id].storage, d, -1, 0, false));
}

ckpt_tensor tape_slot(ckpt_tape *t, int32_t param, enum storage_kind kind)
{
    const int slot = (int)(kind - STORAGE_VALUE);
    if (t->error.code)
        return CKPT_NONE;
    if (t->slots[param][slot])
        return tape_handle(t, t->slots[param][slot]);
    struct ckpt_desc d = param_slot_desc(&t->env.params->data[param], slot);
    int32_t s = add_storage(t, desc_bytes(&d), kind, param);
    if (s < 0)
        return CKPT_NONE;
    bool trained = kind == STORAGE_VALUE && tape_trains(t, param);
    t->slots[param][slot] = add_tensor(t, s, &d, -1, 0, trained);
    return tape_handle(t, t->slots[param][slot]);
}

static bool any_has_ema(const struct params *ps)
{
    for (int32_t i = 0; i < ps->n; i++)
        if (ps->data[i].place.offset[SLOT_EMA] >= 0)
            return true;
    return false;
}

void ckpt_read_ema(ckpt_tape *t)
{
    if (!t)
        return;
    if (t->trains)
        tape_fail(t, CKPT_EINVAL, "ckpt_read_ema: a program that trains reads the weights");
    else if (t->n_tensors > 1)
        tape_fail(t, CKPT_EINVAL, "ckpt_read_ema: call it before anything is recorded");
    else if (!any_has_ema(t->env.params))
        tape_fail(t, CKPT_EINVAL,
                  "ckpt_read_ema: there is no moving average: compile a program first whose "
                  "optimizer has an ema_decay");
    t->reads_ema = true;
}

/* What the model reads of a parameter: its value, or what ops make of its slots.  Those are
 * recorded at the first read and found in the slot afterwards, so every reader shares them. */
static ckpt_tensor value_of(ckpt_tape *t, int32_t param)
{
    if (t->slots[param][SLOT_VALUE])
        return tape_handle(t, t->slots[param][SLOT_VALUE]);
    const struct param *p = &t->env.params->data[param];
    if (t->reads_ema || tape_is_sharded(t, param) || p->training.codes || p->split.ranks > 1)
        return t->env.calls->value(t, param);
    return tape_slot(t, param, STORAGE_VALUE);
}

ckpt_tensor tape_resolve(ckpt_tape *t, ckpt_tensor x)
{
    if (t->error.code || x.id == 0)
        return CKPT_NONE;
    uint32_t owner = x.id > 0 ? t->owner : t->env.params->owner;
    int64_t param = -(int64_t)x.id - 1;
    if (x.owner && x.owner != owner)
        tape_fail(
            t, CKPT_EINVAL,
            x.id > 0
                ? "a tensor of another tape: a recorder may use its own tensors, and parameters"
                : "a parameter of another context");
    else if (x.id > 0 && x.id < t->n_tensors)
        return tape_handle(t, x.id);
    else if (x.id < 0 && param < t->n_params)
        return value_of(t, (int32_t)param);
    else
        tape_fail(t, CKPT_EINVAL, "a tensor does not belong to this tape");
    return CKPT_NONE;
}

struct tensor *tape_tensor(ckpt_tape *t, ckpt_tensor x)
{
    x = tape_resolve(t, x);
    return x.id ? &t->tensors.data[x.id] : NULL;
}

struct ckpt_desc ckpt_desc_of(ckpt_tape *t, ckpt_tensor x)
{
    const struct tensor *v = tape_tensor(tape_or_none(t), x);
    struct ckpt_desc none = {.ndim = -1};
    for (int i = 0; i < CKPT_MAX_DIMS; i++)
        none.shape[i] = 1;
    return v ? v->desc : none;
}

void tape_call(const ckpt_tape *t, const struct op *o, struct ckpt_call *call, struct ckpt_desc *in,
               struct ckpt_desc *out)
{
    for (int i = 0; i < o->n_in; i++)
        in[i] = t->tensors.data[max_i64(0, op_in(t, o, i))].desc;
    for (int i = 0; i < o->n_out; i++)
        out[i] = t->tensors.data[max_i64(0, op_out(t, o, i))].desc;
    *call = (struct ckpt_call){.n_in = o->n_in,
                               .n_out = o->n_out,
                               .in = in,
                               .out = out,
                               .attr = o->attr,
                               .backend = t->env.backend,
                               .deterministic = !t->env.unordered,
                               .threads = (int)max_i64(1, t->env.threads),
                               .extra = o->extra,
                               .workspace = o->workspace};
}

/* "linear in layers.0 (model.c:41)"; of fused ops with the first and the last line. */
void tape_op_name(const ckpt_tape *t, int32_t op, char *dst, size_t size)
{
    const struct op *o = &t->ops.data[op];
    const char *label = t->labels.data[o->label];
    const char *file = o->file ? strrchr(o->file, '/') : NULL;
    int n = snprintf(dst, size, "%s", t->env.calls->name(o->def, o->attr));
    if (*label && n < (int)size)
        n += snprintf(dst + n, size - (size_t)n, " in %s", label);
    if (o->file && n < (int)size)
        n += snprintf(dst + n, size - (size_t)n, " (%s:%d", file ? file + 1 : o->file,
                      o->first_line ? o->first_line : o->line);
    if (o->first_line && o->first_line < o->line && o->file && n < (int)size)
        n += snprintf(dst + n, size - (size_t)n, "-%d", o->line);
    if (o->file && n < (int)size)
        snprintf(dst + n, size - (size_t)n, ")");
}
