/* SPDX-License-Identifier: Apache-2.0 */
/* What all subcommands say in one way: failures, their options, paths that cannot be written. */
#include <stdlib.h>
#include "cli/cli.h"

static void complain(const char *fmt, va_list ap)
{
    char text[2 * CKPT_MESSAGE], shown[2 * CKPT_MESSAGE];
    vsnprintf(text, sizeof text, fmt, ap);
    fflush(stdout);
    fprintf(stderr, "ckpt: %s\n", sentence_shown(text, shown, sizeof shown));
}

int cli_fail(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    complain(fmt, ap);
    va_end(ap);
    return EXIT_FAILURE;
}

int cli_usage(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    complain(fmt, ap);
    va_end(ap);
    return EXIT_USAGE;
}

int cli_check_paths(const struct ckpt_path *paths, int n)
{
    return ckpt_paths_check(NULL, paths, n) ? cli_fail("%s", ckpt_error(NULL)) : 0;
}

int cli_parse(const struct ckpt_option *table, void *dest, const bool *help, int argc, char **argv,
              const char *synopsis)
{
    if (ckpt_option_table_parse(table, dest, &argc, argv) ||
        (!*help && ckpt_options_reject(argc, argv, 1, &table)))
        return cli_usage("%s", ckpt_error(NULL));
    if (!*help) {
        if (ckpt_environment_check())
            cli_fail("%s", ckpt_error(NULL));
        return 0;
    }
    printf("usage: ckpt %s\n\n", synopsis);
    ckpt_option_table_help(table, stdout);
    return -1;
}
