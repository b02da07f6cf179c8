/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Training of a small language model: causal attention with grouped heads on packed documents with
 * a learned bias, and its head's loss in chunks.  The budget changes no bit, and micro-steps change
 * only the order of sums.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "exec/small.h"
#include "plan/one_search.h"

enum {
    BATCH = 4,
    TOKENS = 24,
    WIDTH = 32,
    HEADS = 4,
    SHARED = 2,
    HEAD = 8,
    CLASSES = 50,
    STEPS = 4
};
enum { QKV = (HEADS + 2 * SHARED) * HEAD, WEIGHTS = 4 };

struct model {
    struct ckpt_options options;
    enum ckpt_dtype dtype;
    ckpt_tensor qkv, proj, bias, head;
    float loss[STEPS];
    float weight[QKV * WIDTH + WIDTH * WIDTH + HEADS * TOKENS * TOKENS + CLASSES * WIDTH];
};

static ckpt_tensor heads_of(ckpt_tape *t, ckpt_tensor x, int64_t begin, int64_t n)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);
    x = ckpt_slice(t, x, 2, begin * HEAD, (begin + n) * HEAD);
    return ckpt_reshape(t, x, 4, (int64_t[]){d.shape[0], TOKENS, n, HEAD});
}

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct model *m = user;
    struct ckpt_attention_spec sees = CKPT_ATTENTION_INIT;
    struct ckpt_cross_entropy_spec loss = CKPT_CROSS_ENTROPY_INIT;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 3, (int64_t[]){batch, TOKENS, WIDTH});
    ckpt_tensor label = ckpt_input(t, "label", CKPT_I32, 2, (int64_t[]){batch, TOKENS});
    sees.causal = true;
    sees.first = ckpt_input(t, "first", CKPT_I32, 2, (int64_t[]){batch, TOKENS});
    loss.chunk = TOKENS / 2;
    ckpt_tensor h = ckpt_cast(t, x, m->dtype);
    for (int i = 0; i < 3; i++) {
        ckpt_tensor qkv = ckpt_linear(t, ckpt_tanh(t, h), m->qkv, CKPT_NONE);
        ckpt_tensor a =
            ckpt_attention(t, heads_of(t, qkv, 0, HEADS), heads_of(t, qkv, HEADS, SHARED),
                           heads_of(t, qkv, HEADS + SHARED, SHARED), m->bias, &sees);
        h = ckpt_linear_add(t, ckpt_reshape(t, a, 3, (int64_t[]){batch, TOKENS, WIDTH}), m->proj,
                            CKPT_NONE, h);
    }
    return ckpt_linear_cross_entropy(t, h, m->head, CKPT_NONE, label, &loss);
}

static void feed(ckpt_program *p, int step)
{
    float x[BATCH * TOKENS * WIDTH];
    int32_t label[BATCH * TOKENS], first[BATCH * TOKENS];
    for (int i = 0; i < BATCH * TOKENS * WIDTH; i++)
        x[i] = (float)((i * 37 + step * 11) % 19 - 9) / 9;
    for (int i = 0; i < BATCH * TOKENS; i++) {
        label[i] = i % 7 == 3 ? -100 : (i * 13 + step) % CLASSES;
        first[i] = i % TOKENS / 9 * 9;
    }
    assert_int_equal(ckpt_feed(p, "x", x, sizeof x), 0);
    assert_int_equal(ckpt_feed(p, "label", label, sizeof label), 0);
    assert_int_equal(ckpt_feed(p, "first", first, sizeof first), 0);
}

/* Trains under the options of m; info describes its program. */
static void run(struct model *m, struct ckpt_program_info *info)
{
    static const int64_t numel[] = {QKV * WIDTH, WIDTH * WIDTH, HEADS * TOKENS * TOKENS,
                                    CLASSES * WIDTH};
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    ckpt *c;
    ckpt_program *p;
    assert_int_equal(ckpt_open(&c, &m->options), 0);
    m->qkv = ckpt_param(c, "qkv", m->dtype, 2, (int64_t[]){QKV, WIDTH}, CKPT_NORMAL(.2f), true);
    m->proj = ckpt_param(c, "proj", m->dtype, 2, (int64_t[]){WIDTH, WIDTH}, CKPT_NORMAL(.2f), true);
    m->bias = ckpt_param(c, "bias", m->dtype, 3, (int64_t[]){HEADS, TOKENS, TOKENS},
                         CKPT_NORMAL(.2f), true);
    m->head =
        ckpt_param(c, "head", m->dtype, 2, (int64_t[]){CLASSES, WIDTH}, CKPT_NORMAL(.2f), true);
    if (ckpt_compile(c, record, m, ckpt_adamw(c, &adamw), BATCH, &p))
        fail_msg("%s", ckpt_error(c));
    assert_int_equal(ckpt_program_info(p, info), 0);
    for (int s = 0; s < STEPS; s++) {
        feed(p, s);
        if (ckpt_step(p, &m->loss[s]))
            fail_msg("%s", ckpt_error(c));
    }
    const ckpt_tensor all[] = {m->qkv, m->proj, m->bias, m->head};
    float *to = m->weight;
    for (int i = 0; i < WEIGHTS; to += numel[i++])
        assert_int_equal(ckpt_param_get(c, all[i], CKPT_VALUE, to, numel[i]), 0);
    ckpt_close(c);
}

static struct model *model_make(enum ckpt_dtype dtype, int64_t micro)
{
    static const struct ckpt_options none = CKPT_OPTIONS_INIT;
    struct model *m = calloc(1, sizeof *m);
    assert_non_null(m);
    m->options = none;
    m->options.device = small_on_gpu() ? "cuda" : "cpu";
    m->options.micro_batch = micro;
    m->dtype = dtype;
    return m;
}

static void check_budgets(enum ckpt_dtype dtype, int64_t micro)
{
    struct ckpt_program_info wide = CKPT_PROGRAM_INFO_INIT, least = CKPT_PROGRAM_INFO_INIT;
    struct model *a = model_make(dtype, micro), *b = model_make(dtype, micro);
    run(a, &wide);
    assert_true(a->loss[STEPS - 1] < a->loss[0]);
    b->options.vram = small_on_gpu() ? 0 : wide.min_budget;
    run(b, &least);
    assert_true(small_on_gpu() || least.recomputed_ops > 0);
    assert_memory_equal(a->loss, b->loss, sizeof a->loss);
    assert_memory_equal(a->weight, b->weight, sizeof a->weight);
    free(a);
    free(b);
}

static void test_budgets(void **state)
{
    (void)state;
    for (int64_t micro = 1; micro <= BATCH; micro *= 2) {
        check_budgets(CKPT_F32, micro);
        check_budgets(CKPT_BF16, micro);
    }
}

/* Each micro-step has about as many counted rows, so the mean of their losses is close to the mean
 * over all rows. */
static void test_micro_steps(void **state)
{
    (void)state;
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    struct model *a = model_make(CKPT_F32, BATCH), *b = model_make(CKPT_F32, 1);
    run(a, &info);
    run(b, &info);
    for (int s = 0; s < STEPS; s++)
        assert_true(fabsf(a->loss[s] - b->loss[s]) < 0.05f);
    free(a);
    free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_budgets),
                                       cmocka_unit_test(test_micro_steps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
