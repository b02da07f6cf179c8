/* SPDX-License-Identifier: Apache-2.0 */
/* Rejects arguments that no option table took, and suggests the option that may be meant. */
#include <stdio.h>
#include <string.h>
#include "core/options.h"

#define MAX_NAME 64 /* longer names get no suggestion */

static int min3(int a, int b, int c)
{
    int ab = a < b ? a : b;

    return ab < c ? ab : c;
}

/*
 * The number of edits (insert, delete, replace, swap of neighbours) that turn a into b: the optimal
 * string alignment distance.  Three rows of its table are enough.
 */
static int edit_distance(const char *a, int la, const char *b, int lb)
{
    int rows[3][MAX_NAME + 1];

    for (int j = 0; j <= lb; j++)
        rows[0][j] = j;
    for (int i = 1; i <= la; i++) {
        int *now = rows[i % 3], *before = rows[(i + 2) % 3], *earlier = rows[(i + 1) % 3];
        now[0] = i;
        for (int j = 1; j <= lb; j++) {
            now[j] = min3(before[j] + 1, now[j - 1] + 1, before[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = min3(now[j], now[j], earlier[j - 2] + 1);
        }
    }
    return rows[la % 3][lb];
}

struct nearest {
    const char *name;
    int distance;
};

static void search_table(const struct ckpt_option *table, const char *word, int length,
                         struct nearest *best)
{
    for (const struct ckpt_option *row = table; row->name; row++) {
        size_t n = strlen(row->name);
        if (n > MAX_NAME || !ckpt_option_has_value(row))
            continue;
        int distance = edit_distance(word, length, row->name, (int)n);
        if (distance < best->distance)
            *best = (struct nearest){row->name, distance};
    }
}

/* Whether a text begins with the words of a name, separated by a dash or a blank. */
static bool begins_with(const char *text, const char *name, int length)
{
    for (int i = 0; i < length; i++)
        if (text[i] != name[i] && !(text[i] == ' ' && name[i] == '-'))
            return false;
    return text[length] < 'a' || text[length] > 'z';
}

/* The option of this name, which has no "no-" before it, or whose name is its beginning, as --batch
 * for --batch-size. */
static const char *search_names(const struct ckpt_option *table, const char *word, int length)
{
    for (const struct ckpt_option *row = table; row->name && length > 1; row++) {
        int n = (int)strlen(row->name);
        if (!ckpt_option_has_value(row) || n > length || strncmp(row->name, word, (size_t)n))
            continue;
        if (n == length || (n > 2 && word[n] == '-'))
            return row->name;
    }
    return NULL;
}

/* The option whose help text begins with this name, as "learning rate" for --lr. */
static const char *search_words(const struct ckpt_option *table, const char *word, int length)
{
    for (const struct ckpt_option *row = table; row->name && length > 1; row++)
        if (ckpt_option_has_value(row) && row->help && begins_with(row->help, word, length))
            return row->name;
    return NULL;
}

const char *option_nearest(const char *word, int length, int n, const struct ckpt_option **tables)
{
    /* About one edit in three letters still looks like a typing mistake. */
    struct nearest best = {NULL, length / 3 + 2};

    for (int i = 0; i < n; i++) {
        const char *found = search_names(tables[i], word, length);
        if (found)
            return found;
    }
    for (int i = 0; i < n; i++) {
        const char *found = search_words(tables[i], word, length);
        if (found)
            return found;
    }
    for (int i = 0; i < n && length <= MAX_NAME; i++)
        search_table(tables[i], word, length, &best);
    return best.name;
}

static bool has_help(int n, const struct ckpt_option **tables)
{
    for (int i = 0; i < n; i++)
        for (const struct ckpt_option *row = tables[i]; row->name; row++)
            if (!strcmp(row->name, "help"))
                return true;
    return false;
}

static bool is_word(const char *argument, const char *letter, const char *word)
{
    return !strcmp(argument, letter) || !strcmp(argument, word);
}

/* The help of a program without a help option: lists its options by name. */
static int list_options(int n, const struct ckpt_option **tables)
{
    char list[CKPT_MESSAGE];
    size_t used = 0;
    for (int i = 0; i < n; i++)
        for (const struct ckpt_option *row = tables[i]; row->name && used < sizeof list; row++)
            if (ckpt_option_has_value(row))
                used += (size_t)snprintf(list + used, sizeof list - used, "%s--%s",
                                         used ? ", " : "", row->name);
    return error_set(CKPT_EINVAL, "libckpt %s; options %s", ckpt_version(), used ? list : "none");
}

int ckpt_options_reject(int argc, char **argv, int n, const struct ckpt_option **tables)
{
    NOT_NULL(argv);
    if (n)
        NOT_NULL(tables);
    if (argc <= 1)
        return 0;
    if (!has_help(n, tables) &&
        (is_word(argv[1], "-h", "--help") || is_word(argv[1], "-V", "--version")))
        return list_options(n, tables);
    const char *hint = has_help(n, tables) ? "; --help lists all options" : "";
    if (argv[1][0] != '-' || !strcmp(argv[1], "--"))
        return error_set(CKPT_EINVAL, "unexpected argument '%s': options begin with --%s", argv[1],
                         hint);

    const char *word = argv[1] + strspn(argv[1], "-");
    if (!strncmp(word, "no-", 3))
        word += 3;
    size_t length = strcspn(word, "=");
    const char *near = option_nearest(word, (int)length, n, tables);
    if (!near)
        return error_set(CKPT_EINVAL, "unknown option '%s'%s", argv[1], hint);
    return error_set(CKPT_EINVAL, "unknown option '%s'; did you mean --%s?", argv[1], near);
}
