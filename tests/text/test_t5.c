/* SPDX-License-Identifier: Apache-2.0 */
/* The encoders T5 and UMT5 against Hugging Face's in float64 (make_text_reference.py), their
 * parameters, and their weights if they do not fit on the device. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "../../examples/common/say.h"
#include "../../examples/text/t5.h"
#include "ckpt_files.h"
#include "ckpt_tools.h"

const char say_program[] = "test_t5";

enum { BATCH = 2, LONGEST = 226 };

static const char *in_source(char path[4096], const char *name)
{
    const char *root = getenv("srcdir");

    snprintf(path, 4096, "%s/tests/text/%s", root ? root : ".", name);
    return path;
}

/* ---- the reference ------------------------------------------------------------------------- */

static ckpt_file *open_expected(const char *model)
{
    char path[4096], name[64];
    ckpt_file *f;

    snprintf(name, sizeof name, "%s_expected.safetensors", model);
    if (ckpt_file_open(&f, in_source(path, name)))
        fail_msg("%s", ckpt_error(NULL));
    return f;
}

static int find(ckpt_file *f, const char *name, int64_t *numel)
{
    struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
    int i = ckpt_file_find(f, name);

    assert_true(i >= 0);
    assert_int_equal(ckpt_file_entry(f, i, &e), 0);
    *numel = e.numel;
    return i;
}

static int32_t *read_ints(ckpt_file *f, const char *name, int64_t *numel)
{
    int i = find(f, name, numel);
    int32_t *x = malloc((size_t)*numel * sizeof *x);

    assert_non_null(x);
    assert_int_equal(ckpt_file_read_i32(f, i, x, *numel), 0);
    return x;
}

static void test_buckets(void **state)
{
    struct t5_config usual = {.buckets = 32, .farthest = 128}, few = {.buckets = 8, .farthest = 20};
    ckpt_file *f = open_expected("t5");
    int64_t n;
    int32_t *a = read_ints(f, "buckets", &n), *b = read_ints(f, "few", &n);

    (void)state;
    for (int64_t i = 0; i < n; i++) {
        assert_int_equal(t5_bucket(&usual, i - n / 2), a[i]);
        assert_int_equal(t5_bucket(&few, i - n / 2), b[i]);
    }
    assert_int_equal(t5_bucket(&usual, -16), 10);
    assert_int_equal(t5_bucket(&usual, 64), 16 + 14);
    free(a);
    free(b);
    ckpt_file_close(f);
}

/* ---- runs ---------------------------------------------------------------------------------- */

struct run {
    struct t5 model;
    ckpt *context;
    ckpt_program *program;
    int64_t length;
    bool masked;
};

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct run *r = user;
    ckpt_tensor tokens = ckpt_input(t, "tokens", CKPT_I32, 2, (int64_t[]){batch, r->length});
    ckpt_tensor lengths = r->masked ? ckpt_input(t, "lengths", CKPT_I32, 1, &batch) : CKPT_NONE;
    ckpt_tensor x = t5_encode(&r->model, t, tokens, lengths);

    ckpt_output(t, "x", ckpt_cast(t, x, CKPT_F32));
    return x;
}

static void open_context(struct run *r, int64_t vram)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;

    if (ckpt_options_parse(&o, &(int){1}, (char *[]){"test", NULL}))
        fail_msg("%s", ckpt_error(NULL));
    o.vram = vram ? vram : CKPT_VRAM_NONE;
    o.host = vram ? 64 << 20 : 0;
    if (ckpt_open(&r->context, &o))
        fail_msg("%s", ckpt_error(NULL));
}

static void open_run(struct run *r, const char *model, enum ckpt_dtype dtype)
{
    struct t5_config config;
    char path[4096];

    open_context(r, 0);
    assert_int_equal(t5_config_read(&config, in_source(path, model)), 0);
    assert_int_equal(t5_create(&r->model, r->context, &config, dtype), 0);
    if (ckpt_compile(r->context, record, r, NULL, BATCH, &r->program))
        fail_msg("%s", ckpt_error(r->context));
    assert_int_equal(t5_load(r->context, path), 0);
}

static void close_run(struct run *r)
{
    ckpt_close(r->context);
    t5_free(&r->model);
}

static void step(struct run *r, ckpt_file *f, float *x, int64_t numel)
{
    char name[32];
    int64_t n, m;

    snprintf(name, sizeof name, "tokens.%d", (int)r->length);
    int32_t *tokens = read_ints(f, name, &n);
    snprintf(name, sizeof name, "lengths.%d", (int)r->length);
    int32_t *lengths = read_ints(f, name, &m);
    if (ckpt_feed(r->program, "tokens", tokens, n * 4) ||
        (r->masked && ckpt_feed(r->program, "lengths", lengths, m * 4)) ||
        ckpt_step(r->program, NULL) || ckpt_fetch(r->program, "x", x, numel * 4))
        fail_msg("%s", ckpt_error(r->context));
    free(tokens);
    free(lengths);
}

static double distance(const float *a, const float *b, int64_t n)
{
    double error = 0, norm = 0;

    for (int64_t i = 0; i < n; i++) {
        error += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        norm += (double)b[i] * b[i];
    }
    return sqrt(error / norm);
}

static void check_against(const char *model, enum ckpt_dtype dtype, int64_t length, bool masked,
                          double tolerance)
{
    struct run r = {.length = length, .masked = masked};
    ckpt_file *f = open_expected(model);
    char name[32];
    int64_t n;

    open_run(&r, model, dtype);
    snprintf(name, sizeof name, "%s.%d", masked ? "masked" : "whole", (int)length);
    int at = find(f, name, &n);
    float *expected = malloc((size_t)n * 4), *x = malloc((size_t)n * 4);
    assert_true(expected && x);
    assert_int_equal(ckpt_file_read_f32(f, at, expected, n), 0);
    step(&r, f, x, n);
    double d = distance(x, expected, n);
    print_message("%s %s %s: %.2e\n", model, name, dtype == CKPT_F32 ? "fp32" : "bf16", d);
    assert_true(d <= tolerance);
    free(expected);
    free(x);
    close_run(&r);
    ckpt_file_close(f);
}

static void test_reference(void **state)
{
    static const int64_t lengths[] = {1, 7, LONGEST};

    (void)state;
    for (int i = 0; i < 3; i++)
        for (int masked = 0; masked < 2; masked++) {
            check_against("t5", CKPT_F32, lengths[i], masked, 1e-5);
            check_against("t5", CKPT_BF16, lengths[i], masked, 3e-2);
        }
}

static void test_umt5_reference(void **state)
{
    static const int64_t lengths[] = {1, 7, 150};

    (void)state;
    for (int i = 0; i < 3; i++) {
        check_against("umt5", CKPT_F32, lengths[i], true, 1e-5);
        check_against("umt5", CKPT_BF16, lengths[i], true, 3e-2);
    }
}

/* ---- weights that do not fit --------------------------------------------------------------- */

/* Larger than in the reference, because storages below 1 MiB are not offloaded. */
static struct t5_config streamed = {64, 512, 64, 8, 1024, 3, 32, 128, 1e-6, false};
enum { STREAMED = 7, NUMEL = BATCH * STREAMED * 512 };

static void fill(const struct run *r)
{
    ckpt *c = r->context;

    for (int i = 0; i < ckpt_param_count(c); i++) {
        struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
        assert_int_equal(ckpt_param_info(c, ckpt_param_at(c, i), &info), 0);
        float *x = malloc((size_t)info.numel * sizeof *x);
        assert_non_null(x);
        ckpt_fill_uniform(3, 0, (uint32_t)i, x, info.numel);
        for (int64_t k = 0; k < info.numel; k++)
            x[k] = info.desc.ndim == 1 ? 1 : (x[k] - 0.5f) * 0.2f;
        assert_int_equal(ckpt_param_set(c, ckpt_param_at(c, i), CKPT_VALUE, x, info.numel), 0);
        free(x);
    }
}

/* Runs two steps: weights offloaded in the first are back in the second.  Returns the bytes of the
 * arena and sets the smallest budget, or returns -1 if no plan fits. */
static int64_t run_streamed(enum ckpt_dtype dtype, bool masked, int64_t vram, float x[NUMEL],
                            int64_t *smallest)
{
    static const int32_t tokens[BATCH * STREAMED] = {5, 9, 63, 1, 0, 0, 0, 7, 7, 30, 31, 2, 1, 0};
    static const int32_t lengths[BATCH] = {4, 6};
    struct run r = {.length = STREAMED, .masked = masked};
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;

    open_context(&r, vram);
    assert_int_equal(t5_create(&r.model, r.context, &streamed, dtype), 0);
    bool fits = !ckpt_compile(r.context, record, &r, NULL, BATCH, &r.program);
    for (int i = 0; fits && i < 2; i++) {
        if (!i)
            fill(&r);
        if (ckpt_feed(r.program, "tokens", tokens, sizeof tokens) ||
            (masked && ckpt_feed(r.program, "lengths", lengths, sizeof lengths)) ||
            ckpt_step(r.program, NULL) || ckpt_fetch(r.program, "x", x, NUMEL * 4))
            fail_msg("%s", ckpt_error(r.context));
    }
    if (fits)
        assert_int_equal(ckpt_program_info(r.program, &info), 0);
    *smallest = info.min_budget;
    close_run(&r);
    return fits ? info.arena_bytes : -1;
}

static void check_streaming(enum ckpt_dtype dtype, bool masked)
{
    static float a[NUMEL], b[NUMEL];
    int64_t smallest, most = run_streamed(dtype, masked, 0, a, &smallest);

    if (getenv("CKPT_TEST_GPU")) { /* whose context outweighs such weights by far */
        assert_true(run_streamed(dtype, masked, smallest, b, &smallest) > 0);
        assert_memory_equal(a, b, sizeof a);
        return;
    }
    for (int share = 9; share > 6; share--) {
        memset(b, 0, sizeof b);
        int64_t got = run_streamed(dtype, masked, most * share / 10, b, &smallest);
        assert_true(got > 0 && got <= most * share / 10);
        assert_memory_equal(a, b, sizeof a);
    }
}

static void test_streaming(void **state)
{
    (void)state;
    check_streaming(CKPT_F32, true);
    check_streaming(CKPT_F32, false);
    check_streaming(CKPT_BF16, true);
    streamed.own_tables = true;
    check_streaming(CKPT_F32, true);
}

/* ---- parameters ---------------------------------------------------------------------------- */

static void check_count(const struct t5_config *xxl, int tensors, int64_t parameters)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    int64_t total = 0;
    struct t5 m;
    ckpt *c;

    o.plan_only = true;
    assert_int_equal(ckpt_open(&c, &o), 0);
    assert_int_equal(t5_create(&m, c, xxl, CKPT_BF16), 0);
    assert_int_equal(ckpt_param_count(c), tensors);
    for (int i = 0; i < tensors; i++) {
        struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
        assert_int_equal(ckpt_param_info(c, ckpt_param_at(c, i), &info), 0);
        assert_false(info.trainable);
        total += info.numel;
    }
    assert_true(total == parameters);
    ckpt_close(c);
    t5_free(&m);
}

static void test_count(void **state)
{
    const struct t5_config t5 = {32128, 4096, 64, 64, 10240, 24, 32, 128, 1e-6, false};
    const struct t5_config umt5 = {256384, 4096, 64, 64, 10240, 24, 32, 128, 1e-6, true};

    (void)state;
    check_count(&t5, 219, 4762310656);
    check_count(&umt5, 242, 5680910336);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buckets),        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_umt5_reference), cmocka_unit_test(test_streaming),
        cmocka_unit_test(test_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
