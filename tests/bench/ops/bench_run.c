/* SPDX-License-Identifier: Apache-2.0 */
/* Records every case of the bench, gives it memory and operands, and visits it op by op. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "ckpt_tools.h"
#include "bench/ops/bench.h"
#include "context/context.h"
#include "exec/program.h"
#include "expr/expr.h"
#include "kernels/kernel.h"
#include "ops.h"
#include "passes/passes.h"

enum { FLUSH = 192 << 20 };

/* ---- recording ------------------------------------------------------------------------------- */

static bool contains(const char *text, const char *part)
{
    size_t n = strlen(part);
    for (; *text; text++)
        if (!strncasecmp(text, part, n))
            return true;
    return false;
}

bool bench_wants(const struct bench *b, const struct bench_case *k, enum ckpt_dtype dtype)
{
    const struct bench_options *o = b->options;
    if (o->dtype && strcmp(o->dtype, dtype == CKPT_F32 ? "fp32" : "bf16"))
        return false;
    return !o->only || contains(k->family, o->only);
}

struct bench_scaffold bench_record(const struct bench *b, ckpt_tape *t, const struct bench_case *k,
                                   enum ckpt_dtype dtype)
{
    ckpt_tensor y = k->record(t, dtype, b->sizes);
    struct bench_scaffold s = {t->n_ops, t->n_ops};
    if (!y.id)
        return s;
    struct ckpt_desc d = ckpt_desc_of(t, y);
    bool is_loss = d.dtype == CKPT_F32 && desc_numel(&d) == 1;
    const struct compilation c = {.tape = t,
                                  .loss = is_loss ? y : ckpt_sum(t, y, ~(~0u << d.ndim))};
    pass_differentiate(&c);
    s.seeded += is_loss ? 1 : 3; /* fill; or sum, fill, broadcast */
    pass_extra(&c);
    for (int32_t i = 0; i < t->n_ops; i++) /* casts that pass_extra inserted before them */
        if (t->ops.data[i].def == &op_to_fp8_largest && t->ops.data[i].phase == PHASE_FORWARD)
            s.own++, s.seeded++;
    pass_pair(&c);
    kernel_bind(t);
    return s;
}

/* ---- memory ---------------------------------------------------------------------------------- */

int64_t bench_flush_bytes(const struct device *d)
{
    return d->ops->backend == CKPT_ON_CUDA ? FLUSH : 0;
}

/* The selected device and the reference may need scratch of other sizes. */
static int64_t workspace_on(const struct device *d, const ckpt_tape *t, const struct op *o)
{
    struct ckpt_desc in[BENCH_OPERANDS], out[BENCH_OPERANDS];
    struct ckpt_call call;
    tape_call(t, o, &call, in, out);
    call.backend = d->ops->backend;
    return kernel_workspace(o->def, &call);
}

static int map(struct device *d, const ckpt_tape *t, int64_t bytes)
{
    int64_t workspace = 0;
    for (int32_t i = 0; i < t->n_ops; i++)
        workspace = max_i64(workspace, workspace_on(d, t, &t->ops.data[i]));
    bytes += round_up(workspace, CKPT_ALIGN) + bench_flush_bytes(d);
    if (!d->ops->map(d, bytes))
        return 0;
    return bench_fail("--device %s: there is no room for %s", d->ops->name, human_bytes(bytes));
}

/* Fills the bytes with repeated random values in [-1, 1), or in [0, 1) if positive.  Words of 8-bit
 * means become 0. */
static int fill_random(struct bench *b, struct device *d, char *dst, int64_t bytes,
                       enum ckpt_dtype dtype, bool positive, uint32_t stream)
{
    int64_t block = BENCH_PATTERN * ckpt_dtype_size(dtype);
    uint16_t *half = (uint16_t *)(b->host + BENCH_PATTERN);
    const void *src = dtype == CKPT_BF16 ? (const void *)half : b->host;
    if (dtype == CKPT_I32) {
        d->ops->fill(d, QUEUE_COMPUTE, dst, 0, bytes);
        return d->ops->sync(d);
    }
    ckpt_fill_uniform(1, 0, stream, b->host, BENCH_PATTERN);
    for (int i = 0; i < BENCH_PATTERN && !positive; i++)
        b->host[i] = 2.f * b->host[i] - 1.f;
    ckpt_to_bf16(b->host, half, BENCH_PATTERN);
    for (int64_t at = 0; at < bytes; at += block)
        d->ops->copy(d, QUEUE_COMPUTE, dst + at, src, min_i64(block, bytes - at));
    return d->ops->sync(d); /* the values are in a host buffer that is reused, and another device
                               may read the bytes */
}

static char *place_of(struct device *d, const struct bench_op *op, int32_t tensor)
{
    const struct tensor *v = &op->tape->tensors.data[tensor];
    return d->ops->base(d) + op->offset[v->storage];
}

/* Fills constants, and tensors that no op of the case computes. */
static int fill_operands(struct bench *b, struct device *d, const struct bench_op *op)
{
    const ckpt_tape *t = op->tape;
    int rc = 0;
    for (int32_t i = 0; i < t->n_storages && !rc; i++) {
        const struct storage *s = &t->storages.data[i];
        const struct tensor *v = &t->tensors.data[s->tensor];
        char *dst = d->ops->base(d) + op->offset[i];
        if (s->feed >= 0)
            d->ops->copy(d, QUEUE_COMPUTE, dst, t->feeds.data[s->feed].constant, s->bytes);
        else if (v->op < 0)
            rc = fill_random(b, d, dst, s->bytes, v->desc.dtype, s->kind == STORAGE_EXP_AVG_SQ,
                             (uint32_t)i);
    }
    return rc ? rc : d->ops->sync(d);
}

/* The initial gradient of reverse mode is random: ones would hide errors of kernels. */
static int fill_seed(struct bench *b, struct device *d, const struct bench_op *op)
{
    int32_t id = op_out(op->tape, op->op, 0);
    const struct tensor *v = &op->tape->tensors.data[id];
    return fill_random(b, d, place_of(d, op, id), op->tape->storages.data[v->storage].bytes,
                       v->desc.dtype, false, (uint32_t)v->storage);
}

/* ---- one op ---------------------------------------------------------------------------------- */

void bench_make_job(struct bench_job *j, struct bench *b, struct device *d,
                    const struct bench_op *op)
{
    const ckpt_tape *t = op->tape;
    const struct op *o = op->op;
    *j = (struct bench_job){.device = d, .kernel = kernel_run(o->def, d->ops->backend)};
    for (int i = 0; i < o->n_in + o->n_out; i++) {
        int32_t x = t->operands.data[o->operands + i];
        const struct tensor *v = &t->tensors.data[max_i64(0, x)];
        j->views[i].desc = v->desc;
        if (x > 0)
            j->views[i].data = place_of(d, op, x) + v->desc.offset * ckpt_dtype_size(v->desc.dtype);
    }
    j->args = (struct ckpt_kernel_args){.n_in = o->n_in,
                                        .n_out = o->n_out,
                                        .extra = o->extra,
                                        .in = j->views,
                                        .out = j->views + o->n_in,
                                        .attr = o->attr,
                                        .workspace = d->ops->base(d) + op->end,
                                        .workspace_bytes = workspace_on(d, t, o),
                                        .accumulate = o->accumulate == ACCUMULATE_ALWAYS,
                                        .op = op->index,
                                        .number = o->number,
                                        .run = b->run,
                                        .run_device = d->run};
}

int bench_run(struct bench_job *j)
{
    if (!j->kernel)
        return CKPT_EDEVICE;
    j->device->ops->compute(j->device, QUEUE_COMPUTE, j->kernel, &j->args, NULL);
    return j->device->ops->sync(j->device);
}

const char *bench_reason(const struct bench_job *j, int rc)
{
    return !j->kernel           ? "there is no kernel"
           : *j->device->reason ? j->device->reason
                                : ckpt_error_name(rc);
}

static int put_shape(char *dst, int size, const struct ckpt_desc *d)
{
    int n = 0;
    for (int i = 0; i < d->ndim && n < size; i++)
        n += snprintf(dst + n, (size_t)(size - n), "%s%lld", i ? "x" : "", (long long)d->shape[i]);
    return n;
}

/* The shape of the first operand with more than one element, and of the next operand if it is a
 * matrix with another shape.  Without such an operand, the shape of the result. */
static void shape_of(const struct bench_job *j, char *dst, int size)
{
    const struct ckpt_view *v = j->views;
    int i = 0, n = j->args.n_in;
    while (i < n && (v[i].desc.ndim < 0 || desc_numel(&v[i].desc) == 1))
        i++;
    int at = put_shape(dst, size, &v[i].desc);
    if (i + 1 >= n || v[i + 1].desc.ndim < 2 || at + 2 >= size ||
        desc_same_shape(&v[i].desc, &v[i + 1].desc))
        return;
    dst[at++] = ' ';
    put_shape(dst + at, size - at, &v[i + 1].desc);
}

void bench_row_text(const struct bench_op *op, const struct bench_job *j, char text[BENCH_ROW])
{
    char shape[40] = "";
    shape_of(j, shape, sizeof shape);
    snprintf(text, BENCH_ROW, "%-22.22s %-5s %-29s", ops_name(op->op->def, op->op->attr),
             op->dtype == CKPT_F32 ? "fp32" : "bf16", shape);
}

/* ---- all of them ----------------------------------------------------------------------------- */

static int run_ops(struct bench *b, struct bench_op *op, struct bench_scaffold s,
                   int (*visit)(void *user, const struct bench_op *op), void *user)
{
    struct device *d = b->reference ? b->reference : b->device;
    int failed = fill_operands(b, d, op), rc = 0;
    for (int32_t i = 0; i < op->tape->n_ops && !rc && !failed; i++) {
        op->op = &op->tape->ops.data[i];
        op->index = i;
        op->gradient = i >= s.seeded;
        if (i >= s.own && i < s.seeded)
            failed = fill_seed(b, d, op);
        else if (!(op->op->def->flags & CKPT_OP_VIEW) && op->op->feed < 0)
            rc = visit(user, op);
    }
    return failed ? bench_fail("%s: operands cannot be made on %s: %s", op->family, d->ops->name,
                               *d->reason ? d->reason : ckpt_error_name(failed))
                  : rc;
}

static int run_case(struct bench *b, const struct bench_case *k, enum ckpt_dtype dtype,
                    int (*visit)(void *user, const struct bench_op *op), void *user)
{
    ckpt_tape *t;
    struct tape_env env = programs_tape_env(&b->c->programs);
    if (tape_new(&t, &env, 2, 1))
        return bench_fail("no memory to record %s", k->family);
    struct bench_scaffold s = bench_record(b, t, k, dtype);
    int64_t *offset = calloc((size_t)t->n_storages + 1, sizeof *offset), bytes = 0;
    int rc = t->error.code ? bench_fail("%s: %s", k->family, t->error.text)
             : offset      ? 0
                           : bench_fail("no memory to run %s", k->family);
    for (int32_t i = 0; i < t->n_storages && !rc; i++) {
        offset[i] = bytes;
        bytes += round_up(t->storages.data[i].bytes, CKPT_ALIGN);
    }
    if (!rc)
        rc = map(b->device, t, bytes);
    if (!rc && b->reference)
        rc = map(b->reference, t, bytes);
    struct bench_op op = {
        .family = k->family, .tape = t, .dtype = dtype, .offset = offset, .end = bytes};
    if (!rc)
        rc = run_ops(b, &op, s, visit, user);
    free(offset);
    tape_free(t);
    return rc;
}

int bench_each(struct bench *b, int (*visit)(void *user, const struct bench_op *op), void *user)
{
    int rc = 0;
    for (const struct bench_case *k = bench_cases; k->family && !rc; k++)
        for (int dtype = CKPT_F32; dtype <= CKPT_BF16 && !rc; dtype++)
            if (bench_wants(b, k, (enum ckpt_dtype)dtype))
                rc = run_case(b, k, (enum ckpt_dtype)dtype, visit, user);
    return rc;
}
