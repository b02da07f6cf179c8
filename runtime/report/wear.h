/* SPDX-License-Identifier: Apache-2.0 */
/* What writing to a drive in every step does to it. */
#ifndef CKPT_REPORT_WEAR_H
#define CKPT_REPORT_WEAR_H

#include "plan/graph/machine.h"

/* Where a machine file does not say what its drive stands: bytes that one of 2 TB is commonly
 * sold for. */
#define WEAR_ENDURANCE 1.2e15

#define WEAR_TEXT 128
/* "a step; 12.3 TB a day, a drive of 1200 TB is worn in 97 days" */
const char *wear_text(char dst[WEAR_TEXT], const struct machine *m, int64_t written,
                      double seconds);

#endif
