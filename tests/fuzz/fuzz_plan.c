/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target of the plan reader and of the checker: no file makes either of them misbehave. */
#include <stdlib.h>
#include <string.h>
#include "fuzz/fuzz.h"
#include "plan/models.h"

/* The graph that the plans of the corpus belong to. */
static const struct graph *the_graph(void)
{
    static struct graph *g;
    if (!g)
        g = model_small("uniform-6");
    return g;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plan *p;
    struct gap *gaps;
    int32_t n;
    int rc = plan_read(the_graph(), fuzz_file(data, size), &p);
    if (rc) {
        fuzz_sentence(rc, error_get());
        return 0;
    }
    rc = plan_check(the_graph(), p);
    if (rc)
        fuzz_sentence(rc, error_get());
    if (!rc && plan_gaps(the_graph(), p, &gaps, &n) == 0)
        free(gaps);
    plan_free(p);
    return 0;
}
