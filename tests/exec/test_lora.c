/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LoRA: the model with adapters matches the formula, and its gradients are the factors' gradients.
 * Only adapters are trained and saved, under PEFT's names; merged weights compute the same.  Also:
 * learning rates over steps, against their formulas.  "make check-gpu" runs it on the GPU.
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
#include "plan/one_search.h"
#include "small.h"

enum { IN = 6, OUT = 5, RANK = 3, BATCH = 4, PARAMS = 5 };

struct net {
    enum ckpt_dtype dtype;
    ckpt_tensor w, b, other, la, lb;
    bool with_addend;
};

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct net *m = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, IN});
    ckpt_tensor h = ckpt_linear(t, ckpt_cast(t, x, m->dtype), m->other, CKPT_NONE);
    ckpt_tensor y = m->with_addend ? ckpt_linear_add(t, h, m->w, m->b, ckpt_slice(t, h, 1, 0, OUT))
                                   : ckpt_linear(t, h, m->w, m->b);
    ckpt_output(t, "h", ckpt_cast(t, h, CKPT_F32));
    ckpt_output(t, "y", ckpt_cast(t, y, CKPT_F32));
    if (m->la.id) {
        ckpt_output_gradient(t, "da", m->la);
        ckpt_output_gradient(t, "db", m->lb);
    }
    return ckpt_mean(t, ckpt_cast(t, ckpt_mul(t, y, y), CKPT_F32), 3);
}

static void make(struct net *m, ckpt **c, bool adapters)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct ckpt_lora lora = CKPT_LORA_INIT;
    o.device = small_on_gpu() ? "cuda" : "cpu";
    o.threads = 1;
    if (ckpt_open(c, &o))
        fail_msg("%s", ckpt_error(NULL));
    m->other = ckpt_param(*c, "first.weight", m->dtype, 2, (int64_t[]){IN, IN}, CKPT_XAVIER, true);
    m->w = ckpt_param(*c, "h.0.q.weight", m->dtype, 2, (int64_t[]){OUT, IN}, CKPT_XAVIER, true);
    m->b = ckpt_param(*c, "h.0.q.bias", m->dtype, 1, (int64_t[]){OUT}, CKPT_UNIFORM(1.f), true);
    m->la = m->lb = CKPT_NONE;
    if (!adapters)
        return;
    lora.pattern = "h.*.q.weight", lora.rank = RANK, lora.alpha = 6;
    assert_int_equal(ckpt_lora(*c, &lora), 1);
    assert_int_equal(ckpt_param_find(*c, "base_model.model.h.0.q.lora_A.weight", &m->la), 0);
    assert_int_equal(ckpt_param_find(*c, "base_model.model.h.0.q.lora_B.weight", &m->lb), 0);
}

static void compile(struct net *m, ckpt *c, ckpt_program **p)
{
    struct ckpt_adamw o = CKPT_ADAMW_INIT;
    o.lr = 0.05f;
    if (ckpt_compile(c, record, m, ckpt_adamw(c, &o), BATCH, p))
        fail_msg("%s", ckpt_error(c));
}

static void step(ckpt *c, ckpt_program *p)
{
    float x[BATCH * IN];
    ckpt_fill_normal(3, 0, 1, x, BATCH * IN);
    assert_int_equal(ckpt_feed(p, "x", x, sizeof x), 0);
    if (ckpt_step(p, NULL))
        fail_msg("%s", ckpt_error(c));
}

static void get(ckpt *c, ckpt_tensor x, float *to, int64_t n)
{
    assert_int_equal(ckpt_param_get(c, x, CKPT_VALUE, to, n), 0);
}

/* y = h W^T + b + 2 (h A^T) B^T, plus h if it is added. */
static void check_formula(struct net *m, const float *h, const float *y, const float *w,
                          const float *b, const float *la, const float *lb, double tolerance)
{
    for (int r = 0; r < BATCH; r++)
        for (int o = 0; o < OUT; o++) {
            double sum = (double)b[o] + (m->with_addend ? (double)h[r * IN + o] : 0);
            for (int i = 0; i < IN; i++) {
                double weight = (double)w[o * IN + i];
                for (int k = 0; k < RANK; k++)
                    weight += 2. * (double)lb[o * RANK + k] * (double)la[k * IN + i];
                sum += (double)h[r * IN + i] * weight;
            }
            assert_true(fabs(sum - (double)y[r * OUT + o]) < tolerance);
        }
}

/* Gradients of the mean of y^2 with respect to the factors. */
static void check_gradients(ckpt_program *p, const float *h, const float *y, const float *la,
                            const float *lb, double tolerance)
{
    float da[RANK * IN], db[OUT * RANK];
    assert_int_equal(ckpt_fetch(p, "da", da, sizeof da), 0);
    assert_int_equal(ckpt_fetch(p, "db", db, sizeof db), 0);
    for (int k = 0; k < RANK; k++)
        for (int i = 0; i < IN; i++) {
            double sum = 0;
            for (int r = 0; r < BATCH; r++)
                for (int o = 0; o < OUT; o++)
                    sum += 2. * (double)y[r * OUT + o] / (BATCH * OUT) * 2. *
                           (double)lb[o * RANK + k] * (double)h[r * IN + i];
            assert_true(fabs(sum - (double)da[k * IN + i]) < tolerance);
        }
    for (int o = 0; o < OUT; o++)
        for (int k = 0; k < RANK; k++) {
            double sum = 0;
            for (int r = 0; r < BATCH; r++)
                for (int i = 0; i < IN; i++)
                    sum += 2. * (double)y[r * OUT + o] / (BATCH * OUT) * 2. *
                           (double)h[r * IN + i] * (double)la[k * IN + i];
            assert_true(fabs(sum - (double)db[o * RANK + k]) < tolerance);
        }
}

/* One program with the layer twice, the first time without its adapter. */
static ckpt_tensor record_twice(ckpt_tape *t, int64_t batch, void *user)
{
    const struct net *m = user;
    ckpt_use_adapters(t, false);
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, IN});
    ckpt_output(t, "plain", ckpt_linear(t, x, m->w, m->b));
    ckpt_use_adapters(t, true);
    ckpt_tensor y = ckpt_linear(t, x, m->w, m->b);
    ckpt_output(t, "y", y);
    return ckpt_mean(t, ckpt_mul(t, y, y), 3);
}

static void test_without(void **state)
{
    const struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    struct net m = {.dtype = CKPT_F32};
    float x[BATCH * IN], y[BATCH * OUT], plain[BATCH * OUT], w[OUT * IN], b[OUT], la[RANK * IN];
    const float zero[OUT * RANK] = {0}, one[OUT * RANK] = {1, 1, 1};
    ckpt *c;
    ckpt_program *p;
    (void)state;
    make(&m, &c, true);
    if (ckpt_compile(c, record_twice, &m, ckpt_adamw(c, &adamw), BATCH, &p))
        fail_msg("%s", ckpt_error(c));
    assert_int_equal(ckpt_param_set(c, m.lb, CKPT_VALUE, one, OUT * RANK), 0);
    get(c, m.w, w, OUT * IN), get(c, m.b, b, OUT), get(c, m.la, la, RANK * IN);
    step(c, p);
    ckpt_fill_normal(3, 0, 1, x, BATCH * IN);
    assert_int_equal(ckpt_fetch(p, "y", y, sizeof y), 0);
    assert_int_equal(ckpt_fetch(p, "plain", plain, sizeof plain), 0);
    check_formula(&m, x, y, w, b, la, one, 1e-5);
    check_formula(&m, x, plain, w, b, la, zero, 1e-5);
    ckpt_close(c);
}

static void check_model(enum ckpt_dtype dtype, bool with_addend)
{
    float w[OUT * IN], after[OUT * IN], b[OUT], la[RANK * IN], lb[OUT * RANK], moved[OUT * RANK];
    float h[BATCH * IN], y[BATCH * OUT], merged[BATCH * OUT];
    double tolerance = dtype == CKPT_F32 ? 1e-5 : 0.06, most = 0;
    struct net m = {.dtype = dtype, .with_addend = with_addend};
    ckpt *c;
    ckpt_program *p;
    make(&m, &c, true);
    get(c, m.la, la, RANK * IN);
    get(c, m.lb, lb, OUT * RANK);
    for (int i = 0; i < RANK * IN; i++)
        most = fmax(most, fabs((double)la[i]));
    assert_true(most <= 1 / sqrt(IN) + 1e-3 && most > 0.5 / sqrt(IN));
    for (int i = 0; i < OUT * RANK; i++)
        assert_true(lb[i] == 0.f);
    for (int i = 0; i < OUT * RANK; i++)
        lb[i] = (float)(i % 4) * 0.25f - 0.5f;
    assert_int_equal(ckpt_param_set(c, m.lb, CKPT_VALUE, lb, OUT * RANK), 0);
    compile(&m, c, &p);
    get(c, m.w, w, OUT * IN);
    get(c, m.b, b, OUT);
    step(c, p);
    assert_int_equal(ckpt_fetch(p, "h", h, sizeof h), 0);
    assert_int_equal(ckpt_fetch(p, "y", y, sizeof y), 0);
    check_formula(&m, h, y, w, b, la, lb, tolerance);
    check_gradients(p, h, y, la, lb, tolerance);
    get(c, m.w, after, OUT * IN);
    get(c, m.lb, moved, OUT * RANK);
    assert_memory_equal(w, after, sizeof w);
    assert_memory_not_equal(lb, moved, sizeof lb);
    assert_int_equal(ckpt_set_lr(p, 0), 0);
    step(c, p);
    assert_int_equal(ckpt_fetch(p, "y", y, sizeof y), 0);
    assert_int_equal(ckpt_lora_merge(c), 0);
    step(c, p);
    assert_int_equal(ckpt_fetch(p, "y", merged, sizeof merged), 0);
    for (int i = 0; i < BATCH * OUT; i++)
        assert_true(fabs((double)(merged[i] - y[i])) < tolerance);
    ckpt_close(c);
}

static void test_model(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++)
        check_model(i & 1 ? CKPT_BF16 : CKPT_F32, i & 2);
}

/* Text of a whole file, freed by the caller; or NULL. */
static char *text_of(const char *path)
{
    char *text = calloc(1, 4096);
    FILE *f = fopen(path, "r");
    if (f)
        text[fread(text, 1, 4095, f)] = 0;
    else
        free(text);
    return f && !fclose(f) ? text : NULL;
}

static void expect_part(const char *text, const char *part)
{
    if (!text || !strstr(text, part))
        fail_msg("%s: must have %s", text ? text : "nothing", part);
}

static bool as_diffusers(void *user, const char *name, int i, char *alias, size_t size)
{
    (void)user;
    snprintf(alias, size, "transformer.%s", name + strlen("base_model.model."));
    return !i && ckpt_lora_only(NULL, name);
}

static bool first_alone(void *user, const char *name)
{
    return ckpt_lora_only(user, name) && strstr(name, "lora_A");
}

/* A file of adapters alone carries rank, alpha and layers, in its metadata and, with PEFT's names,
 * in adapter_config.json beside it. */
static void test_settings(void **state)
{
    struct ckpt_lora more = CKPT_LORA_INIT;
    struct net m = {.dtype = CKPT_F32};
    char directory[] = "/tmp/ckpt-lora-XXXXXX", path[64], config[64], *text;
    ckpt_file *f;
    ckpt *c;
    (void)state;
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", directory);
    snprintf(config, sizeof config, "%s/adapter_config.json", directory);
    make(&m, &c, true);
    more.pattern = "first.*", more.rank = 2, more.alpha = 0.5f;
    assert_int_equal(ckpt_lora(c, &more), 1);
    assert_int_equal(
        ckpt_save_params_aliased(c, path, CKPT_VALUE, ckpt_lora_only, as_diffusers, NULL), 0);
    assert_int_equal(access(config, F_OK), -1);
    assert_int_equal(ckpt_file_open(&f, path), 0);
    expect_part(ckpt_file_note(f, "lora_adapter_metadata"), "\"transformer.lora_alpha\": 6,");
    assert_true(ckpt_file_find(f, "transformer.h.0.q.lora_A.weight") >= 0);
    ckpt_file_close(f);
    assert_int_equal(ckpt_save_params_filtered(c, path, CKPT_VALUE, NULL, NULL), 0);
    assert_int_equal(access(config, F_OK), -1);
    assert_int_equal(ckpt_save_params_filtered(c, path, CKPT_VALUE, first_alone, NULL), 0);
    assert_int_equal(ckpt_save_params_filtered(c, path, CKPT_VALUE, ckpt_lora_only, NULL), 0);
    text = text_of(config);
    expect_part(text, "\"peft_type\": \"LORA\"");
    expect_part(text,
                "\"r\": 3, \"lora_alpha\": 6, \"rank_pattern\": {\"first\": 2}, "
                "\"alpha_pattern\": {\"first\": 0.5}, \"target_modules\": [\"h.0.q\", \"first\"]");
    free(text);
    assert_int_equal(ckpt_file_open(&f, path), 0);
    expect_part(ckpt_file_note(f, "lora_adapter_metadata"), "{\"r\": 3, \"lora_alpha\": 6, ");
    ckpt_file_close(f);
    ckpt_close(c);
    unlink(path);
    unlink(config);
    rmdir(directory);
}

/* Saves the adapters alone and continues from the file in another context: the same bits. */
static void test_files(void **state)
{
    struct net m = {.dtype = CKPT_BF16}, n = m;
    float a[BATCH * OUT], b[BATCH * OUT];
    char path[64];
    ckpt_file *f;
    int unmatched;
    ckpt *c, *d;
    ckpt_program *p, *q;
    (void)state;
    small_path(path, sizeof path, "adapters");
    make(&m, &c, true);
    compile(&m, c, &p);
    for (int s = 0; s < 3; s++)
        step(c, p);
    assert_int_equal(ckpt_save_params_filtered(c, path, CKPT_VALUE, ckpt_lora_only, NULL), 0);
    assert_int_equal(ckpt_set_lr(p, 0), 0);
    step(c, p);
    assert_int_equal(ckpt_fetch(p, "y", a, sizeof a), 0);
    ckpt_close(c);
    assert_int_equal(ckpt_file_open(&f, path), 0);
    assert_int_equal(ckpt_file_count(f), 2);
    ckpt_file_close(f);
    make(&n, &d, true);
    if (ckpt_load_params(d, path, NULL, NULL, &unmatched))
        fail_msg("%s", ckpt_error(d));
    compile(&n, d, &q);
    step(d, q);
    assert_int_equal(ckpt_fetch(q, "y", b, sizeof b), 0);
    assert_memory_equal(a, b, sizeof a);
    ckpt_close(d);
    unlink(path);
    unlink("adapter_config.json");
}

enum { ROWS = 8, COLUMNS = 2 };

/* Heads of four rows, of which files have the first of each pair before the second. */
static ckpt_tensor make_paired(ckpt *c)
{
    const int64_t shape[] = {ROWS, COLUMNS}, view[] = {2, 2, 2, COLUMNS};
    ckpt_tensor w = ckpt_param(c, "q.weight", CKPT_F32, 2, shape, CKPT_ZEROS, true);

    assert_int_equal(ckpt_param_file_axes(c, w, 4, view, (int[]){0, 2, 1, 3}), 0);
    return w;
}

static void read_all(const char *path, const char *name, float *to, int64_t n)
{
    ckpt_file *f;

    assert_int_equal(ckpt_file_open(&f, path), 0);
    assert_int_equal(ckpt_file_read_f32(f, ckpt_file_find(f, name), to, n), 0);
    ckpt_file_close(f);
}

/* Where files have the rows of a weight in another order, they have those of B so: the product of
 * the factors in a file is what a file of merged weights has. */
static void test_order(void **state)
{
    const struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct ckpt_lora lora = CKPT_LORA_INIT;
    const float rows[ROWS] = {0, 2, 1, 3, 4, 6, 5, 7}, one[COLUMNS] = {1, 2};
    float set[ROWS], b[ROWS], w[ROWS * COLUMNS];
    ckpt_tensor la, lb;
    char path[64], whole[64];
    ckpt *c;
    (void)state;
    small_path(path, sizeof path, "ordered");
    small_path(whole, sizeof whole, "merged");
    assert_int_equal(ckpt_open(&c, &o), 0);
    make_paired(c);
    lora.rank = 1, lora.alpha = 1;
    assert_int_equal(ckpt_lora(c, &lora), 1);
    assert_int_equal(ckpt_param_find(c, "base_model.model.q.lora_A.weight", &la), 0);
    assert_int_equal(ckpt_param_find(c, "base_model.model.q.lora_B.weight", &lb), 0);
    for (int i = 0; i < ROWS; i++)
        set[i] = (float)i;
    assert_int_equal(ckpt_param_set(c, la, CKPT_VALUE, one, COLUMNS), 0);
    assert_int_equal(ckpt_param_set(c, lb, CKPT_VALUE, set, ROWS), 0);
    assert_int_equal(ckpt_save_params_filtered(c, path, CKPT_VALUE, ckpt_lora_only, NULL), 0);
    assert_int_equal(ckpt_save_params_merged(c, whole, NULL, NULL), 0);
    ckpt_close(c);
    read_all(path, "base_model.model.q.lora_B.weight", b, ROWS);
    read_all(whole, "q.weight", w, ROWS * COLUMNS);
    for (int i = 0; i < ROWS; i++) {
        assert_float_equal(b[i], rows[i], 0);
        for (int k = 0; k < COLUMNS; k++)
            assert_float_equal(w[i * COLUMNS + k], rows[i] * one[k], 0);
    }
    unlink(path);
    unlink(whole);
    unlink("adapter_config.json");
}

/* No adapter stands for a weight whose columns files have in another order. */
static void test_columns(void **state)
{
    static const struct {
        int ndim;
        int64_t view[3];
        int axes[3];
    } rows[] = {{3, {2, 4, 2}, {0, 2, 1}}, {2, {4, 4}, {1, 0}}, {2, {8, 2}, {0, 1}}};
    const struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct ckpt_lora lora = CKPT_LORA_INIT;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ckpt *c;
        assert_int_equal(ckpt_open(&c, &o), 0);
        ckpt_tensor w = ckpt_param(c, "q.weight", CKPT_F32, 2, (int64_t[]){2, 8}, CKPT_ZEROS, true);
        assert_int_equal(ckpt_param_file_axes(c, w, rows[i].ndim, rows[i].view, rows[i].axes), 0);
        assert_int_equal(ckpt_lora(c, &lora), CKPT_EINVAL);
        expect_part(ckpt_error(c), "columns");
        ckpt_close(c);
    }
}

static void expect_sentence(struct ckpt_lora lora, bool twice, const char *part)
{
    struct net m = {.dtype = CKPT_F32};
    ckpt *c;
    ckpt_program *p;
    make(&m, &c, twice);
    if (ckpt_lora(c, &lora) != CKPT_EINVAL || !strstr(ckpt_error(c), part))
        fail_msg("%s; must say %s", ckpt_error(c), part);
    assert_int_equal(ckpt_compile(c, record, &m, NULL, BATCH, &p), CKPT_EINVAL);
    ckpt_close(c);
}

static void test_sentences(void **state)
{
    struct ckpt_lora lora = CKPT_LORA_INIT;
    (void)state;
    expect_sentence(lora, true, "has an adapter of this prefix already");
    lora.rank = 0;
    expect_sentence(lora, false, "rank must be 1 or more");
    lora.rank = 4, lora.alpha = NAN;
    expect_sentence(lora, false, "alpha finite");
    lora.alpha = 1, lora.pattern = "*.bias";
    expect_sentence(lora, false, "no parameter of two axes has such a name");
}

static ckpt_tensor record_embedding(ckpt_tape *t, int64_t batch, void *user)
{
    const struct net *m = user;
    ckpt_tensor at = ckpt_input(t, "at", CKPT_I32, 1, &batch);
    return ckpt_mean(t, ckpt_linear(t, ckpt_embedding(t, m->w, at, -1), m->w, CKPT_NONE), 3);
}

/* Where a table is the last layer, too, the adapter would be in one of the two alone. */
static void test_embedding(void **state)
{
    struct net m = {.dtype = CKPT_F32};
    ckpt_program *p;
    ckpt *c;
    (void)state;
    make(&m, &c, true);
    assert_int_equal(ckpt_compile(c, record_embedding, &m, NULL, BATCH, &p), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(c), "'h.0.q.weight' has an adapter"));
    ckpt_close(c);
}

/* ---- learning rates ----------------------------------------------------------------------------
 */

static double rate(enum ckpt_schedule_kind kind, int64_t step)
{
    struct ckpt_schedule s = CKPT_SCHEDULE_INIT;
    s.kind = kind, s.warmup = 10, s.total = 110, s.final = 0.1, s.decay = 0.2;
    return ckpt_schedule(&s, 2, step);
}

static void expect(double is, double wanted)
{
    if (!(fabs(is - wanted) < 1e-12))
        fail_msg("%.17g must be %.17g", is, wanted);
}

static void test_schedules(void **state)
{
    (void)state;
    for (int kind = CKPT_SCHEDULE_CONSTANT; kind <= CKPT_SCHEDULE_INVERSE_SQRT; kind++) {
        expect(rate((enum ckpt_schedule_kind)kind, 0), 2. / 11);
        expect(rate((enum ckpt_schedule_kind)kind, 9), 20. / 11);
        expect(rate((enum ckpt_schedule_kind)kind, 10), 2);
    }
    expect(rate(CKPT_SCHEDULE_CONSTANT, 1000), 2);
    expect(rate(CKPT_SCHEDULE_LINEAR, 60), 2 * 0.55);
    expect(rate(CKPT_SCHEDULE_LINEAR, 110), 0.2);
    expect(rate(CKPT_SCHEDULE_COSINE, 35), 2 * (0.1 + 0.45 * (1 + sqrt(0.5))));
    expect(rate(CKPT_SCHEDULE_COSINE, 500), 0.2);
    expect(rate(CKPT_SCHEDULE_WSD, 88), 2);
    expect(rate(CKPT_SCHEDULE_WSD, 99), 2 * (0.1 + 0.9 * (1 - sqrt(0.5))));
    expect(rate(CKPT_SCHEDULE_WSD, 110), 0.2);
    expect(rate(CKPT_SCHEDULE_INVERSE_SQRT, 40), 1);
}

static void test_bad_schedules(void **state)
{
    struct ckpt_schedule s = CKPT_SCHEDULE_INIT;
    (void)state;
    assert_true(ckpt_schedule(&s, 3, 5) == 3);
    s.kind = CKPT_SCHEDULE_COSINE;
    assert_true(isnan(ckpt_schedule(&s, 1, 0))); /* no total */
    s.total = 100, s.final = -1;
    assert_true(isnan(ckpt_schedule(&s, 1, 0)));
    s.final = 0, s.decay = 0;
    assert_true(isnan(ckpt_schedule(&s, 1, 0)));
    s.decay = 1, s.kind = (enum ckpt_schedule_kind)9;
    assert_true(isnan(ckpt_schedule(&s, 1, 0)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model),     cmocka_unit_test(test_files),
        cmocka_unit_test(test_order),     cmocka_unit_test(test_columns),
        cmocka_unit_test(test_settings),  cmocka_unit_test(test_sentences),
        cmocka_unit_test(test_schedules), cmocka_unit_test(test_bad_schedules),
        cmocka_unit_test(test_embedding), cmocka_unit_test(test_without),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
