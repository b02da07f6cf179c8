/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions in groups of several channels.  A block of rows is gathered once for all groups, so
 * tap positions are computed once, and stored group by group; then each group is a matrix product.
 * The shape alone determines the blocks, and a slot of the workspace processes its blocks in order,
 * so no bit depends on the number of threads.
 */
#include "shapes/conv.h"
#include "blas.h"
#include "conv_kernels.h"
#include "conv_taps.h"
#include "cpu.h"

enum {
    BLOCK = 128,          /* maximum rows of a block */
    GATHERED = 256 * 1024 /* approximate elements of a gathered block */
};

/* One of the three products, and its division into blocks. */
struct groups {
    struct conv_gather g;
    const void *source;
    enum ckpt_dtype dtype;
    int64_t n, taps;     /* number of groups; taps of the kernel */
    int64_t c_in, c_out; /* channels per group of the gathered tensor, and of the other one */
    int64_t rows, unit;  /* rows in all; rows that are divided alike */
    int64_t block, per_unit, blocks, slots;
};

static struct groups divide(const struct conv_shape *s, enum ckpt_dtype dtype, const void *source,
                            bool back)
{
    struct groups p = {.g = back ? conv_gather_dy(s) : conv_gather_x(s),
                       .source = source,
                       .dtype = dtype,
                       .n = s->groups,
                       .taps = conv_volume(s->kernel),
                       .c_in = back ? conv_group_k(s) : conv_group_c(s),
                       .c_out = back ? conv_group_c(s) : conv_group_k(s),
                       .rows = s->n * conv_volume(back ? s->in : s->out)};
    p.unit = s->invariant ? s->out[2] : p.rows;
    p.block = max_i64(4, min_i64(BLOCK, GATHERED / (p.taps * p.g.pitch)));
    p.block = min_i64(p.block, p.unit);
    p.per_unit = (p.unit + p.block - 1) / p.block;
    p.blocks = p.rows / p.unit * p.per_unit;
    p.slots = cpu_slots(p.blocks, (double)p.rows * (double)p.taps * (double)p.c_in *
                                      (double)p.c_out * (double)p.n);
    return p;
}

/* A slot holds a gathered block, the values of one tap, and a block of the other tensor, in
 * floats. */
static int64_t gathered_floats(const struct groups *p)
{
    return round_up(p->block * p->taps * p->g.pitch, 16);
}

static int64_t slot_floats(const struct groups *p)
{
    return gathered_floats(p) + round_up(p->g.pitch, 16) + round_up(p->block * p->n * p->c_out, 16);
}

static int64_t weight_floats(const struct groups *p)
{
    return round_up(p->n * p->c_out * p->taps * p->c_in, 16);
}

static void load_tap(const struct groups *p, float *to, const float *from, int64_t stride)
{
    for (int64_t i = 0; i < p->n; i++)
        for (int64_t j = 0; j < p->c_in; j++)
            to[i * stride + j] = from ? from[i * p->c_in + j] : 0.f;
}

/* Gathers rows [row, row + n) to [groups, n, taps, c_in]. */
static void gather(const struct groups *p, float *to, float *line, int64_t row, int64_t n)
{
    const int64_t each = p->taps * p->c_in, size = ckpt_dtype_size(p->dtype);
    for (int64_t r = 0; r < n; r++) {
        struct conv_taps w;
        int64_t sample = conv_taps_begin(&p->g, &w, row + r, 0);
        for (int64_t t = 0; t < p->taps; t++, conv_taps_next(&p->g, &w)) {
            int64_t from = conv_taps_source(&p->g, &w, sample);
            if (from >= 0)
                cpu_load(line, (const char *)p->source + from * size, p->dtype, p->g.pitch);
            load_tap(p, to + r * each + t * p->c_in, from >= 0 ? line : NULL, n * each);
        }
    }
}

/* Processes block i with its slot of the workspace. */
typedef void (*block_work)(const struct groups *p, int64_t row, int64_t n, float *slot,
                           const void *user);

static void for_blocks(const struct groups *p, float *scratch, int64_t floats, block_work work,
                       const void *user)
{
#pragma omp parallel for schedule(static) if (p->slots > 1)
    for (int64_t s = 0; s < p->slots; s++)
        for (int64_t i = s * p->blocks / p->slots; i < (s + 1) * p->blocks / p->slots; i++) {
            int64_t in_unit = i % p->per_unit * p->block;
            work(p, i / p->per_unit * p->unit + in_unit, min_i64(p->block, p->unit - in_unit),
                 scratch + s * floats, user);
        }
}

/* ---- y and dx -------------------------------------------------------------------------------- */

/* The weight [groups, c_out, taps c_in], or transposed if `transposed`, and the result. */
struct target {
    const float *weight;
    bool transposed;
    const void *bias;
    void *out;
};

static void multiply(const struct groups *p, int64_t row, int64_t n, float *slot, const void *user)
{
    const struct target *t = user;
    const int64_t each = p->taps * p->c_in, across = p->n * p->c_out;
    float *line = slot + gathered_floats(p), *result = line + round_up(p->g.pitch, 16);
    gather(p, slot, line, row, n);
    for (int64_t r = 0; t->bias && r < n; r++)
        cpu_load(result + r * across, t->bias, p->dtype, across);
    for (int64_t i = 0; i < p->n; i++)
        blas_sgemm(n, p->c_out, each, 1.f, (struct blas_matrix){slot + i * n * each, each, false},
                   (struct blas_matrix){t->weight + i * p->c_out * each,
                                        t->transposed ? p->c_out : each, !t->transposed},
                   t->bias ? 1.f : 0.f, result + i * p->c_out, across);
    cpu_store((char *)t->out + row * across * ckpt_dtype_size(p->dtype), result, p->dtype,
              n * across);
}

int64_t cpu_groups_workspace(const struct conv_shape *s, enum ckpt_dtype dtype, bool back)
{
    struct groups p = divide(s, dtype, NULL, back);
    return (weight_floats(&p) + p.slots * slot_floats(&p)) * (int64_t)sizeof(float);
}

void cpu_groups(const struct ckpt_kernel_args *a, const struct conv_shape *s)
{
    const struct groups p = divide(s, a->in[0].desc.dtype, a->in[0].data, false);
    float *weight = a->workspace;
    const struct target t = {weight, false, a->in[2].data, a->out[0].data};
    cpu_load(weight, a->in[1].data, p.dtype, desc_numel(&a->in[1].desc));
    for_blocks(&p, weight + weight_floats(&p), slot_floats(&p), multiply, &t);
}

/* Transposes w [groups, k, taps, c] to [groups, taps, k, c]. */
static void transpose_weight(const struct groups *p, const struct ckpt_view *w, float *to)
{
    const int64_t size = ckpt_dtype_size(p->dtype);
    for (int64_t i = 0; i < p->n; i++)
        for (int64_t t = 0; t < p->taps; t++)
            for (int64_t k = 0; k < p->c_in; k++, to += p->c_out)
                cpu_load(
                    to, (const char *)w->data + ((i * p->c_in + k) * p->taps + t) * p->c_out * size,
                    p->dtype, p->c_out);
}

void cpu_groups_dx(const struct ckpt_kernel_args *a, const struct conv_shape *s)
{
    const struct groups p = divide(s, a->in[0].desc.dtype, a->in[0].data, true);
    float *weight = a->workspace;
    const struct target t = {weight, true, NULL, a->out[0].data};
    transpose_weight(&p, &a->in[1], weight);
    for_blocks(&p, weight + weight_floats(&p), slot_floats(&p), multiply, &t);
}

/* ---- gradient of the weight ------------------------------------------------------------------ */

/* The slot is followed by the sum of its blocks. */
static void add_block(const struct groups *p, int64_t row, int64_t n, float *slot, const void *user)
{
    const int64_t each = p->taps * p->c_in, across = p->n * p->c_out;
    float *line = slot + gathered_floats(p), *dy = line + round_up(p->g.pitch, 16);
    float *sum = slot + slot_floats(p);
    gather(p, slot, line, row, n);
    cpu_load(dy, (const char *)user + row * across * ckpt_dtype_size(p->dtype), p->dtype,
             n * across);
    for (int64_t i = 0; i < p->n; i++)
        blas_sgemm(p->c_out, each, n, 1.f, (struct blas_matrix){dy + i * p->c_out, across, true},
                   (struct blas_matrix){slot + i * n * each, each, false}, 1.f,
                   sum + i * p->c_out * each, each);
}

int64_t cpu_groups_dw_workspace(const struct conv_shape *s, enum ckpt_dtype dtype)
{
    struct groups p = divide(s, dtype, NULL, false);
    return p.slots * (slot_floats(&p) + weight_floats(&p)) * (int64_t)sizeof(float);
}

void cpu_groups_dw(const struct ckpt_kernel_args *a, const struct conv_shape *s)
{
    const struct groups p = divide(s, a->in[0].desc.dtype, a->in[1].data, false);
    const int64_t floats = slot_floats(&p) + weight_floats(&p), n = desc_numel(&a->out[0].desc);
    float *scratch = a->workspace, *dw = a->out[0].data;
    for (int64_t i = 0; i < p.slots; i++)
        memset(scratch + i * floats + slot_floats(&p), 0, (size_t)n * sizeof *scratch);
    for_blocks(&p, scratch, floats, add_block, a->in[0].data);
    if (!a->accumulate)
        memset(dw, 0, (size_t)n * sizeof *dw);
    for (int64_t i = 0; i < p.slots; i++)
        for (int64_t j = 0; j < n; j++)
            dw[j] += scratch[i * floats + slot_floats(&p) + j];
}
