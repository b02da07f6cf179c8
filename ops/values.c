/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a model reads of a parameter where that is not its value as it is stored: codes are decoded,
 * a bucket of several ranks is gathered, a moving average takes the dtype of the parameter.
 *
 * The parameters of a block form a bucket (layout.h), which is a parameter of its own.  The model
 * reads a view: at stages 0 and 1 of the bucket itself, since every rank has all of it; at stages 2
 * and 3 of the result of an all_gather of the shares.  Freeing that result between its uses is
 * ZeRO-3, keeping it ZeRO-2, and the planner treats it like anything else that can be recomputed.
 */
#include "attr.h"
#include "collective.h"
#include "dist/shard/layout.h"
#include "ops.h"
#include "recorders.h"
#include "sequence.h"
#include "tensor_parts.h"

/* Whether every rank has all values. */
static bool has_values(const ckpt_tape *t)
{
    return t->env.sharing.zero <= 1;
}

/* Of a pipeline all ranks record the same, whichever stage has the average. */
static bool reads_average(const ckpt_tape *t, int32_t param)
{
    const struct param_place *p = &t->env.params->data[param].place;
    return tape_reads_ema(t, param) || (t->reads_ema && p->elsewhere && p->kept >> CKPT_EMA & 1);
}

/* The whole bucket as the model reads it. */
static ckpt_tensor full_bucket(ckpt_tape *t, int32_t bucket)
{
    if (t->buckets[bucket])
        return tape_handle(t, t->buckets[bucket]);
    const bool averaged = reads_average(t, tape_bucket_param(t, bucket));
    ckpt_tensor full =
        tape_slot(t, tape_bucket_param(t, bucket), averaged ? STORAGE_EMA : STORAGE_VALUE);
    struct collective_attr attr = collective_of_bucket(t, bucket);
    attr.drop_after_forward = t->env.sharing.drop_after_forward;
    if (attr.ranks > 1 && (averaged ? !tape_has_all(t) : !has_values(t))) {
        int32_t label = tape_label_bucket(t, bucket);
        const struct ckpt_op_def *def =
            t->env.sharing.zero == 3 ? &op_all_gather : &op_all_gather_once;
        full = OPS_RECORD(t, def, &attr, full);
        t->label = label;
    }
    t->buckets[bucket] = full.id;
    return full;
}

static ckpt_tensor sharded_value(ckpt_tape *t, int32_t param)
{
    const struct layout_place *place = &t->env.sharing.layout->places[param];
    struct ckpt_desc d = param_part_of(&t->env.params->data[param]);
    int32_t number = tape_number(t);
    ckpt_tensor full = full_bucket(t, place->bucket);
    ckpt_tensor part = ckpt_slice(t, full, 0, place->offset, place->offset + place->numel);
    ckpt_tensor x = ckpt_reshape(t, part, d.ndim, d.shape);
    if (x.id)
        t->tensors.data[x.id].needs_grad = tape_trains(t, param);
    tape_set_number(t, number);
    tensor_mark(t, param, x);
    return x;
}

/* The decoded value of a parameter kept in codes.  Its op may be recomputed where that beats
 * keeping the result.  It does not change the random numbers of later ops. */
static ckpt_tensor decoded_value(ckpt_tape *t, int32_t param)
{
    const ckpt_tensor codes = tape_slot(t, param, STORAGE_VALUE);
    const struct param *p = &t->env.params->data[param];
    const struct dequantize_attr attr = {.format = p->training.codes,
                                         .dtype = (int32_t)p->desc.dtype,
                                         .rows = p->desc.shape[0],
                                         .cols = p->desc.shape[1]};
    ckpt_tensor x = OPS_RECORD(t, &op_dequantize, &attr, codes);
    t->n_unnumbered += x.id != 0;
    return x;
}

static ckpt_tensor current_value(ckpt_tape *t, int32_t param)
{
    if (tape_is_sharded(t, param))
        return sharded_value(t, param);
    if (t->env.params->data[param].split.ranks > 1) {
        tape_fail(t, CKPT_EINVAL,
                  "parameter '%s': its ranks have a part each (--tensor), so it must be trained",
                  t->env.params->data[param].name);
        return CKPT_NONE;
    }
    return t->env.params->data[param].training.codes ? decoded_value(t, param)
                                                     : tape_slot(t, param, STORAGE_VALUE);
}

/* What a model reads of a parameter after ckpt_read_ema.  Its ops do not change the random numbers
 * of later ones. */
static ckpt_tensor averaged_value(ckpt_tape *t, int32_t param)
{
    const struct param *p = &t->env.params->data[param];
    ckpt_tensor x = !tape_is_sharded(t, param) && reads_average(t, param)
                        ? tape_slot(t, param, STORAGE_EMA)
                        : current_value(t, param);
    const int32_t number = tape_number(t);
    x = ckpt_cast(t, x, p->desc.dtype);
    tape_set_number(t, number);
    return x;
}

static ckpt_tensor read_value(ckpt_tape *t, int32_t param)
{
    ckpt_tensor x = t->reads_ema ? averaged_value(t, param) : current_value(t, param);
    t->slots[param][SLOT_VALUE] = x.id;
    return x;
}

static void follow(ckpt_tape *t, int32_t op)
{
    (t->env.sharing.tensor > 1 ? tensor_follow : sequence_follow)(t, op);
}

const struct tape_calls ops_calls = {
    .name = ops_name, .dense = ckpt_contiguous, .value = read_value, .follow = follow};
