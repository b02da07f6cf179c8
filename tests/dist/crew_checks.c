/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of crews: see crew_checks.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>
#include "dist/crew_checks.h"

/* A deadline for events that must not be late, however busy the machine is. */
enum { PATIENCE = 60 };

void crew_expect_end(const struct crew *crew, struct crew_result *r)
{
    crew_train(crew, r);
    for (int i = 0; i < crew->ranks; i++)
        if (r->rc[i])
            fail_msg("rank %d of %d, stage %d: %s", i, crew->ranks, crew->zero, r->message[i]);
}

void crew_expect_code(const struct crew *crew, int code, const char *const *words)
{
    struct crew_result r;
    crew_train(crew, &r);
    for (int i = 0; i < crew->ranks; i++) {
        if (crew->fault.kind == COMM_FAULT_KILL && i == crew->faulty)
            continue;
        assert_int_equal(r.rc[i], code);
        for (const char *const *w = words; *w; w++)
            if (!strstr(r.message[i], *w))
                fail_msg("rank %d says \"%s\", without \"%s\"", i, r.message[i], *w);
    }
    crew_free(&r);
}

void crew_expect_fault(struct crew crew, enum comm_fault_kind kind, int64_t call, int to, int step,
                       double late)
{
    static const char *const outcomes[] = {
        [COMM_FAULT_DROP] = "was lost",
        [COMM_FAULT_DELAY] = "did not reach",
        [COMM_FAULT_KILL] = "is gone at",
        [COMM_FAULT_CORRUPT] = "damaged",
    };
    char who[64], when[16], within[24];
    if (kind == COMM_FAULT_DROP)
        snprintf(who, sizeof who, "message of rank %d to rank %d", crew.faulty, to);
    else if (kind == COMM_FAULT_CORRUPT)
        snprintf(who, sizeof who, "data from rank %d to rank %d", crew.faulty, to);
    else
        snprintf(who, sizeof who, "rank %d %s", crew.faulty, outcomes[kind]);
    if (kind == COMM_FAULT_DELAY && crew.per_host) /* who waits for it may be found late first */
        snprintf(who, sizeof who, "did not reach");
    snprintf(when, sizeof when, "step %d", step);
    snprintf(within, sizeof within, "within %g s", late);
    crew.deadline = kind == COMM_FAULT_DELAY ? late : PATIENCE;
    crew.fault = (struct comm_fault){kind, call, to, 2.5 * late};
    crew_expect_code(&crew, CKPT_ECOMM,
                     (const char *[]){who, when, outcomes[kind],
                                      kind == COMM_FAULT_DELAY ? within : NULL, NULL});
}
