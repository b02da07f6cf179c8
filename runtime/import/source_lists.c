/* SPDX-License-Identifier: Apache-2.0 */
/* Identifiers, and the modules with numbered children. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "import/source_parts.h"

/* A list is one from this many calls of a child on; what is shorter is written where it stands. */
enum { LEAST_CALLS = 5, MOST_CHILDREN = 10000 };

const char *parts_ident(struct parts *p, const char *text)
{
    static const char *const words[] = {
        "auto",    "break",  "case",     "char",   "const",  "continue", "default",
        "do",      "double", "else",     "enum",   "extern", "float",    "for",
        "goto",    "if",     "inline",   "int",    "long",   "register", "restrict",
        "return",  "short",  "signed",   "sizeof", "static", "struct",   "switch",
        "typedef", "union",  "unsigned", "void",   "while",  "bool",     "volatile"};
    char *to = heap_zeros(&p->heap, (int64_t)strlen(text) + 3, 1), *end = to;

    if (!to)
        return "";
    if (!*text || isdigit((unsigned char)*text))
        *end++ = '_';
    for (; *text; text++)
        *end++ = isalnum((unsigned char)*text) ? *text : '_';
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (!strcmp(to, words[i]))
            *end++ = '_';
    return to;
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* The length of what is before the first part of a path that is a number, or -1. */
static int before_number(const char *path, int *child, const char **rest)
{
    for (const char *dot = strchr(path, '.'); dot; dot = strchr(dot + 1, '.')) {
        char *end;
        const long n = isdigit((unsigned char)dot[1]) ? strtol(dot + 1, &end, 10) : -1;
        if (n < 0 || n >= MOST_CHILDREN || (*end && *end != '.'))
            continue;
        *child = (int)n;
        *rest = *end ? end + 1 : end;
        return (int)(dot - path);
    }
    return -1;
}

static int find_list(const struct parts *p, const char *path, int n)
{
    for (int i = 0; i < p->n_lists; i++)
        if (strlen(p->list[i].path) == (size_t)n && !strncmp(p->list[i].path, path, (size_t)n))
            return i;
    return -1;
}

int parts_list_of(const struct parts *p, const char *path, int *child, const char **rest)
{
    const int n = before_number(path, child, rest);

    return n < 0 ? -1 : find_list(p, path, n);
}

static void count_calls(struct parts *p)
{
    const struct trace *tr = p->s->trace;
    int last = -1, last_child = -1;

    for (int i = 0; i < tr->n_calls; i++) {
        const char *rest, *label = tr->calls.data[i].label;
        int child = -1;
        const int n = before_number(label, &child, &rest);
        if (tr->calls.data[i].constant)
            continue;
        int list = n < 0 ? -1 : find_list(p, label, n);
        if (n >= 0 && list < 0) {
            list = p->n_lists++;
            p->list[list].path = heap_text(&p->heap, label, (size_t)n);
        }
        if (list >= 0) {
            p->list[list].n_calls++;
            p->list[list].n_segments += list != last || child != last_child;
            p->list[list].n = p->list[list].n > child ? p->list[list].n : child + 1;
        }
        last = list;
        last_child = child;
    }
}

int parts_lists(struct parts *p)
{
    int kept = 0;

    p->list = heap_zeros(&p->heap, p->s->trace->n_calls + 1, sizeof *p->list);
    if (!p->list)
        return CKPT_ENOMEM;
    count_calls(p);
    for (int i = 0; i < p->n_lists; i++)
        if (p->list[i].n_calls >= LEAST_CALLS * p->list[i].n_segments)
            p->list[kept++] = p->list[i];
    p->n_lists = kept;
    for (int i = 0; i < p->n_lists; i++) {
        p->list[i].ident = parts_ident(p, p->list[i].path);
        p->list[i].uniform = true;
    }
    return 0;
}
