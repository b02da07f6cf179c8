/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of a tape, one op a line:
 *
 *      12 F %9: bf16 [64, 256] @4 = linear(%7, %2, -) in block 0 (model.c:31) adds
 *
 * the position, the pass (Forward, Backward, Update), results with dtype, shape and storage, op,
 * operands ("-": absent), label and line; "adds": into the result, "adds later": but for the first
 * micro-step.
 */
#include "passes/dump.h"

static void print_tensor(const ckpt_tape *t, int32_t x, FILE *f)
{
    char text[128];
    if (x <= 0) {
        fputc('-', f);
        return;
    }
    desc_format(text, sizeof text, &t->tensors.data[x].desc);
    fprintf(f, "%%%d: %s @%d", (int)x, text, (int)t->tensors.data[x].storage);
}

static void print_op(const ckpt_tape *t, int32_t i, FILE *f)
{
    static const char *const adds[] = {"", " adds", " adds later"};
    const struct op *o = &t->ops.data[i];
    char name[256];
    tape_op_name(t, i, name, sizeof name);
    const char *place = name;
    while (*place && *place != ' ')
        place++;
    fprintf(f, "%6d %c ", (int)i, "FBU"[o->phase]);
    for (int k = 0; k < o->n_out; k++) {
        print_tensor(t, op_out(t, o, k), f);
        fputs(k + 1 < o->n_out ? ", " : " = ", f);
    }
    fprintf(f, "%.*s(", (int)(place - name), name);
    for (int k = 0; k < o->n_in; k++) {
        const int32_t x = op_in(t, o, k);
        fprintf(f, x > 0 ? "%s%%%d" : "%s-", k ? ", " : "", (int)x);
    }
    fprintf(f, ")%s%s\n", place, adds[o->accumulate]);
}

void passes_dump(const ckpt_tape *t, const char *pass, FILE *f)
{
    fprintf(f, "tape after %s: %d ops, %d tensors, %d storages; %lld samples x %d micro-steps\n",
            pass, (int)t->n_ops, (int)t->n_tensors, (int)t->n_storages, (long long)t->micro_batch,
            (int)t->n_micro);
    for (int32_t i = 0; i < t->n_ops; i++)
        if (t->ops.data[i].def != &tape_removed)
            print_op(t, i, f);
}
