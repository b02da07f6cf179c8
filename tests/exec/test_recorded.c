/*
 * Recorded steps give the same bits as those that are handed over command by command: on the CPU
 * with a list of commands in place of what a GPU records.  A step with parks has its kernels
 * recorded between the copies, and events where no thread waits for them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "small.h"

struct call {
    enum { COMPUTE, COPY, FILL, RECORD, SIGNAL, WAIT } kind;
    enum queue queue;
    ckpt_kernel kernel;
    struct ckpt_kernel_args args;
    struct ckpt_run run; /* micro-step and seed of a kernel are recorded, the rest is looked up */
    void *to;
    const void *from;
    int64_t bytes;
    int what; /* the byte of a fill, or the event */
};

struct device_step {
    struct call *data;
    int64_t capacity, n;
};

static const struct device_ops *plain;
static struct device_step *making;
static const struct ckpt_run *uploaded;
static bool in_part;
static int replays, records, foreign; /* steps replayed; of parts: events, what is no kernel */

static bool take(const struct call *c)
{
    if (!making)
        return false;
    assert_int_equal(ARRAY_RESERVE(making, making->n), 0);
    making->data[making->n++] = *c;
    records += in_part && c->kind == RECORD;
    foreign += in_part && (c->queue != QUEUE_COMPUTE || c->kind == COPY || c->kind == SIGNAL ||
                           c->kind == WAIT);
    return true;
}

static void compute(struct device *d, enum queue q, ckpt_kernel fn,
                    const struct ckpt_kernel_args *args, double *seconds)
{
    if (!take(&(struct call){
            .kind = COMPUTE, .queue = q, .kernel = fn, .args = *args, .run = *args->run}))
        plain->compute(d, q, fn, args, seconds);
}

/* Commands see what was uploaded when they were handed over. */
static void hand_copy(struct device *d, enum queue q, void *dst, const void *src, int64_t bytes)
{
    if (dst == d->run)
        uploaded = src;
    plain->copy(d, q, dst, src, bytes);
}

static void copy(struct device *d, enum queue q, void *dst, const void *src, int64_t bytes)
{
    if (!take(&(struct call){.kind = COPY, .queue = q, .to = dst, .from = src, .bytes = bytes}))
        hand_copy(d, q, dst, src, bytes);
}

static void fill(struct device *d, enum queue q, void *dst, int byte, int64_t bytes)
{
    if (!take(&(struct call){.kind = FILL, .queue = q, .to = dst, .what = byte, .bytes = bytes}))
        plain->fill(d, q, dst, byte, bytes);
}

static void record(struct device *d, enum queue q, int32_t event)
{
    if (!take(&(struct call){.kind = RECORD, .queue = q, .what = event}))
        plain->record(d, q, event);
}

static void send_signal(struct device *d, enum queue q, int32_t event)
{
    if (!take(&(struct call){.kind = SIGNAL, .queue = q, .what = event}))
        plain->signal(d, q, event);
}

static void await(struct device *d, enum queue q, int32_t event)
{
    if (!take(&(struct call){.kind = WAIT, .queue = q, .what = event}))
        plain->wait(d, q, event);
}

static void begin(struct device *d, bool part)
{
    (void)d;
    in_part = part;
    assert_null(making);
    making = calloc(1, sizeof *making);
    assert_non_null(making);
}

static int end(struct device *d, struct device_step **step)
{
    (void)d;
    *step = making;
    making = NULL;
    return 0;
}

static void replay_kernel(struct device *d, struct call *c)
{
    c->run.step = uploaded->step;
    c->run.lr = uploaded->lr;
    c->run.opt_step = uploaded->opt_step;
    c->args.run = &c->run;
    plain->compute(d, c->queue, c->kernel, &c->args, NULL);
}

static void replay(struct device *d, struct device_step *step)
{
    replays++;
    for (int64_t i = 0; i < step->n; i++) {
        struct call *c = &step->data[i];
        if (c->kind == COMPUTE)
            replay_kernel(d, c);
        else if (c->kind == COPY)
            hand_copy(d, c->queue, c->to, c->from, c->bytes);
        else if (c->kind == FILL)
            plain->fill(d, c->queue, c->to, c->what, c->bytes);
        else if (c->kind == WAIT)
            plain->wait(d, c->queue, c->what);
        else
            (c->kind == RECORD ? plain->record : plain->signal)(d, c->queue, c->what);
    }
}

static void forget(struct device *d, struct device_step *step)
{
    (void)d;
    free(step->data);
    free(step);
}

/* Trains r, on a device that records if told so. */
static void train(struct small *r, bool recorded, int *segments)
{
    struct device_ops ops;
    struct ckpt_run run;
    ckpt_program *p;
    ckpt *c;
    small_open(r, &c, &p);
    plain = c->device->ops;
    replays = records = foreign = 0;
    if (recorded) {
        ops = *plain;
        ops.compute = compute;
        ops.copy = copy;
        ops.fill = fill;
        ops.record = record;
        ops.signal = send_signal;
        ops.wait = await;
        ops.begin = begin;
        ops.end = end;
        ops.replay = replay;
        ops.forget = forget;
        c->device->ops = &ops;
        c->device->run = &run;
        assert_int_equal(program_record(p), 0);
    }
    *segments = p->n_segments;
    small_train(r, c, p, 0, SMALL_STEPS);
    if (recorded) {
        assert_int_equal(c->device->ops->sync(c->device), 0);
        program_forget(p);
        c->device->ops = plain;
        c->device->run = NULL;
    }
    small_collect(r, c);
    ckpt_close(c);
}

static void expect_same(const struct small *a, const struct small *b)
{
    assert_memory_equal(a->loss, b->loss, sizeof a->loss);
    assert_int_equal(a->numel, b->numel);
    assert_memory_equal(a->state, b->state, (size_t)a->numel * sizeof *a->state);
}

/* Events are recorded with the kernels unless threads of files wait for some. */
static void check_parked(const struct small *one, bool nvme)
{
    struct force f = {.seed = 3, .host = true, .nvme = nvme};
    struct small parked = *one;
    struct budgets tiers;
    struct force_count count;
    char path[64], size[64];
    int segments;
    small_path(path, sizeof path, "plan");
    small_force(one, &f, path, &tiers, &count);
    small_use_tiers(&parked, path, &tiers, size);
    if (!nvme)
        parked.options.nvme = NULL;
    train(&parked, true, &segments);
    assert_true(segments > 1 && !foreign && (records > 0) != nvme);
    assert_int_equal(replays, SMALL_STEPS * segments);
    expect_same(one, &parked);
    unlink(path);
    free(parked.state);
}

static void check(enum ckpt_dtype dtype, int64_t n_micro)
{
    struct small one = small_make(dtype, 33, n_micro, true), whole = one;
    int segments;
    train(&one, false, &segments);
    train(&whole, true, &segments);
    assert_int_equal(segments, 0);
    assert_int_equal(replays, SMALL_STEPS);
    expect_same(&one, &whole);
    check_parked(&one, false);
    check_parked(&one, true);
    free(one.state);
    free(whole.state);
}

static void test_fp32(void **state)
{
    (void)state;
    check(CKPT_F32, 1);
}

static void test_micro_steps(void **state)
{
    (void)state;
    check(CKPT_BF16, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fp32),
                                       cmocka_unit_test(test_micro_steps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
