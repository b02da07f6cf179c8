/* SPDX-License-Identifier: Apache-2.0 */
#include "report/endurance.h"
#include <stdio.h>

const char *endurance_text(char dst[ENDURANCE_TEXT], const struct machine *m, int64_t written,
                           double seconds)
{
    double endurance = m->nvme_endurance > 0 ? m->nvme_endurance : DEFAULT_ENDURANCE;
    double per_day = seconds > 0 ? (double)written / seconds * 86400 : 0;
    snprintf(dst, ENDURANCE_TEXT,
             "a step; %.3g TB a day, a drive rated for %.0f TB%s lasts %.3g days", 1e-12 * per_day,
             1e-12 * endurance, m->nvme_endurance > 0 ? "" : " (a common rating)",
             per_day > 0 ? endurance / per_day : 0);
    return dst;
}
