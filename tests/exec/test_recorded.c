/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recorded steps give the same bits as steps submitted command by command: on the CPU, with a list
 * of commands in place of a GPU's recording.  A step with offloads records its kernels between the
 * copies, and events that no thread waits for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "plan/one_search.h"
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
static int replays, foreign; /* steps replayed; calls of recorded parts that are not kernels */

static bool take(const struct call *c)
{
    if (!making)
        return false;
    assert_int_equal(ARRAY_RESERVE(making, making->n), 0);
    making->data[making->n++] = *c;
    foreign += in_part && (c->queue != QUEUE_COMPUTE || c->kind == COPY || c->kind == SIGNAL ||
                           c->kind == WAIT);
    return true;
}

static void compute(struct device *d, enum queue q, ckpt_kernel fn,
                    const struct ckpt_kernel_args *args, double *seconds)
{
    struct call call = {.kind = COMPUTE, .queue = q, .kernel = fn, .args = *args};
    if (args->run) /* threads are started by a call that is of no step */
        call.run = *args->run;
    if (!take(&call))
        plain->compute(d, q, fn, args, seconds);
}

/* Commands use the run values that were uploaded before they were submitted. */
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

static struct device_ops ops;
static struct ckpt_run run;

/* From here on the device records; records the steps of p. */
static void start_recording(ckpt *c, ckpt_program *p)
{
    plain = c->memory.device->ops;
    replays = foreign = 0;
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
    c->memory.device->ops = &ops;
    c->memory.device->run = &run;
    assert_int_equal(program_record(p), 0);
}

static void stop_recording(ckpt *c, ckpt_program *p)
{
    assert_int_equal(c->memory.device->ops->sync(c->memory.device), 0);
    program_forget(p);
    c->memory.device->ops = plain;
    c->memory.device->run = NULL;
}

/* Contents of a program's recording. */
struct found {
    int segments, events;
};

static struct found look_at(const ckpt_program *p)
{
    struct found f = {p->n_segments, 0};
    for (int i = 0; i < p->n_segments; i++)
        for (int64_t k = 0; k < p->segments.data[i].step->n; k++)
            f.events += p->segments.data[i].step->data[k].kind == RECORD;
    return f;
}

/* As if host threads waited for every second event of the compute queue: these end segments. */
static void wake_threads(ckpt_program *p)
{
    for (int32_t i = 0, n = 0; i < p->lowered.n_instrs; i++) {
        struct instr *at = &p->lowered.instrs.data[i];
        if (at->kind == INSTR_RECORD && at->queue == QUEUE_COMPUTE)
            at->for_threads = n++ & 1;
    }
}

/* Trains r, on a device that records if `recorded`; with `late` threads start after that. */
static void train(struct small *r, bool recorded, bool late, struct found *found)
{
    ckpt_program *p;
    ckpt *c;
    small_open(r, &c, &p);
    if (recorded) {
        wake_threads(p);
        start_recording(c, p);
    }
    if (late) {
        assert_int_equal(programs_open_steps(&c->programs), 0);
    }
    *found = look_at(p);
    small_train(r, c, p, 0, SMALL_STEPS);
    if (recorded)
        stop_recording(c, p);
    small_collect(r, c);
    ckpt_close(c);
}

static void expect_same(const struct small *a, const struct small *b)
{
    assert_memory_equal(a->loss, b->loss, sizeof a->loss);
    assert_int_equal(a->numel, b->numel);
    assert_memory_equal(a->state, b->state, (size_t)a->numel * sizeof *a->state);
}

/* Events are recorded with the kernels unless threads wait for them; threads may start later, for
 * host steps of another program. */
static void check_offloaded(const struct small *one, bool nvme, bool late)
{
    struct force f = {.seed = 3, .host = true, .nvme = nvme};
    struct small offloaded = *one;
    struct budgets tiers;
    struct force_count count;
    char path[64], size[64];
    struct found found;
    small_path(path, sizeof path, "plan");
    small_force(one, &f, path, &tiers, &count);
    small_use_tiers(&offloaded, path, &tiers, size);
    if (!nvme)
        offloaded.options.nvme = NULL;
    train(&offloaded, true, late, &found);
    assert_true(found.segments > 1 && !foreign && found.events > 0);
    assert_int_equal(replays, SMALL_STEPS * found.segments);
    expect_same(one, &offloaded);
    unlink(path);
    free(offloaded.state);
}

static void check(enum ckpt_dtype dtype, int64_t n_micro)
{
    struct small one = small_make(dtype, 33, n_micro, true), whole = one;
    struct found found;
    train(&one, false, false, &found);
    train(&whole, true, false, &found);
    assert_int_equal(found.segments, 0);
    assert_int_equal(replays, SMALL_STEPS);
    expect_same(&one, &whole);
    check_offloaded(&one, false, false);
    check_offloaded(&one, true, false);
    check_offloaded(&one, false, true);
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
