/* SPDX-License-Identifier: Apache-2.0 */
/* Finds and binds kernels: see kernel.h. */
#include <stdlib.h>
#include "kernels/cpu/kernels.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/workspace.h"
#include "kernels/kernel.h"
#include "ops.h"

static const struct kernel *row_of(const struct ckpt_op_def *op, enum ckpt_backend backend)
{
    for (const struct kernel *k = backend == CKPT_ON_CUDA ? cuda_kernels : cpu_kernels; k->op; k++)
        if (k->op == op)
            return k;
    return NULL;
}

ckpt_kernel kernel_run(const struct ckpt_op_def *op, enum ckpt_backend backend)
{
    const struct kernel *k = row_of(op, backend);
    return k ? k->run : backend == CKPT_ON_CUDA ? op->cuda : op->cpu;
}

ckpt_kernel kernel_stopwatch(enum ckpt_backend backend)
{
#ifdef HAVE_CUDA
    if (backend == CKPT_ON_CUDA)
        return cuda_stopwatch;
#endif
    (void)backend;
    return cpu_stopwatch;
}

unsigned kernel_can(const struct ckpt_op_def *op, enum ckpt_backend backend)
{
    const struct kernel *k = row_of(op, backend);
    return k ? k->can : 0;
}

int64_t kernel_workspace(const struct ckpt_op_def *op, const struct ckpt_call *call)
{
    const struct kernel *k = row_of(op, call->backend);
    return !k ? call->workspace : k->workspace ? k->workspace(call) : 0;
}

bool kernel_on_host(const struct ckpt_op_def *op)
{
    return kernel_run(op, CKPT_ON_CPU) != NULL;
}

int64_t kernel_epilogue_tiles(enum ckpt_backend backend, int64_t capability)
{
    const bool has = backend == CKPT_ON_CUDA && capability == CUDA_EPILOGUE_CAPABILITY;
    return has ? CUDA_EPILOGUE_TILES : 0;
}

bool kernel_has_epilogue(const ckpt_tape *t, int64_t rows, int64_t cols)
{
    return t->env.epilogue_tiles && cuda_epilogue_tiles(rows, cols) >= t->env.epilogue_tiles;
}

/* The most operands of one op. */
static int32_t most_operands(const ckpt_tape *t)
{
    int32_t n = 1;
    for (int32_t i = 0; i < t->n_ops; i++)
        n = (int32_t)max_i64(n, t->ops.data[i].n_in + t->ops.data[i].n_out);
    return n;
}

static void bind_op(const ckpt_tape *t, struct op *o, struct ckpt_desc *descs)
{
    struct ckpt_call call;
    o->run = kernel_run(o->def, t->env.backend);
    tape_call(t, o, &call, descs, descs + o->n_in);
    o->workspace = kernel_workspace(o->def, &call);
}

int kernel_bind(ckpt_tape *t)
{
    if (t->error.code)
        return t->error.code;
    struct ckpt_desc *descs = malloc((size_t)most_operands(t) * sizeof *descs);
    if (!descs)
        return tape_fail(t, CKPT_ENOMEM, "no memory to choose the kernels of %d ops", t->n_ops);
    for (int32_t i = 0; i < t->n_ops && !t->error.code; i++) {
        struct op *o = &t->ops.data[i];
        bind_op(t, o, descs);
        if (o->workspace < 0 || o->workspace > INT64_MAX / 64)
            tape_fail(t, CKPT_ESHAPE, "%s asks for %lld bytes of scratch",
                      ops_name(o->def, o->attr), (long long)o->workspace);
    }
    free(descs);
    return t->error.code;
}
