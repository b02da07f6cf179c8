/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pads the rows of logits whose size is no multiple of 16 bytes (50,257 classes), and of their
 * gradients.
 *
 * Products on GPUs load and store 16 bytes at a time if each row begins at a multiple of that;
 * other rows take more than twice the time.  Only the distance between rows changes: every kernel
 * sees the same elements, and reads and writes nothing in between.  So no bit changes, and a weight
 * or its gradient, which lies along its other axis, needs no padding.
 *
 * A storage is padded if it holds such rows and nothing else, and all ops that read or write it are
 * in the table below, whose kernels take rows at a distance.
 */
#include "ops.h"
#include "passes/passes.h"

/* Rows begin at multiples of ROW_START bytes; those below SHORTEST bytes would grow by too much. */
enum { ROW_UNIT = 16, ROW_START = 128, SHORTEST = 8 * ROW_START };

/* The operands of an op that may have padded rows, as bits. */
struct takes_rows {
    const struct ckpt_op_def *def;
    unsigned in, out;
};

static const struct takes_rows table[] = {{&op_linear, 0, 1 << 0},
                                          {&op_linear_dx, 1 << 0, 0},
                                          {&op_linear_dw, 1 << 0, 0},
                                          {&op_column_sum, 1 << 0, 0},
                                          {&op_add, 1 << 0 | 1 << 1, 1 << 0},
                                          {&op_cross_entropy, 1 << 0, 0},
                                          {&op_cross_entropy_dx, 1 << 1, 1 << 0},
                                          {&op_cross_entropy_both, 1 << 1, 1 << 1}};

/* Whether op i takes padded rows as input, or output, k.  An addend of a layer is a matrix like its
 * result, which is dense. */
static bool takes(const ckpt_tape *t, int32_t i, bool out, int k)
{
    const struct op *o = &t->ops.data[i];
    if (o->def->flags & CKPT_OP_VIEW)
        return true;
    if (o->extra || (o->def == &op_linear && o->n_in > 3 && op_in(t, o, 3) > 0))
        return false;
    for (size_t r = 0; r < sizeof table / sizeof *table; r++)
        if (table[r].def == o->def)
            return (out ? table[r].out : table[r].in) >> k & 1;
    return false;
}

/* The elements of a row of x, a dense matrix of rows; else 0. */
static int64_t row_of(const struct ckpt_desc *d)
{
    return d->ndim > 0 && !d->offset && desc_is_dense(d) ? d->shape[d->ndim - 1] : 0;
}

/* Whether all that is on the storage are rows of n elements, and all its ops take padded ones. */
static bool can_pad(const ckpt_tape *t, int32_t storage, int64_t n)
{
    for (int32_t x = uses_on(t, storage); x; x = uses_older(t, x)) {
        const struct tensor *v = &t->tensors.data[x];
        if (row_of(&v->desc) != n || v->op < 0 || !takes(t, v->op, true, v->index) ||
            desc_bytes(&v->desc) != t->storages.data[storage].bytes)
            return false;
        for (int32_t u = uses_first(t, x); u >= 0; u = uses_next(t, u))
            if (!takes(t, uses_op(t, u), false, uses_operand(t, u)))
                return false;
    }
    return true;
}

/* The distance between the rows of a storage once they are padded, in elements; 0: they are not. */
static int64_t padded(const ckpt_tape *t, int32_t storage)
{
    const struct storage *s = &t->storages.data[storage];
    const int32_t x = uses_on(t, storage);
    if (!x || s->carried || (s->kind != STORAGE_ACTIVATION && s->kind != STORAGE_TEMPORARY))
        return 0;
    const struct ckpt_desc *d = &t->tensors.data[x].desc;
    const int64_t n = row_of(d), size = ckpt_dtype_size(d->dtype), bytes = n * size;
    if (bytes < SHORTEST || bytes % ROW_UNIT == 0 || !can_pad(t, storage, n))
        return 0;
    return round_up(bytes, ROW_START) / size;
}

static void pad(ckpt_tape *t, int32_t storage, int64_t pitch)
{
    struct storage *s = &t->storages.data[storage];
    for (int32_t x = uses_on(t, storage); x; x = uses_older(t, x)) {
        struct ckpt_desc *d = &t->tensors.data[x].desc;
        int64_t stride = pitch;
        for (int i = d->ndim - 2; i >= 0; i--) {
            d->stride[i] = stride;
            stride *= d->shape[i];
        }
        s->bytes = desc_numel(d) / d->shape[d->ndim - 1] * pitch * ckpt_dtype_size(d->dtype);
    }
}

int pass_pad_rows(const struct compilation *c)
{
    ckpt_tape *t = c->tape;
    for (int32_t s = 0; s < t->n_storages; s++) {
        const int64_t pitch = padded(t, s);
        if (pitch)
            pad(t, s, pitch);
    }
    return 0;
}
