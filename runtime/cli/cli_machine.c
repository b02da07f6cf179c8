/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt machine: measures this computer and writes a machine file. */
#include <string.h>
#include <unistd.h>
#include "ckpt_tools.h"
#include "cli/cli.h"
#include "measure/measure.h"
#include "memory/device/device.h"

struct machine_options {
    const char *out, *dir, *name, *device;
    bool help;
};

#define ROW(...) CKPT_OPTION(struct machine_options, __VA_ARGS__)

static const struct ckpt_option machine_table[] = {
    ROW("output", STRING, out, "FILE", "output file (default machine.json)"),
    ROW("dir", STRING, dir, "DIR",
        "measure the disk of this directory too: 256 MiB are written, read and removed"),
    ROW("name", STRING, name, "NAME",
        "name of the machine (default: the name of the GPU, else the host name)"),
    ROW("device", STRING, device, "NAME",
        "device to measure: auto (a GPU if there is one), cpu or cuda (default auto)"),
    ROW("help", FLAG, help, NULL, "print this text (-h)"),
    CKPT_OPTION_ALIAS("out", "output"),
    {0},
};

static void row(const char *what, double value, double unit, const char *name)
{
    printf("  %-32s %10.4g %s\n", what, value / unit, name);
}

static void print_machine(const struct machine *m, bool disk)
{
    printf("%s: %s of memory\n", m->name, human_bytes(m->memory));
    row(m->backend == CKPT_ON_CUDA ? "matrix product, bf16" : "matrix product, fp32", m->flops, 1e9,
        "GFLOP/s");
    row("attention, of that", 100 * m->attention, 1, "%");
    row("memory, read and write", m->bandwidth, 1e9, "GB/s");
    row("an op, empty", m->overhead, 1e-6, "us");
    row("copy out of the arena", m->d2h, 1e9, "GB/s");
    row("copy into the arena", m->h2d, 1e9, "GB/s");
    row("both at once, each", m->d2h_both, 1e9, "GB/s");
    row("AdamW on the host, beside copies", m->host_update, 1e9, "GB/s");
    if (disk && m->nvme_read > 0) {
        row("disk, read", m->nvme_read, 1e9, "GB/s");
        row("disk, write", m->nvme_write, 1e9, "GB/s");
        row("disk, both at once, each", m->nvme_both, 1e9, "GB/s");
    }
}

/* Opens the selected device and names the machine; returns an exit status after printing a
 * message. */
static int open_device(const struct machine_options *o, struct device **d, struct machine *m)
{
    bool automatic = !strcmp(o->device, "auto");
    int rc = CKPT_EDEVICE;
    if (!automatic && strcmp(o->device, "cpu") && strcmp(o->device, "cuda"))
        return cli_usage("--device %s: there are 'auto', 'cpu' and 'cuda'", o->device);
    if (strcmp(o->device, "cpu"))
        rc = device_open_cuda(d, 0, false);
    if (rc && (automatic || !strcmp(o->device, "cpu")))
        rc = device_open_cpu(d, INT64_MAX, 0);
    if (rc)
        return cli_fail("%s", error_get());
    m->capability = (*d)->capability;
    if ((*d)->ops->backend == CKPT_ON_CUDA)
        snprintf(m->devices[m->n_devices++], sizeof(m->devices[0]), "%s", (*d)->name);
    if (o->name)
        snprintf(m->name, sizeof(m->name), "%s", o->name);
    else if ((*d)->ops->backend == CKPT_ON_CUDA)
        snprintf(m->name, sizeof(m->name), "%s", (*d)->name);
    else if (gethostname(m->name, sizeof(m->name) - 1) || !*m->name)
        snprintf(m->name, sizeof(m->name), "this computer");
    return 0;
}

int cli_machine(int argc, char **argv)
{
    struct machine_options o = {.out = "machine.json", .device = "auto"};
    struct machine m = {.source = "measured by ckpt machine"};
    struct device *d = NULL;
    char where[96] = "", note[CKPT_MESSAGE] = "";
    int rc = cli_parse(machine_table, &o, &o.help, argc, argv, "machine [option]...");
    if (rc)
        return rc < 0 ? 0 : rc;
    if (o.name && (!*o.name || strlen(o.name) >= sizeof(m.name)))
        return cli_usage("--name '%s': give 1 to %zu characters", o.name, sizeof(m.name) - 1);
    rc = cli_check_paths(&(struct ckpt_path){"--output", o.out, CKPT_PATH_FILE, 0}, 1);
    if (!rc)
        rc = open_device(&o, &d, &m);
    if (rc)
        return rc;
    rc = measure_device(d, &m);
    if (*d->where)
        snprintf(where, sizeof where, "at %s, NUMA node %d", d->where, d->ops->numa_node(d));
    d->ops->close(d);
    if (rc || (o.dir && measure_disk(&m, o.dir, note)))
        return cli_fail("%s", error_get());
    print_machine(&m, o.dir != NULL);
    if (*where)
        printf("  %s\n", where);
    if (*note)
        printf("  %s\n", note);
    if (machine_write(&m, o.out))
        return cli_fail("%s", error_get());
    printf("written to %s\n", o.out);
    return 0;
}
