/* The collectives of a program: what the kernels of ops/cpu/collective.c call. */
#include "comm/comm.h"
#include "exec/program.h"

static int run(struct ops_ranks *ranks, enum collective kind, const struct ckpt_kernel_args *a)
{
    static const enum comm_kind kinds[] = {[COLLECTIVE_ALL_GATHER] = COMM_ALL_GATHER,
                                           [COLLECTIVE_REDUCE_SCATTER] = COMM_REDUCE_SCATTER,
                                           [COLLECTIVE_ALL_REDUCE] = COMM_ALL_REDUCE};
    struct program_ranks *r = (struct program_ranks *)ranks;
    struct comm *comm = r->p->c->comm;
    const struct op *o = &r->p->tape->ops.data[a->op];
    const struct ckpt_view *in = &a->in[0], *out = &a->out[0];
    int64_t count = desc_numel(kind == COLLECTIVE_REDUCE_SCATTER ? &out->desc : &in->desc);
    const char *src = in->data;
    if (kind == COLLECTIVE_ALL_GATHER && src == out->data) { /* in place: of it this rank's part */
        count /= comm->size;
        src += comm->rank * count * ckpt_dtype_size(in->desc.dtype);
    }
    comm->step = a->run->step + 1;
    return comm_run(comm,
                    &(struct comm_call){.kind = kinds[kind],
                                        .dtype = in->desc.dtype,
                                        .count = count,
                                        .src = src,
                                        .dst = out->data,
                                        .name = r->p->tape->labels.data[o->label]},
                    a->stream);
}

void program_join_ranks(struct ckpt_program *p)
{
    p->ranks = (struct program_ranks){.ops = {run}, .p = p};
}
