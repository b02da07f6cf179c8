/* SPDX-License-Identifier: Apache-2.0 */
/* bench_ops --mode support: lists which op has a kernel on which device.  Runs nothing. */
#include <string.h>
#include "bench/ops/bench.h"
#include "context/context.h"
#include "exec/program.h"
#include "kernels/kernel.h"
#include "ops/table.h"

enum { MAX_OPS = 256, BACKENDS = 2, DTYPES = 2 };

static const char *const backend_names[BACKENDS] = {[CKPT_ON_CPU] = "cpu", [CKPT_ON_CUDA] = "cuda"};

/* A case recorded the op with an operand of this dtype, so its shape rule accepts it. */
struct uses_of_ops {
    bool recorded[MAX_OPS][DTYPES];
};

static bool has_dtype(const ckpt_tape *t, const struct op *o, int dtype)
{
    for (int i = 0; i < o->n_in + o->n_out; i++) {
        int32_t x = t->operands.data[o->operands + i];
        if (x > 0 && bench_dtype_of(t->tensors.data[x].desc.dtype) == (enum ckpt_dtype)dtype)
            return true;
    }
    return false;
}

static int note_ops(const struct bench *b, struct uses_of_ops *u, const struct bench_case *k,
                    int dtype)
{
    ckpt_tape *t;
    struct tape_env env = programs_tape_env(&b->c->programs);
    if (tape_new(&t, &env, 2, 1))
        return bench_fail("no memory to record %s", k->family);
    bench_record(b, t, k, (enum ckpt_dtype)dtype);
    int rc = t->error.code ? bench_fail("%s: %s", k->family, t->error.text) : 0;
    for (int32_t i = 0; i < t->n_ops; i++)
        for (int n = 0; ops_table[n] && n < MAX_OPS; n++)
            if (ops_table[n] == t->ops.data[i].def && has_dtype(t, &t->ops.data[i], dtype))
                u->recorded[n][dtype] = true;
    tape_free(t);
    return rc;
}

static bool is_copied(const struct ckpt_op_def *def)
{
    return def == &op_feed || def == &op_fetch;
}

static bool has_kernel(const struct ckpt_op_def *def, int backend)
{
    return kernel_run(def, (enum ckpt_backend)backend) != NULL;
}

static const char *cell(const struct uses_of_ops *u, int n, int backend, int dtype)
{
    const struct ckpt_op_def *def = ops_table[n];
    if (is_copied(def))
        return "copy";
    if (def->flags & CKPT_OP_VIEW)
        return "view";
    if (!has_kernel(def, backend))
        return "no";
    return u->recorded[n][dtype] ? "yes" : "-";
}

static void print_missing(int backend)
{
    int missing = 0;
    for (int n = 0; ops_table[n]; n++) {
        const struct ckpt_op_def *def = ops_table[n];
        if (is_copied(def) || (def->flags & CKPT_OP_VIEW) || has_kernel(def, backend))
            continue;
        if (!missing++)
            printf("no kernel on %s: %s", backend_names[backend], def->name);
        else
            printf(", %s", def->name);
    }
    if (!missing)
        printf("every op has a kernel on %s", backend_names[backend]);
    printf("\n");
}

int bench_support(struct bench *b)
{
    struct uses_of_ops u = {0};
    int rc = 0;
    for (const struct bench_case *k = bench_cases; k->family && !rc; k++)
        for (int dtype = CKPT_F32; dtype <= CKPT_BF16 && !rc; dtype++)
            rc = note_ops(b, &u, k, dtype);
    if (rc)
        return rc;
    printf("%-24s %-11s %s\n%-24s %-5s %-5s %-5s %s\n", "", "cpu", "cuda", "op", "fp32", "bf16",
           "fp32", "bf16");
    for (int n = 0; ops_table[n] && n < MAX_OPS; n++) {
        if (n && !strcmp(ops_table[n]->name, ops_table[n - 1]->name))
            continue; /* kinds of all_gather */
        printf("%-24s", ops_table[n]->name);
        for (int i = 0; i < BACKENDS * DTYPES; i++)
            printf(i + 1 < BACKENDS * DTYPES ? " %-5s" : " %s\n",
                   cell(&u, n, i / DTYPES, i % DTYPES));
    }
    printf("\nview: no kernel needed; copy: by the executor; -: no case records it so\n");
    for (int backend = 0; backend < BACKENDS; backend++)
        print_missing(backend);
    return 0;
}
