/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target of the graph reader: what it accepts can be written, read again and planned. */
#include <stdlib.h>
#include <string.h>
#include "fuzz/fuzz.h"
#include "plan/graph/graph_file.h"

static void plan_graph(const struct graph *g)
{
    char message[CKPT_MESSAGE];
    struct budgets b = {.device = INT64_MAX};
    struct plan *p;
    int rc = plan_make(g, &machine_cpu, &b, 0, &p, message);
    if (rc) {
        fuzz_sentence(rc, message);
        return;
    }
    if (plan_check(g, p, message)) {
        fprintf(stderr, "%s\n", message);
        abort();
    }
    plan_free(p);
}

static void write_again(const struct graph *g)
{
    char message[CKPT_MESSAGE], path[] = "/tmp/fuzz-graph-XXXXXX";
    struct graph *copy;
    int fd = mkstemp(path);
    if (fd < 0 || graph_write(g, path, message) || graph_read(path, &copy, message) ||
        graph_signature(g) != graph_signature(copy))
        abort();
    fclose(fdopen(fd, "r"));
    remove(path);
    graph_free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char message[CKPT_MESSAGE];
    struct graph *g;
    int rc = graph_read(fuzz_file(data, size), &g, message);
    if (rc) {
        fuzz_sentence(rc, message);
        return 0;
    }
    write_again(g);
    if (g->n_ops <= 64 && g->n_storages <= 256)
        plan_graph(g);
    graph_free(g);
    return 0;
}
