/* Names out of files: see names.h. */
#include <stdio.h>
#include <string.h>
#include "names.h"
#include "say.h"

/* Whether a terminal would obey it: a control character, of ASCII or, in two bytes, of Latin 1. */
static bool is_control(const unsigned char *s)
{
    return *s < 0x20 || *s == 0x7f || (*s == 0xc2 && s[1] >= 0x80 && s[1] < 0xa0);
}

/* Whole characters as far as there is room; dots stand for the rest. */
static void copy_shown(char dst[NAMES_LENGTH], const char *name)
{
    const unsigned char *s = (const unsigned char *)name;
    size_t n = 0;

    for (; *s && n + 12 < NAMES_LENGTH; s++) {
        if (!is_control(s))
            dst[n++] = (char)*s;
        else
            n += (size_t)snprintf(dst + n, NAMES_LENGTH - n, "\\x%02x", *s == 0xc2 ? *++s : *s);
    }
    while (*s && n && ((unsigned char)dst[n - 1] & 0xc0) == 0x80)
        n--; /* do not cut a character in the middle */
    snprintf(dst + n, NAMES_LENGTH - n, "%s", *s ? "..." : "");
}

void names_add(struct names *l, const char *name)
{
    if (l->n < NAMES_SHOWN)
        copy_shown(l->shown[l->n], name);
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
        fprintf(stderr, "%s: %s: %s: %s\n", say_program, path, what, names_text(l, text));
}
