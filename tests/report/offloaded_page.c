/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the page of a small step that offloads an activation to host memory and an optimizer
 * state, across the end of the step, to NVMe: for test_timeline.sh. */
#include <stdio.h>
#include <stdlib.h>
#include "report/timeline.h"

#define MIB (INT64_C(1) << 20)

enum { X, ACTIVATION, GRADIENT, WEIGHT, MOMENT, N_STORAGES };

static struct graph_storage storages[N_STORAGES] = {
    {.bytes = 8 * MIB, .kind = KIND_INPUT, .name = "x"},
    {.bytes = 16 * MIB, .kind = KIND_ACTIVATION, .name = "linear </script> \"in\" a\\b"},
    {.bytes = 4 * MIB, .kind = KIND_GRADIENT, .name = "w (gradient)"},
    {.bytes = 4 * MIB, .kind = KIND_PARAMETER, .persistent = true, .name = "w"},
    {.bytes = 12 * MIB, .kind = KIND_OPTIMIZER, .persistent = true, .name = "w (exp_avg)"},
};

static int32_t refs[] = {X, X, WEIGHT, ACTIVATION, ACTIVATION, GRADIENT, GRADIENT, MOMENT, WEIGHT};

static struct graph_op ops[] = {
    {.writes = 0, .n_writes = 1, .seconds = 1e-3, .name = "feed"},
    {.reads = 1,
     .n_reads = 2,
     .writes = 3,
     .n_writes = 1,
     .seconds = 2e-3,
     .workspace = MIB,
     .name = "linear"},
    {.seconds = 4e-3, .name = "loss"},
    {.reads = 4,
     .n_reads = 1,
     .writes = 5,
     .n_writes = 1,
     .phase = GRAPH_BACKWARD,
     .seconds = 3e-3,
     .name = "linear_dw"},
    {.reads = 6,
     .n_reads = 2,
     .writes = 8,
     .n_writes = 1,
     .phase = GRAPH_UPDATE,
     .seconds = 1e-3,
     .name = "adamw"},
};

int main(int argc, char **argv)
{
    struct plan_step steps[] = {{.op = 0}, {.op = 1}, {.op = 2}, {.op = 3}, {.op = 4}};
    struct residence residences[] = {
        {WEIGHT, TIER_DEVICE, 0, 4, -1},
        {X, TIER_DEVICE, 0, 1, 0},
        {ACTIVATION, TIER_DEVICE, 1, 1, 8 * MIB},
        {-2, TIER_DEVICE, 1, 1, 24 * MIB},
        {ACTIVATION, TIER_DEVICE, 3, 3, 0},
        {GRADIENT, TIER_DEVICE, 3, 4, 16 * MIB},
        {MOMENT, TIER_DEVICE, 4, 4, 0},
        {ACTIVATION, TIER_HOST, 1, 3, 0},
        {MOMENT, TIER_NVME, 0, 4, 0},
    };
    struct copy copies[] = {
        {2, 7, 1, 2, 3e-3, 3.4e-3},
        {7, 4, 2, 3, 6e-3, 7e-3},
        {6, 8, 4, 5, 1.0e-2, 1.1e-2},
        {8, 6, 3, 4, 8e-3, 9.5e-3},
    };
    struct graph g = {.storages = storages,
                      .ops = ops,
                      .refs = refs,
                      .n_storages = N_STORAGES,
                      .n_ops = 5,
                      .n_body = 4,
                      .n_refs = 9,
                      .n_micro = 1};
    struct plan p = {.budgets = {32 * MIB, 64 * MIB, 64 * MIB},
                     .persistent = 4 * MIB,
                     .transient = 25 * MIB,
                     .load = 25 * MIB,
                     .host_bytes = 16 * MIB,
                     .nvme_bytes = 12 * MIB,
                     .seconds = 11e-3,
                     .steps = steps,
                     .n_steps = 5,
                     .n_body = 4,
                     .residences = residences,
                     .n_residences = 9,
                     .copies = copies,
                     .n_copies = 4};
    struct machine machine = machine_cpu;
    machine.process = MIB;
    if (argc != 2 || timeline_write(&g, &p, &machine, argv[1])) {
        fprintf(stderr, "%s\n", argc == 2 ? error_get() : "usage: offloaded_page FILE");
        return 1;
    }
    return 0;
}
