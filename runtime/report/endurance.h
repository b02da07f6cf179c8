/* SPDX-License-Identifier: Apache-2.0 */
/* The effect of a step's writes on the write endurance of a drive. */
#ifndef CKPT_REPORT_ENDURANCE_H
#define CKPT_REPORT_ENDURANCE_H

#include "plan/graph/machine.h"

/* Bytes written over a drive's life if the machine file gives none: a common rating for 2 TB. */
#define DEFAULT_ENDURANCE 1.2e15

#define ENDURANCE_TEXT 128
/* "a step; 12.3 TB a day, a drive rated for 1200 TB lasts 97 days" */
const char *endurance_text(char dst[ENDURANCE_TEXT], const struct machine *m, int64_t written,
                           double seconds);

#endif
