/* SPDX-License-Identifier: Apache-2.0 */
/* What takes long says so. */
#ifndef CKPT_REPORT_PROGRESS_H
#define CKPT_REPORT_PROGRESS_H

#include <stdio.h>

/* To be called every second: writes a line with what goes on at 2 and 5 s, then every 10 s. */
void progress_seconds(FILE *f, const char *what, int seconds);

#endif
