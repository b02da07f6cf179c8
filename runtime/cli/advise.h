/* SPDX-License-Identifier: Apache-2.0 */
/* Common declarations of ckpt advise. */
#ifndef CKPT_CLI_ADVISE_H
#define CKPT_CLI_ADVISE_H

#include "cli/cli.h"

enum { ADVISE_PATH = 512, ADVISE_LINE = 600 };

/* Runs a program with --plan-only so that it writes its graph; machine: NULL, or the machine to
 * plan for.  Its output goes to a file in directory, which is removed afterwards.  Returns 0, or an
 * exit status after printing a message. */
int advise_run(char **command, const char *machine, const char *directory, const char *graph);

#endif
