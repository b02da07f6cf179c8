/* SPDX-License-Identifier: Apache-2.0 */
/* States that a thread writes (options.save_async). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "ckpt_files.h"
#include "small.h"
#include "unit/test_directory.h"

enum { WIDTH = 24, FIRST = 3 };

static void save_first(struct small *r)
{
    ckpt *c;
    ckpt_program *p;
    small_open(r, &c, &p);
    small_train(r, c, p, 0, FIRST);
    if (ckpt_save_state(c, path))
        fail_msg("%s", ckpt_error(c));
    ckpt_close(c);
}

/* The thread writes the same bytes; a value that is not finite leaves the file; a failure is told
 * by a step, then once by the wait, and training goes on. */
static void test_async(void **state)
{
    (void)state;
    static char bytes[1 << 20], again[1 << 20];
    struct small r = small_make(CKPT_BF16, WIDTH, 1, true);
    float bad[WIDTH];
    ckpt *c;
    ckpt_program *p;
    save_first(&r);
    size_t n = read_bytes(bytes, sizeof bytes);
    r.options.host = 8 << 20;
    r.options.save_async = true;
    save_first(&r); /* ckpt_close waits */
    assert_int_equal(read_bytes(again, sizeof again), n);
    assert_memory_equal(bytes, again, n);
    small_open(&r, &c, &p);
    assert_int_equal(ckpt_load_state(c, path), 0);
    assert_int_equal(ckpt_save_state(c, "/nowhere/state"), 0);
    small_feed(p, &r, FIRST);
    int rc = 0;
    for (int i = 0; i < 60000 && !rc; i++) { /* a minute, on a busy computer */
        usleep(1000);
        rc = params_check_late(&c->params);
    }
    assert_int_equal(ckpt_submit(p), CKPT_EIO);
    assert_non_null(strstr(ckpt_error(c), "/nowhere/state"));
    assert_int_equal(ckpt_save_wait(c), CKPT_EIO);
    assert_non_null(strstr(ckpt_error(c), "/nowhere/state"));
    assert_int_equal(ckpt_save_wait(c), 0);
    assert_int_equal(ckpt_step(p, NULL), 0);
    for (int i = 0; i < WIDTH; i++)
        bad[i] = NAN;
    assert_int_equal(ckpt_param_set(c, r.param[2], CKPT_VALUE, bad, WIDTH), 0);
    assert_int_equal(ckpt_save_state(c, path), 0);
    assert_int_equal(ckpt_save_wait(c), CKPT_ENAN);
    assert_non_null(strstr(ckpt_error(c), "'value/frozen' is not finite"));
    ckpt_close(c);
    assert_int_equal(read_bytes(again, sizeof again), n);
    assert_memory_equal(bytes, again, n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_async, make_fresh_dir, remove_dir)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
