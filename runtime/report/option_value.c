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

/* In the C locale: a program may have set one that writes 0,5. */
static int store_float(double *dst, const double range[2], const char *where, const char *text)
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
    int rc = check_range(range, value, where, text);
    if (!rc)
        *dst = value;
    return rc;
}

static int store_size(int64_t *dst, const char *where, const char *text)
{
    int rc = ckpt_parse_size(text, dst);

    return rc ? error_set(rc, "%s: %s", where, error_get()) : 0;
}

/* A number below 0 would be taken for CKPT_AUTO. */
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
    case CKPT_OPT_STRING:
        *(const char **)field = text;
        return 0;
    }
    return error_set(CKPT_EINVAL, "%s: the option table names a type that does not exist", where);
}

/* One element of --nvme, n bytes at text, into the next place of d. */
static int add_directory(struct tier_directories *d, const char *text, size_t n)
{
    char part[TIER_PATH + 64];
    if (d->n == TIER_DIRECTORIES)
        return error_set(CKPT_EINVAL, "more than %d directories", TIER_DIRECTORIES);
    if (n >= sizeof part)
        return error_set(CKPT_EINVAL, "the name of a directory is too long");
    memcpy(part, text, n);
    part[n] = 0;
    char *colon = strrchr(part, ':');
    if (colon == part || (colon && colon - part >= TIER_PATH))
        return error_set(CKPT_EINVAL, "'%s' does not name a directory as DIR:SIZE does", part);
    int rc = ckpt_parse_size(colon ? colon + 1 : part, &d->at[d->n].bytes);
    if (rc)
        return rc;
    if (d->at[d->n].bytes < 0)
        return error_set(CKPT_EINVAL, "give it in bytes, as 200G");
    snprintf(d->at[d->n++].path, TIER_PATH, "%.*s", colon ? (int)(colon - part) : 0, part);
    return 0;
}

/* Whole stripes of several directories, whole blocks of one. */
static int add_up(struct tier_directories *d)
{
    int64_t unit = d->n > 1 ? TIER_STRIPE : TIER_BLOCK;
    for (int32_t i = 0; i < d->n; i++) {
        if (d->n > 1 && !*d->at[i].path)
            return error_set(CKPT_EINVAL, "several sizes, each needs its directory: "
                                          "DIR:SIZE,DIR:SIZE");
        d->at[i].bytes -= d->at[i].bytes % unit;
        if (d->at[i].bytes > INT64_MAX - d->bytes)
            return error_set(CKPT_EINVAL, "together they are too large");
        d->bytes += d->at[i].bytes;
    }
    return 0;
}

int option_nvme(const char *text, struct tier_directories *d)
{
    int rc = 0;
    *d = (struct tier_directories){0};
    for (const char *part = text; part && !rc;) {
        const char *comma = strchr(part, ',');
        rc = add_directory(d, part, comma ? (size_t)(comma - part) : strlen(part));
        part = comma ? comma + 1 : NULL;
    }
    if (!rc)
        rc = add_up(d);
    return rc ? error_set(rc, "--nvme %s: %s", text, error_get()) : 0;
}
