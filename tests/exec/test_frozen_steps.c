/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adapters on weights in codes (ckpt_quantize_frozen): a run has the same bits as one with the
 * dequantized weights, under every budget, in every tier, in micro-steps, with other state and
 * other products, and resumed; gradients through such weights; sizes of stored values; states of
 * other formats; merged files; wrong input.  test_frozen tests the codes, test_ranks several ranks.
 * "make check-gpu" runs it on the GPU.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "ckpt_files.h"
#include "ckpt_tools.h"
#include "core/frozen.h"
#include "ops.h"
#include "plan/one_search.h"
#include "small.h"

enum { WIDTH = 64, WEIGHTS = SMALL_LAYERS + 2, RANK = 4 };

static const char *const formats[] = {"int8", "nf4"};

enum { FORMATS = sizeof formats / sizeof *formats };

/* ---- a run ----------------------------------------------------------------------------------- */

/* Storage format of the next context's weights; NULL: unchanged. */
static const char *format;
/* Initial values of the weights; NULL: from the seed. */
static const float *begin_with;

static void add_adapters(ckpt *c)
{
    struct ckpt_lora lora = CKPT_LORA_INIT;
    lora.rank = RANK;
    assert_int_equal(ckpt_lora(c, &lora), WEIGHTS);
    if (format && ckpt_quantize_frozen(c, "*.weight", format) != WEIGHTS)
        fail_msg("%s", ckpt_error(c));
}

/* Parameters that are not adapters come first. */
static void set_weights(ckpt *c, const float *values)
{
    for (int i = 0; i < SMALL_PARAMS; i++) {
        struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
        assert_int_equal(ckpt_param_info(c, ckpt_param_at(c, i), &info), 0);
        if (ckpt_param_set(c, ckpt_param_at(c, i), CKPT_VALUE, values, info.numel))
            fail_msg("%s", ckpt_error(c));
        values += info.numel;
    }
}

/* small_compile calls this to make the optimizer once the parameters exist. */
static ckpt_optimizer *adapted(ckpt *c, const struct small *r)
{
    add_adapters(c);
    if (begin_with)
        set_weights(c, begin_with);
    return ckpt_adamw(c, &r->adamw);
}

static struct small make(enum ckpt_dtype dtype, int64_t n_micro)
{
    struct small r = small_make(dtype, WIDTH, n_micro, true);
    r.optimizer = adapted;
    return r;
}

/* Copies all slots of all parameters, adapters too. */
static void collect(struct small *r, ckpt *c)
{
    const int n = ckpt_param_count(c);
    r->numel = 0;
    r->state = calloc((size_t)(n * SMALL_SLOTS * WIDTH * WIDTH), sizeof(float));
    assert_int_equal(n, SMALL_PARAMS + 2 * WEIGHTS);
    for (int i = 0; i < n; i++) {
        struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
        ckpt_param_info(c, ckpt_param_at(c, i), &info);
        assert_int_equal(info.trainable, i >= SMALL_PARAMS);
        for (int s = CKPT_VALUE; s <= (info.trainable ? CKPT_EMA : CKPT_VALUE); s++) {
            if (ckpt_param_get(c, ckpt_param_at(c, i), (enum ckpt_slot)s, r->state + r->numel,
                               info.numel))
                fail_msg("%s", ckpt_error(c));
            r->numel += info.numel;
        }
    }
}

static void run(struct small *r)
{
    ckpt *c;
    ckpt_program *p;
    small_open(r, &c, &p);
    small_train(r, c, p, 0, SMALL_STEPS);
    collect(r, c);
    ckpt_close(c);
}

/* Runs the first steps, saves, and runs the rest in a new context. */
static void run_in_parts(struct small *r)
{
    ckpt *c;
    ckpt_program *p;
    small_open_resumed(r, &c, &p);
    small_train(r, c, p, SMALL_SAVED, SMALL_STEPS);
    collect(r, c);
    ckpt_close(c);
}

static void expect_same(const char *what, const struct small *a, struct small *b)
{
    if (a->numel != b->numel || memcmp(a->loss, b->loss, sizeof a->loss) ||
        memcmp(a->state, b->state, (size_t)a->numel * sizeof *a->state))
        fail_msg("%s, %s: other numbers than with all resident; last loss %g and %g", format, what,
                 (double)a->loss[SMALL_STEPS - 1], (double)b->loss[SMALL_STEPS - 1]);
    free(b->state);
}

/* ---- the same bits --------------------------------------------------------------------------- */

static void check_forced(const struct small *resident, const struct force *f, const char *what)
{
    struct small r = *resident;
    struct budgets tiers;
    struct force_count count;
    char path[64], nvme[64];
    small_path(path, sizeof path, "frozen-plan");
    small_force(resident, f, path, &tiers, &count);
    assert_true(count.persistent[TIER_HOST] + count.persistent[TIER_NVME] > 0);
    small_use_tiers(&r, path, &tiers, nvme);
    run_in_parts(&r);
    expect_same(what, resident, &r);
    unlink(path);
}

/* Budgets: the smallest one, which recomputes weights, and one between it and the full peak. */
static void check_budgets(const struct small *resident)
{
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    struct small r = *resident;
    ckpt *c;
    ckpt_program *p;
    r.options.plan_only = true;
    small_open(&r, &c, &p);
    ckpt_program_info(p, &info);
    ckpt_close(c);
    r.options.plan_only = false;
    assert_true(info.min_budget < info.planned_peak);
    for (int i = 0; i < 2; i++) {
        r.options.vram = info.min_budget + (info.planned_peak - info.min_budget) * i / 2;
        run(&r);
        expect_same("a budget", resident, &r);
    }
}

static void check_exact(struct small r)
{
    run(&r);
    struct small other = r;
    run_in_parts(&other);
    expect_same("resumed", &r, &other);
    if (!small_on_gpu())
        check_budgets(&r);
    const bool half = r.dtype == CKPT_BF16 && !r.options.state;
    check_forced(&r, &(struct force){.seed = 3, .host = true, .all = true, .half = half},
                 "on the host");
    check_forced(&r, &(struct force){.seed = 4, .nvme = true, .half = half}, "on NVMe");
    free(r.state);
}

static void test_exactness(void **state)
{
    (void)state;
    format = "int8";
    check_exact(make(CKPT_F32, 1));
    format = "nf4";
    check_exact(make(CKPT_BF16, 3));
}

/* With adapter state in other dtypes, bf16 gradients, and 8-bit products. */
static void test_crossings(void **state)
{
    struct small r = make(CKPT_BF16, 1);
    ckpt *c;
    ckpt_program *p;
    (void)state;
    format = "int8";
    r.options.state = "8bit";
    r.adamw.grad_dtype = CKPT_BF16;
    check_exact(r);
    r = make(CKPT_BF16, 1);
    r.width = 128, r.rows = 8;
    r.options.matmul = "fp8";
    r.options.plan_only = true;
    small_open(&r, &c, &p);
    int products = 0;
    for (int32_t i = 0; i < p->tape->n_ops; i++)
        products += p->tape->ops.data[i].def == &op_linear_fp8;
    assert_int_equal(products, WEIGHTS - 1);
    ckpt_close(c);
}

/* Compares with a run whose weights were set to the dequantized values: only the op differs, not
 * the random numbers. */
static void check_against_plain(enum ckpt_dtype dtype, int64_t n_micro)
{
    struct small coded = make(dtype, n_micro), plain = coded;
    const char *was = format;
    run(&coded);
    format = NULL;
    begin_with = coded.state; /* frozen values stand there before adapters */
    run(&plain);
    format = was;
    begin_with = NULL;
    expect_same("its plain weights", &coded, &plain);
    free(coded.state);
}

static void test_against_plain(void **state)
{
    (void)state;
    for (int f = 0; f < FORMATS; f++) {
        format = formats[f];
        check_against_plain(CKPT_BF16, 1);
        check_against_plain(CKPT_F32, 3);
    }
}

/* ---- gradients ------------------------------------------------------------------------------- */

static int feed_some(ckpt_program *p, void *user)
{
    const struct small *r = user;
    small_feed(p, r, 0);
    return 0;
}

static void test_gradients(void **state)
{
    (void)state;
    for (int f = 0; f < FORMATS; f++) {
        struct small r = make(CKPT_F32, 1);
        struct ckpt_gradcheck check = CKPT_GRADCHECK_INIT;
        float b[WIDTH * RANK];
        ckpt *c;
        ckpt_program *p;
        format = formats[f];
        r.options.verify = false;
        small_open(&r, &c, &p);
        for (int i = SMALL_PARAMS + 1; i < SMALL_PARAMS + 2 * WEIGHTS; i += 2) {
            ckpt_fill_normal(3, 0, (uint32_t)i, b, WIDTH * RANK); /* A has no gradient at B = 0 */
            assert_int_equal(ckpt_param_set(c, ckpt_param_at(c, i), CKPT_VALUE, b, WIDTH * RANK),
                             0);
        }
        check.batch = SMALL_BATCH;
        check.feed = feed_some;
        check.samples = 4;
        if (ckpt_gradcheck(c, small_record, &r, &check))
            fail_msg("%s: %s", format, ckpt_error(c));
        assert_true(check.error < 1e-2);
        ckpt_close(c);
    }
}

/* ---- stored values --------------------------------------------------------------------------- */

static void read_info(struct small r, struct ckpt_program_info *info, char table[4096])
{
    ckpt *c;
    ckpt_program *p;
    small_open(&r, &c, &p);
    *info = (struct ckpt_program_info)CKPT_PROGRAM_INFO_INIT;
    ckpt_program_info(p, info);
    FILE *f = fmemopen(table, 4096, "w");
    ckpt_plan_print(p, f);
    fclose(f);
    ckpt_close(c);
}

static void test_bytes(void **state)
{
    const int64_t n = WIDTH * WIDTH;
    struct ckpt_program_info plain, coded;
    char table[4096], row[80];
    (void)state;
    format = NULL;
    read_info(make(CKPT_BF16, 1), &plain, table);
    assert_null(strstr(table, "in codes"));
    for (int f = 0; f < FORMATS; f++) {
        format = formats[f];
        read_info(make(CKPT_BF16, 1), &coded, table);
        snprintf(row, sizeof row, "part of the parameters, %d frozen weights in %s\n", WEIGHTS,
                 format);
        assert_non_null(strstr(table, row));
        const int64_t less = n * 2 - frozen_words(frozen_format_of(format), n) * 4;
        assert_in_range(plain.parameter_bytes - coded.parameter_bytes,
                        WEIGHTS * (less - CKPT_ALIGN), WEIGHTS * less);
    }
}

/* Values that are set are rounded to codes, before and after the compile, and do not change when
 * set again; weights that are too small, or have other names, are not rounded. */
static void test_set(void **state)
{
    enum { MANY = WIDTH * WIDTH };
    float *values = malloc(MANY * 4), *once = malloc(MANY * 4), *twice = malloc(MANY * 4);
    float *plain = malloc(MANY * 4); /* as bf16 has them */
    (void)state;
    ckpt_fill_normal(1, 2, 3, values, MANY);
    memcpy(plain, values, MANY * 4);
    param_narrow(plain, MANY);
    for (int f = 0; f < FORMATS; f++) {
        struct small r = make(CKPT_BF16, 1);
        ckpt *c;
        ckpt_program *p;
        format = formats[f];
        assert_int_equal(ckpt_open(&c, &r.options), 0);
        ckpt_tensor w =
            ckpt_param_from(c, "w.weight", CKPT_BF16, 2, (int64_t[]){WIDTH, WIDTH}, values, false);
        ckpt_tensor small = ckpt_param_from(c, "small.weight", CKPT_BF16, 2,
                                            (int64_t[]){WIDTH, WIDTH - 1}, values, false);
        ckpt_tensor other =
            ckpt_param_from(c, "other", CKPT_BF16, 2, (int64_t[]){WIDTH, WIDTH}, values, false);
        assert_int_equal(ckpt_quantize_frozen(c, "*.weight", format), 1);
        assert_int_equal(ckpt_quantize_frozen(c, "w.*", format), 1); /* once more is nothing new */
        assert_int_equal(ckpt_param_get(c, w, CKPT_VALUE, once, MANY), 0);
        assert_memory_not_equal(values, once, MANY * 4);
        assert_int_equal(ckpt_param_set(c, w, CKPT_VALUE, once, MANY), 0);
        assert_int_equal(ckpt_param_get(c, w, CKPT_VALUE, twice, MANY), 0);
        assert_memory_equal(once, twice, MANY * 4);
        assert_int_equal(ckpt_param_get(c, other, CKPT_VALUE, twice, MANY), 0);
        assert_memory_equal(plain, twice, MANY * 4);
        assert_int_equal(ckpt_param_get(c, small, CKPT_VALUE, twice, MANY - WIDTH), 0);
        assert_memory_equal(plain, twice, (MANY - WIDTH) * 4);
        ckpt_close(c);
        small_open(&r, &c, &p);
        for (int again = 0; again < 2; again++) {
            assert_int_equal(ckpt_param_set(c, r.param[0], CKPT_VALUE, again ? once : values, MANY),
                             0);
            assert_int_equal(ckpt_param_get(c, r.param[0], CKPT_VALUE, twice, MANY), 0);
            assert_memory_equal(once, twice, MANY * 4);
        }
        ckpt_close(c);
    }
    free(values), free(once), free(twice), free(plain);
}

/* ---- states of other formats ----------------------------------------------------------------- */

static bool allow_frozen(void *user, const char *name, const char *was, const char *is)
{
    const char *const *formats_of = user;
    if (!strcmp(name, "ckpt.frozen"))
        assert_true(!strcmp(was, formats_of[0]) && !strcmp(is, formats_of[1]));
    return !strcmp(name, "ckpt.frozen");
}

/* Bytes of the values in a state. */
static int64_t value_bytes(const char *path)
{
    int64_t bytes = 0;
    ckpt_file *f;
    assert_int_equal(ckpt_file_open(&f, path), 0);
    for (int i = 0; i < ckpt_file_count(f); i++) {
        struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
        assert_int_equal(ckpt_file_entry(f, i, &e), 0);
        int64_t n = 4;
        for (int k = 0; k < e.ndim; k++)
            n *= e.shape[k];
        bytes += strncmp(e.name, "value/", 6) ? 0 : n;
    }
    ckpt_file_close(f);
    return bytes;
}

static void check_state(const char *from, const char *to)
{
    const char *names[] = {from ? from : "bf16", to ? to : "bf16"};
    struct small a = make(CKPT_BF16, 1), b = a;
    const int64_t n = WIDTH * WIDTH;
    float *was = malloc((size_t)n * 4), *is = malloc((size_t)n * 4);
    char path[64];
    ckpt *c;
    ckpt_program *p;
    small_path(path, sizeof path, "frozen-state");
    format = from;
    small_open(&a, &c, &p);
    small_train(&a, c, p, 0, 2);
    assert_int_equal(ckpt_save_state(c, path), 0);
    assert_int_equal(ckpt_param_get(c, a.param[0], CKPT_VALUE, was, n), 0);
    ckpt_close(c);
    const int64_t codes = from ? frozen_words(frozen_format_of(from), n) * 4 : n * 4;
    assert_true(value_bytes(path) < WEIGHTS * (codes + 4 * 3 * WIDTH * RANK) + 4096);
    format = to;
    small_open(&b, &c, &p);
    if (ckpt_load_state(c, path) != CKPT_EINVAL || !strstr(ckpt_error(c), "ckpt.frozen"))
        fail_msg("%s into %s: %s", names[0], names[1], ckpt_error(c));
    if (ckpt_load_state_changed(c, path, allow_frozen, names))
        fail_msg("%s into %s: %s", names[0], names[1], ckpt_error(c));
    assert_int_equal(ckpt_param_get(c, b.param[0], CKPT_VALUE, is, n), 0);
    assert_int_equal(memcmp(was, is, (size_t)n * 4) == 0, to == NULL);
    for (int64_t i = 0; i < n; i++)
        assert_true(fabsf(was[i] - is[i]) < 0.1f);
    small_train(&b, c, p, 2, 3);
    ckpt_close(c);
    unlink(path);
    free(was), free(is);
}

static void test_states(void **state)
{
    (void)state;
    check_state("nf4", NULL);
    check_state(NULL, "int8");
    check_state("int8", "nf4");
}

/* ---- merging --------------------------------------------------------------------------------- */

static bool is_weight(void *user, const char *name)
{
    return !ckpt_lora_only(user, name);
}

static float *read_tensor(const char *path, const char *name, int64_t n)
{
    float *values = malloc((size_t)n * sizeof *values);
    ckpt_file *f;
    assert_int_equal(ckpt_file_open(&f, path), 0);
    assert_int_equal(ckpt_file_count(f), SMALL_PARAMS);
    assert_int_equal(ckpt_file_read_f32(f, ckpt_file_find(f, name), values, n), 0);
    ckpt_file_close(f);
    return values;
}

/* Checks w + 4 B A of the first weight: alpha is 16, the rank 4. */
static void check_merged(const float *merged, ckpt *c)
{
    float *w = malloc(WIDTH * WIDTH * 4), a[RANK * WIDTH], b[WIDTH * RANK];
    bool moved = false;
    assert_int_equal(ckpt_param_get(c, ckpt_param_at(c, 0), CKPT_VALUE, w, WIDTH * WIDTH), 0);
    assert_int_equal(ckpt_param_get(c, ckpt_param_at(c, SMALL_PARAMS), CKPT_VALUE, a, RANK * WIDTH),
                     0);
    assert_int_equal(
        ckpt_param_get(c, ckpt_param_at(c, SMALL_PARAMS + 1), CKPT_VALUE, b, WIDTH * RANK), 0);
    for (int i = 0; i < WIDTH * WIDTH; i++) {
        double sum = (double)w[i];
        for (int k = 0; k < RANK; k++)
            sum += 4. * (double)b[i / WIDTH * RANK + k] * (double)a[k * WIDTH + i % WIDTH];
        assert_true(fabs(sum - (double)merged[i]) < 1e-5);
        moved |= fabs(sum - (double)w[i]) > 1e-3;
    }
    assert_true(moved);
    free(w);
}

static void test_merge(void **state)
{
    char path[64];
    (void)state;
    small_path(path, sizeof path, "frozen-merged");
    for (int f = -1; f < FORMATS; f++) {
        struct small r = make(CKPT_BF16, 1);
        ckpt *c;
        ckpt_program *p;
        format = f < 0 ? NULL : formats[f];
        small_open(&r, &c, &p);
        small_train(&r, c, p, 0, 4);
        /* adapters are left out, whoever asks */
        assert_int_equal(ckpt_save_params_merged(c, path, f < 0 ? NULL : is_weight, NULL), 0);
        float *merged = read_tensor(path, "in.weight", WIDTH * WIDTH);
        check_merged(merged, c);
        if (f >= 0) {
            assert_int_equal(ckpt_lora_merge(c), CKPT_EINVAL);
            assert_non_null(strstr(ckpt_error(c), "'in.weight' is kept in codes"));
        } else {
            float *w = malloc(WIDTH * WIDTH * 4);
            assert_int_equal(ckpt_lora_merge(c), 0);
            assert_int_equal(ckpt_param_get(c, r.param[0], CKPT_VALUE, w, WIDTH * WIDTH), 0);
            for (int i = 0; i < WIDTH * WIDTH; i++)
                assert_true(fabsf(w[i] - merged[i]) <= fabsf(merged[i]) / 256);
            free(w);
        }
        small_train(&r, c, p, 4, 5); /* nothing broke */
        free(merged);
        unlink(path);
        ckpt_close(c);
    }
}

/* ---- wrong input ----------------------------------------------------------------------------- */

static ckpt *open_with(bool trainable)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    ckpt *c;
    o.device = "cpu";
    o.threads = 1;
    assert_int_equal(ckpt_open(&c, &o), 0);
    ckpt_param(c, "w", CKPT_BF16, 2, (int64_t[]){WIDTH, WIDTH}, CKPT_XAVIER, trainable);
    ckpt_param(c, "bias", CKPT_BF16, 1, (int64_t[]){WIDTH * WIDTH}, CKPT_ZEROS, false);
    ckpt_param(c, "odd", CKPT_BF16, 2, (int64_t[]){WIDTH + 1, WIDTH - 1}, CKPT_ZEROS, false);
    ckpt_param(c, "few", CKPT_BF16, 2, (int64_t[]){WIDTH, WIDTH / 2}, CKPT_ZEROS, false);
    return c;
}

static void expect_sentence(bool trainable, const char *pattern, const char *as, const char *part)
{
    ckpt *c = open_with(trainable);
    if (ckpt_quantize_frozen(c, pattern, as) != CKPT_EINVAL || !strstr(ckpt_error(c), part))
        fail_msg("%s; must say %s", ckpt_error(c), part);
    assert_int_equal(ckpt_quantize_frozen(c, "w", "nf4"), CKPT_EINVAL); /* it sticks */
    ckpt_close(c);
}

static void test_null(void **state)
{
    ckpt *c = open_with(false);
    (void)state;
    assert_int_equal(ckpt_quantize_frozen(NULL, "*", "nf4"), CKPT_EINVAL);
    assert_int_equal(ckpt_save_params_merged(NULL, "x", NULL, NULL), CKPT_EINVAL);
    assert_int_equal(ckpt_save_params_merged(c, NULL, NULL, NULL), CKPT_EINVAL);
    assert_int_equal(ckpt_quantize_frozen(c, NULL, "nf4"), CKPT_EINVAL);
    ckpt_close(c);
    c = open_with(false);
    assert_int_equal(ckpt_quantize_frozen(c, "*", NULL), CKPT_EINVAL);
    ckpt_close(c);
}

static void test_sentences(void **state)
{
    static const char *const none[] = {"bias", "odd", "few", "nobody"};
    struct small r = make(CKPT_BF16, 1);
    ckpt_program *p;
    (void)state;
    expect_sentence(false, "*", "bf16", "there are the formats 'int8' and 'nf4'");
    expect_sentence(false, "*", "", "there are the formats");
    expect_sentence(true, "*", "nf4", "is trained: call ckpt_lora before");
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        expect_sentence(false, none[i], "int8", "no parameter of two axes and a multiple of 64");
    ckpt *c = open_with(false);
    assert_int_equal(ckpt_quantize_frozen(c, "*", "nf4"), 1);
    assert_int_equal(ckpt_quantize_frozen(c, "*", "int8"), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(c), "has another format already"));
    ckpt_close(c);
    format = NULL;
    small_open(&r, &c, &p);
    assert_int_equal(ckpt_quantize_frozen(c, "*", "nf4"), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(c), "before a program is compiled"));
    ckpt_close(c);
}

/* ---- weights below the device ------------------------------------------------------------------
 */

/* Weights of 4 MiB and 1 MiB and a small one, frozen, and a trained one.  Returns how many are
 * stored in a tier. */
static int offloaded(int64_t vram, int64_t host)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    int64_t wide[] = {1024, 1024}, narrow[] = {512, 512};
    ckpt *c;

    o.device = "cpu";
    o.threads = 1;
    o.vram = vram;
    o.host = host;
    assert_int_equal(ckpt_open(&c, &o), 0);
    ckpt_param(c, "a.wide", CKPT_F32, 2, wide, CKPT_ZEROS, false);
    ckpt_param(c, "a.narrow", CKPT_F32, 2, narrow, CKPT_ZEROS, false);
    ckpt_param(c, "a.small", CKPT_F32, 1, narrow, CKPT_ZEROS, false);
    ckpt_param(c, "a.trained", CKPT_F32, 2, narrow, CKPT_ZEROS, true);
    ckpt_param(c, "b.wide", CKPT_F32, 2, wide, CKPT_ZEROS, false);
    const int n = ckpt_offload_frozen(c, "a.*");
    assert_int_equal(ckpt_offload_frozen(c, "a.*"), 0); /* they have their places */
    ckpt_close(c);
    return n;
}

static void test_offload(void **state)
{
    const int64_t m = 1 << 20;
    struct small r = make(CKPT_BF16, 1);
    ckpt_program *p;
    ckpt *c;
    (void)state;

    assert_int_equal(offloaded(8 * m, 16 * m), 2);
    assert_int_equal(offloaded(10 * m, 16 * m), 0); /* they take at most half of the budget */
    assert_int_equal(offloaded(8 * m, 0), 0);
    assert_int_equal(offloaded(8 * m, 4 * m), 1); /* 7/8 hold the narrow one */
    format = NULL;
    small_open(&r, &c, &p);
    assert_int_equal(ckpt_offload_frozen(c, "*"), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(c), "before a program is compiled"));
    ckpt_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exactness),     cmocka_unit_test(test_crossings),
        cmocka_unit_test(test_against_plain), cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_bytes),         cmocka_unit_test(test_set),
        cmocka_unit_test(test_states),        cmocka_unit_test(test_merge),
        cmocka_unit_test(test_sentences),     cmocka_unit_test(test_null),
        cmocka_unit_test(test_offload),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
