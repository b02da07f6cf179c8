/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of names from files: see names.h. */
#include <stdio.h>
#include <string.h>
#include "names.h"
#include "say.h"

/* Copies as many whole characters as fit; dots replace the rest. */
static void copy_start(char dst[NAMES_LENGTH], const char *name)
{
    size_t n = strlen(name), room = NAMES_LENGTH - sizeof "...";

    if (n > room)
        for (n = room; n && ((unsigned char)name[n] & 0xc0) == 0x80;)
            n--; /* do not cut a character in the middle */
    snprintf(dst, NAMES_LENGTH, "%.*s%s", (int)n, name, name[n] ? "..." : "");
}

bool names_is_of_layer(const char *name)
{
    static const char *const endings[] = {"_scale", "_scale_inv", "scales", "qzeros"};
    size_t n = strlen(name);

    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (n > strlen(endings[i]) && !strcmp(name + n - strlen(endings[i]), endings[i]))
            return true;
    for (const char *p = strchr(name, '.'); p; p = strchr(p + 1, '.')) {
        size_t digits = strspn(p + 1, "0123456789");
        if (digits && (p[1 + digits] == '.' || !p[1 + digits]))
            return true;
    }
    return false;
}

void names_add(struct names *l, const char *name)
{
    if (l->n < NAMES_SHOWN)
        copy_start(l->shown[l->n], name);
    l->n++;
}

const char *names_text(const struct names *l, char dst[NAMES_TEXT])
{
    char more[32];
    size_t n = 0;

    dst[0] = 0;
    for (int i = 0; i < l->n && i < NAMES_SHOWN; i++)
        n += (size_t)snprintf(dst + n, NAMES_TEXT - n, "%s%s", i ? ", " : "", l->shown[i]);
    if (l->n > NAMES_SHOWN)
        snprintf(dst + n, NAMES_TEXT - n, " and %s more", say_count(more, l->n - NAMES_SHOWN));
    return dst;
}

void names_report(const struct names *l, const char *path, const char *what)
{
    char text[NAMES_TEXT];

    if (l->n)
        say_note("%s: %s: %s", path, what, names_text(l, text));
}

/* Whether the first name is a range of --qat. */
static bool are_ranges(const struct names *l)
{
    static const char *const endings[] = {".input_range", ".input_scale_start",
                                          ".input_scale_change"};
    const size_t n = l->n ? strlen(l->shown[0]) : 0;

    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (n > strlen(endings[i]) && !strcmp(l->shown[0] + n - strlen(endings[i]), endings[i]))
            return true;
    return false;
}

int names_refuse_layers(const struct names *l, const char *path)
{
    char text[NAMES_TEXT];

    if (are_ranges(l))
        return say_fail("%s: it was trained with --qat int8, and this run has no place for %s: "
                        "give --qat int8 and --qat-ranges as then, or the file that --save-int8 "
                        "wrote",
                        path, names_text(l, text));
    return l->n ? say_fail("%s: the model has no place for %s: its configuration has fewer layers, "
                           "or is of another kind",
                           path, names_text(l, text))
                : 0;
}
