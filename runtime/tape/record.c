/* SPDX-License-Identifier: Apache-2.0 */
/* Recording a call: operands, the shape rule, outputs, the op itself. */
#include <float.h>
#include <stdlib.h>
#include <string.h>
#include "core/sized.h"
#include "tape/tape.h"

enum { MAX_OPERANDS = 1 << 16 };

int ckpt_call_fail(struct ckpt_call *call, const char *fmt, ...)
{
    va_list ap;
    if (!call || !call->message || !fmt)
        return CKPT_ESHAPE;
    va_start(ap, fmt);
    vsnprintf(call->message, call->message_size, fmt, ap);
    va_end(ap);
    return CKPT_ESHAPE;
}

/* Sets the sentence of a refused call: op, reason, operands. */
static int fail_call(ckpt_tape *t, const struct ckpt_op_def *def, const struct ckpt_call *call,
                     int code)
{
    char operands[CKPT_MESSAGE / 2] = "";
    size_t n = 0;
    for (int i = 0; i < call->n_in && n + 1 < sizeof operands; i++) {
        char one[128];
        desc_format(one, sizeof one, &call->in[i]);
        int w = snprintf(operands + n, sizeof operands - n, "%s%s", i ? ", " : "", one);
        n += (size_t)max_i64(0, w);
    }
    return tape_fail(t, code, "%s: %s%s%s", t->env.calls->name(def, call->attr), call->message,
                     call->n_in ? "; got " : "", operands);
}

/* Resolves handles, records feeds, and makes operands dense unless the kernel accepts strides. */
static int resolve_operands(ckpt_tape *t, const struct ckpt_op_def *def, int n,
                            const ckpt_tensor *x, ckpt_tensor *in, struct ckpt_desc *descs)
{
    for (int i = 0; i < n; i++) {
        in[i] = tape_resolve(t, x[i]);
        const struct tensor *v = &t->tensors.data[in[i].id];
        if (in[i].id && t->storages.data[v->storage].feed >= 0)
            tape_use_feed(t, t->storages.data[v->storage].feed);
        if (in[i].id && !(def->flags & (CKPT_OP_STRIDED | CKPT_OP_VIEW)))
            in[i] = t->env.calls->dense(t, in[i]);
        if (t->error.code)
            return t->error.code;
        descs[i] = t->tensors.data[in[i].id].desc;
    }
    return 0;
}

static bool strides_unset(const struct ckpt_desc *d)
{
    for (int i = 0; i < d->ndim; i++)
        if (d->stride[i])
            return false;
    return true;
}

/* Whether all elements of d have one address, so that a view of it may have strides of 0, too. */
static bool is_one_place(const struct ckpt_desc *d)
{
    for (int i = 0; i < d->ndim; i++)
        if (d->shape[i] != 1 && d->stride[i])
            return false;
    return desc_numel(d) > 1;
}

/* Whether all elements of d lie in a storage of this many bytes; -1: in one of any possible size.
 */
static bool strides_are_valid(const struct ckpt_desc *d, int64_t bytes)
{
    int64_t last = d->offset, size = ckpt_dtype_size(d->dtype), step;
    for (int i = 0; i < d->ndim; i++)
        if (d->stride[i] < 0 || __builtin_mul_overflow(d->shape[i] - 1, d->stride[i], &step) ||
            __builtin_add_overflow(last, step, &last))
            return false;
    return d->offset >= 0 && last < (bytes < 0 ? INT64_MAX / 64 : bytes / size);
}

/* Checks an output that a shape rule described; rules of programs may be wrong in any way. */
static int check_output(const ckpt_tape *t, const struct ckpt_op_def *def, struct ckpt_call *call,
                        const ckpt_tensor *in, int i)
{
    struct ckpt_desc *d = &call->out[i];
    bool view = def->flags & CKPT_OP_VIEW;
    if (!dtype_is_known(d->dtype))
        return ckpt_call_fail(call, "output %d has no dtype of ckpt.h", i);
    if (view && (call->n_in < 1 || !in[0].id))
        return ckpt_call_fail(call, "output %d is a view of an operand that is missing", i);
    if (!desc_is_sane(d))
        return ckpt_call_fail(call, "output %d would be empty or too large", i);
    if (strides_unset(d) &&
        !(view && (def->flags & TAPE_OP_BROADCASTS || is_one_place(&call->in[0]))))
        desc_dense(d);
    int64_t bytes = view ? t->storages.data[t->tensors.data[in[0].id].storage].bytes : -1;
    if (!strides_are_valid(d, bytes))
        return ckpt_call_fail(call, "output %d has elements outside of its storage", i);
    return 0;
}

static int check_costs(const struct ckpt_op_def *def, struct ckpt_call *call)
{
    struct ckpt_cost cost = {0};
    if (call->workspace < 0 || call->workspace > INT64_MAX / 64)
        return ckpt_call_fail(call, "it asks for %lld bytes of scratch",
                              (long long)call->workspace);
    if (def->cost)
        def->cost(call, &cost);
    if (!(cost.flops >= 0 && cost.flops <= DBL_MAX && cost.bytes >= 0 && cost.bytes <= DBL_MAX))
        return ckpt_call_fail(call, "its cost is %g operations and %g bytes", cost.flops,
                              cost.bytes);
    return 0;
}

static int run_shape_rule(ckpt_tape *t, const struct ckpt_op_def *def, struct ckpt_call *call,
                          const ckpt_tensor *in)
{
    char reason[CKPT_MESSAGE / 4] = "shapes do not fit";
    call->message = reason;
    call->message_size = sizeof reason;
    int rc = def->shape(call);
    for (int i = 0; i < call->n_out && !rc; i++) {
        if (call->out[i].ndim == -1 && (def->flags & CKPT_OP_INPLACE) && i < call->n_in)
            continue;
        rc = check_output(t, def, call, in, i);
    }
    if (!rc)
        rc = check_costs(def, call);
    return rc ? fail_call(t, def, call, rc < 0 ? rc : CKPT_ESHAPE) : 0;
}

int32_t tape_number(const ckpt_tape *t)
{
    return t->n_ops - t->n_unnumbered;
}

void tape_set_number(ckpt_tape *t, int32_t number)
{
    t->n_unnumbered = t->n_ops - number;
}

int32_t tape_append(ckpt_tape *t, const struct ckpt_op_def *def, int n_in, const ckpt_tensor *in,
                    int n_out, const ckpt_tensor *out)
{
    if (t->error.code)
        return -1;
    if (ARRAY_RESERVE(&t->ops, t->n_ops) || tape_reserve_operands(t, n_in + n_out)) {
        tape_fail(t, CKPT_ENOMEM, "no memory for op %d", t->n_ops);
        return -1;
    }
    struct op *o = &t->ops.data[t->n_ops];
    *o = (struct op){.def = def, .operands = t->n_operands, .n_in = n_in, .n_out = n_out};
    o->phase = t->phase;
    o->feed = o->fetch = -1;
    o->number = tape_number(t);
    o->label = t->label;
    o->file = t->file;
    o->line = t->line;
    for (int i = 0; i < n_in; i++)
        t->operands.data[t->n_operands++] = in[i].id ? in[i].id : -1;
    for (int i = 0; i < n_out; i++) {
        t->operands.data[t->n_operands++] = out[i].id ? out[i].id : -1;
        t->tensors.data[out[i].id].op = t->n_ops;
        t->tensors.data[out[i].id].index = i;
    }
    tape_enter_reads(t, t->n_ops);
    return t->n_ops++;
}

static ckpt_tensor make_output(ckpt_tape *t, const struct ckpt_op_def *def, const ckpt_tensor *in,
                               int n_in, int i, const struct ckpt_desc *d)
{
    if (def->flags & CKPT_OP_VIEW)
        return tape_view_tensor(t, in[0], d);
    if ((def->flags & CKPT_OP_INPLACE) && i < n_in)
        return in[i].id ? tape_view_tensor(t, in[i], &t->tensors.data[in[i].id].desc) : CKPT_NONE;
    return tape_new_tensor(t, d, tape_kind_of(t->phase));
}

static bool any_needs_grad(const ckpt_tape *t, const ckpt_tensor *in, int n)
{
    for (int i = 0; i < n; i++)
        if (t->tensors.data[in[i].id].needs_grad)
            return true;
    return false;
}

/* Whether an operand is a parameter or depends on one. */
static bool any_learned(const ckpt_tape *t, const ckpt_tensor *in, int n)
{
    for (int i = 0; i < n; i++) {
        const struct tensor *v = &t->tensors.data[in[i].id];
        if (in[i].id && (v->learned || t->storages.data[v->storage].kind == STORAGE_VALUE))
            return true;
    }
    return false;
}

static int append_call(ckpt_tape *t, const struct ckpt_op_def *def, const struct ckpt_call *call,
                       const ckpt_tensor *in, ckpt_tensor *out, size_t attr_size)
{
    bool rule = def->grad || t->in_gradients;
    bool needs = t->phase == PHASE_FORWARD && rule && any_needs_grad(t, in, call->n_in);
    bool learned = any_learned(t, in, call->n_in);
    void *attr = NULL;
    if (attr_size) {
        attr = malloc(attr_size);
        if (!attr)
            return tape_fail(t, CKPT_ENOMEM, "no memory for the attributes of %s", def->name);
        memcpy(attr, call->attr, attr_size);
    }
    for (int i = 0; i < call->n_out; i++) {
        out[i] = make_output(t, def, in, call->n_in, i, &call->out[i]);
        if (!out[i].id)
            continue;
        t->tensors.data[out[i].id].needs_grad = needs && call->out[i].dtype != CKPT_I32;
        t->tensors.data[out[i].id].learned = learned;
    }
    int32_t o = tape_append(t, def, call->n_in, in, call->n_out, out);
    if (o < 0) {
        free(attr);
        return t->error.code;
    }
    t->ops.data[o].attr = attr;
    t->ops.data[o].attr_size = attr_size;
    t->ops.data[o].workspace = call->workspace;
    t->ops.data[o].of_gradients = t->in_gradients;
    if (def->flags & CKPT_OP_INPLACE && def->flags & CKPT_OP_ACCUMULATE)
        t->ops.data[o].accumulate = ACCUMULATE_ALWAYS;
    if (t->splits && t->phase == PHASE_FORWARD)
        t->env.calls->follow(t, o);
    return t->error.code;
}

/* The def of an op in this library's size, for a program that was built against another header:
 * members that its struct is too short for are NULL.  The copy lives as long as the tape. */
static const struct ckpt_op_def *whole_def(ckpt_tape *t, const struct ckpt_op_def *given)
{
    if (given->size == sizeof *given)
        return given;
    for (struct op_copy *o = t->copies; o; o = o->next)
        if (o->given == given)
            return &o->def;
    struct op_copy *o = calloc(1, sizeof *o);
    if (!o) {
        tape_fail(t, CKPT_ENOMEM, "no memory for an op");
        return NULL;
    }
    o->def.size = sizeof o->def;
    int rc = sized_read("struct ckpt_op_def", &o->def, sizeof o->def, given);
    if (rc) {
        free(o);
        tape_fail(t, rc, "ckpt_record: %s", error_get());
        return NULL;
    }
    o->given = given;
    o->next = t->copies;
    t->copies = o;
    return &o->def;
}

int ckpt_record(ckpt_tape *t, const struct ckpt_op_def *def, int n_in, const ckpt_tensor *x,
                int n_out, ckpt_tensor *out, const void *attr, size_t attr_size)
{
    NOT_NULL(t);
    for (int i = 0; out && i < n_out && n_out <= MAX_OPERANDS; i++)
        out[i] = CKPT_NONE;
    if (t->error.code)
        return t->error.code;
    if (def && !(def = whole_def(t, def)))
        return t->error.code;
    if (!def || !def->name || !def->shape)
        return tape_fail(t, CKPT_EINVAL, "an op without name or shape rule was recorded");
    if (n_in < 0 || n_out < 0 || n_in > MAX_OPERANDS || n_out > MAX_OPERANDS || (n_in && !x) ||
        (n_out && !out) || (attr_size && !attr))
        return tape_fail(t, CKPT_EINVAL,
                         "%s: %d inputs, %d outputs and %zu bytes of attributes "
                         "are not there",
                         def->name, n_in, n_out, attr_size);
    size_t n = (size_t)(n_in + n_out + 1);
    ckpt_tensor *in = calloc(n, sizeof *in);
    struct ckpt_desc *descs = calloc(n, sizeof *descs);
    if (!in || !descs) {
        free(in);
        free(descs);
        return tape_fail(t, CKPT_ENOMEM, "no memory to record %s", def->name);
    }
    int rc = resolve_operands(t, def, n_in, x, in, descs);
    if (!rc) {
        struct ckpt_call call = {.n_in = n_in,
                                 .n_out = n_out,
                                 .in = descs,
                                 .out = descs + n_in,
                                 .attr = attr,
                                 .backend = t->env.backend,
                                 .deterministic = !t->env.unordered,
                                 .threads = (int)max_i64(1, t->env.threads)};
        rc = run_shape_rule(t, def, &call, in);
        if (!rc)
            rc = append_call(t, def, &call, in, out, attr_size);
    }
    free(in);
    free(descs);
    return rc;
}
