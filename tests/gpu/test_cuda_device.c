/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA device alone: arena, order between queues, failures, recorded steps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "kernels/cuda/kernels.h"
#include "memory/device/cuda_watch.h"
#include "memory/device/device.h"

enum { MIB = 1 << 20, N = 1 << 20 };

static struct device *device; /* NULL: there is no GPU here */

/* y = gelu(x) on n floats; the test only depends on its order, not on its result. */
static void gelu(enum queue q, float *y, float *x)
{
    struct ckpt_desc d = {.ndim = 1, .shape = {N}, .stride = {1}};
    struct ckpt_view in = {x, d}, out = {y, d};
    struct ckpt_kernel_args a = {.n_in = 1, .n_out = 1, .in = &in, .out = &out, .op = 3};
    device->ops->compute(device, q, cuda_gelu, &a, NULL);
}

static int refuse(const struct ckpt_kernel_args *a)
{
    (void)a;
    return CKPT_EINVAL;
}

static void test_arena_keeps_its_base_and_contents(void **state)
{
    (void)state;
    const struct device_ops *ops = device->ops;
    char *base = ops->base(device), *host = ops->host_alloc(device, MIB);
    assert_non_null(host);
    assert_int_equal(ops->map(device, MIB), 0);
    int64_t outside = ops->overhead(device);
    memset(host, 7, MIB);
    ops->copy(device, QUEUE_COPY_IN, base, host, MIB);
    assert_int_equal(ops->sync(device), 0);
    assert_int_equal(ops->map(device, 512 * MIB), 0);
    assert_ptr_equal(ops->base(device), base);
    assert_int_equal(ops->overhead(device), outside); /* the arena is not counted */
    ops->fill(device, QUEUE_COMPUTE, base + 511 * (int64_t)MIB, 1, MIB);
    memset(host, 0, MIB);
    ops->copy(device, QUEUE_COMPUTE, host, base, MIB);
    assert_int_equal(ops->sync(device), 0);
    assert_true(host[0] == 7 && host[MIB - 1] == 7);
    assert_int_equal(ops->map(device, INT64_MAX / 2), CKPT_ENOMEM);
    assert_int_equal(ops->map(device, 0), 0);
    ops->host_free(device, host);
}

/* A value passes through copy-in, compute and copy-out; an event orders each transfer. */
static void hand_over(float *in, float *out, float *host)
{
    const struct device_ops *ops = device->ops;
    ops->record(device, QUEUE_COMPUTE, 0);
    ops->wait(device, QUEUE_COPY_IN, 0);
    ops->copy(device, QUEUE_COPY_IN, in, host, N * 4);
    ops->record(device, QUEUE_COPY_IN, 1);
    ops->wait(device, QUEUE_COMPUTE, 1);
    gelu(QUEUE_COMPUTE, out, in);
    gelu(QUEUE_COMPUTE, in, out);
    ops->record(device, QUEUE_COMPUTE, 2);
    ops->wait(device, QUEUE_COPY_OUT, 2);
    ops->copy(device, QUEUE_COPY_OUT, host + N, in, N * 4);
    ops->record(device, QUEUE_COPY_OUT, 3);
    ops->wait(device, QUEUE_COMPUTE, 3);
}

static void mark_all(int flight)
{
    for (int q = 0; q < QUEUE_COUNT; q++)
        device->ops->mark(device, flight, (enum queue)q);
}

static void test_recorded_step_does_the_same(void **state)
{
    (void)state;
    const struct device_ops *ops = device->ops;
    struct device_step *step = NULL;
    assert_int_equal(ops->map(device, 64 * MIB), 0);
    assert_int_equal(ops->events(device, 4), 0);
    float *in = (float *)ops->base(device), *out = in + N;
    float *host = ops->host_alloc(device, 2 * N * 4), *kept = malloc(N * 4);
    for (int i = 0; i < N; i++)
        host[i] = (float)(i % 1000) * 0.01f - 5.f;
    hand_over(in, out, host);
    mark_all(0);
    assert_int_equal(ops->reach(device, 0, NULL), 0);
    memcpy(kept, host + N, N * 4);
    assert_true(kept[0] != 0 && kept[999] > 4);
    ops->begin(device, false);
    hand_over(in, out, host);
    assert_int_equal(ops->end(device, &step), 0);
    for (int round = 0; round < 20; round++) {
        memset(host + N, 0, N * 4);
        ops->replay(device, step);
        mark_all(round % 2);
        assert_int_equal(ops->reach(device, round % 2, NULL), 0);
        assert_memory_equal(kept, host + N, N * 4);
    }
    ops->forget(device, step);
    ops->host_free(device, host);
    free(kept);
}

/* Other queues wait for events of a recorded part; each replay records them again.  The copy runs
 * after the kernel in the middle of the part. */
static void test_events_of_a_part(void **state)
{
    (void)state;
    const struct device_ops *ops = device->ops;
    struct device_step *step = NULL;
    assert_int_equal(ops->map(device, 512 * MIB), 0);
    assert_int_equal(ops->events(device, 4), 0);
    char *base = ops->base(device), *host = ops->host_alloc(device, 256 * MIB);
    ops->begin(device, true);
    ops->copy(device, QUEUE_COMPUTE, base + 256 * (int64_t)MIB, base, 256 * MIB);
    ops->record(device, QUEUE_COMPUTE, 0);
    ops->copy(device, QUEUE_COMPUTE, base, base + 256 * (int64_t)MIB, 256 * MIB);
    assert_int_equal(ops->end(device, &step), 0);
    for (int round = 1; round <= 20; round++) {
        ops->fill(device, QUEUE_COMPUTE, base, round, 256 * MIB);
        ops->replay(device, step);
        ops->wait(device, QUEUE_COPY_OUT, 0);
        ops->copy(device, QUEUE_COPY_OUT, host, base + 256 * (int64_t)MIB, 256 * MIB);
        assert_int_equal(ops->sync(device), 0);
        assert_true(host[0] == round && host[256 * MIB - 1] == round);
    }
    ops->forget(device, step);
    ops->host_free(device, host);
}

static void test_failure_is_kept_until_sync(void **state)
{
    (void)state;
    const struct device_ops *ops = device->ops;
    struct ckpt_kernel_args a = {.op = 17};
    ops->compute(device, QUEUE_COMPUTE, refuse, &a, NULL);
    assert_int_equal(ops->sync(device), CKPT_EINVAL);
    assert_int_equal(device->failed_op, 17);
    assert_int_equal(ops->sync(device), 0);
}

static void test_kernel_is_timed(void **state)
{
    (void)state;
    double seconds = -1;
    assert_int_equal(device->ops->map(device, 64 * MIB), 0);
    float *in = (float *)device->ops->base(device);
    struct ckpt_desc d = {.ndim = 1, .shape = {N}, .stride = {1}};
    struct ckpt_view x = {in, d}, y = {in + N, d};
    struct ckpt_kernel_args a = {.n_in = 1, .n_out = 1, .in = &x, .out = &y};
    double start = -1, end = -1, before = clock_seconds();
    device->ops->stamp(device, QUEUE_COMPUTE, &start);
    device->ops->compute(device, QUEUE_COMPUTE, cuda_gelu, &a, &seconds);
    device->ops->stamp(device, QUEUE_COMPUTE, &end);
    assert_int_equal(device->ops->sync(device), 0);
    assert_true(seconds > 0 && seconds < 1);
    assert_true(start >= before - 1e-3 && end >= start + seconds - 1e-6);
    assert_true(end <= clock_seconds() + 1e-3);
}

static int see_nothing(void *user, int32_t *op)
{
    (void)user;
    (void)op;
    return 0;
}

/* A watched wait polls the stream, which reports "not ready"; the next kernel must not fail because
 * of that. */
static void test_kernel_behind_a_watched_wait(void **state)
{
    (void)state;
    const struct device_ops *ops = device->ops;
    assert_int_equal(ops->map(device, 512 * MIB), 0);
    char *base = ops->base(device);
    device->poll = see_nothing;
    for (int i = 0; i < 100; i++) /* some ten milliseconds */
        ops->fill(device, QUEUE_COMPUTE, base, i, 512 * MIB);
    assert_int_equal(ops->sync(device), 0);
    device->poll = NULL;
    gelu(QUEUE_COMPUTE, (float *)base, (float *)base + N);
    assert_int_equal(ops->sync(device), 0);
}

static void hold(void *user)
{
    while (!__atomic_load_n((int *)user, __ATOMIC_ACQUIRE))
        usleep(1000);
}

/* A stand-in for a copy that never ends, queued after work that may take long. */
static void test_a_copy_without_end(void **state)
{
    (void)state;
    struct cuda_watch *w = calloc(1, sizeof *w);
    cudaStream_t stream;
    int go[2] = {0, 0};
    assert_int_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    assert_int_equal(cudaLaunchHostFunc(stream, hold, &go[0]), cudaSuccess);
    cuda_watch_begin(w, QUEUE_COPY_IN, stream, MIB);
    assert_int_equal(cudaLaunchHostFunc(stream, hold, &go[1]), cudaSuccess);
    cuda_watch_end(w, QUEUE_COPY_IN, stream);
    for (int i = 0; i < 50; i++) {
        assert_false(cuda_watch_poll(w, 0.1)); /* it has not begun */
        usleep(10000);
    }
    assert_true(cuda_watch_busy(w));
    __atomic_store_n(&go[0], 1, __ATOMIC_RELEASE);
    for (int i = 0; i < 500 && !cuda_watch_poll(w, 0.1); i++)
        usleep(10000);
    assert_true(w->lost);
    assert_non_null(strstr(w->reason, "to the device: not finished within 0.1 s"));
    __atomic_store_n(&go[1], 1, __ATOMIC_RELEASE);
    assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
    w->lost = false;
    assert_false(cuda_watch_poll(w, 0.1));
    assert_false(cuda_watch_busy(w));
    cuda_watch_close(w);
    cudaStreamDestroy(stream);
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arena_keeps_its_base_and_contents),
        cmocka_unit_test(test_recorded_step_does_the_same),
        cmocka_unit_test(test_events_of_a_part),
        cmocka_unit_test(test_failure_is_kept_until_sync),
        cmocka_unit_test(test_kernel_is_timed),
        cmocka_unit_test(test_kernel_behind_a_watched_wait),
        cmocka_unit_test(test_a_copy_without_end),
    };
    if (device_open_cuda(&device, 0, true)) {
        printf("skipped: %s\n", error_get());
        return 77;
    }
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    device->ops->close(device);
    return rc;
}
