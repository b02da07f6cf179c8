/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cache of keys and values: prompts of different lengths that are read at once and then continued
 * token by token give the same results as one pass over the whole text.  Budgets and tiers change
 * no bit; wrong uses are refused; no file contains a cache, and ranks do not compare it.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "ckpt_files.h"
#include "ckpt_nn.h"
#include "dist/rank_threads.h"
#include "exec/small.h"

enum { SAMPLES = 3, PLACES = 12, WIDTH = 24, HEADS = 3, HEAD = 8, LAYERS = 2 };
enum { NUMEL = SAMPLES * PLACES * WIDTH, CACHE = SAMPLES * PLACES * HEADS * HEAD };

struct model {
    enum ckpt_dtype dtype;
    ckpt_tensor qkv[LAYERS], proj[LAYERS], cache[LAYERS][2];
};

/* Number of prompt tokens of each sample, read at once. */
static const int32_t prompt[SAMPLES] = {5, 1, 9};

static void make_model(struct model *m, ckpt *c, enum ckpt_dtype dtype)
{
    m->dtype = dtype;
    for (int i = 0; i < LAYERS; i++) {
        char name[32];
        snprintf(name, sizeof name, "qkv.%d", i);
        m->qkv[i] =
            ckpt_param(c, name, dtype, 2, (int64_t[]){3 * WIDTH, WIDTH}, CKPT_NORMAL(.3f), true);
        snprintf(name, sizeof name, "proj.%d", i);
        m->proj[i] =
            ckpt_param(c, name, dtype, 2, (int64_t[]){WIDTH, WIDTH}, CKPT_NORMAL(.3f), true);
        for (int k = 0; k < 2; k++) {
            snprintf(name, sizeof name, "cache.%d.%d", i, k);
            m->cache[i][k] =
                ckpt_cache(c, name, dtype, 4, (int64_t[]){SAMPLES, PLACES, HEADS, HEAD});
        }
    }
}

/* x [B, T, WIDTH]; with `at` the keys and values are written to the caches. */
static ckpt_tensor layers(const struct model *m, ckpt_tape *t, ckpt_tensor x, ckpt_tensor at,
                          bool one)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);
    for (int i = 0; i < LAYERS; i++) {
        struct ckpt_attention_spec spec = CKPT_ATTENTION_INIT;
        ckpt_tensor part[3], y = ckpt_linear(t, x, m->qkv[i], CKPT_NONE);
        ckpt_split(t, y, 2, 3, part);
        for (int k = 0; k < 3; k++)
            part[k] = ckpt_reshape(t, part[k], 4, (int64_t[]){d.shape[0], d.shape[1], HEADS, HEAD});
        for (int k = 0; k < 2 && at.id; k++) {
            ckpt_tensor all = ckpt_cache_append(t, m->cache[i][k], part[1 + k], at);
            part[1 + k] = one ? all : part[1 + k];
        }
        spec.causal = !one;
        if (one)
            spec.lengths = ckpt_cast(t, ckpt_affine(t, ckpt_cast(t, at, CKPT_F32), 1, 1), CKPT_I32);
        y = ckpt_attention(t, part[0], part[1], part[2], CKPT_NONE, &spec);
        y = ckpt_reshape(t, y, 3, (int64_t[]){d.shape[0], d.shape[1], WIDTH});
        x = ckpt_linear_add(t, y, m->proj[i], CKPT_NONE, x);
    }
    return x;
}

static ckpt_tensor input(const struct model *m, ckpt_tape *t, int64_t batch, int64_t places)
{
    return ckpt_cast(t, ckpt_input(t, "x", CKPT_F32, 3, (int64_t[]){batch, places, WIDTH}),
                     m->dtype);
}

static ckpt_tensor put_out(ckpt_tape *t, ckpt_tensor x)
{
    ckpt_output(t, "y", ckpt_cast(t, x, CKPT_F32));
    return x;
}

static ckpt_tensor record_all(ckpt_tape *t, int64_t batch, void *m)
{
    return put_out(t, layers(m, t, input(m, t, batch, PLACES), CKPT_NONE, false));
}

/* Processes all positions; those after a prompt are overwritten later, one by one. */
static ckpt_tensor record_prompt(ckpt_tape *t, int64_t batch, void *m)
{
    ckpt_tensor at = ckpt_input(t, "at", CKPT_I32, 1, &batch);
    return put_out(t, layers(m, t, input(m, t, batch, PLACES), at, false));
}

static ckpt_tensor record_next(ckpt_tape *t, int64_t batch, void *m)
{
    ckpt_tensor at = ckpt_input(t, "at", CKPT_I32, 1, &batch);
    return put_out(t, layers(m, t, input(m, t, batch, 1), at, true));
}

static ckpt_tensor record_loss(ckpt_tape *t, int64_t batch, void *m)
{
    ckpt_tensor x = layers(m, t, input(m, t, batch, PLACES), CKPT_NONE, false);
    x = ckpt_cast(t, x, CKPT_F32);
    return ckpt_mean(t, ckpt_mul(t, x, x), 7);
}

static float value(int sample, int place, int i)
{
    return (float)((sample * 311 + place * 97 + i * 31) % 41 - 20) / 20;
}

/* Runs a step on `places` positions of x, of each sample from position `from` on. */
static int step(ckpt_program *p, const int32_t *from, int places, const int32_t *at, float *y)
{
    float x[NUMEL]; /* ranks are threads */
    for (int s = 0; s < SAMPLES; s++)
        for (int j = 0; j < places; j++)
            for (int i = 0; i < WIDTH; i++)
                x[(s * places + j) * WIDTH + i] = value(s, from[s] + j, i);
    int64_t n = (int64_t)SAMPLES * places * WIDTH * (int64_t)sizeof *x;
    int rc = ckpt_feed(p, "x", x, n);
    if (!rc && at)
        rc = ckpt_feed(p, "at", at, SAMPLES * (int64_t)sizeof *at);
    rc = rc ? rc : ckpt_step(p, NULL);
    return rc || !y ? rc : ckpt_fetch(p, "y", y, n);
}

static const int32_t none[SAMPLES];

/* The results of the two programs after each prompt, [SAMPLES][PLACES][WIDTH]. */
static void generate(ckpt_program *read, ckpt_program *next, float *y)
{
    float one[SAMPLES * WIDTH];
    int32_t at[SAMPLES];
    assert_int_equal(step(read, none, PLACES, none, y), 0);
    memcpy(at, prompt, sizeof at);
    for (int n = 0; n < PLACES; n++) {
        for (int s = 0; s < SAMPLES; s++) /* one that is whole says its last token again */
            at[s] = prompt[s] + n < PLACES ? prompt[s] + n : PLACES - 1;
        assert_int_equal(step(next, at, 1, at, one), 0);
        for (int s = 0; s < SAMPLES; s++)
            memcpy(y + (s * PLACES + at[s]) * WIDTH, one + s * WIDTH, WIDTH * sizeof *y);
    }
}

static struct ckpt_options options(void)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    o.device = small_on_gpu() ? "cuda" : "cpu";
    o.threads = 1;
    o.verify = true;
    return o;
}

/* Runs all programs; if `trains` a training program is planned first but not run.  Fills in y, and
 * `whole` by one pass; *least is the smallest budget of the first and of the last program. */
static void run(const struct ckpt_options *o, enum ckpt_dtype dtype, bool trains, float *y,
                float *whole, int64_t *least)
{
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    ckpt_program *all, *read, *next, *train = NULL;
    struct model m;
    ckpt *c;
    if (ckpt_open(&c, o))
        fail_msg("%s", ckpt_error(NULL));
    make_model(&m, c, dtype);
    if ((trains && ckpt_compile(c, record_loss, &m, ckpt_adamw(c, &adamw), SAMPLES, &train)) ||
        ckpt_compile(c, record_all, &m, NULL, SAMPLES, &all) ||
        ckpt_compile(c, record_prompt, &m, NULL, SAMPLES, &read) ||
        ckpt_compile(c, record_next, &m, NULL, SAMPLES, &next))
        fail_msg("%s", ckpt_error(c));
    assert_int_equal(ckpt_program_info(trains ? train : read, &info), 0);
    *least = info.min_budget;
    assert_int_equal(step(all, none, PLACES, NULL, whole), 0);
    generate(read, next, y);
    ckpt_close(c);
}

static void check_dtype(enum ckpt_dtype dtype, float tolerance)
{
    static float y[NUMEL], whole[NUMEL], again[NUMEL];
    struct ckpt_options o = options();
    int64_t least, other;
    run(&o, dtype, false, y, whole, &least);
    for (int i = 0; i < NUMEL; i++)
        if (!(fabsf(y[i] - whole[i]) <= tolerance))
            fail_msg("%d: %g and %g", i, (double)y[i], (double)whole[i]);
    if (small_on_gpu())
        return;
    o.vram = least;
    run(&o, dtype, false, again, whole, &other);
    assert_memory_equal(y, again, sizeof y);
    o.vram = 0;
    o.host = 1 << 20;
    run(&o, dtype, true, again, whole, &least);
    assert_memory_equal(y, again, sizeof y);
    o.vram = least + (1 << 15); /* state of the optimizer has no room on the device */
    run(&o, dtype, true, again, whole, &other);
    assert_memory_equal(y, again, sizeof y);
}

static void test_generate(void **state)
{
    (void)state;
    check_dtype(CKPT_F32, 1e-5f);
    check_dtype(CKPT_BF16, 0.06f);
}

/* ---- refused uses ---------------------------------------------------------------------------- */

enum fault { TWICE, READ_BEFORE, NO_CACHE, OTHER_DTYPE, TOO_LONG, TRAINS, FAULTS };

struct wrong {
    struct model m;
    enum fault fault;
};

static ckpt_tensor record_wrong(ckpt_tape *t, int64_t batch, void *user)
{
    const struct wrong *w = user;
    const int64_t shape[] = {batch, w->fault == TOO_LONG ? PLACES + 1 : 1, HEADS, HEAD};
    ckpt_tensor at = ckpt_input(t, "at", CKPT_I32, 1, &batch), cache = w->m.cache[0][0];
    ckpt_tensor x = ckpt_full(t, 1, w->fault == OTHER_DTYPE ? CKPT_BF16 : CKPT_F32, 4, shape);
    if (w->fault == TRAINS)
        x = ckpt_add(t, x, ckpt_mean(t, w->m.proj[0], 3));
    if (w->fault == READ_BEFORE)
        ckpt_output(t, "before", ckpt_affine(t, cache, 2, 0));
    if (w->fault == NO_CACHE)
        cache = ckpt_full(t, 0, CKPT_F32, 4, (int64_t[]){batch, PLACES, HEADS, HEAD});
    ckpt_tensor y = ckpt_cache_append(t, cache, x, at);
    if (w->fault == TWICE)
        y = ckpt_cache_append(t, cache, x, at);
    return ckpt_mean(t, y, 0xf);
}

static void test_refused(void **state)
{
    static const char *const says[FAULTS] = {
        [TWICE] = "'cache.0.0' was read before",
        [READ_BEFORE] = "'cache.0.0' was read before",
        [NO_CACHE] = "must be a cache of this context",
        [OTHER_DTYPE] = "rows and cache must have one dtype",
        [TOO_LONG] = "13 rows do not fit into a cache of 12",
        [TRAINS] = "a training program cannot append to a cache",
    };
    struct ckpt_options o = options();
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    struct wrong w;
    ckpt_program *p;
    ckpt *c;
    (void)state;
    assert_int_equal(ckpt_open(&c, &o), 0);
    make_model(&w.m, c, CKPT_F32);
    for (w.fault = 0; w.fault < FAULTS; w.fault++) {
        ckpt_optimizer *with = w.fault == TRAINS ? ckpt_adamw(c, &adamw) : NULL;
        assert_int_not_equal(ckpt_compile(c, record_wrong, &w, with, SAMPLES, &p), 0);
        if (!strstr(ckpt_error(c), says[w.fault]))
            fail_msg("%d: %s", w.fault, ckpt_error(c));
    }
    ckpt_close(c);
    o.micro_batch = 1;
    assert_int_equal(ckpt_open(&c, &o), 0);
    make_model(&w.m, c, CKPT_F32);
    assert_int_equal(ckpt_compile(c, record_next, &w.m, NULL, SAMPLES, &p), CKPT_ESHAPE);
    assert_non_null(strstr(ckpt_error(c), "with B the samples of a micro-step"));
    ckpt_close(c);
}

/* A position after the last row gives an error message with the position, on every device; after
 * the next valid step everything works again. */
static void test_full(void **state)
{
    const int32_t full[SAMPLES] = {3, PLACES, 1}, below[SAMPLES] = {3, -1, 1};
    struct ckpt_options o = options();
    struct model m;
    ckpt_program *p;
    ckpt *c;
    (void)state;
    assert_int_equal(ckpt_open(&c, &o), 0);
    make_model(&m, c, CKPT_F32);
    assert_int_equal(ckpt_compile(c, record_next, &m, NULL, SAMPLES, &p), 0);
    assert_int_equal(step(p, none, 1, full, NULL), CKPT_EINDEX);
    assert_non_null(strstr(ckpt_error(c), "cache_append"));
    assert_non_null(strstr(ckpt_error(c), "12"));
    assert_int_equal(step(p, none, 1, below, NULL), CKPT_EINDEX);
    assert_int_equal(step(p, none, 1, none, NULL), 0);
    ckpt_close(c);
}

/* ---- files and ranks ------------------------------------------------------------------------- */

static int count_tensors(const char *path)
{
    ckpt_file *f;
    assert_int_equal(ckpt_file_open(&f, path), 0);
    int n = ckpt_file_count(f);
    ckpt_file_close(f);
    return n;
}

/* Writes a file with the first tensor of the file at path, with a value that is not finite. */
static void write_broken(const char *path, const char *broken)
{
    struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
    ckpt_file_writer *w;
    ckpt_file *f;
    assert_int_equal(ckpt_file_open(&f, path), 0);
    assert_int_equal(ckpt_file_entry(f, 0, &e), 0);
    float *values = malloc((size_t)e.numel * sizeof *values);
    for (int64_t i = 0; i < e.numel; i++)
        values[i] = NAN;
    assert_int_equal(ckpt_file_create(&w, broken), 0);
    assert_int_equal(ckpt_file_add(w, e.name, CKPT_F32, e.ndim, e.shape, values), 0);
    assert_int_equal(ckpt_file_commit(w), 0);
    free(values);
    ckpt_file_close(f);
}

/* After a broken file, loading all tensors of a good file makes the context valid again; caches
 * need not be loaded. */
static void check_broken(ckpt *c, ckpt_program *p, const char *path)
{
    char broken[160];
    snprintf(broken, sizeof broken, "%s.broken", path);
    write_broken(path, broken);
    assert_int_equal(ckpt_load_params(c, broken, NULL, NULL, NULL), CKPT_EFORMAT);
    assert_int_not_equal(step(p, none, 1, none, NULL), 0);
    assert_int_equal(ckpt_load_params(c, path, NULL, NULL, NULL), 0);
    assert_int_equal(step(p, none, 1, none, NULL), 0);
    unlink(broken);
}

/* A cache can be read and set like a parameter, but no file contains one. */
static void test_files(void **state)
{
    struct ckpt_options o = options();
    static float set[CACHE], got[CACHE];
    struct model m;
    char path[128];
    ckpt_program *p;
    ckpt *c;
    (void)state;
    small_path(path, sizeof path, "cache");
    assert_int_equal(ckpt_open(&c, &o), 0);
    make_model(&m, c, CKPT_F32);
    assert_int_equal(ckpt_compile(c, record_next, &m, NULL, SAMPLES, &p), 0);
    for (int i = 0; i < CACHE; i++)
        set[i] = (float)i;
    assert_int_equal(ckpt_param_set(c, m.cache[1][0], CKPT_VALUE, set, CACHE), 0);
    assert_int_equal(step(p, none, 1, none, NULL), 0);
    assert_int_equal(ckpt_param_get(c, m.cache[1][0], CKPT_VALUE, got, CACHE), 0);
    for (int s = 0; s < SAMPLES; s++) {
        int row = s * PLACES * HEADS * HEAD;
        assert_memory_not_equal(set + row, got + row, HEADS * HEAD * sizeof *set);
        row += HEADS * HEAD;
        assert_memory_equal(set + row, got + row, (PLACES - 1) * HEADS * HEAD * sizeof *set);
    }
    assert_int_equal(ckpt_save_params(c, path, CKPT_VALUE), 0);
    assert_int_equal(count_tensors(path), 2 * LAYERS);
    assert_int_equal(ckpt_load_params(c, path, NULL, NULL, NULL), 0);
    check_broken(c, p, path);
    unlink(path);
    ckpt_close(c);
}

struct member {
    struct rank_thread thread;
    float y[NUMEL];
    int zero;
};

/* Trains, writes to the cache, trains: each rank has its own cache. */
static void *run_member(void *member)
{
    struct member *r = member;
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    struct model m;
    ckpt_program *train, *next;
    ckpt *c = rank_open(&r->thread, (struct ckpt_options)CKPT_OPTIONS_INIT, r->zero, 0);
    if (!c)
        return NULL;
    make_model(&m, c, CKPT_F32);
    r->thread.rc = ckpt_compile(c, record_loss, &m, ckpt_adamw(c, &adamw), SAMPLES, &train);
    if (!r->thread.rc)
        r->thread.rc = ckpt_compile(c, record_next, &m, NULL, SAMPLES, &next);
    for (int i = 0; i < 3 && !r->thread.rc; i++) {
        int32_t at[SAMPLES] = {i + r->thread.rank, i, 2 * i};
        r->thread.rc = step(train, none, PLACES, NULL, NULL);
        if (!r->thread.rc)
            r->thread.rc = step(next, at, 1, at, r->y);
    }
    ckpt_close(c);
    return NULL;
}

static void test_ranks(void **state)
{
    (void)state;
    if (small_on_gpu())
        skip();
    for (int zero = 0; zero <= 3; zero++) {
        struct member *r = calloc(2, sizeof *r);
        assert_non_null(r);
        r[0].zero = r[1].zero = zero;
        run_ranks(r, sizeof *r, 2, 0, run_member);
        assert_memory_not_equal(r[0].y, r[1].y, WIDTH * sizeof *r->y);
        assert_memory_equal(r[0].y + 2 * WIDTH, r[1].y + 2 * WIDTH, WIDTH * sizeof *r->y);
        free(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_generate),
                                       cmocka_unit_test(test_refused), cmocka_unit_test(test_full),
                                       cmocka_unit_test(test_files), cmocka_unit_test(test_ranks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
