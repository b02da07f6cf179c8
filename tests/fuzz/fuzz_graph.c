/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target of the graph reader: every accepted graph can be written, read again and planned. */
#include <stdlib.h>
#include <string.h>
#include "fuzz/fuzz.h"
#include "plan/graph/graph_file.h"
#include "plan/plan_make.h"

static void plan_graph(const struct graph *g)
{
    struct budgets b = {.device = INT64_MAX};
    struct plan *p;
    int rc = plan_make(g, &machine_cpu, &b, 0, &p);
    if (rc) {
        fuzz_sentence(rc, error_get());
        return;
    }
    if (plan_check(g, p)) {
        fprintf(stderr, "%s\n", error_get());
        abort();
    }
    plan_free(p);
}

static void write_again(const struct graph *g)
{
    char path[] = "/tmp/fuzz-graph-XXXXXX";
    struct graph *copy;
    int fd = mkstemp(path);
    if (fd < 0 || graph_write(g, path) || graph_read(path, &copy) ||
        graph_signature(g) != graph_signature(copy))
        abort();
    fclose(fdopen(fd, "r"));
    remove(path);
    graph_free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct graph *g;
    int rc = graph_read(fuzz_file(data, size), &g);
    if (rc) {
        fuzz_sentence(rc, error_get());
        return 0;
    }
    write_again(g);
    if (g->n_ops <= 64 && g->n_storages <= 256)
        plan_graph(g);
    graph_free(g);
    return 0;
}
