/* The values of options: text to bool, int64_t, double, string or size. */
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "options.h"

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

static int store_int(int64_t *dst, const char *where, const char *text)
{
    char *end;

    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (!begins_number(text) || end == text || *end)
        return error_set(CKPT_EINVAL, "%s: '%s' is not a whole number", where, text);
    if (errno == ERANGE)
        return error_set(CKPT_EINVAL, "%s: '%s' does not fit in 64 bits", where, text);
    *dst = value;
    return 0;
}

/* In the C locale: a program may have set one that writes 0,5. */
static int store_float(double *dst, const char *where, const char *text)
{
    locale_t c_locale = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    char *end;

    if (!c_locale)
        return error_set(CKPT_ENOMEM, "%s: no memory to read '%s'", where, text);
    double value = strtod_l(text, &end, c_locale);
    freelocale(c_locale);
    if (!begins_number(text) || end == text || *end)
        return error_set(CKPT_EINVAL, "%s: '%s' is not a number", where, text);
    if (!isfinite(value))
        return error_set(CKPT_EINVAL, "%s: '%s' is not a finite number", where, text);
    *dst = value;
    return 0;
}

static int store_size(int64_t *dst, const char *where, const char *text)
{
    int rc = ckpt_parse_size(text, dst);

    return rc ? error_set(rc, "%s: %s", where, error_get()) : 0;
}

int option_store(const struct ckpt_option *row, void *dest, const char *where, const char *text)
{
    void *field = (char *)dest + row->offset;

    if (!*text && row->type != CKPT_OPT_STRING)
        return error_set(CKPT_EINVAL, "%s: the value is empty; a %s is expected", where,
                         row->metavar ? row->metavar : "value");
    switch (row->type) {
    case CKPT_OPT_FLAG:
        return store_flag(field, where, text);
    case CKPT_OPT_INT:
        return store_int(field, where, text);
    case CKPT_OPT_COUNT:
        if (strcasecmp(text, "auto"))
            return store_int(field, where, text);
        *(int64_t *)field = CKPT_AUTO;
        return 0;
    case CKPT_OPT_FLOAT:
        return store_float(field, where, text);
    case CKPT_OPT_SIZE:
        return store_size(field, where, text);
    case CKPT_OPT_STRING:
        *(const char **)field = text;
        return 0;
    }
    return error_set(CKPT_EINVAL, "%s: the option table names a type that does not exist", where);
}

int option_nvme(const char *text, int64_t *bytes)
{
    const char *colon = strrchr(text, ':');
    int rc = ckpt_parse_size(colon ? colon + 1 : text, bytes);

    if (rc)
        return error_set(rc, "--nvme %s: %s", text, error_get());
    if (*bytes < 0)
        return error_set(CKPT_EINVAL, "--nvme %s: give it in bytes, as 200G", text);
    return 0;
}
