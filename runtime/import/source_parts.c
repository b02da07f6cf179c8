/* SPDX-License-Identifier: Apache-2.0 */
#include "import/source_parts.h"
#include <stdlib.h>
#include <string.h>

/* ---- parameters ------------------------------------------------------------------------------ */

static bool same_place(const struct source_place *a, const struct source_place *b)
{
    return a->list == b->list && a->child == b->child;
}

/* Names that differ may become the same identifier. */
static const char *unlike_others(struct parts *p, int32_t i, const char *member)
{
    for (int32_t k = 0; k < i; k++)
        if (same_place(&p->param[k], &p->param[i]) && !strcmp(p->param[k].member, member)) {
            char other[600];
            snprintf(other, sizeof other, "%.580s_%d", member, (int)i);
            return parts_ident(p, other);
        }
    return member;
}

/* The parameter of child 0 with the same rest, or -1. */
static int32_t twin_of(const struct parts *p, int32_t i)
{
    for (int32_t k = 0; k < p->s->params->n; k++)
        if (p->param[k].list == p->param[i].list && p->param[k].child == 0 &&
            !strcmp(p->param[k].rest, p->param[i].rest))
            return k;
    return -1;
}

/* Whether each child of a list has the parameters of child 0. */
static void compare_children(struct parts *p)
{
    const struct params *ps = p->s->params;

    for (int l = 0; l < p->n_lists; l++) {
        int of_first = 0, all = 0;
        for (int32_t i = 0; i < ps->n; i++) {
            if (p->param[i].list != l)
                continue;
            const int32_t twin = twin_of(p, i);
            of_first += p->param[i].child == 0;
            all++;
            if (twin < 0 || strcmp(p->param[i].member, p->param[twin].member) != 0)
                p->list[l].uniform = false;
        }
        p->list[l].uniform &= all == of_first * p->list[l].n;
    }
}

static int place_params(struct parts *p)
{
    const struct params *ps = p->s->params;

    p->param = heap_zeros(&p->heap, ps->n + 1, sizeof *p->param);
    if (!p->param)
        return CKPT_ENOMEM;
    for (int32_t i = 0; i < ps->n; i++) {
        struct source_place *at = &p->param[i];
        at->list = parts_list_of(p, ps->data[i].name, &at->child, &at->rest);
        if (at->list < 0)
            at->rest = ps->data[i].name;
        at->child = at->list < 0 ? -1 : at->child;
        if (at->list >= 0 && at->child >= p->list[at->list].n) /* nothing reads what it makes */
            p->list[at->list].n = at->child + 1;
        at->member = unlike_others(p, i, parts_ident(p, at->rest));
    }
    compare_children(p);
    return 0;
}

/* ---- segments -------------------------------------------------------------------------------- */

static int find_segments(struct parts *p)
{
    const struct trace *tr = p->s->trace;
    struct segment *g = NULL;

    p->segment = heap_zeros(&p->heap, tr->n_calls + 1, sizeof *p->segment);
    p->owner = heap_zeros(&p->heap, tr->n_calls + 1, sizeof *p->owner);
    if (!p->segment || !p->owner)
        return CKPT_ENOMEM;
    for (int i = 0; i < tr->n_calls; i++) {
        const char *rest;
        int child = -1;
        p->owner[i] = -1;
        if (tr->calls.data[i].constant)
            continue;
        const int list = parts_list_of(p, tr->calls.data[i].label, &child, &rest);
        if (list < 0) {
            g = NULL;
            continue;
        }
        if (!g || g->list != list || g->child != child) {
            g = &p->segment[p->n_segments++];
            *g = (struct segment){.first = i, .list = list, .child = child};
        }
        g->last = i;
        p->owner[i] = (int)(g - p->segment);
    }
    return 0;
}

/* ---- functions ------------------------------------------------------------------------------- */

static bool same_struct(const struct parts *p, const struct segment *a, const struct segment *b)
{
    return a->list == b->list &&
           (a->child == b->child || p->list[a->list].uniform || !strstr(a->body, "p->"));
}

static int function_of(struct parts *p, int segment)
{
    const struct segment *g = &p->segment[segment];
    char name[600];

    for (int i = 0; i < p->n_functions; i++) {
        const struct segment *other = &p->segment[p->function[i].segment];
        if (!strcmp(other->body, g->body) && same_struct(p, other, g))
            return i;
    }
    bool again = false;
    for (int i = 0; i < p->n_functions; i++) {
        const struct segment *other = &p->segment[p->function[i].segment];
        again |= other->list == g->list && other->child == g->child;
    }
    snprintf(name, sizeof name, again ? "record_%.500s_%d_%d" : "record_%.500s_%d",
             p->list[g->list].ident, g->child, segment);
    p->function[p->n_functions] = (struct function){
        .segment = segment,
        .name = heap_text(&p->heap, name, strlen(name)),
        .result = heap_zeros(&p->heap, 4 * (g->last - g->first + 2), sizeof *p->function->result)};
    if (!p->function[p->n_functions].name || !p->function[p->n_functions].result)
        return -1;
    return p->n_functions++;
}

static int find_functions(struct parts *p)
{
    p->function = heap_zeros(&p->heap, p->n_segments + 1, sizeof *p->function);
    if (!p->function)
        return CKPT_ENOMEM;
    for (int i = 0; i < p->n_segments; i++) {
        struct segment *g = &p->segment[i];
        int most = 0;
        for (int k = g->first; k <= g->last; k++)
            most += p->s->trace->calls.data[k].n_operands;
        g->outer = heap_zeros(&p->heap, most + 1, sizeof *g->outer);
        g->body = g->outer ? parts_body(p, g) : NULL;
        parts_forget(p);
        g->function = g->body ? function_of(p, i) : -1;
        if (g->function < 0)
            return CKPT_ENOMEM;
    }
    return 0;
}

int parts_call(const struct parts *p, const struct segment *g, int n)
{
    int call = g->first;

    while (p->owner[call] < 0 || n-- > 0)
        call++;
    return call;
}

/* The number of a call in its segment. */
static int number_of(const struct parts *p, int call)
{
    int n = 0;

    for (int i = p->segment[p->owner[call]].first; i < call; i++)
        n += p->owner[i] >= 0;
    return n;
}

/* A value that is read outside of the segment that makes it is a result of its function. */
static void add_result(struct parts *p, int32_t value, int reader)
{
    const int maker = value > 0 ? p->maker[value] : -1, segment = maker < 0 ? -1 : p->owner[maker];

    if (segment < 0 || (reader >= 0 && p->owner[reader] == segment))
        return;
    const struct traced *c = &p->s->trace->calls.data[maker];
    struct function *f = &p->function[p->segment[segment].function];
    const int32_t result = 4 * number_of(p, maker) + (c->n_results > 1 && c->result[1] == value);
    for (int i = 0; i < f->n_results; i++)
        if (f->result[i] == result)
            return;
    f->result[f->n_results++] = result;
}

static int find_values(struct parts *p)
{
    const struct trace *tr = p->s->trace;

    for (int i = 0; i < tr->n_calls; i++)
        for (int k = 0; k < tr->calls.data[i].n_results; k++)
            if (tr->calls.data[i].result[k] >= p->n_values)
                p->n_values = tr->calls.data[i].result[k] + 1;
    p->maker = heap_zeros(&p->heap, p->n_values + 1, sizeof *p->maker);
    p->reads = heap_zeros(&p->heap, p->n_values + 1, sizeof *p->reads);
    p->name = heap_zeros(&p->heap, p->n_values + 1, sizeof *p->name);
    if (!p->maker || !p->reads || !p->name)
        return CKPT_ENOMEM;
    for (int32_t x = 0; x < p->n_values; x++)
        p->maker[x] = -1;
    for (int i = 0; i < tr->n_calls; i++) {
        const struct traced *c = &tr->calls.data[i];
        for (int k = 0; k < c->n_results; k++)
            p->maker[c->result[k]] = i;
        for (int k = 0; k < c->n_operands; k++) {
            const int32_t x = c->operand[k];
            if (x >= p->n_values || (x > 0 && p->maker[x] < 0))
                return error_set(CKPT_EINVAL, "ckpt_%s reads what no noted call has made", c->name);
            p->reads[x > 0 ? x : 0]++;
        }
    }
    if (p->s->loss > 0 && p->s->loss < p->n_values)
        p->reads[p->s->loss]++;
    return 0;
}

int parts_find(struct parts *p, const struct source *s)
{
    *p = (struct parts){.s = s};
    int rc = parts_lists(p);
    if (!rc)
        rc = place_params(p);
    if (!rc)
        rc = parts_sizes(p);
    if (!rc)
        rc = find_values(p);
    if (!rc)
        rc = find_segments(p);
    if (!rc)
        rc = find_functions(p);
    for (int i = 0; i < s->trace->n_calls && !rc; i++)
        for (int k = 0; k < s->trace->calls.data[i].n_operands; k++)
            add_result(p, s->trace->calls.data[i].operand[k], i);
    if (!rc)
        add_result(p, s->loss, -1);
    return rc;
}
