/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target of the machine reader: an accepted machine is finite and prices a graph. */
#include <math.h>
#include <stdlib.h>
#include "fuzz/fuzz.h"
#include "plan/models.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct graph *g;
    struct machine m;
    int rc = machine_read(fuzz_file(data, size), &m);
    if (rc) {
        fuzz_sentence(rc, error_get());
        return 0;
    }
    if (!g)
        g = model_small("unet-2");
    graph_price(g, &m);
    for (int32_t i = 0; i < g->n_ops; i++)
        if (!isfinite(g->ops[i].seconds) || g->ops[i].seconds < 0)
            abort();
    machine_free(&m);
    return 0;
}
