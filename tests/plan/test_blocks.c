/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a block of a chain keeps: layers of a video model with frozen weights and adapters, whose
 * products have results that only the forward pass reads, and an attention that is dear to run
 * again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "graphs.h"

enum { LAYERS = 40, UNIT = 1 << 20 };
#define T    1e-5      /* seconds of an elementwise op on a unit */
#define DEAR (160 * T) /* of the first attention of a layer */

static int32_t join(struct graph_builder *k, const char *name, int32_t a, int32_t b, int64_t bytes,
                    unsigned needs, double seconds)
{
    struct forward f = {.name = name,
                        .n_in = 2,
                        .in = {a, b},
                        .n_out = 1,
                        .out_bytes = {bytes},
                        .needs = needs,
                        .seconds = seconds};
    build_forward(k, &f);
    return f.out[0];
}

/* x W + (x A) B.  Of W x no gradient is asked, so nothing reads the product but the sum. */
static int32_t adapted(struct graph_builder *k, int32_t x, int64_t bytes, double seconds)
{
    int32_t y = build_unary(k, "product", x, bytes, 0, 0, seconds);
    int32_t h = build_unary(k, "down to the rank", x, UNIT / 64, 0, 1, T / 2);
    return join(k, "adapter", y, h, bytes, 2, T);
}

static int32_t norm(struct graph_builder *k, int32_t x)
{
    struct forward f = {.name = "norm",
                        .n_in = 1,
                        .in = {x},
                        .n_out = 2,
                        .out_bytes = {UNIT, UNIT / 64},
                        .needs = 1 | 4,
                        .constant_outputs = 2,
                        .seconds = T};
    build_forward(k, &f);
    return f.out[0];
}

static int32_t attention(struct graph_builder *k, int32_t x, double seconds)
{
    struct forward f = {.name = "attention",
                        .n_in = 3,
                        .n_out = 2,
                        .out_bytes = {UNIT, UNIT / 64},
                        .needs = 31,
                        .constant_outputs = 2,
                        .seconds = seconds};
    for (int i = 0; i < 3; i++)
        f.in[i] = adapted(k, x, UNIT, 8 * T);
    build_forward(k, &f);
    return f.out[0];
}

static struct graph *record(void)
{
    struct graph_builder *k = build_new();
    int32_t x = build_unary(k, "embed", build_input(k, UNIT), UNIT, CKPT_ALIGN, 1, T);
    for (int i = 0; i < LAYERS; i++) {
        int32_t a = adapted(k, attention(k, norm(k, x), DEAR), UNIT, 8 * T);
        x = join(k, "residual", x, a, UNIT, 0, T);
        a = adapted(k, attention(k, norm(k, x), 4 * T), UNIT, 8 * T);
        x = join(k, "residual", x, a, UNIT, 0, T);
        a = adapted(k, norm(k, x), 4 * UNIT, 32 * T);
        a = build_unary(k, "gelu", a, 4 * UNIT, 0, 1, 4 * T);
        x = join(k, "residual", x, adapted(k, a, UNIT, 32 * T), UNIT, 0, T);
    }
    return build_finish(k, x, 1);
}

/* The recompute of a plan, in which no dear op runs again. */
static double recompute(const struct graph *g, int64_t budget)
{
    struct plan *p = plan_checked(g, budget);
    double seconds = p->recompute_seconds;

    for (int32_t k = 0; k < p->n_steps; k++)
        if (p->steps[k].again && g->ops[p->steps[k].op].seconds >= DEAR)
            fail_msg("step %d of %.0f units runs an attention again", (int)k,
                     (double)budget / UNIT);
    plan_free(p);
    return seconds;
}

/*
 * What fits: each layer's input, the result of its first attention and a row of sums for it, and
 * what the backward pass of one layer needs.  So all else runs once more at the most.  More bytes
 * keep results of products.
 */
static void test_dear_results_stay(void **state)
{
    (void)state;
    struct graph *g = record();
    const int64_t kept = LAYERS * (2 * UNIT + UNIT / 4) + 20 * UNIT;
    /* eight small products, the first one of the MLP; GELU, norms, residuals, cheap attention */
    const double once = LAYERS * (8 * 9.5 + 33.5 + 4 + 3 + 2 + 4) * T;

    for (int64_t more = 0; more <= 4 * LAYERS; more += 2 * LAYERS)
        assert_true(recompute(g, kept + more * UNIT) < once - (double)more * 8.5 * T);
    graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_dear_results_stay)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
