/* SPDX-License-Identifier: Apache-2.0 */
/* Option tables: command line, environment and help. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
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

/* Other environment variables that are read, beside the options; tests have their own. */
static const char *const other_names[] = {"HOST_NAME", "JOB_TOKEN", "MACHINE_DIR", "PLUGIN_DIR"};
static const char *const test_names[] = {"TEST_", "TORTURE"};

/* Whether CKPT_ followed by this name, which ends at '=', is read by anything. */
static bool is_read(const char *name, size_t length)
{
    char own[ENV_NAME];

    for (size_t i = 0; i < sizeof test_names / sizeof *test_names; i++)
        if (!strncmp(name, test_names[i], strlen(test_names[i])))
            return true;
    for (size_t i = 0; i < sizeof other_names / sizeof *other_names; i++)
        if (strlen(other_names[i]) == length && !strncmp(name, other_names[i], length))
            return true;
    for (const struct ckpt_option *row = ckpt_options_table(); row->name; row++) {
        env_name(own, sizeof own, row->name);
        if (ckpt_option_has_value(row) && strlen(own) == length + 5 &&
            !strncmp(own + 5, name, length))
            return true;
    }
    return false;
}

/* The variable of the option whose name is nearest to this one, or NULL. */
static const char *nearest_variable(const char *name, size_t length, char near[ENV_NAME])
{
    char word[ENV_NAME];

    if (length >= sizeof word)
        return NULL;
    for (size_t i = 0; i <= length; i++)
        word[i] = i == length ? 0 : name[i] == '_' ? '-' : (char)tolower((unsigned char)name[i]);
    const struct ckpt_option *table = ckpt_options_table();
    const char *option = option_nearest(word, (int)length, 1, &table);
    if (!option)
        return NULL;
    env_name(near, ENV_NAME, option);
    return near;
}

int ckpt_environment_check(void)
{
    for (char **at = environ; at && *at; at++) {
        char near[ENV_NAME];
        if (strncmp(*at, "CKPT_", 5))
            continue;
        const char *name = *at + 5;
        size_t length = strcspn(name, "=");
        if (is_read(name, length))
            continue;
        if (nearest_variable(name, length, near))
            return error_set(CKPT_EINVAL,
                             "nothing reads the environment variable CKPT_%.*s; did you mean %s?",
                             (int)length, name, near);
        return error_set(CKPT_EINVAL,
                         "nothing reads the environment variable CKPT_%.*s; ckpt(7) lists them",
                         (int)length, name);
    }
    return 0;
}

/* An empty variable counts as not set, as is usual. */
int option_environment(const struct ckpt_option *table, void *dest)
{
    for (const struct ckpt_option *row = table; row->name; row++) {
        char name[ENV_NAME], where[ENV_NAME + 32];
        env_name(name, sizeof(name), row->name);
        const char *text = getenv(name);
        if (!text || !*text || !ckpt_option_has_value(row))
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
        if (row->type == CKPT_OPT_GROUP || strlen(row->name) != length ||
            memcmp(row->name, name, length) != 0)
            continue;
        return row->type == CKPT_OPT_ALIAS ? find_row(table, row->help, strlen(row->help)) : row;
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

/* -h and -V are short for the flags "help" and "version" of a table that has them. */
static const struct ckpt_option *short_flag(const struct ckpt_option *table, const char *argument)
{
    const char *name = !strcmp(argument, "-h") ? "help" : !strcmp(argument, "-V") ? "version" : "";
    const struct ckpt_option *row = *name ? find_row(table, name, strlen(name)) : NULL;

    return row && row->type == CKPT_OPT_FLAG ? row : NULL;
}

static int needs_value(const struct ckpt_option *row)
{
    return error_set(CKPT_EINVAL, "option --%s needs a value: --%s %s", row->name, row->name,
                     row->metavar ? row->metavar : "VALUE");
}

/* Stores one option; next is the argument after it or NULL; *used is how many arguments it took. */
static int parse_option(const struct ckpt_option *row, bool negated, void *dest,
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
    NOT_NULL(table);
    NOT_NULL(dest);
    NOT_NULL(argc);
    NOT_NULL(argv);
    int rc = 0, i = 1, kept = 1;

    while (!rc && i < *argc && strcmp(argv[i], "--")) {
        bool negated = false;
        bool dashes = !strncmp(argv[i], "--", 2);
        const struct ckpt_option *row =
            dashes ? match(table, argv[i] + 2, &negated) : short_flag(table, argv[i]);
        int used = 1;
        if (row)
            rc = parse_option(row, negated, dest, argv[i], i + 1 < *argc ? argv[i + 1] : NULL,
                              &used);
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
