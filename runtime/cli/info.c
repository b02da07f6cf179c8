/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt info: the version, built-in features, and the machine files that --machine accepts by
 * name. */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "ckpt_tools.h"
#include "cli/cli.h"
#include "core/cores.h"
#include "core/control_groups.h"
#include "memory/device/device.h"
#include "memory/tier/host_limits.h"

struct info_options {
    bool help;
};

static const struct ckpt_option info_table[] = {
    CKPT_OPTION(struct info_options, "help", FLAG, help, NULL, "print this text (-h)"),
    {0},
};

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "another than gcc and clang"
#endif

/* Prints the results of configure, one per line. */
static void print_parts(void)
{
    for (const char *at = CKPT_PARTS; *at; at += strcspn(at, "\n") + 1) {
        int name = (int)strcspn(at, "|"), answer = (int)strcspn(at, "\n") - name - 1;
        printf("  %-*.*s %.*s\n", 11, name, at, answer, at + name + 1);
    }
}

/* A container or an affinity may leave fewer cores than there are. */
static void print_cores(void)
{
    const long all = sysconf(_SC_NPROCESSORS_ONLN);
    const int allowed = cores_allowed();
    printf("  cpu         %ld cores", all);
    if (allowed < all)
        printf(", of which this process may use %d", allowed);
    putchar('\n');
}

/* What the system leaves a --host tier, and the limits that stop a program later if they are low.
 */
static void print_memory(void)
{
    char text[TEXT_BELOW];
    struct rlimit locked;
    struct statvfs shared;
    struct host_limit l = host_limits_check("", INT64_MAX / 2);

    if (*l.name)
        printf("  host        %s left: %s\n", human_bytes(l.left), l.name);
    if (text_below("", "/proc/version", text) && strstr(text, "icrosoft"))
        printf("  wsl2        about half of the memory can be pinned\n");
    if (!getrlimit(RLIMIT_MEMLOCK, &locked) && locked.rlim_cur != RLIM_INFINITY)
        printf("  locked      %s at most (ulimit -l): InfiniBand needs more\n",
               human_bytes((int64_t)locked.rlim_cur));
    if (!statvfs("/dev/shm", &shared))
        printf("  /dev/shm    %s free; NCCL takes 10 to 100 MiB of it for each GPU\n",
               human_bytes((int64_t)(shared.f_bavail * shared.f_frsize)));
    if (text_below("", "/sys/kernel/mm/transparent_hugepage/enabled", text) &&
        strstr(text, "[never]"))
        printf("  huge pages  never: the host tier has small ones\n");
}

static void print_gpu(void)
{
    struct device *d;
    char compiler[1200];
    device_describe_compiler(compiler, sizeof compiler);
    if (*compiler)
        printf("  kernels     %s\n", compiler);
    if (device_open_cuda(&d, 0, false)) {
        printf("  cuda        no: %s\n", error_get());
        return;
    }
    printf("  cuda        %s, %s free for a program\n", d->name, human_bytes(d->ops->available(d)));
    d->ops->close(d);
}

int cli_info(int argc, char **argv)
{
    struct info_options o = {0};
    int rc = cli_parse(info_table, &o, &o.help, argc, argv, "info");
    if (rc)
        return rc < 0 ? 0 : rc;
    printf("libckpt %s\n", ckpt_version());
    print_cores();
    print_memory();
    print_gpu();
    printf("built with\n");
    printf("  compiler    %s\n", COMPILER);
    print_parts();
    printf("machines for --machine\n");
    cli_list_machines();
    return 0;
}
