/* SPDX-License-Identifier: Apache-2.0 */
/* A host tier of which the device pins nothing or a part: the same numbers, a plan that is priced
 * for it, and a table that says so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "ckpt_tools.h"
#include "small.h"

static int pin_nothing(void *user, void *base, int64_t bytes)
{
    (void)user, (void)base, (void)bytes;
    return CKPT_ENOMEM;
}

static int pin_all(void *user, void *base, int64_t bytes)
{
    (void)user, (void)base, (void)bytes;
    return 0;
}

static void unpin(void *user, void *base, int64_t bytes)
{
    (void)user, (void)base, (void)bytes;
}

static int (*pin)(void *user, void *base, int64_t bytes);

/* Called between the open and the first plan: gives the context a tier that is pinned. */
static ckpt_optimizer *use_pins(ckpt *c, const struct small *r)
{
    struct tier **t = &c->memory.tiers[TIER_HOST];
    c->memory.pin = (struct tier_pin){.pin = pin, .unpin = unpin};
    (*t)->ops->close(*t);
    if (tier_open_host(t, &(struct tier_host_options){
                              .budget = c->memory.host, .node = -1, .pin = &c->memory.pin}))
        fail_msg("%s", error_get());
    return ckpt_adamw(c, &r->adamw);
}

/* The planned seconds of a step; *r holds its numbers, text the table. */
static double run(struct small *r, int (*pins)(void *, void *, int64_t), char *text, size_t size)
{
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    ckpt *c;
    ckpt_program *p;
    FILE *f = fmemopen(text, size, "w");
    pin = pins;
    r->optimizer = use_pins;
    small_open(r, &c, &p);
    small_train(r, c, p, 0, SMALL_STEPS);
    small_collect(r, c);
    ckpt_program_info(p, &info);
    ckpt_plan_print(p, f);
    fclose(f);
    ckpt_close(c);
    return info.step_seconds;
}

static void test_pageable(void **state)
{
    (void)state;
    struct small pinned = small_make(CKPT_F32, 24, 1, true), pageable;
    struct budgets tiers;
    struct force_count count;
    char plan[64], nvme[64], text[2][8192] = {"", ""};
    small_path(plan, sizeof plan, "pageable-plan");
    small_force(&pinned, &(struct force){.seed = 3, .host = true, .all = true}, plan, &tiers,
                &count);
    small_use_tiers(&pinned, plan, &tiers, nvme);
    pageable = pinned;
    double fast = run(&pinned, pin_all, text[0], sizeof text[0]);
    double slow = run(&pageable, pin_nothing, text[1], sizeof text[1]);
    assert_true(slow > fast);
    assert_non_null(strstr(text[0], ", pinned"));
    assert_non_null(strstr(text[1], ", only 0 B pinned"));
    small_expect_same("pageable", &pinned, &pageable);
    free(pinned.state);
    unlink(plan);
}

/* A budget that the system cannot hold is clipped; the table names the limit. */
static void test_clipped(void **state)
{
    (void)state;
    struct small r = small_make(CKPT_F32, 24, 1, true);
    char text[8192] = "";
    r.options.host = INT64_C(1) << 50;
    run(&r, pin_all, text, sizeof text);
    assert_non_null(strstr(text, "of --host are used: "));
    free(r.state);
}

/* A plan alone may be for a larger machine; the table says what this one leaves. */
static void test_planned(void **state)
{
    (void)state;
    struct small r = small_make(CKPT_F32, 24, 1, true);
    char text[8192] = "";
    FILE *f = fmemopen(text, sizeof text, "w");
    ckpt *c;
    ckpt_program *p;
    r.options.host = INT64_C(1) << 50;
    r.options.plan_only = true;
    small_open(&r, &c, &p);
    ckpt_plan_print(p, f);
    fclose(f);
    ckpt_close(c);
    assert_non_null(strstr(text, "of --host are planned; here "));
    free(r.state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pageable),
                                       cmocka_unit_test(test_clipped),
                                       cmocka_unit_test(test_planned)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
