/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every kernel of attention adds in one order: a model with a layer of each mask has the same
 * losses and weights in two runs and under three budgets, without an option.  Head widths with
 * kernels of their own, and wider ones; long sequences, whose gradients libraries sum in the order
 * in which blocks finish, and short ones.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>
#include "ckpt_tools.h"
#include "core/base.h"
#include "core/bits.h"

enum { BATCH = 2, HEADS = 4, STEPS = 2, MIB = 1 << 20, LONG = 2305, SHORT = 150 };

/* A layer of each; GROUPED: pairs of heads share keys; PACKED: keys of both samples in a row. */
enum mask { ALL, CAUSAL, WINDOW, GROUPED, LENGTHS, PACKED, MASKS };

struct model {
    int64_t head, places;
    ckpt_tensor qkv[MASKS], proj[MASKS];
};

static int64_t width_of(const struct model *m)
{
    return HEADS * m->head;
}

/* Heads [begin, begin + n) of x, whose last axis has all heads of q, k and v. */
static ckpt_tensor heads_of(ckpt_tape *t, const struct model *m, ckpt_tensor x, int64_t batch,
                            int64_t begin, int64_t n)
{
    x = ckpt_slice(t, x, 2, begin * m->head, (begin + n) * m->head);
    return ckpt_reshape(t, x, 4, (int64_t[]){batch, m->places, n, m->head});
}

static ckpt_tensor packed_rows(ckpt_tape *t, const struct model *m, ckpt_tensor x, int64_t batch)
{
    return ckpt_reshape(t, x, 3, (int64_t[]){batch * m->places, HEADS, m->head});
}

static ckpt_tensor attend(ckpt_tape *t, const struct model *m, enum mask mask, ckpt_tensor x,
                          ckpt_tensor lengths, int64_t batch)
{
    struct ckpt_attention_spec spec = CKPT_ATTENTION_INIT;
    const int64_t keys = mask == GROUPED ? HEADS / 2 : HEADS;
    ckpt_tensor q = heads_of(t, m, x, batch, 0, HEADS);
    ckpt_tensor k = heads_of(t, m, x, batch, HEADS, keys);
    ckpt_tensor v = heads_of(t, m, x, batch, 2 * HEADS, keys);
    spec.causal = mask == CAUSAL || mask == WINDOW || mask == GROUPED;
    spec.window = mask == WINDOW ? m->places / 3 : 0;
    spec.lengths = mask == LENGTHS ? lengths : CKPT_NONE;
    if (mask == PACKED)
        return ckpt_cross_attention(t, q, packed_rows(t, m, k, batch), packed_rows(t, m, v, batch),
                                    lengths, 1 / sqrtf((float)m->head));
    return ckpt_attention(t, q, k, v, CKPT_NONE, &spec);
}

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct model *m = user;
    int64_t shape[] = {batch, m->places, width_of(m)};
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 3, shape);
    ckpt_tensor lengths = ckpt_input(t, "lengths", CKPT_I32, 1, &batch);
    ckpt_tensor h = ckpt_cast(t, x, CKPT_BF16);
    for (int i = 0; i < MASKS; i++) {
        ckpt_tensor y = ckpt_linear(t, ckpt_silu(t, h), m->qkv[i], CKPT_NONE);
        y = ckpt_reshape(t, attend(t, m, (enum mask)i, y, lengths, batch), 3, shape);
        h = ckpt_linear_add(t, y, m->proj[i], CKPT_NONE, h);
    }
    return ckpt_mse(t, ckpt_cast(t, h, CKPT_F32), x, CKPT_NONE);
}

static void create(struct model *m, ckpt *c)
{
    const int64_t n = width_of(m);
    char name[32];
    for (int i = 0; i < MASKS; i++) {
        snprintf(name, sizeof name, "qkv.%d", i);
        m->qkv[i] = ckpt_param(c, name, CKPT_BF16, 2, (int64_t[]){3 * n, n}, CKPT_XAVIER, true);
        snprintf(name, sizeof name, "proj.%d", i);
        m->proj[i] = ckpt_param(c, name, CKPT_BF16, 2, (int64_t[]){n, n}, CKPT_XAVIER, true);
    }
}

static void feed(ckpt_program *p, const struct model *m, int step)
{
    const int64_t n = BATCH * m->places * width_of(m);
    const int32_t lengths[BATCH] = {(int32_t)m->places, (int32_t)m->places / 2};
    float *x = malloc((size_t)n * sizeof *x);
    assert_non_null(x);
    ckpt_fill_normal(5, (uint64_t)step, 1, x, n);
    assert_int_equal(ckpt_feed(p, "x", x, n * 4), 0);
    assert_int_equal(ckpt_feed(p, "lengths", lengths, sizeof lengths), 0);
    free(x);
}

static uint64_t hash_floats(uint64_t h, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        h = hash_mix(h, float_bits(x[i]));
    return h;
}

static uint64_t hash_params(uint64_t h, ckpt *c)
{
    for (int i = 0; i < ckpt_param_count(c); i++) {
        struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
        ckpt_tensor param = ckpt_param_at(c, i);
        assert_int_equal(ckpt_param_info(c, param, &info), 0);
        float *x = malloc((size_t)info.numel * sizeof *x);
        assert_non_null(x);
        assert_int_equal(ckpt_param_get(c, param, CKPT_VALUE, x, info.numel), 0);
        h = hash_floats(h, x, info.numel);
        free(x);
    }
    return h;
}

/* The digest of losses, norms and weights after the steps. */
static uint64_t run(struct model *m, int64_t vram, struct ckpt_program_info *info)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    uint64_t h = HASH_START;
    ckpt_program *p;
    ckpt *c;
    o.device = "cuda";
    o.vram = vram;
    adamw.clip_norm = 1;
    assert_int_equal(ckpt_open(&c, &o), 0);
    create(m, c);
    if (ckpt_compile(c, record, m, ckpt_adamw(c, &adamw), BATCH, &p))
        fail_msg("%s", ckpt_error(c));
    for (int step = 0; step < STEPS; step++) {
        float result[2];
        feed(p, m, step);
        if (ckpt_step(p, &result[0]))
            fail_msg("%s", ckpt_error(c));
        assert_int_equal(ckpt_program_info(p, info), 0);
        result[1] = (float)info->grad_norm;
        h = hash_floats(h, result, 2);
    }
    h = hash_params(h, c);
    ckpt_close(c);
    return h;
}

static void check(int64_t head, int64_t places)
{
    struct model m = {.head = head, .places = places};
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    const uint64_t expected = run(&m, 0, &info);
    const int64_t high = info.planned_peak + info.overhead_bytes;
    const int64_t low = info.min_budget + 32 * MIB; /* see test_gpu_promises.c */
    const int64_t vram[] = {0, low + (high - low) / 2, low};
    for (int i = 0; i < 3; i++) {
        const uint64_t h = run(&m, vram[i], &info);
        print_message("heads of %d, %d places, --vram %lld: %d ops recomputed, %016llx\n",
                      (int)head, (int)places, (long long)vram[i], (int)info.recomputed_ops,
                      (unsigned long long)h);
        assert_true(h == expected);
    }
    assert_true(places < LONG || info.recomputed_ops > 0);
}

static void test_width(void **state)
{
    const int64_t head = *(const int *)*state;
    check(head, LONG);
    check(head, SHORT);
}

int main(void)
{
    static int widths[] = {64, 72, 96, 128, 256};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_width, &widths[0]),
        cmocka_unit_test_prestate(test_width, &widths[1]),
        cmocka_unit_test_prestate(test_width, &widths[2]),
        cmocka_unit_test_prestate(test_width, &widths[3]),
        cmocka_unit_test_prestate(test_width, &widths[4]),
    };
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    ckpt *c;
    o.device = "cuda";
    if (ckpt_open(&c, &o)) {
        printf("skipped: %s\n", ckpt_error(NULL));
        return 77;
    }
    ckpt_close(c);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
