/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers in the C locale: see number.h.  glibc and musl have that locale as a constant, so making
 * its handle takes neither memory nor time.
 */
#include <locale.h>
#include <stdlib.h>
#include "core/number.h"

static locale_t begin_plain(locale_t *before)
{
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);

    *before = uselocale(plain);
    return plain;
}

static void end_plain(locale_t plain, locale_t before)
{
    uselocale(before);
    if (plain)
        freelocale(plain);
}

void number_format(char dst[NUMBER_TEXT], double value)
{
    locale_t before, plain = begin_plain(&before);

    for (int digits = 1; digits <= 17; digits++) {
        snprintf(dst, NUMBER_TEXT, "%.*g", digits, value);
        if (strtod(dst, NULL) == value)
            break;
    }
    end_plain(plain, before);
}

void number_format_float(char dst[NUMBER_TEXT], float value)
{
    locale_t before, plain = begin_plain(&before);

    for (int digits = 6; digits <= 9; digits++) {
        snprintf(dst, NUMBER_TEXT, "%.*g", digits, (double)value);
        if (strtof(dst, NULL) == value)
            break;
    }
    end_plain(plain, before);
}

void number_put(FILE *f, int digits, double value)
{
    locale_t before, plain = begin_plain(&before);

    fprintf(f, "%.*g", digits, value);
    end_plain(plain, before);
}

double number_parse(const char *text, char **end)
{
    locale_t before, plain = begin_plain(&before);
    double value = strtod(text, end);

    end_plain(plain, before);
    return value;
}
