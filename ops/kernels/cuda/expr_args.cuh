/* SPDX-License-Identifier: Apache-2.0 */
/* Fills the arguments of expression kernels from the arguments of the op. */
#ifndef CKPT_CUDA_EXPR_ARGS_CUH
#define CKPT_CUDA_EXPR_ARGS_CUH

#include "kernels/cuda/expr_launch.h"
#include "kernels/cuda/expr_math.cuh"
#include "kernels/cuda/walk.cuh"

static_assert(EXPR_POINTERS == EXPR_INPUTS + 1 && EXPR_STEPS == LOOPS_OPERANDS &&
                  EXPR_AXES == CKPT_MAX_DIMS,
              "the text that NVRTC gets includes no header");

/* The number of vectors of `vector` elements in a row; 0 if the expression has no sum. */
static int64_t expr_row_positions(const struct expr *e, int vector)
{
    int64_t n = e->reduced > 0;
    for (int i = e->ndim - e->reduced; i < e->ndim && e->reduced; i++)
        n *= e->shape[i];
    return n / vector;
}

/* Threads of a block that handles a row: whole warps, nearly all of them busy in every iteration. */
static unsigned expr_row_threads(unsigned positions)
{
    unsigned turns = positions > 256 ? (positions + 255) / 256 : 1;
    return positions ? ((positions + turns - 1) / turns + 31) / 32 * 32 : 32;
}

/*
 * Calls launch(args) for consecutive parts of at most WALK_MOST positions.  A position is `vector`
 * elements along the last axis.
 */
template <typename F>
static void expr_each_part(const struct ckpt_kernel_args *args, int vector, F launch)
{
    struct loops l;
    struct expr_args a = {};
    char *base[LOOPS_OPERANDS] = {};
    int64_t size[LOOPS_OPERANDS];
    const int views = expr_views(args);
    expr_loops(args, &l);
    for (int k = 0; k < l.n; k++) {
        const struct ckpt_view *v = k < views ? expr_view(args, k) : NULL;
        size[k] = v ? ckpt_dtype_size(v->desc.dtype) : 1;
        base[k] = v ? static_cast<char *>(v->data)
                    : NULL; /* for a leaf, the address is its index instead */
    }
    a.step = reinterpret_cast<const long long *>(&args->run_device->step);
    a.seed = args->run->seed;
    const struct expr *e = static_cast<const struct expr *>(args->attr);
    const struct ckpt_desc walk = expr_walk(e, &args->out[0].desc);
    a.length = (unsigned)expr_row_positions(e, vector);
    walk_by_vectors(&l, vector);
    walk_pieces(&l, base, size, [&](const struct loops *part, char *const *at) {
        a.ndim = part->ndim;
        a.count = (unsigned)loops_count(part, part->ndim);
        a.first = args->run->micro * desc_numel(&walk);
        a.far = 0;
        for (int k = 0; k < views; k++)
            a.data[k] = at[k];
        for (int k = views; k < part->n; k++)
            a.place[k - views] = (long long)(uintptr_t)at[k];
        for (int i = 0; i < part->ndim; i++) {
            struct walk_axis axis = walk_axis_of(part->shape[part->ndim - 1 - i]);
            a.axis[i].size = (unsigned)axis.size;
            a.axis[i].magic = axis.magic;
            a.axis[i].shift = axis.shift;
            for (int k = 0; k < part->n; k++) {
                a.axis[i].step[k] = part->stride[k][part->ndim - 1 - i] * size[k];
                a.far |= i < 2 && a.axis[i].step[k] != (int)a.axis[i].step[k];
            }
        }
        a.straight = !a.far && a.axis[0].size == a.length;
        launch(a);
    });
}

#endif
