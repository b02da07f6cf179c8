/* SPDX-License-Identifier: Apache-2.0 */
/* Statements: one call each, with the names of what it reads. */
#include <stdlib.h>
#include <string.h>
#include "import/source_parts.h"

static const char *text_of(struct parts *p, const char *fmt, ...) CKPT_PRINTF(2, 3);
static const char *text_of(struct parts *p, const char *fmt, ...)
{
    char text[600];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const char *kept = heap_text(&p->heap, text, strlen(text));
    return kept ? kept : "";
}

/* ---- names ----------------------------------------------------------------------------------- */

const char *body_name(struct body *b, const char *stem)
{
    int i = 0;

    while (i < b->n_count && strcmp(b->count[i].name, stem) != 0)
        i++;
    if (i == (int)(sizeof b->count / sizeof b->count[0]))
        return stem;
    if (i == b->n_count) {
        b->count[b->n_count].name = stem;
        b->count[b->n_count++].n = 0;
    }
    return text_of(b->p, "%s_%d", stem, ++b->count[i].n);
}

const char *parts_param(struct parts *p, int32_t param, const struct segment *inside)
{
    const struct source_place *at = &p->param[param];

    if (at->list < 0)
        return text_of(p, "m->%s", at->member);
    if (inside && inside->list == at->list && inside->child == at->child)
        return text_of(p, "p->%s", at->member);
    const struct list *l = &p->list[at->list];
    return text_of(p, l->uniform ? "m->%s[%d].%s" : "m->%s_%d.%s", l->ident, at->child, at->member);
}

/* What a segment reads from outside. */
static const char *outer_value(struct body *b, int32_t value)
{
    struct segment *g = b->segment;
    int i = 0;

    while (i < g->n_outer && g->outer[i] != value)
        i++;
    if (i == g->n_outer)
        g->outer[g->n_outer++] = value;
    return text_of(b->p, "x%d", i + 1);
}

const char *body_value(struct body *b, int32_t value)
{
    struct parts *p = b->p;

    if (value < 0) {
        const char *name = parts_param(p, -1 - value, b->segment);
        return b->segment && name[0] == 'm' ? outer_value(b, value) : name;
    }
    if (p->name[value])
        return p->name[value];
    return b->segment ? outer_value(b, value) : "CKPT_NONE";
}

/* ---- statements ------------------------------------------------------------------------------ */

/* The last place to break a line of at most n characters: behind a comma outside of literals. */
static size_t break_of(const char *text, size_t n)
{
    size_t at = 0;
    bool literal = false;

    for (size_t i = 0; text[i] && i < n; i++) {
        if (text[i] == '"' && (!i || text[i - 1] != '\\'))
            literal = !literal;
        if (!literal && text[i] == ',' && text[i + 1] == ' ')
            at = i + 1;
    }
    return at;
}

void source_statement(FILE *f, int indent, const char *text)
{
    int width = indent;

    while (strlen(text) + (size_t)width > 100) {
        const size_t n = break_of(text, 100 - (size_t)width);
        if (!n)
            break;
        fprintf(f, "%*s%.*s\n", width, "", (int)n, text);
        text += n + 1;
        width = indent + 4;
    }
    fprintf(f, "%*s%s\n", width, "", text);
}

static void put_number(struct body *b, FILE *f, int call, int k, bool is_size)
{
    const struct source *s = b->p->s;
    const int64_t n = s->trace->calls.data[call].number[k];
    const int64_t times = n / s->batch;

    if (!s->other || s->other->calls.data[call].number[k] == n)
        parts_put_size(is_size ? b->p : NULL, n, f);
    else if (times == 1)
        fputs("batch", f);
    else
        fprintf(f, "%lld * batch", (long long)times);
}

static void put_arguments(struct body *b, FILE *f, int call, const char *second)
{
    const struct traced *c = &b->p->s->trace->calls.data[call];
    int operand = 0, number = 0;

    for (const char *a = c->text; *a; a++) {
        if (*a == '%')
            fputs(body_value(b, c->operand[operand++]), f);
        else if (*a == '#' || *a == '@')
            put_number(b, f, call, number++, *a == '#');
        else if (*a == '$')
            fputs(second, f);
        else
            fputc(*a, f);
    }
}

/* The label of the module, which stands where it changes. */
static void put_label(struct body *b, const char *label)
{
    char quoted[1000];
    const char *rest = NULL;
    int child = 0;
    const int list = b->segment ? parts_list_of(b->p, label, &child, &rest) : -1;

    if (b->label && !strcmp(b->label, label))
        return;
    b->label = label;
    if (list >= 0 && !strchr(label, '%')) {
        char whole[900];
        snprintf(whole, sizeof whole, "%s.%%d%s%s", b->p->list[list].path, *rest ? "." : "", rest);
        source_quoted(whole, quoted, sizeof quoted);
        char *d = strstr(quoted, "\\045d");
        if (d) { /* the place of the number is one, after all */
            memmove(d + 1, d + 4, strlen(d + 4) + 1);
            *d = '%';
        }
        source_statement(b->f, 4, text_of(b->p, "ckpt_label(t, %s, child);", quoted));
    } else {
        source_quoted(label, quoted, sizeof quoted);
        source_statement(b->f, 4,
                         text_of(b->p,
                                 strchr(label, '%') || !*label ? "ckpt_label(t, \"%%s\", %s);"
                                                               : "ckpt_label(t, %s);",
                                 quoted));
    }
}

void body_call(struct body *b, int call)
{
    struct parts *p = b->p;
    const struct traced *c = &p->s->trace->calls.data[call];
    char *text = NULL, second[120] = "";
    size_t size = 0;
    const bool read = c->n_results && p->reads[c->result[0]];
    const char *name = read || c->n_results > 1 ? body_name(b, c->name) : NULL;
    FILE *f = open_memstream(&text, &size);

    if (!f)
        return;
    put_label(b, c->label);
    if (c->n_results > 1) {
        snprintf(second, sizeof second, "%s[1]", name);
        fprintf(b->f, "    ckpt_tensor %s[2];\n", name);
        fprintf(f, "%s[0] = ", name);
        p->name[c->result[0]] = text_of(p, "%s[0]", name);
        p->name[c->result[1]] = text_of(p, "%s[1]", name);
    } else if (name) {
        fprintf(f, "ckpt_tensor %s = ", name);
    }
    fprintf(f, "ckpt_%s(t%s", c->name, *c->text ? ", " : "");
    put_arguments(b, f, call, second);
    fputs(");", f);
    fclose(f);
    if (c->n_results == 1 && name)
        p->name[c->result[0]] = name;
    source_statement(b->f, 4, text ? text : "");
    free(text);
}

const char *parts_body(struct parts *p, struct segment *g)
{
    struct body *b = calloc(1, sizeof *b);
    char *text = NULL;
    size_t size = 0;
    FILE *f = b ? open_memstream(&text, &size) : NULL;

    if (!f) {
        free(b);
        return NULL;
    }
    *b = (struct body){.p = p, .segment = g, .f = f};
    g->n_outer = 0;
    for (int i = g->first; i <= g->last; i++)
        if (!p->s->trace->calls.data[i].constant)
            body_call(b, i);
    fclose(f);
    free(b);
    const char *kept = text ? heap_text(&p->heap, text, size) : NULL;
    free(text);
    return kept;
}

void parts_forget(struct parts *p)
{
    memset(p->name, 0, (size_t)p->n_values * sizeof *p->name);
}
