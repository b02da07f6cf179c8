/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt info: the version, built-in features, and the machine files that --machine accepts by
 * name. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "ckpt_tools.h"
#include "cli/cli.h"
#include "core/cores.h"
#include "memory/device/device.h"

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
    print_gpu();
    printf("built with\n");
    printf("  compiler    %s\n", COMPILER);
    print_parts();
    printf("machines for --machine\n");
    cli_list_machines();
    return 0;
}
