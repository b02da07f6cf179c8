/* SPDX-License-Identifier: Apache-2.0 */
/* Waits between queues at collectives: enough that no queue reads or writes too early, and no more,
 * so that collectives overlap with the steps before them. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>
#include "dist/crew.h"
#include "dist/races.h"

struct seen {
    bool doubt; /* look whether waits can be left out */
    struct races races;
    int32_t needed; /* waits of collectives without which there are races */
    bool found, ordered;
};

/* Collectives are submitted in the order of the plan, all on their queue. */
static bool is_ordered(const struct ckpt_program *p)
{
    int32_t at = 0;
    for (int32_t s = 0; s < p->plan->n_steps; s++) {
        int32_t op = p->graph->ops[p->plan->steps[s].op].tape_op;
        if (!collective_is(p->tape->ops.data[op].def))
            continue;
        while (at < p->lowered.n_instrs && (p->lowered.instrs.data[at].kind != INSTR_COMPUTE ||
                                            p->lowered.instrs.data[at].queue != QUEUE_COMM))
            at++;
        if (at == p->lowered.n_instrs || p->lowered.instrs.data[at++].op != op)
            return false;
    }
    return true;
}

static void look(const ckpt_program *p, void *user)
{
    struct seen *seen = user;
    struct races r;
    seen->found = races_find(p, -1, &seen->races);
    seen->ordered = is_ordered(p);
    for (int32_t i = 0; i < p->lowered.n_instrs && seen->doubt; i++) {
        const struct instr *wait = &p->lowered.instrs.data[i];
        if (wait->kind != INSTR_WAIT || wait->queue != QUEUE_COMM)
            continue;
        seen->needed += races_find(p, i, &r) && r.pairs > 0;
    }
}

static struct seen check(struct crew crew, bool doubt)
{
    struct seen seen = {.doubt = doubt};
    struct crew_result r;
    crew.steps = 1;
    crew.look = look;
    crew.user = &seen;
    crew_train(&crew, &r);
    for (int i = 0; i < crew.ranks; i++)
        if (r.rc[i])
            fail_msg("rank %d, stage %d: %s", i, crew.zero, r.message[i]);
    crew_free(&r);
    assert_true(seen.found && seen.ordered);
    if (seen.races.pairs)
        fail_msg("stage %d: %lld races, the first of %s", crew.zero, (long long)seen.races.pairs,
                 seen.races.first);
    return seen;
}

static void test_stages(void **state)
{
    (void)state;
    for (int zero = 1; zero <= 3; zero += 2) {
        struct seen seen = check(crew_small(2, zero, 0), zero == 3);
        assert_true(seen.races.under > 0);
        assert_true(seen.races.ahead > 0 || zero < 2); /* gathers */
        assert_true(seen.needed > 0 || zero < 3);
    }
    check(crew_small(2, 3, 3), false);
}

static int64_t smallest(struct crew crew)
{
    struct crew_result r;
    crew.steps = 1;
    crew.in_full = true;
    crew_train(&crew, &r);
    int64_t budget = r.info[0].min_budget;
    assert_true(budget > 0);
    crew_free(&r);
    return budget;
}

static void test_small_budget(void **state)
{
    struct crew crew = crew_small(2, 3, 0);
    (void)state;
    crew.options.vram = smallest(crew);
    crew.options.verify = true;
    check(crew, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_small_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
