/* SPDX-License-Identifier: Apache-2.0 */
/* The values of options: converts text to bool, int64_t, double, string or size. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "ckpt_tools.h"
#include "core/number.h"
#include "core/options.h"

static bool is_one_of(const char *text, const char *a, const char *b, const char *c)
{
    return !strcasecmp(text, a) || !strcasecmp(text, b) || !strcasecmp(text, c);
}

static int store_flag(bool *dst, const char *where, const char *text)
{
    bool yes = is_one_of(text, "1", "yes", "true");

    if (!yes && !is_one_of(text, "0", "no", "false"))
        return error_set(CKPT_EINVAL, "%s: '%s' is not a switch; write yes or no", where, text);
    *dst = yes;
    return 0;
}

/* strtoll and strtod skip leading blanks; a value that begins with one is a quoting mistake. */
static bool begins_number(const char *text)
{
    return *text && !strchr(" \t\n\v\f\r", *text);
}

static int check_range(const double range[2], double value, const char *where, const char *text)
{
    bool ranged = range[0] != 0 || range[1] != 0;

    if (!ranged || (value >= range[0] && value <= range[1]))
        return 0;
    return error_set(CKPT_EINVAL, "%s: %s is out of range; give %.10g to %.10g", where, text,
                     range[0], range[1]);
}

static int store_int(int64_t *dst, const double range[2], const char *where, const char *text)
{
    char *end;

    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (!begins_number(text) || end == text || *end)
        return error_set(CKPT_EINVAL, "%s: '%s' is not a whole number", where, text);
    if (errno == ERANGE)
        return error_set(CKPT_EINVAL, "%s: '%s' does not fit in 64 bits", where, text);
    int rc = check_range(range, (double)value, where, text);
    if (!rc)
        *dst = value;
    return rc;
}

static int store_float(double *dst, const double range[2], const char *where, const char *text)
{
    char *end;
    double value = number_parse(text, &end);

    if (!begins_number(text) || end == text || *end)
        return error_set(CKPT_EINVAL, "%s: '%s' is not a number", where, text);
    if (!isfinite(value))
        return error_set(CKPT_EINVAL, "%s: '%s' is not a finite number", where, text);
    int rc = check_range(range, value, where, text);
    if (!rc)
        *dst = value;
    return rc;
}

static int store_size(int64_t *dst, const char *where, const char *text)
{
    int64_t bytes;
    int rc = ckpt_parse_size(text, &bytes);

    if (rc)
        return error_set(rc, "%s: %s", where, error_get());
    /* nobody means 24 bytes */
    if (bytes > 0 && bytes < 1024 && !text[strspn(text, "0123456789")])
        return error_set(CKPT_EINVAL, "%s: did you mean %sG? %s is a number of bytes", where, text,
                         text);
    *dst = bytes;
    return 0;
}

static int store_budget(int64_t *dst, const char *where, const char *text)
{
    bool is_auto = !strcasecmp(text, "auto"), none = !strcasecmp(text, "none");

    if (!is_auto && !none && store_size(dst, where, text))
        return error_set(CKPT_EINVAL, "%s; or give auto or none", error_get());
    if (!is_auto && !none && !*dst)
        return error_set(CKPT_EINVAL,
                         "%s: no step runs in 0 bytes; give a size such as 24G, auto for what the "
                         "device has, or none for no budget",
                         where);
    if (!is_auto && !none)
        return 0;
    *dst = is_auto ? CKPT_VRAM_AUTO : CKPT_VRAM_NONE;
    return 0;
}

/* Refuses numbers below 0, since CKPT_AUTO is one. */
static int store_count(int64_t *dst, const double range[2], const char *where, const char *text)
{
    const double any[] = {0, 0x1p53};

    if (!strcasecmp(text, "auto")) {
        *dst = CKPT_AUTO;
        return 0;
    }
    return store_int(dst, range[0] != 0 || range[1] != 0 ? range : any, where, text);
}

int option_store(const struct ckpt_option *row, void *dest, const char *where, const char *text)
{
    void *field = (char *)dest + row->offset;

    if (!*text)
        return error_set(CKPT_EINVAL, "%s: the value is empty; give %s", where,
                         row->metavar ? row->metavar : "yes or no");
    switch (row->type) {
    case CKPT_OPT_FLAG:
        return store_flag(field, where, text);
    case CKPT_OPT_INT:
        return store_int(field, row->range, where, text);
    case CKPT_OPT_COUNT:
        return store_count(field, row->range, where, text);
    case CKPT_OPT_FLOAT:
        return store_float(field, row->range, where, text);
    case CKPT_OPT_SIZE:
        return store_size(field, where, text);
    case CKPT_OPT_BUDGET:
        return store_budget(field, where, text);
    case CKPT_OPT_STRING:
        *(const char **)field = text;
        return 0;
    case CKPT_OPT_ALIAS:
    case CKPT_OPT_GROUP:
        break;
    }
    return error_set(CKPT_EINVAL, "%s: the option table names a type that does not exist", where);
}
