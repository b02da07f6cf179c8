/* SPDX-License-Identifier: Apache-2.0 */
/* The rates between host and device, on a device whose copies take a known time or fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>
#include <cmocka.h>
#include "memory/device/device.h"
#include "measure/link_rates.h"
#include "plan/graph/machine.h"

enum { BYTES = 1 << 18 };

/* The CPU device with other copies: one that takes 2 ms out of the arena and 4 into it, and fails
 * from the one on whose number is `fails`. */
static struct {
    struct device_ops ops;
    const struct device_ops *real;
    int copies, fails;
    double owed; /* seconds until what was handed over has ended */
} fake;

static void fake_copy(struct device *d, enum queue q, void *dst, const void *src, int64_t bytes)
{
    (void)d;
    (void)dst;
    (void)src;
    (void)bytes;
    fake.copies++;
    fake.owed += q == QUEUE_COPY_OUT ? 2e-3 : 4e-3;
}

static int fake_sync(struct device *d)
{
    struct timespec t = {.tv_nsec = (long)(fake.owed * 1e9)};

    nanosleep(&t, NULL);
    fake.owed = 0;
    return fake.fails && fake.copies >= fake.fails ? CKPT_EDEVICE : fake.real->sync(d);
}

static int time_rates(int fails, struct machine *m)
{
    struct device *d = NULL;
    char *host = malloc(LINK_HOST * BYTES);

    assert_non_null(host);
    assert_int_equal(device_open_cpu(&d, LINK_ARENA * BYTES, 1), 0);
    assert_int_equal(d->ops->map(d, LINK_ARENA * BYTES), 0);
    fake.real = d->ops;
    fake.ops = *d->ops;
    fake.ops.copy = fake_copy;
    fake.ops.sync = fake_sync;
    fake.copies = 0;
    fake.fails = fails;
    d->ops = &fake.ops;
    struct link_space space = {d->ops->base(d), host, BYTES};
    int rc = link_rates_time(d, &space, 1, m);
    d->ops = fake.real;
    d->ops->close(d);
    free(host);
    return rc;
}

/* Sleeping may take longer than requested, never less: measured rates are at most the true rates.
 * */
static void test_rates(void **state)
{
    struct machine m = machine_cuda;

    (void)state;
    assert_int_equal(time_rates(0, &m), 0);
    assert_true(m.d2h > 0 && m.d2h <= BYTES / 2e-3);
    assert_true(m.h2d > 0 && m.h2d <= BYTES / 4e-3);
    assert_true(m.d2h_both > 0 && m.d2h_both <= BYTES / 6e-3);
    assert_true(m.h2d_both == m.d2h_both);
    assert_true(m.host_update > 0 && m.host_update != machine_cuda.host_update);
}

static void test_failure(void **state)
{
    struct machine m = machine_cuda;

    (void)state;
    assert_int_equal(time_rates(1, &m), CKPT_EDEVICE);
    assert_true(m.d2h == machine_cuda.d2h && m.d2h_both == machine_cuda.d2h_both);
    assert_true(m.host_update == machine_cuda.host_update);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rates),
        cmocka_unit_test(test_failure),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
