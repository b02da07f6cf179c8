/* SPDX-License-Identifier: Apache-2.0 */
#include "report/wear.h"
#include <stdio.h>

const char *wear_text(char dst[WEAR_TEXT], const struct machine *m, int64_t written,
                      double seconds)
{
    double endurance = m->nvme_endurance > 0 ? m->nvme_endurance : WEAR_ENDURANCE;
    double a_day = seconds > 0 ? (double)written / seconds * 86400 : 0;
    snprintf(dst, WEAR_TEXT, "a step; %.3g TB a day, a drive of %.0f TB%s is worn in %.3g days",
             1e-12 * a_day, 1e-12 * endurance, m->nvme_endurance > 0 ? "" : " (as many are)",
             a_day > 0 ? endurance / a_day : 0);
    return dst;
}
