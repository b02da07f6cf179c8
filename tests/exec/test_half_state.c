/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State in bf16 and in 8 bits (options.state): the stored values and their size; that a model
 * learns as with masters; files of states in every dtype; groups, adapters and bf16 gradients.
 * test_optimizers_exact tests budgets, tiers and resuming, test_rank_state several ranks, and
 * test_rounding and test_mean8 the rounding.  "make check-gpu" runs it on the GPU.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "core/bits.h"
#include "ckpt_files.h"
#include "ckpt_tools.h"
#include "modes.h"
#include "plan/one_search.h"
#include "state/safetensors.h"

enum { WIDTH = 24, SQUARES = SMALL_LAYERS + 2, TRAINED = (SQUARES * WIDTH + SMALL_LAYERS) * WIDTH };

static struct small make(enum ckpt_dtype dtype, const char *state)
{
    struct small r = small_make(dtype, WIDTH, 1, true);
    r.options.state = state;
    return r;
}

static const char *const small_states[] = {"bf16", "8bit"};

/* Whether the low bits of all values are 0: 16 for bf16, 20 for a mean in 8 bits. */
static bool is_short(const float *x, int64_t n, int bits)
{
    for (int64_t i = 0; i < n; i++)
        if (float_bits(x[i]) & ((1u << bits) - 1))
            return false;
    return true;
}

static float *get(ckpt *c, ckpt_tensor x, enum ckpt_slot slot, int64_t n)
{
    float *values = malloc((size_t)n * sizeof *values);
    if (ckpt_param_get(c, x, slot, values, n))
        fail_msg("%s", ckpt_error(c));
    return values;
}

/* ---- stored values --------------------------------------------------------------------------- */

static void read_info(struct small r, struct ckpt_program_info *info, char table[4096])
{
    ckpt *c;
    ckpt_program *p;
    r.adamw.ema_decay = 0.f;
    small_open(&r, &c, &p);
    *info = (struct ckpt_program_info)CKPT_PROGRAM_INFO_INIT;
    ckpt_program_info(p, info);
    FILE *f = fmemopen(table, 4096, "w");
    ckpt_plan_print(p, f);
    fclose(f);
    ckpt_close(c);
}

/* Bytes per element: two moments of two bytes, or of one byte plus a block maximum of two bytes per
 * 64, instead of a master and two moments of four bytes. */
static void test_bytes(void **state)
{
    struct ckpt_program_info wide, narrow, bytes;
    char table[4096];
    (void)state;
    read_info(make(CKPT_BF16, NULL), &wide, table);
    assert_null(strstr(table, "--state"));
    read_info(make(CKPT_BF16, "bf16"), &narrow, table);
    assert_non_null(strstr(table, "weights in bf16 (--state bf16)"));
    /* Each storage is rounded up; there are 8 parameters. */
    assert_in_range(wide.optimizer_bytes, 12 * TRAINED, 12 * TRAINED + 8 * 3 * CKPT_ALIGN);
    assert_in_range(narrow.optimizer_bytes, 4 * TRAINED, 4 * TRAINED + 8 * 2 * CKPT_ALIGN);
    read_info(make(CKPT_BF16, "8bit"), &bytes, table);
    assert_non_null(strstr(table, "first moment, second moment; of bf16 weights in 8 bits"));
    assert_in_range(bytes.optimizer_bytes, 2 * TRAINED * 66 / 64,
                    2 * TRAINED * 66 / 64 + 8 * 2 * (CKPT_ALIGN + 66));
    assert_int_equal(wide.parameter_bytes, narrow.parameter_bytes);
    assert_int_equal(wide.parameter_bytes, bytes.parameter_bytes);
}

/* Sums of micro-steps are bf16 if state and gradients are; with fp32 state they are fp32. */
static void test_sums(void **state)
{
    static char table[4096];
    struct small r = make(CKPT_BF16, "bf16");
    struct ckpt_program_info wide, narrow, mixed;
    (void)state;
    r.options.micro_batch = SMALL_BATCH / 3;
    read_info(r, &wide, table);
    r.adamw.grad_dtype = CKPT_BF16;
    read_info(r, &narrow, table);
    assert_non_null(strstr(table, "sums in bf16"));
    r.options.state = "fp32";
    read_info(r, &mixed, table);
    assert_null(strstr(table, "sums in bf16"));
    assert_in_range(wide.gradient_bytes, 4 * TRAINED, 4 * TRAINED + 8 * CKPT_ALIGN);
    assert_in_range(narrow.gradient_bytes, 2 * TRAINED, 2 * TRAINED + 8 * CKPT_ALIGN);
    assert_int_equal(mixed.gradient_bytes, wide.gradient_bytes);
}

/* A layer below a frozen head, whose logits are computed all at once or in chunks of rows. */
struct chunked {
    ckpt_tensor w, head;
    int64_t chunk;
};

static ckpt_tensor record_chunked(ckpt_tape *t, int64_t batch, void *user)
{
    const struct chunked *m = user;
    struct ckpt_cross_entropy_spec spec = CKPT_CROSS_ENTROPY_INIT;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, WIDTH});
    ckpt_tensor label = ckpt_input(t, "label", CKPT_I32, 1, &batch);
    spec.chunk = m->chunk;
    x = ckpt_linear(t, ckpt_cast(t, x, CKPT_BF16), m->w, CKPT_NONE);
    return ckpt_linear_cross_entropy(t, x, m->head, CKPT_NONE, label, &spec);
}

static float *train_chunked(int64_t chunk)
{
    const int64_t shape[] = {WIDTH, WIDTH};
    int32_t label[SMALL_BATCH];
    struct small r = make(CKPT_BF16, "bf16");
    struct chunked m = {.chunk = chunk};
    ckpt *c;
    ckpt_program *p;
    r.options.micro_batch = SMALL_BATCH / 3;
    r.adamw.ema_decay = 0.f;
    r.adamw.grad_dtype = CKPT_BF16;
    assert_int_equal(ckpt_open(&c, &r.options), 0);
    m.w = ckpt_param(c, "w", CKPT_BF16, 2, shape, CKPT_XAVIER, true);
    m.head = ckpt_param(c, "head", CKPT_BF16, 2, shape, CKPT_XAVIER, false);
    if (ckpt_compile(c, record_chunked, &m, ckpt_adamw(c, &r.adamw), SMALL_BATCH, &p))
        fail_msg("%s", ckpt_error(c));
    for (int i = 0; i < SMALL_BATCH; i++)
        label[i] = i;
    for (int s = 0; s < 3; s++) {
        small_feed(p, &r, s);
        assert_int_equal(ckpt_feed(p, "label", label, sizeof label), 0);
        assert_int_equal(ckpt_step(p, NULL), 0);
    }
    float *w = get(c, m.w, CKPT_VALUE, WIDTH * WIDTH);
    ckpt_close(c);
    return w;
}

/* Chunks of the loss add ops to the tape, on which the rounding of other sums does not depend. */
static void test_sums_of_chunks(void **state)
{
    (void)state;
    float *whole = train_chunked(0), *chunks = train_chunked(2);
    assert_memory_equal(whole, chunks, WIDTH * WIDTH * sizeof *whole);
    free(whole), free(chunks);
}

static void check_slots(const char *kept)
{
    struct small r = make(CKPT_BF16, kept);
    const int bits = strcmp(kept, "8bit") ? 16 : 20;
    const int64_t n = WIDTH * WIDTH;
    ckpt *c;
    ckpt_program *p;
    small_open(&r, &c, &p);
    for (int steps = 0; steps <= 4; steps += 4) {
        float *w = get(c, r.param[0], CKPT_VALUE, n), *ema = get(c, r.param[0], CKPT_EMA, n);
        float *m = get(c, r.param[0], CKPT_EXP_AVG, n), *v = get(c, r.param[0], CKPT_EXP_AVG_SQ, n);
        assert_true(is_short(w, n, 16) && is_short(m, n, bits) && is_short(v, n, bits));
        assert_int_equal(is_short(ema, n, 16), steps == 0);
        for (int64_t i = 0; i < n; i++)
            assert_true(m[i] == 0.f || v[i] > 0.f);
        assert_int_equal(memcmp(w, ema, (size_t)n * 4) == 0, steps == 0);
        free(w), free(ema), free(m), free(v);
        if (!steps)
            small_train(&r, c, p, 0, 4);
    }
    ckpt_close(c);
}

static void test_slots(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        check_slots(small_states[i]);
}

/* A mean that is set becomes the nearest value that has a code, and does not change when set again.
 */
static void test_set_means(void **state)
{
    struct small r = make(CKPT_BF16, "8bit");
    const int64_t n = WIDTH * WIDTH;
    float values[WIDTH * WIDTH];
    ckpt *c;
    ckpt_program *p;
    (void)state;
    small_open(&r, &c, &p);
    for (enum ckpt_slot slot = CKPT_EXP_AVG; slot <= CKPT_EXP_AVG_SQ; slot++) {
        ckpt_fill_normal(1, 2, 3, values, n);
        for (int64_t i = 0; i < n; i++)
            values[i] = slot == CKPT_EXP_AVG ? values[i] : values[i] * values[i];
        assert_int_equal(ckpt_param_set(c, r.param[0], slot, values, n), 0);
        float *once = get(c, r.param[0], slot, n);
        for (int64_t i = 0; i < n; i++)
            assert_true(fabsf(once[i] - values[i]) <= fabsf(values[i]) / 16);
        assert_int_equal(ckpt_param_set(c, r.param[0], slot, once, n), 0);
        float *twice = get(c, r.param[0], slot, n);
        assert_memory_equal(once, twice, (size_t)n * sizeof *once);
        free(once), free(twice);
    }
    ckpt_close(c);
}

/* A value that is set becomes the nearest bf16 value, also in the EMA, before and after the
 * compile. */
static void test_set(void **state)
{
    struct small r = make(CKPT_BF16, "bf16");
    const int64_t n = WIDTH * WIDTH;
    float values[WIDTH * WIDTH], nearest[WIDTH * WIDTH];
    uint16_t half[WIDTH * WIDTH];
    ckpt *c;
    ckpt_program *p;
    (void)state;
    ckpt_fill_normal(1, 2, 3, values, n);
    ckpt_to_bf16(values, half, n);
    ckpt_from_bf16(half, nearest, n);
    small_open(&r, &c, &p);
    assert_int_equal(ckpt_param_set(c, r.param[0], CKPT_VALUE, values, n), 0);
    float *w = get(c, r.param[0], CKPT_VALUE, n), *ema = get(c, r.param[0], CKPT_EMA, n);
    assert_memory_equal(w, nearest, sizeof nearest);
    assert_memory_equal(ema, nearest, sizeof nearest);
    free(w), free(ema);
    ckpt_tensor x = ckpt_param(c, "later", CKPT_BF16, 1, &n, CKPT_ONES, true);
    assert_int_equal(ckpt_param_set(c, x, CKPT_VALUE, values, n), 0);
    w = get(c, x, CKPT_VALUE, n);
    assert_memory_equal(w, nearest, sizeof nearest);
    free(w);
    ckpt_close(c);
}

/* The default is fp32, and small state changes bits. */
static void test_default(void **state)
{
    struct small d = make(CKPT_BF16, "fp32"), e = make(CKPT_BF16, NULL),
                 f = make(CKPT_BF16, "bf16");
    (void)state;
    small_run(&d, SMALL_STEPS), small_run(&e, SMALL_STEPS), small_run(&f, SMALL_STEPS);
    assert_memory_equal(d.state, e.state, (size_t)d.numel * sizeof *d.state);
    assert_memory_not_equal(e.state, f.state, (size_t)e.numel * sizeof *e.state);
    free(d.state), free(e.state), free(f.state);
}

static void expect_refusal(struct small r, const char *sentence)
{
    ckpt *c;
    ckpt_program *p;
    assert_int_equal(small_compile(&r, &c, &p), CKPT_EINVAL);
    if (!strstr(ckpt_error(c), sentence))
        fail_msg("%s", ckpt_error(c));
    ckpt_close(c);
}

/* In a model of fp32 alone the options for bf16 would change nothing. */
static void test_fp32_model(void **state)
{
    static const struct {
        const char *state, *matmul, *activations, *sentence;
    } rows[] = {
        {"bf16", NULL, NULL,
         "--state bf16 would change nothing: no parameter that is trained is bf16"},
        {"8bit", NULL, NULL, "--state 8bit would change nothing"},
        {NULL, "fp8", NULL, "--matmul fp8 would change nothing: no parameter is bf16"},
        {NULL, NULL, "8bit", "--activations 8bit would change nothing: no activation is bf16"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct small r = make(CKPT_F32, rows[i].state);
        r.options.matmul = rows[i].matmul;
        r.options.activations = rows[i].activations;
        expect_refusal(r, rows[i].sentence);
    }
}

/* The seed determines the rounding: the same seed gives the same bits. */
static void test_seed(void **state)
{
    struct small a = make(CKPT_BF16, "bf16"), b = a;
    (void)state;
    small_run(&a, SMALL_STEPS), small_run(&b, SMALL_STEPS);
    assert_memory_equal(a.state, b.state, (size_t)a.numel * sizeof *a.state);
    free(a.state), free(b.state);
}

static void test_option(void **state)
{
    (void)state;
    modes_expect_refused("--state", "fp16", "--state fp16: there are 'fp32', 'bf16' and '8bit'");
}

/* ---- learning -------------------------------------------------------------------------------- */

enum { LONG = 200, LAST = 40 };

/* The mean of the last losses, at a learning rate whose updates are mostly below half a bf16 step.
 */
static double learn(const char *state, enum ckpt_dtype grad_dtype, int n_micro)
{
    struct small r = make(CKPT_BF16, state);
    double sum = 0;
    ckpt *c;
    ckpt_program *p;
    r.options.verify = false;
    r.options.micro_batch = SMALL_BATCH / n_micro;
    r.adamw.lr = 2e-4f;
    r.adamw.ema_decay = 0.f;
    r.adamw.grad_dtype = grad_dtype;
    small_open(&r, &c, &p);
    for (int s = 0; s < LONG; s++) {
        float loss;
        small_feed(p, &r, s % 8);
        if (ckpt_step(p, &loss))
            fail_msg("%s", ckpt_error(c));
        sum += s >= LONG - LAST ? (double)loss : 0;
    }
    ckpt_close(c);
    return sum / LAST;
}

static void test_learning(void **state)
{
    (void)state;
    const double wide = learn(NULL, CKPT_F32, 1), narrow = learn("bf16", CKPT_F32, 1);
    const double bytes = learn("8bit", CKPT_F32, 1), both = learn("8bit", CKPT_BF16, SMALL_BATCH);
    const double least = learn("bf16", CKPT_BF16, 1), sums = learn("bf16", CKPT_BF16, SMALL_BATCH);
    print_message("loss %g with fp32 state, %g with bf16, %g with bf16 gradients too, %g with "
                  "their sums\n",
                  wide, narrow, least, sums);
    print_message("%g with 8 bits, %g with bf16 sums too\n", bytes, both);
    assert_true(fabs(bytes - wide) < 0.03 * wide);
    assert_true(fabs(both - wide) < 0.03 * wide);
    assert_true(fabs(narrow - wide) < 0.03 * wide);
    assert_true(fabs(least - wide) < 0.03 * wide);
    assert_true(fabs(sums - wide) < 0.03 * wide);
}

/* A bf16 gradient has its own memory: without a master the value could not be restored. */
static void check_mishap(const char *kept)
{
    struct small r = make(CKPT_BF16, kept), after;
    int64_t n = SMALL_BATCH * WIDTH;
    float *x = calloc((size_t)n, sizeof *x);
    ckpt *c;
    ckpt_program *p;
    r.adamw.grad_dtype = CKPT_BF16;
    small_open(&r, &c, &p);
    small_train(&r, c, p, 0, 2);
    small_collect(&r, c);
    after = r;
    x[5] = INFINITY;
    assert_int_equal(ckpt_feed(p, "x", x, n * 4), 0);
    assert_int_equal(ckpt_step(p, NULL), CKPT_ENAN);
    small_collect(&after, c);
    assert_memory_equal(r.state, after.state, (size_t)r.numel * sizeof *r.state);
    ckpt_close(c);
    free(x), free(r.state), free(after.state);
}

static void test_mishap(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        check_mishap(small_states[i]);
}

/* The weight that became non-finite is named, and nothing is saved. */
static void check_broken(const char *kept)
{
    struct small r = make(CKPT_BF16, kept);
    ckpt *c;
    ckpt_program *p;
    small_open(&r, &c, &p);
    small_feed(p, &r, 0);
    assert_int_equal(ckpt_set_lr(p, 3.4e38f), 0);
    int rc = ckpt_step(p, NULL);
    print_message("%s\n", ckpt_error(c));
    assert_int_equal(rc, CKPT_ENAN);
    assert_non_null(strstr(ckpt_error(c), "weight"));
    assert_true(ckpt_save_state(c, "test_half_state.tmp.none") < 0);
    ckpt_close(c);
}

static void test_broken(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        check_broken(small_states[i]);
}

/* ---- files of states ------------------------------------------------------------------------- */

static const char path[] = "test_half_state.tmp.safetensors";

static void save(struct small *r)
{
    ckpt *c;
    ckpt_program *p;
    small_open(r, &c, &p);
    small_train(r, c, p, 0, 3);
    small_collect(r, c);
    if (ckpt_save_state(c, path))
        fail_msg("%s", ckpt_error(c));
    ckpt_close(c);
}

static void check_file(const char *kept, const char *mean)
{
    struct small r = make(CKPT_BF16, kept);
    ckpt_file *f;
    save(&r);
    assert_int_equal(ckpt_file_open(&f, path), 0);
    assert_string_equal(ckpt_file_note(f, "ckpt.run.ckpt.state"), kept);
    for (int i = 0; i < f->count; i++) {
        const char *name = f->tensors[i].name;
        assert_string_equal(f->tensors[i].dtype->name, !strncmp(name, "ema/", 4)      ? "F32"
                                                       : !strncmp(name, "exp_avg", 7) ? mean
                                                                                      : "BF16");
    }
    ckpt_file_close(f);
    unlink(path);
    free(r.state);
}

static void test_file(void **state)
{
    (void)state;
    check_file("bf16", "BF16");
    check_file("8bit", "I32");
}

/* Files of weights have fp32 values, as in other modes. */
static void test_weights(void **state)
{
    struct small r = make(CKPT_BF16, "bf16");
    ckpt_file *f;
    ckpt *c;
    ckpt_program *p;
    (void)state;
    small_open(&r, &c, &p);
    small_train(&r, c, p, 0, 2);
    assert_int_equal(ckpt_save_params(c, path, CKPT_VALUE), 0);
    assert_int_equal(ckpt_file_open(&f, path), 0);
    for (int i = 0; i < f->count; i++)
        assert_string_equal(f->tensors[i].dtype->name, "F32");
    ckpt_file_close(f);
    ckpt_close(c);
    unlink(path);
}

struct asked {
    int times;
    char was[16], is[16];
};

static bool allow(void *user, const char *name, const char *was, const char *is)
{
    struct asked *a = user;
    assert_string_equal(name, "ckpt.state");
    a->times++;
    snprintf(a->was, sizeof a->was, "%s", was);
    snprintf(a->is, sizeof a->is, "%s", is);
    return true;
}

/* A run with state in another dtype is refused, or asks first and then uses the nearest values. */
static void check_other(const char *was, const char *is, const char *sentence)
{
    struct small r = make(CKPT_BF16, was), other = make(CKPT_BF16, is);
    const float gap = strcmp(is, "8bit") ? 0x1p-8f : 0x1p-4f;
    struct asked asked = {0};
    ckpt *c;
    ckpt_program *p;
    save(&r);
    small_open(&other, &c, &p);
    assert_int_equal(ckpt_load_state(c, path), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(c), sentence));
    assert_int_equal(ckpt_load_state_changed(c, path, allow, &asked), 0);
    assert_int_equal(asked.times, 1);
    assert_string_equal(asked.was, was);
    assert_string_equal(asked.is, is);
    small_collect(&other, c);
    assert_int_equal(r.numel, other.numel);
    for (int64_t i = 0; i < r.numel; i++)
        assert_true(fabsf(r.state[i] - other.state[i]) <= gap * fabsf(r.state[i]));
    if (!strcmp(was, "8bit") || !strcmp(is, "fp32"))
        assert_memory_equal(r.state, other.state, (size_t)r.numel * sizeof *r.state);
    small_train(&other, c, p, 3, 5);
    ckpt_close(c);
    unlink(path);
    free(r.state), free(other.state);
}

static void test_other_dtype(void **state)
{
    (void)state;
    check_other("fp32", "bf16", "it was made with ckpt.state fp32, this run has bf16");
    check_other("bf16", "fp32", "it was made with ckpt.state bf16, this run has fp32");
    check_other("8bit", "fp32", "it was made with ckpt.state 8bit, this run has fp32");
    check_other("8bit", "bf16", "it was made with ckpt.state 8bit, this run has bf16");
    check_other("fp32", "8bit", "it was made with ckpt.state fp32, this run has 8bit");
    check_other("bf16", "8bit", "it was made with ckpt.state bf16, this run has 8bit");
}

/* ---- groups and adapters --------------------------------------------------------------------- */

static ckpt_optimizer *make_groups(ckpt *c, const struct small *r)
{
    struct ckpt_optimizer_group frozen = CKPT_OPTIMIZER_GROUP_INIT, still = frozen, sgd = frozen;
    struct ckpt_sgd s = CKPT_SGD_INIT;
    ckpt_optimizer *o = ckpt_adamw(c, &r->adamw);
    s.momentum = 0.9f;
    frozen.frozen = true;
    ckpt_optimizer_group(o, "layers.0.*", &frozen);
    still.lr_factor = 0.f;
    ckpt_optimizer_group(o, "layers.1.*", &still);
    sgd.optimizer = ckpt_sgd(c, &s);
    ckpt_optimizer_group(o, "out.weight", &sgd);
    return o;
}

static void check_groups(const char *kept)
{
    struct small r = make(CKPT_BF16, kept);
    const int64_t n = WIDTH * WIDTH;
    float *before[SMALL_PARAMS];
    static const int square[] = {0, 1, 3, 5, 7};
    ckpt *c;
    ckpt_program *p;
    r.optimizer = make_groups;
    small_open(&r, &c, &p);
    for (int i = 0; i < SQUARES; i++)
        before[i] = get(c, r.param[square[i]], CKPT_VALUE, n);
    small_train(&r, c, p, 0, 3);
    for (int i = 0; i < SQUARES; i++) {
        float *now = get(c, r.param[square[i]], CKPT_VALUE, n);
        /* layers.0 is frozen; layers.1 has a rate of 0: what bf16 has stays as it is */
        assert_int_equal(memcmp(now, before[i], (size_t)n * 4) == 0, i == 2 || i == 3);
        free(now), free(before[i]);
    }
    ckpt_close(c);
}

static void test_groups(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        check_groups(small_states[i]);
}

static ckpt_optimizer *make_muon(ckpt *c, const struct small *r)
{
    struct ckpt_optimizer_group vectors = CKPT_OPTIMIZER_GROUP_INIT;
    struct ckpt_muon muon = CKPT_MUON_INIT;
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    ckpt_optimizer *o = ckpt_muon(c, &muon);
    (void)r;
    vectors.optimizer = ckpt_adamw(c, &adamw);
    vectors.max_ndim = 1;
    ckpt_optimizer_group(o, "*", &vectors);
    return o;
}

static ckpt_optimizer *make_adafactor(ckpt *c, const struct small *r)
{
    struct ckpt_adafactor s = CKPT_ADAFACTOR_INIT;
    (void)r;
    return ckpt_adafactor(c, &s);
}

/* Optimizers that use whole matrices store nothing in 8 bits. */
static void test_matrices(void **state)
{
    static ckpt_optimizer *(*const makes[])(ckpt * c, const struct small *r) = {make_muon,
                                                                                make_adafactor};
    static const char *const sentences[] = {
        "muon keeps no state in 8 bits: 'in.weight' needs --state bf16, or AdamW, SGD or Lion by a "
        "group",
        "adafactor keeps no state in 8 bits: 'in.weight' needs --state bf16, or AdamW, SGD or Lion "
        "by a group"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct small r = make(CKPT_BF16, "8bit");
        r.optimizer = makes[i];
        expect_refusal(r, sentences[i]);
    }
}

struct adapted {
    ckpt_tensor w;
};

static ckpt_tensor record_adapted(ckpt_tape *t, int64_t batch, void *user)
{
    const struct adapted *m = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, WIDTH});
    ckpt_tensor y = ckpt_linear(t, ckpt_cast(t, x, CKPT_BF16), m->w, CKPT_NONE);
    return ckpt_mse(t, y, ckpt_affine(t, x, -1.f, 0.5f), CKPT_NONE);
}

/* Adapters have small state; the weight below them does not change, and they can be merged into it.
 */
static void check_lora(const char *kept, int64_t least)
{
    const int64_t shape[] = {WIDTH, WIDTH}, n = WIDTH * WIDTH;
    struct small r = make(CKPT_BF16, kept);
    struct ckpt_lora lora = CKPT_LORA_INIT;
    struct adapted m;
    ckpt *c;
    ckpt_program *p;
    assert_int_equal(ckpt_open(&c, &r.options), 0);
    m.w = ckpt_param(c, "w", CKPT_BF16, 2, shape, CKPT_XAVIER, true);
    lora.rank = 4;
    assert_int_equal(ckpt_lora(c, &lora), 1);
    r.adamw.ema_decay = 0.f;
    if (ckpt_compile(c, record_adapted, &m, ckpt_adamw(c, &r.adamw), SMALL_BATCH, &p))
        fail_msg("%s", ckpt_error(c));
    float *before = get(c, m.w, CKPT_VALUE, n);
    for (int s = 0; s < 4; s++) {
        small_feed(p, &r, s);
        assert_int_equal(ckpt_step(p, NULL), 0);
    }
    float *after = get(c, m.w, CKPT_VALUE, n);
    assert_memory_equal(before, after, (size_t)n * 4);
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    ckpt_program_info(p, &info);
    assert_in_range(info.optimizer_bytes, least, least + 4 * CKPT_ALIGN);
    assert_int_equal(ckpt_lora_merge(c), 0);
    float *merged = get(c, m.w, CKPT_VALUE, n);
    assert_true(is_short(merged, n, 16));
    assert_memory_not_equal(merged, after, (size_t)n * 4);
    free(before), free(after), free(merged);
    ckpt_close(c);
}

/* Two adapters of 4 x WIDTH elements with two means each. */
static void test_lora(void **state)
{
    (void)state;
    check_lora("bf16", 4 * 4 * WIDTH * 2);
    check_lora("8bit", 4 * 4 * WIDTH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),         cmocka_unit_test(test_sums),
        cmocka_unit_test(test_slots),         cmocka_unit_test(test_set),
        cmocka_unit_test(test_set_means),     cmocka_unit_test(test_matrices),
        cmocka_unit_test(test_default),       cmocka_unit_test(test_fp32_model),
        cmocka_unit_test(test_seed),          cmocka_unit_test(test_option),
        cmocka_unit_test(test_learning),      cmocka_unit_test(test_mishap),
        cmocka_unit_test(test_broken),        cmocka_unit_test(test_file),
        cmocka_unit_test(test_weights),       cmocka_unit_test(test_other_dtype),
        cmocka_unit_test(test_groups),        cmocka_unit_test(test_lora),
        cmocka_unit_test(test_sums_of_chunks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
