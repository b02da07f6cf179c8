/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers: parameters that no optimizer changes, to which the forward pass gives new values.
 *
 * The next value of a buffer has a storage of its own until the update, which moves it into the
 * buffer together with the weights or, in a step that is not finite, changes nothing.  So every
 * reader in the step sees the value from before the step.  The storage also passes the average from
 * micro-step to micro-step: the first one averages with the buffer, later ones with the storage.
 * Averages are in-place ops, so no plan runs one again.  A buffer that is updated once per step
 * waits for the update, and only the sum of its values is carried on.
 */
#include "attr.h"
#include "core/sized.h"
#include "ops.h"
#include "recorders.h"

/* n averages, n buffers, n values -> the new averages: of the value and the old average where the
 * op accumulates, otherwise of the value and the buffer. */
static int moving_average_shape(struct ckpt_call *call)
{
    const struct ckpt_desc *before = call->in + call->n_out, *x = before + call->n_out;
    if (call->n_out > AVERAGE_PAIRS)
        return ckpt_call_fail(call, "more than %d averages", AVERAGE_PAIRS);
    for (int k = 0; k < call->n_out; k++) {
        if (call->in[k].dtype != CKPT_F32 || before[k].dtype != CKPT_F32 || x[k].dtype != CKPT_F32)
            return ckpt_call_fail(call, "average, buffer and value must be fp32");
        if (desc_numel(&call->in[k]) != desc_numel(&before[k]) ||
            desc_numel(&x[k]) != desc_numel(&before[k]) || !desc_step(&x[k]))
            return ckpt_call_fail(call, "average, buffer and value differ in size");
        call->out[k] = call->in[k];
    }
    return CKPT_OK;
}

OPS_DEF(moving_average, .flags = CKPT_OP_STRIDED | CKPT_OP_INPLACE | CKPT_OP_ACCUMULATE,
        .shape = moving_average_shape);

ckpt_tensor tape_accumulate(ckpt_tape *t, ckpt_tensor sum, ckpt_tensor g, enum accumulate mode)
{
    const struct ckpt_op_def *def =
        t->tensors.data[sum.id].desc.dtype == CKPT_BF16 ? &op_accumulate_narrow : &op_accumulate;
    ckpt_tensor out = ops_record1(t, def, 2, (ckpt_tensor[]){sum, g}, NULL, 0);
    if (out.id)
        t->ops.data[t->tensors.data[out.id].op].accumulate = mode;
    return out;
}

/* The parameter of a handle, if its value can be averaged; else -1 and the tape's error. */
static int32_t buffer_of(ckpt_tape *t, ckpt_tensor buffer)
{
    const struct params *ps = t->env.params;
    const struct param *p = t->error.code ? NULL : params_at(ps, buffer);
    if (!p)
        tape_fail(t, CKPT_EINVAL,
                  "update_buffer: the updated tensor must be a parameter of this context");
    else if (p->trainable)
        tape_fail(t, CKPT_EINVAL,
                  "update_buffer: '%s' is trained by the optimizer; a buffer is made with "
                  "trainable = false",
                  p->name);
    else if (p->desc.dtype != CKPT_F32)
        tape_fail(t, CKPT_EINVAL, "update_buffer: '%s' is not fp32", p->name);
    return t->error.code ? -1 : (int32_t)(p - ps->data);
}

/* value as fp32 with one stride between all its elements; none, and the tape's error, if its shape
 * differs from the buffer's. */
static ckpt_tensor value_for(ckpt_tape *t, int32_t param, ckpt_tensor value)
{
    const struct param *p = &t->env.params->data[param];
    struct ckpt_desc d = ckpt_desc_of(t, value);
    char want[128], got[128];
    if (t->error.code)
        return CKPT_NONE;
    if (!desc_same_shape(&d, &p->desc) || d.dtype == CKPT_I32) {
        desc_format(want, sizeof want, &p->desc);
        desc_format(got, sizeof got, &d);
        tape_fail(t, CKPT_ESHAPE, "update_buffer: '%s' is %s; got %s", p->name, want, got);
        return CKPT_NONE;
    }
    value = ckpt_cast(t, value, CKPT_F32);
    d = ckpt_desc_of(t, value);
    return desc_step(&d) ? value : ckpt_contiguous(t, value);
}

/* Whether ops recorded now run in each of several micro-steps. */
static bool is_repeated(const ckpt_tape *t)
{
    return t->n_micro > 1 && t->phase != PHASE_UPDATE;
}

/* The tensor of a buffer's next value. */
static ckpt_tensor next_of(ckpt_tape *t, int32_t param)
{
    if (t->param_next[param])
        return tape_handle(t, t->param_next[param]);
    ckpt_tensor x = tape_new_tensor(t, &t->env.params->data[param].desc, STORAGE_TEMPORARY);
    if (x.id)
        t->storages.data[t->tensors.data[x.id].storage].carried = is_repeated(t);
    return x;
}

/* in: n next values, n buffers, n values.  again: all of them have been updated on this tape. */
static void record_average(ckpt_tape *t, int n, const int32_t *param, const ckpt_tensor *in,
                           float momentum, bool again)
{
    const struct moving_average_attr attr = {.momentum = momentum};
    ckpt_tensor out[AVERAGE_PAIRS];
    if (ckpt_record(t, &op_moving_average, 3 * n, in, n, out, &attr, sizeof attr))
        return;
    t->ops.data[t->tensors.data[out[0].id].op].accumulate = again ? ACCUMULATE_ALWAYS
                                                            : is_repeated(t)
                                                                ? ACCUMULATE_LATER_MICRO
                                                                : ACCUMULATE_NEVER;
    for (int k = 0; k < n; k++)
        t->param_next[param[k]] = out[k].id;
}

static void check_momentum(ckpt_tape *t, float momentum)
{
    if (!(momentum >= 0.f && momentum <= 1.f))
        tape_fail(t, CKPT_EINVAL, "update_buffer: a momentum of %g; it is 0 to 1",
                  (double)momentum);
}

void tape_update_buffers(ckpt_tape *t, int n, const ckpt_tensor *buffer, const ckpt_tensor *value,
                         float momentum)
{
    ckpt_tensor in[3 * AVERAGE_PAIRS];
    int32_t param[AVERAGE_PAIRS];
    bool again = false, apart = false;
    if (t->error.code)
        return;
    check_momentum(t, momentum);
    for (int k = 0; k < n; k++) {
        param[k] = buffer_of(t, buffer[k]);
        if (param[k] < 0)
            return;
        in[n + k] = buffer[k];
        in[2 * n + k] = value_for(t, param[k], value[k]);
        again = t->param_next[param[k]] != 0;
        apart |= again != (t->param_next[param[0]] != 0) || (k && param[k] == param[0]);
    }
    if (!t->updates_buffers || t->error.code)
        return;
    tape_couple(t, "ckpt_update_buffer averages one micro-step after another");
    for (int k = 0; apart && k < n; k++)
        tape_update_buffers(t, 1, buffer + k, value + k, momentum);
    for (int k = 0; !apart && k < n; k++)
        in[k] = next_of(t, param[k]);
    if (!apart)
        record_average(t, n, param, in, momentum, again);
}

void ckpt_update_buffer(ckpt_tape *t, ckpt_tensor buffer, ckpt_tensor value, float momentum)
{
    if (t)
        tape_update_buffers(t, 1, &buffer, &value, momentum);
}

/* The mean of value over the micro-steps: complete in the last one. */
static ckpt_tensor mean_of(ckpt_tape *t, ckpt_tensor value)
{
    struct ckpt_desc d = ckpt_desc_of(t, value);
    desc_dense(&d);
    ckpt_tensor part = ckpt_affine(t, value, 1.f / (float)t->n_micro, 0.f);
    ckpt_tensor sum = t->error.code ? CKPT_NONE : tape_new_tensor(t, &d, STORAGE_TEMPORARY);
    if (!sum.id)
        return CKPT_NONE;
    t->storages.data[t->tensors.data[sum.id].storage].carried = true;
    return tape_accumulate(t, sum, part, ACCUMULATE_LATER_MICRO);
}

static void update_once(ckpt_tape *t, ckpt_tensor buffer, ckpt_tensor value, float momentum)
{
    int32_t param = buffer_of(t, buffer);
    check_momentum(t, momentum);
    value = param < 0 ? CKPT_NONE : value_for(t, param, value);
    if (value.id > 0 && t->tensors.data[value.id].part > PART_COUNTS)
        tape_fail(t, CKPT_EINVAL,
                  "update_buffer: a rank has only the part of its tokens (--sequence %d)",
                  t->env.sharing.sequence);
    if (!t->updates_buffers || t->error.code)
        return;
    tape_couple(t, "ckpt_update_buffer_by averages values that may be no means of samples");
    if (ARRAY_RESERVE(&t->means, t->n_means)) {
        tape_fail(t, CKPT_ENOMEM, "update_buffer: no memory");
        return;
    }
    ckpt_tensor mean = t->n_micro > 1 ? mean_of(t, value) : value;
    t->means.data[t->n_means++] = (struct buffer_mean){buffer, mean, momentum};
}

void tape_update_once(ckpt_tape *t)
{
    for (int32_t i = 0; i < t->n_means; i++) {
        const struct buffer_mean m = t->means.data[i];
        tape_update_buffers(t, 1, &m.buffer, &m.mean, m.momentum);
    }
}

void ckpt_update_buffer_by(ckpt_tape *t, ckpt_tensor buffer, ckpt_tensor value,
                           const struct ckpt_buffer_update *settings)
{
    struct ckpt_buffer_update s = CKPT_BUFFER_UPDATE_INIT;
    if (!t || t->error.code)
        return;
    if (settings && sized_read("struct ckpt_buffer_update", &s, sizeof s, settings))
        tape_fail(t, CKPT_EINVAL, "update_buffer: %s", error_get());
    else if (s.once)
        update_once(t, buffer, value, s.momentum);
    else
        tape_update_buffers(t, 1, &buffer, &value, s.momentum);
}
