/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of ckpt advise share. */
#ifndef CKPT_CLI_ADVISE_H
#define CKPT_CLI_ADVISE_H

#include "cli/cli.h"

enum { ADVISE_PATH = 512, ADVISE_LINE = 600 };

/* Has a program write its graph; machine: NULL, or what it is planned for.  Its output goes to a
 * file in directory that is removed.  Returns 0 or an exit status, having said why. */
int advise_run(char **command, const char *machine, const char *directory, const char *graph);

#endif
