/* SPDX-License-Identifier: Apache-2.0 */
/* Option tables: command line, environment, help and the complaint about what is left. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt_tools.h"
#include "core/options.h"

#define ENV_NAME 80 /* longest name of an environment variable, with its end */

/* "micro-batch" to "CKPT_MICRO_BATCH". */
static void env_name(char *dst, size_t size, const char *name)
{
    snprintf(dst, size, "CKPT_%s", name);
    for (; *dst; dst++)
        *dst = *dst == '-' ? '_' : (char)toupper((unsigned char)*dst);
}

/* An empty variable counts as one that is not set, as is usual. */
int option_environment(const struct ckpt_option *table, void *dest)
{
    for (const struct ckpt_option *row = table; row->name; row++) {
        char name[ENV_NAME], where[ENV_NAME + 32];
        env_name(name, sizeof(name), row->name);
        const char *text = getenv(name);
        if (!text || !*text)
            continue;
        snprintf(where, sizeof(where), "environment variable %s", name);
        int rc = option_store(row, dest, where, text);
        if (rc)
            return rc;
    }
    return 0;
}

static const struct ckpt_option *find_row(const struct ckpt_option *table, const char *name,
                                          size_t length)
{
    for (const struct ckpt_option *row = table; row->name; row++) {
        if (strlen(row->name) == length && !memcmp(row->name, name, length))
            return row;
    }
    return NULL;
}

/* The row of an argument without its dashes; *negated for "no-" before the name of a flag. */
static const struct ckpt_option *match(const struct ckpt_option *table, const char *name,
                                       bool *negated)
{
    size_t length = strcspn(name, "=");
    const struct ckpt_option *row = find_row(table, name, length);

    *negated = false;
    if (row || length < 3 || memcmp(name, "no-", 3))
        return row;
    row = find_row(table, name + 3, length - 3);
    *negated = row && row->type == CKPT_OPT_FLAG;
    return *negated ? row : NULL;
}

static int needs_value(const struct ckpt_option *row)
{
    return error_set(CKPT_EINVAL, "option --%s needs a value: --%s %s", row->name, row->name,
                     row->metavar ? row->metavar : "VALUE");
}

/* Stores one option; next is the argument after it or NULL; *used says how many it took. */
static int take_option(const struct ckpt_option *row, bool negated, void *dest,
                       const char *argument, const char *next, int *used)
{
    const char *equals = strchr(argument, '=');
    const char *text = equals ? equals + 1 : NULL;
    char where[ENV_NAME + 32];

    *used = 1;
    if (negated && text)
        return error_set(CKPT_EINVAL, "option --no-%s takes no value", row->name);
    if (!text && row->type == CKPT_OPT_FLAG)
        text = negated ? "no" : "yes";
    if (!text) {
        if (!next || !strncmp(next, "--", 2))
            return needs_value(row);
        text = next;
        *used = 2;
    }
    snprintf(where, sizeof(where), "option --%s", row->name);
    return option_store(row, dest, where, text);
}

int ckpt_option_table_parse(const struct ckpt_option *table, void *dest, int *argc, char **argv)
{
    NOT_NULL(NULL, table);
    NOT_NULL(NULL, dest);
    NOT_NULL(NULL, argc);
    NOT_NULL(NULL, argv);
    int rc = 0, i = 1, kept = 1;

    while (!rc && i < *argc && strcmp(argv[i], "--")) {
        bool negated;
        bool dashes = !strncmp(argv[i], "--", 2);
        const struct ckpt_option *row = dashes ? match(table, argv[i] + 2, &negated) : NULL;
        int used = 1;
        if (row)
            rc =
                take_option(row, negated, dest, argv[i], i + 1 < *argc ? argv[i + 1] : NULL, &used);
        else
            argv[kept++] = argv[i];
        if (!rc)
            i += used;
    }
    if (kept == i)
        return rc;
    while (i < *argc)
        argv[kept++] = argv[i++];
    argv[kept] = NULL;
    *argc = kept;
    return rc;
}

static int usage_width(const struct ckpt_option *row)
{
    bool value = row->type != CKPT_OPT_FLAG && row->metavar;

    return (int)strlen(row->name) + (value ? 1 + (int)strlen(row->metavar) : 0);
}

void ckpt_option_table_help(const struct ckpt_option *table, FILE *f)
{
    if (!table || !f)
        return;
    int width = 0;

    for (const struct ckpt_option *row = table; row->name; row++)
        width = usage_width(row) > width ? usage_width(row) : width;
    for (const struct ckpt_option *row = table; row->name; row++) {
        bool value = row->type != CKPT_OPT_FLAG && row->metavar;
        fprintf(f, "  --%s%s%s%*s  %s\n", row->name, value ? " " : "", value ? row->metavar : "",
                width - usage_width(row), "", row->help ? row->help : "");
    }
}
