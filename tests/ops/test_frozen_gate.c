/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A gated residual whose gate is not trained: the gradients of the other two operands have the same
 * bits as beside a trained gate, and fewer bytes are kept for the backward pass.  "make check-gpu"
 * runs it on the GPU.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "ckpt.h"
#include "ckpt_tools.h"

enum { BATCH = 2, ROWS = 5, WIDTH = 24, N = WIDTH * WIDTH };

struct net {
    enum ckpt_dtype dtype;
    ckpt_tensor in, out, gate;
};

/* Both streams of a block: rows of one tensor, each with its own gate. */
static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct net *m = user;
    int64_t shape[] = {batch, ROWS, WIDTH};
    ckpt_tensor x = ckpt_cast(t, ckpt_input(t, "x", CKPT_F32, 3, shape), m->dtype), part[2];
    ckpt_tensor y = ckpt_linear(t, x, m->in, CKPT_NONE);
    ckpt_tensor a = ckpt_linear(t, ckpt_gelu_tanh(t, y), m->out, CKPT_NONE);
    ckpt_tensor gate = ckpt_reshape(t, m->gate, 3, (int64_t[]){1, 2, WIDTH});
    for (int i = 0; i < 2; i++) {
        int64_t from = i ? 2 : 0, to = i ? ROWS : 2;
        part[i] =
            ckpt_gated_residual(t, ckpt_slice(t, y, 1, from, to), ckpt_slice(t, gate, 1, i, i + 1),
                                ckpt_slice(t, a, 1, from, to));
    }
    ckpt_output_gradient(t, "in", m->in);
    ckpt_output_gradient(t, "out", m->out);
    ckpt_tensor z = ckpt_cast(t, ckpt_concat(t, 1, 2, part), CKPT_F32);
    return ckpt_mean(t, ckpt_mul(t, z, z), 7);
}

struct result {
    float loss, in[N], out[N];
    int64_t kept;
};

static void run(struct result *r, enum ckpt_dtype dtype, bool frozen)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    struct net m = {.dtype = dtype};
    float x[BATCH * ROWS * WIDTH];
    ckpt_program *p;
    ckpt *c;
    o.device = getenv("CKPT_TEST_GPU") ? "cuda" : "cpu";
    o.threads = 1;
    if (ckpt_open(&c, &o))
        fail_msg("%s", ckpt_error(NULL));
    m.in = ckpt_param(c, "in", dtype, 2, (int64_t[]){WIDTH, WIDTH}, CKPT_XAVIER, true);
    m.out = ckpt_param(c, "out", dtype, 2, (int64_t[]){WIDTH, WIDTH}, CKPT_XAVIER, true);
    m.gate = ckpt_param(c, "gate", dtype, 2, (int64_t[]){2, WIDTH}, CKPT_UNIFORM(1.f), !frozen);
    if (ckpt_compile(c, record, &m, ckpt_adamw(c, &adamw), BATCH, &p))
        fail_msg("%s", ckpt_error(c));
    ckpt_fill_normal(1, 0, 1, x, BATCH * ROWS * WIDTH);
    assert_int_equal(ckpt_feed(p, "x", x, sizeof x), 0);
    if (ckpt_step(p, &r->loss))
        fail_msg("%s", ckpt_error(c));
    assert_int_equal(ckpt_fetch(p, "in", r->in, sizeof r->in), 0);
    assert_int_equal(ckpt_fetch(p, "out", r->out, sizeof r->out), 0);
    assert_int_equal(ckpt_program_info(p, &info), 0);
    r->kept = info.kept_bytes;
    ckpt_close(c);
}

static void test_bits(void **state)
{
    static struct result trained, frozen;
    (void)state;
    for (int i = 0; i < 2; i++) {
        run(&trained, i ? CKPT_BF16 : CKPT_F32, false);
        run(&frozen, i ? CKPT_BF16 : CKPT_F32, true);
        assert_true(trained.loss == frozen.loss);
        assert_memory_equal(trained.in, frozen.in, sizeof trained.in);
        assert_memory_equal(trained.out, frozen.out, sizeof trained.out);
        assert_true(frozen.kept < trained.kept);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
