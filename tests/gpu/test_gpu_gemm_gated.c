/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products with a gate or its gradient in their epilogue, on a GPU, against the separate ops:
 * cuBLASLt's product, silu, mul, silu_dx (gemm_data.h).  The separate ops are also compared with
 * the fused expressions that a step uses if nothing is joined.
 */
#include "kernels/cuda/gemm_gated.h"
#include "expr/expr.h"
#include "gemm_data.h"

/* GIVEN_GATE, GIVEN_UP: of the backward pass; SILU, DH, DSILU: between ops. */
enum tensor_name {
    X,
    WG,
    WU,
    GATE,
    UP,
    H,
    DY,
    WD,
    GIVEN_GATE,
    GIVEN_UP,
    SILU,
    DH,
    DSILU,
    DGATE,
    DUP,
    TENSORS
};

/* ---- the separate ops ------------------------------------------------------------------------ */

static void run_plain(const struct data *d, struct cuda_libs *libs)
{
    const struct call calls[] = {{cuda_linear, 3, 1, {X, WG, -1, GATE}, NULL},
                                 {cuda_linear, 3, 1, {X, WU, -1, UP}, NULL},
                                 {cuda_silu, 1, 1, {GATE, SILU}, NULL},
                                 {cuda_mul, 2, 1, {SILU, UP, H}, NULL}};
    for (int i = 0; i < 4; i++)
        run(d, libs, &calls[i]);
}

static void run_plain_dx(const struct data *d, struct cuda_libs *libs)
{
    const struct call calls[] = {{cuda_linear_dx, 3, 1, {DY, WD, -1, DH}, NULL},
                                 {cuda_mul, 2, 1, {DH, GIVEN_UP, DSILU}, NULL},
                                 {cuda_silu_dx, 2, 1, {DSILU, GIVEN_GATE, DGATE}, NULL},
                                 {cuda_silu, 1, 1, {GIVEN_GATE, SILU}, NULL},
                                 {cuda_mul, 2, 1, {DH, SILU, DUP}, NULL},
                                 {cuda_mul, 2, 1, {SILU, GIVEN_UP, H}, NULL}};
    for (int i = 0; i < 6; i++)
        run(d, libs, &calls[i]);
}

/* ---- as expressions -------------------------------------------------------------------------- */

static int rounded(struct expr *e, int node)
{
    return expr_unary(e, EXPR_BF16, node);
}

static void end_program(const struct data *d, struct expr *e, int result)
{
    expr_finish(e, result, NULL);
    e->dtype = CKPT_BF16;
    e->ndim = 2;
    e->shape[0] = d->s.rows;
    e->shape[1] = d->s.cols;
}

/* Computes the three backward results by the expressions that fusion makes of a step, in the memory
 * of the forward pass: they have the same bits as op by op. */
static void test_expressions(const struct data *d, struct cuda_libs *libs)
{
    static struct expr of_h, of_dx;
    const size_t bytes = (size_t)desc_bytes(&d->desc[H]);
    void *before[3], *after[3];
    const int plain[] = {DGATE, DUP, H}, again[] = {GATE, UP, SILU};
    expr_init(&of_h, "silu+mul", 2); /* {gate, up} */
    end_program(d, &of_h,
                expr_binary(&of_h, EXPR_MUL, rounded(&of_h, expr_unary(&of_h, EXPR_SILU, 0)), 1));
    expr_init(&of_dx, "silu+mul,mul+silu_dx", 3); /* {dh, up, gate} */
    const int dup =
        expr_binary(&of_dx, EXPR_MUL, 0, rounded(&of_dx, expr_unary(&of_dx, EXPR_SILU, 2)));
    const int dsilu = rounded(&of_dx, expr_binary(&of_dx, EXPR_MUL, 0, 1));
    of_dx.second = (uint8_t)(1 + dup);
    end_program(d, &of_dx, expr_binary(&of_dx, EXPR_SILU_DX, dsilu, 2));
    const struct call calls[] = {{cuda_expr, 2, 1, {GIVEN_GATE, GIVEN_UP, SILU}, &of_h},
                                 {cuda_expr, 3, 2, {DH, GIVEN_UP, GIVEN_GATE, GATE, UP}, &of_dx}};
    for (int i = 0; i < 3; i++)
        before[i] = fetch(d->at[PLAIN][plain[i]], bytes);
    for (int i = 0; i < 2; i++)
        run(d, libs, &calls[i]);
    for (int i = 0; i < 3; i++) {
        after[i] = fetch(d->at[PLAIN][again[i]], bytes);
        check(!memcmp(before[i], after[i], bytes), "expressions", &d->s);
        free(before[i]), free(after[i]);
    }
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void run_forward(const struct data *d, const struct gemm_gated *g)
{
    clear_result(d, GATE);
    clear_result(d, UP);
    clear_result(d, H);
    must(!cuda_gemm_gated(g, NULL) && !cudaDeviceSynchronize(), "cuda_gemm_gated");
}

/* All results; the results of a recomputed layer; and h alone. */
static void test_forward(struct data *d, struct cuda_libs *libs)
{
    const struct shape *s = &d->s;
    struct gemm_gated g = {.rows = s->rows,
                           .inner = s->inner,
                           .cols = s->cols,
                           .x = d->at[PLAIN][X],
                           .wg = d->at[PLAIN][WG],
                           .wu = d->at[PLAIN][WU],
                           .gate = d->at[OURS][GATE],
                           .up = d->at[OURS][UP],
                           .h = d->at[OURS][H]};
    run_plain(d, libs);
    run_forward(d, &g);
    check(same(d, GATE) && same(d, UP) && same(d, H), "forward", s);
    g.h = NULL;
    run_forward(d, &g);
    check(same(d, GATE) && same(d, UP), "gate and up", s);
    g.h = d->at[OURS][H];
    g.gate = g.up = NULL;
    run_forward(d, &g);
    check(same(d, H), "the gated result alone", s);
}

static void run_backward(const struct data *d, const struct gemm_gated_dx *g)
{
    clear_result(d, H);
    must(!cuda_gemm_gated_dx(g, NULL) && !cudaDeviceSynchronize(), "cuda_gemm_gated_dx");
}

/* All results, twice: the same bits; without h; and gradients in the memory of their values. */
static void test_backward(struct data *d, struct cuda_libs *libs)
{
    struct gemm_gated_dx g = {.rows = d->s.rows,
                              .inner = d->s.inner,
                              .cols = d->s.cols,
                              .dy = d->at[PLAIN][DY],
                              .w = d->at[PLAIN][WD],
                              .gate = d->at[PLAIN][GIVEN_GATE],
                              .up = d->at[PLAIN][GIVEN_UP],
                              .dgate = d->at[OURS][DGATE],
                              .dup = d->at[OURS][DUP],
                              .h = d->at[OURS][H]};
    run_plain_dx(d, libs);
    test_expressions(d, libs);
    for (int i = 0; i < 3; i++) {
        clear_result(d, DGATE);
        clear_result(d, DUP);
        g.h = i < 2 ? d->at[OURS][H] : NULL;
        run_backward(d, &g);
        check(same(d, DGATE) && same(d, DUP) && (i == 2 || same(d, H)), "backward", &d->s);
    }
    g.h = d->at[OURS][H];
    g.dgate = d->at[PLAIN][GIVEN_GATE];
    g.dup = d->at[PLAIN][GIVEN_UP];
    run_backward(d, &g);
    check(same_at(d, DGATE, g.dgate) && same_at(d, DUP, g.dup) && same(d, H), "backward in place",
          &d->s);
}

/* Gates of ordinary size, then any values; up of ordinary size and any values. */
static void test(const struct shape *s, struct cuda_libs *libs)
{
    const int64_t R = s->rows, K = s->inner, N = s->cols;
    const int64_t size[TENSORS][2] = {{R, K}, {N, K}, {N, K}, {R, N}, {R, N},
                                      {R, N}, {R, K}, {K, N}, {R, N}, {R, N},
                                      {R, N}, {R, N}, {R, N}, {R, N}, {R, N}};
    static const int exact[] = {X, WG, WU, DY, WD};
    struct data d;
    create(&d, s, TENSORS, size);
    for (int i = 0; i < 5; i++)
        set(&d, exact[i], fill_exact);
    test_forward(&d, libs);
    for (int i = 0; i < 3; i++) {
        set(&d, GIVEN_GATE, i ? fill_all_values : fill_moderate);
        set(&d, GIVEN_UP, i == 2 ? fill_all_values : fill_moderate);
        test_backward(&d, libs);
    }
    destroy(&d);
}

int main(int argc, char **argv)
{
    return test_shapes(argc, argv, test, cuda_gemm_gated_takes);
}
