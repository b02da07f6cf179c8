/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU device alone: order within a queue, events between queues, the arena, failures. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <cmocka.h>
#include "memory/device/device.h"

enum { MIB = 1 << 20 };

static struct device *open_device(int64_t budget)
{
    struct device *d = NULL;
    assert_int_equal(device_open_cpu(&d, budget, 1), 0);
    return d;
}

/* Adds out[0] += attr, slowly enough that a missing event is detected. */
static int add_kernel(const struct ckpt_kernel_args *a)
{
    volatile int64_t *value = a->out[0].data;
    int64_t v = *value;
    for (volatile int i = 0; i < 200; i++)
        ;
    *value = v + *(const int64_t *)a->attr;
    return 0;
}

static int failing_kernel(const struct ckpt_kernel_args *a)
{
    (void)a;
    return CKPT_EDEVICE;
}

static void test_order_within_a_queue(void **state)
{
    (void)state;
    struct device *d = open_device(MIB);
    assert_int_equal(d->ops->map(d, MIB), 0);
    int64_t *value = (int64_t *)d->ops->base(d), one = 1;
    struct ckpt_view out = {.data = value};
    struct ckpt_kernel_args args = {.n_out = 1, .out = &out, .attr = &one};
    *value = 0;
    for (int i = 0; i < 1000; i++) /* more than the ring holds */
        d->ops->compute(d, QUEUE_COMPUTE, add_kernel, &args, NULL);
    assert_int_equal(d->ops->sync(d), 0);
    assert_int_equal(*value, 1000);
    d->ops->close(d);
}

/* A value passes through copy-in, compute and copy-out in a loop; every hop is ordered by an event.
 * */
static void test_events_between_queues(void **state)
{
    (void)state;
    struct device *d = open_device(MIB);
    assert_int_equal(d->ops->map(d, MIB), 0);
    assert_int_equal(d->ops->events(d, 3), 0);
    int64_t *value = (int64_t *)d->ops->base(d), in = 0, back = 0, three = 3;
    struct ckpt_view out = {.data = value};
    struct ckpt_kernel_args args = {.n_out = 1, .out = &out, .attr = &three};
    for (int round = 0; round < 500; round++) {
        if (round)
            d->ops->wait(d, QUEUE_COPY_IN, 2);
        d->ops->copy(d, QUEUE_COPY_IN, value, round ? &back : &in, sizeof in);
        d->ops->record(d, QUEUE_COPY_IN, 0);
        d->ops->wait(d, QUEUE_COMPUTE, 0);
        d->ops->compute(d, QUEUE_COMPUTE, add_kernel, &args, NULL);
        d->ops->record(d, QUEUE_COMPUTE, 1);
        d->ops->wait(d, QUEUE_COPY_OUT, 1);
        d->ops->copy(d, QUEUE_COPY_OUT, &back, value, sizeof back);
        d->ops->record(d, QUEUE_COPY_OUT, 2);
    }
    assert_int_equal(d->ops->sync(d), 0);
    assert_int_equal(back, 1500);
    d->ops->close(d);
}

static void test_arena_keeps_its_base_and_contents(void **state)
{
    (void)state;
    struct device *d = open_device(8 * MIB);
    char *base = d->ops->base(d);
    assert_int_equal(d->ops->map(d, 1000), 0);
    memset(base, 7, 1000);
    assert_int_equal(d->ops->map(d, 8 * MIB), 0);
    assert_ptr_equal(base, d->ops->base(d));
    assert_int_equal(base[999], 7);
    base[8 * MIB - 1] = 1;
    assert_int_equal(d->ops->map(d, 9 * MIB), CKPT_ENOMEM); /* beyond what was reserved */
    assert_int_equal(d->ops->map(d, 4096), 0);
    assert_int_equal(base[999], 7);
    assert_int_equal(d->ops->map(d, 8 * MIB), 0);
    assert_int_equal(base[8 * MIB - 1], 0); /* what was unmapped is gone */
    d->ops->close(d);
}

static void test_failure_is_kept_and_stops_kernels(void **state)
{
    (void)state;
    struct device *d = open_device(MIB);
    assert_int_equal(d->ops->map(d, MIB), 0);
    int64_t *value = (int64_t *)d->ops->base(d), one = 1;
    struct ckpt_view out = {.data = value};
    struct ckpt_kernel_args add = {.n_out = 1, .out = &out, .attr = &one, .op = 4};
    struct ckpt_kernel_args fail = {.op = 17};
    *value = 0;
    d->ops->compute(d, QUEUE_COMPUTE, add_kernel, &add, NULL);
    d->ops->compute(d, QUEUE_COMPUTE, failing_kernel, &fail, NULL);
    d->ops->compute(d, QUEUE_COMPUTE, add_kernel, &add, NULL);
    assert_int_equal(d->ops->sync(d), CKPT_EDEVICE);
    assert_int_equal(d->failed_op, 17);
    assert_int_equal(*value, 1);
    d->ops->compute(d, QUEUE_COMPUTE, add_kernel, &add, NULL);
    assert_int_equal(d->ops->sync(d), 0);
    assert_int_equal(*value, 2);
    d->ops->close(d);
}

static void test_fill(void **state)
{
    (void)state;
    struct device *d = open_device(MIB);
    assert_int_equal(d->ops->map(d, MIB), 0);
    d->ops->fill(d, QUEUE_COMPUTE, d->ops->base(d), 0xff, 4);
    assert_int_equal(d->ops->sync(d), 0);
    float f;
    memcpy(&f, d->ops->base(d), sizeof f);
    assert_true(f != f);
    d->ops->close(d);
}

/* A stand-in for a file: one number, and how often it was read. */
struct number {
    int64_t value, calls, fail_at;
};

static int store(void *user, int64_t offset, void *host, int64_t bytes)
{
    struct number *n = user;
    if (n->calls++ == n->fail_at)
        return CKPT_EIO;
    memcpy((char *)&n->value + offset, host, (size_t)bytes);
    return 0;
}

static int load(void *user, int64_t offset, void *host, int64_t bytes)
{
    memcpy(host, (char *)&((struct number *)user)->value + offset, (size_t)bytes);
    return 0;
}

/* In a loop: device, host, file, host, device; every hop is ordered by an event. */
static void go_round(struct device *d, struct number *file, int rounds)
{
    static int64_t out, in;
    int64_t *value = (int64_t *)d->ops->base(d);
    static int64_t one = 1;
    static struct ckpt_view view;
    view.data = value;
    struct ckpt_kernel_args args = {.n_out = 1, .out = &view, .attr = &one};
    struct device_io write = {store, file, 0, sizeof out, &out, file, 5, 0, NULL};
    struct device_io read = {load, file, 0, sizeof in, &in, file, 6, 0, NULL};
    for (int round = 0; round < rounds; round++) {
        write.step = read.step = round;
        d->ops->wait(d, QUEUE_COMPUTE, 4);
        d->ops->compute(d, QUEUE_COMPUTE, add_kernel, &args, NULL);
        d->ops->record(d, QUEUE_COMPUTE, 0);
        d->ops->wait(d, QUEUE_COPY_OUT, 0);
        d->ops->copy(d, QUEUE_COPY_OUT, &out, value, sizeof out);
        d->ops->signal(d, QUEUE_COPY_OUT, 1);
        d->ops->wait(d, QUEUE_WRITE, 1);
        assert_int_equal(d->ops->io(d, QUEUE_WRITE, &write), 0);
        d->ops->record(d, QUEUE_WRITE, 2);
        d->ops->wait(d, QUEUE_READ, 2);
        assert_int_equal(d->ops->io(d, QUEUE_READ, &read), 0);
        d->ops->record(d, QUEUE_READ, 3);
        d->ops->wait(d, QUEUE_COPY_IN, 3);
        d->ops->copy(d, QUEUE_COPY_IN, value, &in, sizeof in);
        d->ops->record(d, QUEUE_COPY_IN, 4);
    }
}

/* Queues note the time in order, on one clock. */
static void test_stamps(void **state)
{
    (void)state;
    struct device *d = open_device(MIB);
    assert_int_equal(d->ops->map(d, MIB), 0);
    assert_int_equal(d->ops->events(d, 1), 0);
    double before = clock_seconds(), compute[2] = {NAN, NAN}, copy[2] = {NAN, NAN};
    d->ops->stamp(d, QUEUE_COMPUTE, &compute[0]);
    d->ops->fill(d, QUEUE_COMPUTE, d->ops->base(d), 0, 4096);
    d->ops->stamp(d, QUEUE_COMPUTE, &compute[1]);
    d->ops->record(d, QUEUE_COMPUTE, 0);
    d->ops->wait(d, QUEUE_COPY_OUT, 0);
    d->ops->stamp(d, QUEUE_COPY_OUT, &copy[0]);
    d->ops->stamp(d, QUEUE_COPY_OUT, &copy[1]);
    assert_int_equal(d->ops->sync(d), 0);
    assert_true(compute[0] >= before && compute[1] >= compute[0]);
    assert_true(copy[0] >= compute[1] && copy[1] >= copy[0] && clock_seconds() >= copy[1]);
    d->ops->close(d);
}

static void test_files_between_queues(void **state)
{
    (void)state;
    struct device *d = open_device(MIB);
    struct number file = {.fail_at = -1};
    assert_int_equal(d->ops->map(d, MIB), 0);
    assert_int_equal(d->ops->events(d, 5), 0);
    *(int64_t *)d->ops->base(d) = 0;
    go_round(d, &file, 400);
    assert_int_equal(d->ops->sync(d), 0);
    assert_int_equal(*(int64_t *)d->ops->base(d), 400);
    assert_int_equal(file.value, 400);
    d->ops->close(d);
}

/* The failed operation is known, no later one runs, and a mark does not hide it. */
static void test_failed_file(void **state)
{
    (void)state;
    struct device *d = open_device(MIB);
    struct number file = {.fail_at = 30};
    assert_int_equal(d->ops->map(d, MIB), 0);
    assert_int_equal(d->ops->events(d, 5), 0);
    *(int64_t *)d->ops->base(d) = 0;
    go_round(d, &file, 100);
    for (int q = 0; q < QUEUE_COUNT; q++)
        d->ops->mark(d, 0, (enum queue)q);
    assert_int_equal(d->ops->reach(d, 0, NULL), CKPT_EIO);
    assert_ptr_equal(d->failed_io.owner, &file);
    assert_int_equal(d->failed_io.what, 5);
    assert_int_equal(d->failed_io.step, 30);
    assert_int_equal(d->failed_op, -1);
    assert_int_equal(file.value, 30);
    assert_int_equal(file.calls, 31);
    assert_int_equal(*(int64_t *)d->ops->base(d), 31);
    assert_int_equal(d->ops->sync(d), 0);
    assert_null(d->failed_io.call);
    d->ops->close(d);
}

/* ---- file operations begun ahead of their turn ------------------------------------------------
 */

static char said[16];
static int open_gates; /* of wait_kernel */

static void say(char c)
{
    said[strlen(said)] = c;
}

static void begin_letter(void *user, int64_t offset, void *host, int64_t bytes)
{
    (void)offset, (void)host, (void)bytes;
    say(*(const char *)user);
}

/* Signals that it runs; whoever waits for B may continue after it. */
static int call_letter(void *user, int64_t offset, void *host, int64_t bytes)
{
    (void)offset, (void)host, (void)bytes;
    say((char)(*(const char *)user + 'A' - 'a'));
    if (*(const char *)user == 'b')
        __atomic_store_n(&open_gates, 2, __ATOMIC_SEQ_CST);
    return 0;
}

static int wait_kernel(const struct ckpt_kernel_args *a)
{
    while (__atomic_load_n(&open_gates, __ATOMIC_SEQ_CST) < *(const int *)a->attr)
        ;
    return 0;
}

/* The next operation starts early unless an event before it is still pending. */
static void test_files_begin_ahead(void **state)
{
    (void)state;
    static const int gates[] = {1, 2};
    struct device *d = open_device(MIB);
    assert_int_equal(d->ops->events(d, 3), 0);
    for (int32_t i = 0; i < 2; i++) {
        struct ckpt_kernel_args args = {.attr = &gates[i]};
        d->ops->compute(d, QUEUE_COMPUTE, wait_kernel, &args, NULL);
        d->ops->record(d, QUEUE_COMPUTE, i);
    }
    d->ops->wait(d, QUEUE_READ, 0);
    for (const char *c = "abc"; *c; c++) {
        struct device_io io = {.call = call_letter, .begin = begin_letter, .user = (void *)c};
        if (*c == 'c')
            d->ops->wait(d, QUEUE_READ, 1);
        assert_int_equal(d->ops->io(d, QUEUE_READ, &io), 0);
        d->ops->record(d, QUEUE_READ, 2);
    }
    __atomic_store_n(&open_gates, 1, __ATOMIC_SEQ_CST);
    assert_int_equal(d->ops->sync(d), 0);
    assert_string_equal(said, "abABcC");
    d->ops->close(d);
}

static int call_gate(void *user, int64_t offset, void *host, int64_t bytes)
{
    (void)offset, (void)host, (void)bytes;
    while (__atomic_load_n(&open_gates, __ATOMIC_SEQ_CST) < *(const int *)user)
        usleep(1000);
    return 0;
}

/* An operation that never ends: later submissions, more than a queue holds, are dropped
 * immediately. */
static void test_much_behind_a_hang(void **state)
{
    static int gate = 3;
    struct device *d = open_device(MIB);
    struct device_io io = {.call = call_gate, .user = &gate};
    double start = clock_seconds();
    (void)state;
    d->ops->deadline(d, 0.2);
    assert_int_equal(d->ops->events(d, 1), 0);
    assert_int_equal(d->ops->io(d, QUEUE_READ, &io), 0);
    for (int i = 0; i < 800; i++)
        d->ops->record(d, QUEUE_READ, 0);
    assert_int_equal(d->ops->sync(d), CKPT_EIO);
    assert_true(clock_seconds() - start < 8);
    assert_false(d->ops->stop(d));
    __atomic_store_n(&open_gates, gate, __ATOMIC_SEQ_CST); /* it ends after all */
    d->ops->close(d);
    usleep(100000);
}

/* OpenBLAS does not know processors that are newer than itself, and takes kernels for SSE3; those
 * for the newest instructions are asked for, unless the user asks for others. */
static void test_kernels_of_products(void **state)
{
    (void)state;
    char *(*chosen)(void);
    struct device *d = open_device(MIB);
    void *library = dlopen(OPENBLAS_FILE, RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(library);
    *(void **)&chosen = dlsym(library, "openblas_get_corename");
    const char *asked = getenv("OPENBLAS_CORETYPE");
    print_message("products: kernels for %s\n", chosen ? chosen() : "?");
#ifdef __x86_64__
    if (chosen && !asked && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        assert_string_not_equal(chosen(), "Prescott");
#endif
    if (chosen && asked && !strcmp(asked, "Prescott"))
        assert_string_equal(chosen(), "Prescott");
    assert_true(getenv("OPENBLAS_CORETYPE") == asked); /* the environment is as before */
    assert_null(getenv("OPENBLAS_NUM_THREADS"));
    dlclose(library);
    d->ops->close(d);
}

int main(void)
{
    unsetenv("OPENBLAS_NUM_THREADS");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernels_of_products),
        cmocka_unit_test(test_order_within_a_queue),
        cmocka_unit_test(test_events_between_queues),
        cmocka_unit_test(test_arena_keeps_its_base_and_contents),
        cmocka_unit_test(test_failure_is_kept_and_stops_kernels),
        cmocka_unit_test(test_fill),
        cmocka_unit_test(test_stamps),
        cmocka_unit_test(test_files_between_queues),
        cmocka_unit_test(test_files_begin_ahead),
        cmocka_unit_test(test_much_behind_a_hang),
        cmocka_unit_test(test_failed_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
