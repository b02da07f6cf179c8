/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt: plans, measures and reports features, without running a model. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt_tools.h"
#include "cli/cli.h"
#include "cli/command.h"

static const struct subcommand {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} subcommands[] = {
    {"plan", cli_plan, "plan the step in a graph file for any machine and budget"},
    {"advise", cli_advise, "propose three budgets for a step or a trainer, as command lines"},
    {"import", cli_import, "show what a .pt2 archive of PyTorch holds, and what can be trained"},
    {"convert", cli_convert, "write a model or a state to other files: one, Hugging Face, DCP"},
    {"machine", cli_machine, "measure this computer and write a machine file"},
    {"info", cli_info, "version, built-in features and shipped machine files"},
};
#define N_SUBCOMMANDS (sizeof(subcommands) / sizeof(subcommands[0]))

/* Lost output is a failure. */
static int finish(int status)
{
    if (!fflush(stdout) && !ferror(stdout))
        return status;
    cli_fail("standard output: %s", strerror(errno));
    return status ? status : EXIT_FAILURE;
}

static void print_help(FILE *f)
{
    fputs("usage: ckpt COMMAND [option]...\n\n", f);
    for (size_t i = 0; i < N_SUBCOMMANDS; i++)
        fprintf(f, "  %-8s %s\n", subcommands[i].name, subcommands[i].help);
    fputs("\n\"ckpt COMMAND --help\" lists the options of a command, \"ckpt --version\" the "
          "version.\n",
          f);
}

static bool is_one_of(const char *word, const char *a, const char *b, const char *c)
{
    return !strcmp(word, a) || !strcmp(word, b) || !strcmp(word, c);
}

int ckpt_command(int argc, char **argv)
{
    signal(SIGXFSZ, SIG_IGN); /* a write above ulimit -f fails, and its file is removed */
    if (argc < 2) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    if (is_one_of(argv[1], "--help", "-h", "help")) {
        print_help(stdout);
        return 0;
    }
    if (is_one_of(argv[1], "--version", "-V", "version")) {
        printf("ckpt (libckpt) %s\n", ckpt_version());
        return 0;
    }
    for (size_t i = 0; i < N_SUBCOMMANDS; i++)
        if (!strcmp(argv[1], subcommands[i].name))
            return finish(subcommands[i].run(argc - 1, argv + 1));
    return cli_usage("there is no command '%s'; the commands are plan, advise, import, convert, "
                     "machine and info",
                     argv[1]);
}
