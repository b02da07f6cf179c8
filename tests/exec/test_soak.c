/* SPDX-License-Identifier: Apache-2.0 */
/* 2,000 steps: the arena never changes, and resident memory is flat after the first 50. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "ckpt_tools.h"
#include "plan/one_search.h"
#include "tiny.h"

enum { STEPS = 2000, SETTLED = 50 };

static int64_t resident_bytes(void)
{
    long pages = 0, ignored = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%ld %ld", &ignored, &pages) != 2)
        pages = -1;
    if (f)
        fclose(f);
    return pages * sysconf(_SC_PAGESIZE);
}

static void feed(ckpt_program *p, const struct tiny *m, int step, float *x)
{
    int64_t nx = m->batch * m->length * m->width, nc = m->batch * m->width;
    ckpt_fill_normal(7, (uint64_t)step, 1, x, nx + nc);
    assert_int_equal(ckpt_feed(p, "x", x, nx * 4), 0);
    assert_int_equal(ckpt_feed(p, "c", x + nx, nc * 4), 0);
}

static void test_soak(void **state)
{
    (void)state;
    struct tiny m = {.dtype = CKPT_BF16, .batch = 2, .length = 8, .width = 16, .heads = 2};
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct ckpt_adamw a = CKPT_ADAMW_INIT;
    struct ckpt_program_info first = CKPT_PROGRAM_INFO_INIT, now = CKPT_PROGRAM_INFO_INIT;
    float x[2 * 8 * 16 + 2 * 16];
    int64_t settled = 0;
    ckpt *c;
    ckpt_program *p;
    o.micro_batch = 1;
    a.ema_decay = 0.9f;
    assert_int_equal(ckpt_open(&c, &o), 0);
    tiny_create(&m, c);
    assert_int_equal(ckpt_compile(c, tiny_record, &m, ckpt_adamw(c, &a), m.batch, &p), 0);
    ckpt_program_info(p, &first);
    for (int s = 0; s < STEPS; s++) {
        feed(p, &m, s, x);
        assert_int_equal(ckpt_step(p, NULL), 0);
        ckpt_program_info(p, &now);
        assert_int_equal(now.arena_bytes, first.arena_bytes);
        if (s == SETTLED)
            settled = resident_bytes();
    }
    int64_t grown = resident_bytes() - settled;
    print_message("resident %lld bytes after %d steps, %+lld after %d\n", (long long)settled,
                  SETTLED, (long long)grown, STEPS);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(settled > 0 && grown <= 128 * 1024);
#endif
    assert_int_equal(now.steps, STEPS);
    ckpt_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_soak)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
