/* SPDX-License-Identifier: Apache-2.0 */
/* States that a thread writes (options.save_async), and in the memory of an elastic job. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "ckpt_dist.h"
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

/* An elastic job of one rank: a state in memory is that of a file, and the newest is read. */
static void test_in_memory(void **state)
{
    (void)state;
    static char bytes[1 << 20], again[1 << 20];
    struct small r = small_make(CKPT_BF16, WIDTH, 1, true);
    char where[128], lock[128];
    bool formed = true, saved = true;
    int64_t updates = 0;
    ckpt *c;
    ckpt_program *p;
    snprintf(where, sizeof where, "elastic:4:file:%s.meet", path);
    snprintf(lock, sizeof lock, "%s.meet.lock", path);
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "1", 1);
    r.options.ranks = where;
    r.options.host = 8 << 20;
    small_open(&r, &c, &p);
    assert_int_equal(ckpt_job_history(c, &formed, &saved, &updates), 0);
    assert_true(!formed && !saved && updates == -1);
    assert_int_equal(ckpt_load_state(c, CKPT_PEERS), CKPT_EINVAL);
    small_train(&r, c, p, 0, 1);
    assert_int_equal(ckpt_save_state(c, CKPT_PEERS), 0);
    small_train(&r, c, p, 1, FIRST);
    assert_int_equal(ckpt_save_state(c, CKPT_PEERS), 0);
    assert_int_equal(ckpt_save_state(c, path), 0);
    size_t n = read_bytes(bytes, sizeof bytes);
    small_train(&r, c, p, FIRST, FIRST + 1);
    assert_int_equal(ckpt_load_state(c, CKPT_PEERS), 0);
    assert_int_equal(ckpt_updates(c), FIRST);
    assert_int_equal(ckpt_save_state(c, path), 0);
    assert_int_equal(read_bytes(again, sizeof again), n);
    assert_memory_equal(bytes, again, n);
    assert_int_equal(ckpt_job_history(c, &formed, &saved, &updates), 0);
    assert_true(!formed && saved && updates == FIRST);
    assert_true(!ckpt_job_grows(c) && !ckpt_rank_is_lost(c));
    ckpt_close(c);
    r.options.ranks = NULL;
    small_open(&r, &c, &p);
    assert_int_equal(ckpt_save_state(c, CKPT_PEERS), CKPT_EINVAL);
    ckpt_close(c);
    unlink(lock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_async, make_fresh_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_in_memory, make_fresh_dir, remove_dir)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
