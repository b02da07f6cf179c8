/* SPDX-License-Identifier: Apache-2.0 */
/* The collectives of a program: the callbacks of the kernels in ops/kernels/cpu/collective.c. */
#include "dist/comm/comm.h"
#include "exec/program.h"
#include "ops.h"

/* After a sum over the ranks of one host: adds the same share over the hosts. */
static int sum_over_replicas(struct programs *ps, const struct comm_call *first, void *stream)
{
    struct comm_call call = *first;
    call.kind = COMM_ALL_REDUCE;
    call.src = call.dst;
    return comm_run(ps->ranks->across, &call, stream);
}

static struct comm *comm_of(const struct ranks *job, enum collective kind,
                            const struct collective_attr *attr)
{
    if (attr->ranks >= job->sharing.ranks)
        return job->comm;
    if (attr->group != GROUP_BY_NUMBER)
        return attr->group == GROUP_TENSOR ? job->tensor : job->data;
    return kind == COLLECTIVE_ALL_TO_ALL ? job->sequence : job->within;
}

/* To or from a neighbour of this stage: a broadcast between the two. */
static int transfer(struct programs *ps, enum collective kind, const struct ckpt_kernel_args *a,
                    struct comm_call *call)
{
    const struct stage_attr *attr = a->attr;
    const bool sends = kind == COLLECTIVE_SEND, next = sends ? !attr->back : attr->back;
    struct comm *comm = next ? ps->ranks->next : ps->ranks->previous;
    const struct ckpt_view *x = sends ? &a->in[0] : &a->out[0];
    call->dtype = x->desc.dtype;
    call->count = desc_numel(&x->desc);
    call->root = attr->back != 0; /* the second of the two sends gradients */
    call->src = sends ? x->data : NULL;
    call->dst = x->data;
    return comm_run(comm ? comm : ps->ranks->comm, call, a->stream);
}

static int run(struct ops_ranks *ranks, enum collective kind, const struct ckpt_kernel_args *a)
{
    static const enum comm_kind kinds[] = {[COLLECTIVE_ALL_GATHER] = COMM_ALL_GATHER,
                                           [COLLECTIVE_REDUCE_SCATTER] = COMM_REDUCE_SCATTER,
                                           [COLLECTIVE_ALL_REDUCE] = COMM_ALL_REDUCE,
                                           [COLLECTIVE_ALL_TO_ALL] = COMM_ALL_TO_ALL,
                                           [COLLECTIVE_SEND] = COMM_BROADCAST,
                                           [COLLECTIVE_RECEIVE] = COMM_BROADCAST};
    struct program_ranks *r = (struct program_ranks *)ranks;
    const struct collective_attr *attr = a->attr;
    struct programs *ps = r->p->programs;
    struct comm *comm = comm_of(ps->ranks, kind, attr);
    const struct op *o = &r->p->tape->ops.data[a->op];
    const struct ckpt_view *in = &a->in[0], *out = &a->out[0];
    int64_t count = desc_numel(kind == COLLECTIVE_REDUCE_SCATTER ? &out->desc : &in->desc);
    const char *src = in->data;
    if (kind == COLLECTIVE_ALL_TO_ALL)
        count /= comm->size;
    if (kind == COLLECTIVE_ALL_GATHER && src == out->data) { /* in place: only this rank's part */
        count /= comm->size;
        src += comm->rank * count * ckpt_dtype_size(in->desc.dtype);
    }
    struct comm_call call = {.kind = kinds[kind],
                             .dtype = in->desc.dtype,
                             .count = count,
                             .src = src,
                             .dst = out->data,
                             .name = r->p->tape->labels.data[o->label]};
    ps->ranks->comm->steps_before = ps->mixed ? &a->run->opt_step : &a->run->step;
    ps->ranks->comm->step = *ps->ranks->comm->steps_before + 1;
    if (kind == COLLECTIVE_SEND || kind == COLLECTIVE_RECEIVE)
        return transfer(ps, kind, a, &call);
    int rc = comm_run(comm, &call, a->stream);
    if (!rc && attr->replicas > 1)
        rc = sum_over_replicas(ps, &call, a->stream);
    return rc;
}

void program_join_ranks(struct ckpt_program *p)
{
    p->ranks = (struct program_ranks){.ops = {run, p->programs->ranks->noted}, .p = p};
}

int program_reserve_transfers(const struct ckpt_program *p)
{
    const ckpt_tape *t = p->tape;
    int64_t most = 0;
    for (int32_t i = 0; i < t->n_ops; i++) {
        const struct op *o = &t->ops.data[i];
        int64_t bytes = 0;
        for (int k = 0; k < o->n_in + o->n_out && collective_is(o->def); k++) {
            const int32_t x = t->operands.data[o->operands + k];
            bytes += x > 0 ? round_up(desc_bytes(&t->tensors.data[x].desc), CKPT_ALIGN) : 0;
        }
        most = max_i64(most, bytes);
    }
    return ranks_reserve(p->programs->ranks, most);
}

/* ---- collectives that make no progress --------------------------------------------------------
 */

enum { CALL_SECONDS = 5 };

/* Names the ranks that do not reach a barrier of the hosts.  Returns CKPT_ECOMM. */
static int find_missing(struct programs *ps, const char *name)
{
    struct comm *comm = ps->ranks->comm, *hosts = comm_of_hosts(comm);
    char sentence[256];
    double deadline = hosts->deadline;
    hosts->step = comm->step;
    hosts->deadline = deadline < CALL_SECONDS ? deadline : CALL_SECONDS;
    if (!comm_barrier(hosts, name)) {
        snprintf(sentence, sizeof sentence,
                 "%s of step %lld has not finished for %g s, although all ranks are running", name,
                 (long long)comm->step, deadline);
        comm->ops->give_up(comm, sentence);
    }
    hosts->deadline = deadline;
    comm->ops->check(comm);
    return CKPT_ECOMM;
}

/* What the flight recorder says of a collective on a device, from the op that the device noted. */
static void record_call(const struct ckpt_program *p, int32_t at, int32_t count,
                        struct flight_call *c)
{
    const struct programs *ps = p->programs;
    const struct op *o = &p->tape->ops.data[at];
    bool gathers = o->def != &op_reduce_scatter && o->def != &op_all_reduce && o->def != &op_send;
    int32_t larger = p->tape->operands.data[o->operands + (gathers ? o->n_in : 0)];
    const struct ckpt_desc *d = &p->tape->tensors.data[larger].desc;
    *c = (struct flight_call){.number = (count + 1) / 2,
                              .step = ps->ranks->comm->step,
                              .bytes = desc_numel(d) * ckpt_dtype_size(d->dtype),
                              .begun = ps->ranks->seen_at,
                              .kind = o->def->name};
    snprintf(c->name, sizeof c->name, "%s", p->tape->labels.data[o->label]);
}

static bool is_op(const struct ckpt_program *p, int32_t at)
{
    return p && at >= 0 && at < p->tape->n_ops;
}

static int poll_device(struct programs *ps, const struct ckpt_program *p, struct flight *flight,
                       int32_t *op)
{
    const volatile int32_t *noted = ps->ranks->noted;
    int32_t count = noted[NOTED_COUNT], at = noted[NOTED_OP] - 1, last = noted[NOTED_LAST] - 1;
    double now = clock_seconds();
    char name[COMM_NAME] = "a collective";
    bool known = is_op(p, at);
    *op = known ? at : -1;
    if (p)
        ps->ranks->comm->step = (ps->mixed ? ps->params->updates : p->before + p->steps) + 1;
    if (known)
        record_call(p, at, count, &flight->now);
    if (is_op(p, last))
        record_call(p, last, count - known, &flight->done);
    if (ps->ranks->comm->ops->check(ps->ranks->comm))
        return CKPT_ECOMM;
    if (count != ps->ranks->seen || at < 0) {
        ps->ranks->seen = count;
        ps->ranks->seen_at = now;
        return 0;
    }
    if (now - ps->ranks->seen_at < ps->ranks->comm->deadline)
        return 0;
    if (known)
        snprintf(name, sizeof name, "%.20s of %.36s", p->tape->ops.data[at].def->name,
                 p->tape->labels.data[p->tape->ops.data[at].label]);
    return find_missing(ps, name);
}

int programs_poll(void *user, int32_t *op)
{
    struct programs *ps = user;
    if (ps->ranks->sharing.unlike) { /* calls of the hosts end by themselves */
        *op = -1;
        return ps->ranks->comm->ops->check(ps->ranks->comm);
    }
    struct flight *flight = &comm_of_hosts(ps->ranks->comm)->flight;
    int rc = poll_device(ps, ps->last_submitted, flight, op);
    flight->now.number = 0;
    return rc;
}
