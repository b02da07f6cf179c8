/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes in bytes: parses "24G", formats "24 GiB"; formats times. */
#include <ctype.h>
#include <math.h>
#include <string.h>
#include <strings.h>
#include "core/base.h"
#include "ckpt_tools.h"

enum { TEXT_SIZE = 32 };

static int size_error(const char *text)
{
    return error_set(CKPT_EINVAL, "'%s' is not a size; write it as 4096, 512M, 1.5G or 80%%", text);
}

/* Parses decimal digits at *s; *value saturates at limit + 1; false if there are none. */
static bool parse_digits(const char **s, int64_t limit, int64_t *value)
{
    if (!isdigit((unsigned char)**s))
        return false;
    *value = 0;
    for (; isdigit((unsigned char)**s); (*s)++) {
        int digit = **s - '0';
        *value = *value > (limit - digit) / 10 ? limit + 1 : *value * 10 + digit;
    }
    return true;
}

/* Parses ".75" at *s as 0.75; 0 without a point; false for a point without digits. */
static bool parse_fraction(const char **s, double *fraction)
{
    int64_t digits = 0, scale = 1;

    *fraction = 0;
    if (**s != '.')
        return true;
    (*s)++;
    if (!isdigit((unsigned char)**s))
        return false;
    for (; isdigit((unsigned char)**s); (*s)++) {
        if (scale >= 1000000000000000) /* a double holds no more digits than these */
            continue;
        digits = digits * 10 + (**s - '0');
        scale *= 10;
    }
    *fraction = (double)digits / (double)scale;
    return true;
}

/* Parses K, M, G or T followed by nothing, "B" or "iB", or only "B": *unit is its bytes. */
static bool parse_unit(const char *s, int64_t *unit)
{
    static const char letters[] = "KMGT";
    const char *letter = *s ? strchr(letters, toupper((unsigned char)*s)) : NULL;

    *unit = 1;
    if (!letter)
        return *s == 0 || !strcasecmp(s, "B");
    *unit = (int64_t)1 << (10 * (letter - letters + 1));
    s++;
    return *s == 0 || !strcasecmp(s, "B") || !strcasecmp(s, "iB");
}

/* A whole percentage.  0% is refused, because 0 bytes stand for "no limit". */
static int parse_percent(const char *text, const char *s, int64_t *bytes)
{
    int64_t percent;

    if (!parse_digits(&s, 100, &percent) || strcmp(s, "%") || percent < 1 || percent > 100)
        return error_set(CKPT_EINVAL,
                         "'%s' is not a percentage; write a whole number, 1%% to 100%%", text);
    *bytes = -percent;
    return 0;
}

int ckpt_parse_size(const char *text, int64_t *bytes)
{
    NOT_NULL(text);
    NOT_NULL(bytes);
    const char *s = text;
    int64_t whole, unit;
    double fraction;

    if (!*text)
        return error_set(CKPT_EINVAL, "a size is missing; write it as 4096, 512M, 1.5G or 80%%");
    if (text[strlen(text) - 1] == '%')
        return parse_percent(text, s, bytes);
    if (!parse_digits(&s, INT64_MAX - 1, &whole) || !parse_fraction(&s, &fraction) ||
        !parse_unit(s, &unit) || (fraction != 0 && unit == 1))
        return size_error(text);
    int64_t part = (int64_t)(fraction * (double)unit);
    if (whole > (INT64_MAX - part) / unit || whole == INT64_MAX)
        return error_set(CKPT_EINVAL, "the size '%s' is too large", text);
    *bytes = whole * unit + part;
    return 0;
}

/* The next of the rotating buffers for formatted texts. */
static char *next_text(void)
{
    static _Thread_local char text[8][TEXT_SIZE];
    static _Thread_local unsigned next;
    return text[next++ % 8];
}

const char *human_bytes(int64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    char *dst = next_text();
    double value = (double)bytes;
    size_t unit = 0;

    /* 1023.995 would be written as 1024.00. */
    while (fabs(value) >= 1023.995 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        value /= 1024;
        unit++;
    }
    snprintf(dst, TEXT_SIZE, unit ? "%.2f %s" : "%.0f %s", value, units[unit]);
    return dst;
}

const char *human_seconds(double seconds)
{
    char *dst = next_text();
    if (seconds >= 1 || seconds == 0)
        snprintf(dst, TEXT_SIZE, "%.4g s", seconds);
    else if (seconds >= 1e-3)
        snprintf(dst, TEXT_SIZE, "%.4g ms", 1e3 * seconds);
    else
        snprintf(dst, TEXT_SIZE, "%.4g us", 1e6 * seconds);
    return dst;
}
