/* SPDX-License-Identifier: Apache-2.0 */
/* The machine files that --machine accepts by name, a line each. */
#include <stdio.h>
#include "cli/cli.h"
#include "memory/device/device.h"

static void print_machine(const char *path)
{
    struct machine m;
    if (machine_read(path, &m)) {
        printf("  %-10s %s\n", path, error_get());
        return;
    }
    printf("  %-10s %-20s %11s  %6.1f TFLOP/s  %7.0f GB/s  links %3.0f GB/s%s\n", path, m.name,
           human_bytes(m.memory), m.flops / 1e12, m.bandwidth / 1e9, m.h2d / 1e9,
           m.estimate ? "  (estimate)" : "");
    machine_free(&m);
}

void cli_list_machines(void)
{
    char names[32][64];
    int n = machine_shipped(names, 32);
    for (int i = 0; i < n; i++)
        print_machine(names[i]);
}
