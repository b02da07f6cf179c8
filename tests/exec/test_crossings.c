/* SPDX-License-Identifier: Apache-2.0 */
/* Combinations of two or three features that have tests of their own. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>
#include "exec/small.h"
#include "plan/one_search.h"

/* ---- frozen groups and lower tiers: the smallest budget is one ------------------------------- */

/* A frozen table and a trained head, large enough to be offloaded. */
enum { TOKENS = 20000, WIDTH = 128, LENGTH = 8, BATCH = 8, LAYERS = 4 };

struct model {
    enum ckpt_dtype dtype;
    ckpt_tensor table, head, w[LAYERS];
};

static ckpt_tensor record(ckpt_tape *t, int64_t n, void *user)
{
    const struct model *m = user;
    ckpt_tensor token = ckpt_input(t, "token", CKPT_I32, 2, (int64_t[]){n, LENGTH});
    ckpt_tensor h = ckpt_embedding(t, m->table, token, -1);
    for (int i = 0; i < LAYERS; i++)
        h = ckpt_add(t, h, ckpt_tanh(t, ckpt_linear(t, h, m->w[i], CKPT_NONE)));
    return ckpt_cross_entropy(t, ckpt_linear(t, h, m->head, CKPT_NONE), token, NULL);
}

/* Returns the compile's code; *least is the smallest budget in its message. */
static int plan(enum ckpt_dtype dtype, int64_t vram, int64_t host, const char *nvme, int64_t *least)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct ckpt_optimizer_group frozen = CKPT_OPTIMIZER_GROUP_INIT;
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    struct model m = {.dtype = dtype};
    const int64_t rows[] = {TOKENS, WIDTH}, square[] = {WIDTH, WIDTH};
    ckpt_program *p = NULL;
    ckpt *c;
    o.device = "cpu";
    o.threads = 1;
    o.plan_only = o.verify = true;
    o.vram = vram;
    o.host = host;
    o.nvme = nvme;
    adamw.ema_decay = .9f;
    frozen.frozen = true;
    if (ckpt_open(&c, &o))
        fail_msg("%s", ckpt_error(NULL));
    m.table = ckpt_param(c, "table", dtype, 2, rows, CKPT_ZEROS, true);
    m.head = ckpt_param(c, "head", dtype, 2, rows, CKPT_ZEROS, true);
    for (int i = 0; i < LAYERS; i++) {
        char name[8];
        snprintf(name, sizeof name, "w%d", i);
        m.w[i] = ckpt_param(c, name, dtype, 2, square, CKPT_ZEROS, true);
    }
    ckpt_optimizer *optimizer = ckpt_adamw(c, &adamw);
    assert_int_equal(ckpt_optimizer_group(optimizer, "table", &frozen), 0);
    assert_int_equal(ckpt_optimizer_group(optimizer, "w[01]", &frozen), 0);
    int rc = ckpt_compile(c, record, &m, optimizer, BATCH, &p);
    if (rc)
        print_message("%s\n", ckpt_error(c));
    else
        ckpt_program_info(p, &info);
    *least = info.min_budget;
    ckpt_close(c);
    return rc;
}

static void check_smallest(enum ckpt_dtype dtype, int64_t host, const char *nvme)
{
    int64_t least, again;
    assert_int_equal(plan(dtype, INT64_C(1) << 40, host, nvme, &least), 0);
    assert_int_equal(plan(dtype, least, host, nvme, &again), 0);
    assert_int_equal(least, again);
}

static void test_smallest(void **state)
{
    const int64_t host = INT64_C(800) << 20;
    (void)state;
    check_smallest(CKPT_F32, 0, ".:800M");
    check_smallest(CKPT_BF16, 0, ".:800M");
    check_smallest(CKPT_F32, host, NULL);
    check_smallest(CKPT_BF16, host, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_smallest)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
