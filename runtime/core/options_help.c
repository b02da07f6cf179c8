/* SPDX-License-Identifier: Apache-2.0 */
/* The help text of an option table. */
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "ckpt_tools.h"
#include "core/options.h"

enum { NARROWEST = 40 };

/* Columns of the terminal that f is; 0: it is none, and lines are not broken. */
static int columns_of(FILE *f)
{
    struct winsize size = {0};
    int fd = fileno(f);

    if (fd < 0 || ioctl(fd, TIOCGWINSZ, &size) || !size.ws_col)
        return 0;
    return size.ws_col > NARROWEST ? size.ws_col : NARROWEST;
}

static int usage_width(const struct ckpt_option *row)
{
    bool value = row->type != CKPT_OPT_FLAG && row->metavar;

    return (int)strlen(row->name) + (value ? 1 + (int)strlen(row->metavar) : 0);
}

/* Writes text that begins in this column, with its further lines there, too. */
static void put_wrapped(const char *text, int column, int columns, FILE *f)
{
    int left = columns - column;

    while (columns && left > 0 && (int)strlen(text) > left) {
        int end = left;
        while (end > 0 && text[end] != ' ')
            end--;
        if (!end)
            break;
        fprintf(f, "%.*s\n%*s", end, text, column, "");
        text += end + 1;
    }
    fprintf(f, "%s\n", text);
}

/* Whether an option follows before the next title. */
static bool has_rows(const struct ckpt_option *group)
{
    const struct ckpt_option *row = group + 1;

    while (row->type == CKPT_OPT_ALIAS)
        row++;
    return row->name && ckpt_option_has_value(row);
}

static void put_row(const struct ckpt_option *row, int width, int columns, FILE *f)
{
    bool value = row->type != CKPT_OPT_FLAG && row->metavar;

    fprintf(f, "  --%s%s%s%*s  ", row->name, value ? " " : "", value ? row->metavar : "",
            width - usage_width(row), "");
    put_wrapped(row->help ? row->help : "", width + 6, columns, f);
}

void ckpt_option_table_help(const struct ckpt_option *table, FILE *f)
{
    if (!table || !f)
        return;
    int width = 0, columns = columns_of(f);

    for (const struct ckpt_option *row = table; row->name; row++)
        if (ckpt_option_has_value(row) && usage_width(row) > width)
            width = usage_width(row);
    for (const struct ckpt_option *row = table; row->name; row++) {
        if (row->type == CKPT_OPT_GROUP && has_rows(row))
            fprintf(f, "\n%s:\n", row->name);
        if (ckpt_option_has_value(row))
            put_row(row, width, columns, f);
    }
}
