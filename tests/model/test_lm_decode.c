/* SPDX-License-Identifier: Apache-2.0 */
/* Decoding token by token with a KV cache gives the scores of the whole text at once; and the
 * selection of a token from its scores. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "../../examples/common/say.h"
#include "../../examples/lm/decode.h"

const char say_program[] = "test_lm_decode";

enum { LENGTH = 8, VOCABULARY = 19, SAMPLES = 2 };

static void make_config(struct lm_config *c, const char *preset)
{
    assert_int_equal(lm_config_preset(c, preset), 0);
    c->vocabulary = VOCABULARY;
    c->width = 24;
    c->heads = 4;
    c->kv_heads = c->family == LM_GPT2 ? 4 : 2;
    c->head = c->family == LM_GPT2 ? 6 : 8;
    if (c->window)
        c->window = 3;
    c->mlp = 40;
    c->layers = 2;
    c->spread = 0.4;
}

static void check_scores(const float *a, const float *b, double tolerance)
{
    for (int i = 0; i < SAMPLES * VOCABULARY; i++)
        if (!(fabs((double)a[i] - b[i]) <= tolerance))
            fail_msg("score %d: %g and %g", i, (double)a[i], (double)b[i]);
}

/* Both samples read the same tokens; after the last position the second half starts again. */
static void check_family(const char *preset, enum ckpt_dtype dtype, double tolerance)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    int32_t text[2 * LENGTH];
    struct lm_decoder step, whole;
    struct lm_config config;
    struct lm m;
    ckpt *c;

    if (ckpt_options_parse(&o, &(int){1}, (char *[]){"test", NULL}) || ckpt_open(&c, &o))
        fail_msg("%s", ckpt_error(NULL));
    make_config(&config, preset);
    assert_int_equal(lm_create(&m, c, &config, dtype, false), 0);
    assert_int_equal(lm_decoder_make(&step, &m, c, SAMPLES, LENGTH), 0);
    assert_int_equal(lm_decoder_make(&whole, &m, c, SAMPLES, LENGTH), 0);
    assert_int_equal(lm_decoder_compile(&step), 0);
    assert_int_equal(lm_decoder_compile(&whole), 0);
    for (int i = 0; i < 2 * LENGTH; i++)
        text[i] = (7 * i + 3) % VOCABULARY;
    assert_int_equal(lm_decoder_begin(&step, text, 2), 0);
    for (int n = 3; n <= LENGTH + 2; n++) {
        int32_t next[SAMPLES] = {text[n - 1], text[n - 1]};
        int begin = n > LENGTH ? LENGTH / 2 : 0;
        assert_int_equal(lm_decoder_next(&step, next), 0);
        if (n - begin < LENGTH)
            assert_int_equal(lm_decoder_begin(&whole, text + begin, n - begin), 0);
        else
            continue; /* a whole text leaves room for a token */
        check_scores(step.scores, whole.scores, tolerance);
    }
    lm_decoder_close(&step);
    lm_decoder_close(&whole);
    ckpt_close(c);
    lm_free(&m);
}

static void test_families(void **state)
{
    (void)state;
    check_family("tiny", CKPT_F32, 1e-4);
    check_family("tiny-llama", CKPT_F32, 1e-4);
    check_family("tiny-qwen", CKPT_F32, 1e-4);
    check_family("tiny-qwen", CKPT_BF16, 0.3); /* of scores of 10 */
    check_family("tiny-mistral", CKPT_F32, 1e-4);
    check_family("tiny-qwen3", CKPT_F32, 1e-4);
    check_family("tiny-gemma2", CKPT_F32, 1e-4);
    check_family("tiny-gemma3", CKPT_F32, 1e-4);
    check_family("tiny-phi", CKPT_F32, 1e-4);
    check_family("tiny-olmo", CKPT_F32, 1e-4);
    check_family("tiny-smollm3", CKPT_F32, 1e-4);
    check_family("tiny-gemma3", CKPT_BF16, 0.3);
}

/* ---- choices ------------------------------------------------------------------------------- */

static void test_choice(void **state)
{
    static const float scores[] = {0, 3, 1, 3, 2};
    struct lm_choice how = {.temperature = 0, .top_p = 1};

    (void)state;
    assert_int_equal(lm_choose(&how, scores, 5, 0.99f), 1);
    how.temperature = 1; /* shares .375 .375 .138 .051 ... in the order 1 3 4 2 0 */
    assert_int_equal(lm_choose(&how, scores, 5, 0), 1);
    assert_int_equal(lm_choose(&how, scores, 5, 0.5f), 3);
    assert_int_equal(lm_choose(&how, scores, 5, 0.88f), 4);
    assert_int_equal(lm_choose(&how, scores, 5, 0.999f), 0);
    how.top_k = 3;
    assert_int_equal(lm_choose(&how, scores, 5, 0.999f), 4);
    how.top_p = 0.6;
    assert_int_equal(lm_choose(&how, scores, 5, 0.999f), 3);
    how.top_p = 1e-6;
    assert_int_equal(lm_choose(&how, scores, 5, 0.999f), 1);
    how = (struct lm_choice){.temperature = 1e-30, .top_p = 1, .repetition = 1};
    assert_int_equal(lm_choose(&how, scores, 5, 0.4f), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_families),
        cmocka_unit_test(test_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
