/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of gradient rules: see rule.h. */
#include <stdlib.h>
#include "tape/rule.h"

int rule_open(struct rule *r, ckpt_tape *t, const struct op *o, const char *what)
{
    const size_t n = 2 * (size_t)(o->n_in + o->n_out) + 1;
    *r = (struct rule){.op = o, .in = calloc(n, sizeof *r->in), .need = calloc(n, sizeof *r->need)};
    if (!r->in || !r->need)
        return tape_fail(t, CKPT_ENOMEM, "no memory %s", what);
    r->out = r->in + o->n_in;
    r->dout = r->out + o->n_out;
    r->din = r->dout + o->n_out;
    r->want_bf16 = r->need + o->n_in;
    for (int k = 0; k < o->n_in; k++)
        r->in[k].id = (int32_t)max_i64(0, op_in(t, o, k));
    for (int k = 0; k < o->n_out; k++)
        r->out[k].id = (int32_t)max_i64(0, op_out(t, o, k));
    return t->error.code;
}

int rule_call(struct rule *r, ckpt_tape *t)
{
    bool any = false;
    for (int k = 0; k < r->op->n_out; k++)
        any |= r->dout[k].id != 0;
    if (!any || t->error.code)
        return t->error.code;
    r->op->def->grad(&(struct ckpt_grad){.tape = t,
                                         .n_in = r->op->n_in,
                                         .n_out = r->op->n_out,
                                         .in = r->in,
                                         .out = r->out,
                                         .dout = r->dout,
                                         .need = r->need,
                                         .din = r->din,
                                         .attr = r->op->attr,
                                         .want_bf16 = r->want_bf16});
    for (int k = 0; k < r->op->n_in && !t->error.code; k++)
        r->din[k] = tape_resolve(t, r->din[k]);
    return t->error.code;
}

void rule_close(struct rule *r)
{
    free(r->in);
    free(r->need);
}

int tape_check_gradient(ckpt_tape *t, int32_t x, ckpt_tensor g)
{
    const struct ckpt_desc *like = &t->tensors.data[x].desc, *d = &t->tensors.data[g.id].desc;
    char want[128], got[128];
    if (desc_same_shape(like, d) && d->dtype != CKPT_I32)
        return 0;
    desc_format(want, sizeof want, like);
    desc_format(got, sizeof got, d);
    return tape_fail(t, CKPT_ESHAPE, "a gradient rule returned %s for an input %s", got, want);
}
