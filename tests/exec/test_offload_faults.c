/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The NVMe tier fails during training: one message names the storage, the op and the step; no step
 * and no save follows; weights saved before do not change; nothing hangs.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>
#include "ckpt_files.h"
#include "ckpt_tools.h"
#include "plan/one_search.h"
#include "small.h"

enum { SAVED = 2, MOST_CALLS = 12, HANG_SECONDS = 1 };

enum fault { FAIL, HANG };

/* Wraps a tier and makes one call fail. */
static struct {
    const struct tier_ops *real;
    struct tier_ops ops;
    enum fault fault;
    bool write;
    int left; /* calls until then; below 0: none is spoilt */
    pthread_mutex_t lock;
    pthread_cond_t released;
    bool hanging, go;
} front = {.lock = PTHREAD_MUTEX_INITIALIZER, .released = PTHREAD_COND_INITIALIZER};

static void hang(void)
{
    pthread_mutex_lock(&front.lock);
    front.hanging = true;
    while (!front.go)
        pthread_cond_wait(&front.released, &front.lock);
    front.hanging = false;
    pthread_cond_broadcast(&front.released);
    pthread_mutex_unlock(&front.lock);
}

static bool is_due(bool write)
{
    pthread_mutex_lock(&front.lock);
    bool due = front.write == write && front.left >= 0 && front.left-- == 0;
    pthread_mutex_unlock(&front.lock);
    return due;
}

static int spoil(struct tier *t)
{
    if (front.fault == HANG)
        hang();
    snprintf(t->reason, sizeof t->reason, "nvme tier: planted");
    return CKPT_EIO;
}

static int front_write(struct tier *t, int64_t offset, const void *src, int64_t bytes)
{
    return is_due(true) ? spoil(t) : front.real->write(t, offset, src, bytes);
}

static int front_read(struct tier *t, int64_t offset, void *dst, int64_t bytes)
{
    return is_due(false) ? spoil(t) : front.real->read(t, offset, dst, bytes);
}

static void stand_in_front(struct tier *t, enum fault fault, bool write, int calls)
{
    front.real = t->ops;
    front.ops = *t->ops;
    front.ops.write = front_write;
    front.ops.read = front_read;
    front.fault = fault;
    front.write = write;
    front.left = calls;
    front.go = false;
    t->ops = &front.ops;
}

static struct {
    char plan[64], nvme[64], saved[64];
    struct small run;
    struct budgets tiers;
} here;

/* All tests begin here, with the same weights: the first one saves them.  Nothing is under way at
 * the end, because the tier is about to be replaced. */
static void open_offloaded(ckpt **c, ckpt_program **p)
{
    small_use_tiers(&here.run, here.plan, &here.tiers, here.nvme);
    small_open(&here.run, c, p);
    small_train(&here.run, *c, *p, 0, SAVED);
    assert_int_equal((*c)->memory.device->ops->sync((*c)->memory.device), 0);
    if (access(here.saved, F_OK) && ckpt_save_params(*c, here.saved, CKPT_VALUE))
        fail_msg("%s", ckpt_error(*c));
}

/* Runs steps until one fails; returns 0 if none does. */
static int train_on(ckpt_program *p)
{
    int rc = 0;
    for (int s = SAVED; s < SMALL_STEPS && !rc; s++) {
        small_feed(p, &here.run, s);
        rc = ckpt_step(p, NULL);
    }
    return rc;
}

static void expect_sentence(ckpt *c, const char *what, const char *why)
{
    const char *text = ckpt_error(c);
    if (!strstr(text, "step ") || !strstr(text, what) || !strstr(text, why) ||
        !strstr(text, "small.c:"))
        fail_msg("not the sentence of a tier: %s", text);
    assert_null(strchr(text, '\n'));
}

static void expect_lost(ckpt *c, ckpt_program *p)
{
    float x;
    int64_t n = here.run.width * here.run.width;
    float *values = malloc((size_t)n * sizeof *values);
    ckpt_file *f;
    assert_int_equal(ckpt_step(p, &x), CKPT_EDEVICE);
    assert_non_null(strstr(ckpt_error(c), "load those saved last"));
    assert_int_equal(ckpt_save_params(c, here.saved, CKPT_VALUE), CKPT_EDEVICE);
    assert_int_equal(ckpt_param_get(c, here.run.param[0], CKPT_VALUE, values, n), CKPT_EDEVICE);
    assert_int_equal(ckpt_file_open(&f, here.saved), 0);
    assert_int_equal(ckpt_file_read_f32(f, ckpt_file_find(f, "in.weight"), values, n), 0);
    ckpt_file_close(f);
    free(values);
}

static void fail_at_each(bool write)
{
    for (int n = 0; n < MOST_CALLS; n++) {
        ckpt *c;
        ckpt_program *p;
        open_offloaded(&c, &p);
        stand_in_front(c->memory.tiers[TIER_NVME], FAIL, write, n * 7);
        assert_int_equal(train_on(p), CKPT_EIO);
        expect_sentence(c, write ? "writing " : "reading ", "nvme tier: planted");
        expect_lost(c, p);
        ckpt_close(c);
    }
}

static void test_reads_fail(void **state)
{
    (void)state;
    fail_at_each(false);
}

static void test_writes_fail(void **state)
{
    (void)state;
    fail_at_each(true);
}

/* Feeding a third step waits for the first of two: its failure is not lost. */
static void test_a_feed_is_told(void **state)
{
    float *x = calloc((size_t)(SMALL_BATCH * here.run.width), sizeof *x);
    ckpt *c;
    ckpt_program *p;
    (void)state;
    assert_non_null(x);
    open_offloaded(&c, &p);
    stand_in_front(c->memory.tiers[TIER_NVME], FAIL, false, 0);
    for (int s = SAVED; s < SAVED + 2; s++) {
        small_feed(p, &here.run, s);
        assert_int_equal(ckpt_submit(p), 0);
    }
    assert_int_equal(ckpt_feed(p, "x", x, SMALL_BATCH * here.run.width * 4), CKPT_EIO);
    expect_sentence(c, "reading ", "nvme tier: planted");
    assert_int_equal(ckpt_wait(p, NULL), CKPT_EINVAL);
    expect_lost(c, p);
    ckpt_close(c);
    free(x);
}

/* Two steps are under way and the first is not finite, so it runs again.  Returns the number of
 * tier calls; call n fails. */
static int run_mishap(int n, int code)
{
    int64_t numel = SMALL_BATCH * here.run.width;
    float *x = malloc((size_t)numel * sizeof *x);
    ckpt *c;
    ckpt_program *p;
    assert_non_null(x);
    open_offloaded(&c, &p);
    stand_in_front(c->memory.tiers[TIER_NVME], FAIL, false, n);
    ckpt_fill_normal(7, SAVED, 1, x, numel);
    x[0] = 1e30f;
    assert_int_equal(ckpt_feed(p, "x", x, numel * 4), 0);
    assert_int_equal(ckpt_submit(p), 0);
    small_feed(p, &here.run, SAVED + 1);
    assert_int_equal(ckpt_submit(p), 0);
    assert_int_equal(ckpt_wait(p, NULL), code);
    if (code == CKPT_EIO) {
        expect_sentence(c, "reading ", "nvme tier: planted");
        expect_lost(c, p);
    }
    ckpt_close(c);
    free(x);
    return n - front.left;
}

/* The failure is in that step, in the step after it, or when the first one runs again. */
static void test_a_mishap_hides_none(void **state)
{
    int calls = run_mishap(1000, CKPT_ENAN);
    (void)state;
    assert_true(calls > 3 * 8 && calls < 1000);
    for (int k = 0; k < 8; k++)
        run_mishap(calls * k / 8, CKPT_EIO);
}

/* A call that never returns: the step ends with an error message, and so does the context, also if
 * another program outlives the one that made the call. */
static void check_hang(bool write)
{
    ckpt *c;
    ckpt_program *p, *other;
    open_offloaded(&c, &p);
    if (ckpt_compile(c, small_record, &here.run, NULL, SMALL_BATCH, &other))
        fail_msg("%s", ckpt_error(c));
    struct tier *t = c->memory.tiers[TIER_NVME];
    char *staging = c->memory.staging;
    size_t staged = 2 * PLAN_STAGING_SLOTS * (size_t)c->memory.slot;
    stand_in_front(t, HANG, write, 0);
    c->memory.device->ops->deadline(c->memory.device,
                                    HANG_SECONDS); /* steps so far had DEVICE_DEADLINE */
    double start = clock_seconds();
    assert_int_equal(train_on(p), CKPT_EIO);
    expect_sentence(c, write ? "writing " : "reading ", "not finished within");
    expect_lost(c, p);
    ckpt_program_free(p);
    ckpt_close(c);
    assert_true(clock_seconds() - start < 20);
    /* It ends after all, and finds what it uses where it was. */
    pthread_mutex_lock(&front.lock);
    assert_true(front.hanging);
    front.go = true;
    pthread_cond_broadcast(&front.released);
    while (front.hanging)
        pthread_cond_wait(&front.released, &front.lock);
    pthread_mutex_unlock(&front.lock);
    usleep(200000);
    t->ops->close(t);
    munmap(staging, staged);
}

static void test_a_read_hangs(void **state)
{
    (void)state;
    check_hang(false);
}

static void test_a_write_hangs(void **state)
{
    (void)state;
    check_hang(true);
}

static int setup(void **state)
{
    (void)state;
    struct force_count count;
    here.run = small_make(CKPT_F32, 24, 1, true);
    small_path(here.plan, sizeof here.plan, "faults");
    small_path(here.saved, sizeof here.saved, "saved");
    small_force(&here.run, &(struct force){.seed = 3, .nvme = true, .all = true}, here.plan,
                &here.tiers, &count);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(here.plan);
    unlink(here.saved);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_fail),     cmocka_unit_test(test_writes_fail),
        cmocka_unit_test(test_a_feed_is_told), cmocka_unit_test(test_a_mishap_hides_none),
        cmocka_unit_test(test_a_read_hangs),   cmocka_unit_test(test_a_write_hangs),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
