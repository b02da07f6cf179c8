/* SPDX-License-Identifier: Apache-2.0 */
/* Names for the sizes of a model, so that its source says where a number is from. */
#include <ctype.h>
#include <string.h>
#include "import/source_parts.h"

/* Smaller ones are as often heads, groups or kernels. */
enum { SMALLEST = 16, MOST_SIZES = 60 };

static void name_size(struct parts *p, int64_t n, const char *of, int axis)
{
    char name[200];
    size_t k = 0;

    for (int i = 0; i < p->n_sizes; i++)
        if (p->size[i].n == n)
            return;
    if (n < SMALLEST || p->n_sizes == MOST_SIZES)
        return;
    for (; of[k] && k < 150; k++)
        name[k] = isalnum((unsigned char)of[k]) ? (char)toupper((unsigned char)of[k]) : '_';
    snprintf(name + k, sizeof name - k, "_%d", axis);
    const char *kept = parts_ident(p, name);
    for (int i = 0; i < p->n_sizes; i++)
        if (!strcmp(p->size[i].name, kept))
            return;
    p->size[p->n_sizes++] = (struct named_size){n, kept};
}

/* Inputs are noted with their name first, "..." and all of their sizes. */
static void name_input(struct parts *p, const struct traced *c)
{
    char name[200];
    const char *end = strchr(c->text + 1, '"');

    snprintf(name, sizeof name, "%.*s", end ? (int)(end - c->text - 1) : 0, c->text + 1);
    for (int i = 1; i < c->n_numbers; i++)
        name_size(p, c->number[i], name, i);
}

int parts_sizes(struct parts *p)
{
    const struct source *s = p->s;

    p->size = heap_zeros(&p->heap, MOST_SIZES, sizeof *p->size);
    if (!p->size)
        return CKPT_ENOMEM;
    for (int i = 0; i < s->trace->n_calls; i++)
        if (!strcmp(s->trace->calls.data[i].name, "input"))
            name_input(p, &s->trace->calls.data[i]);
    for (int32_t i = 0; i < s->params->n; i++)
        for (int k = 0; k < s->params->data[i].desc.ndim; k++) {
            char name[300];
            const struct source_place *at = &p->param[i];
            snprintf(name, sizeof name, "%.140s%s%.140s",
                     at->list < 0 ? "" : p->list[at->list].ident, at->list < 0 ? "" : "_",
                     at->member);
            name_size(p, s->params->data[i].desc.shape[k], name, k);
        }
    return 0;
}

void parts_put_size(const struct parts *p, int64_t n, FILE *f)
{
    for (int i = 0; p && i < p->n_sizes; i++)
        if (p->size[i].n == n) {
            fputs(p->size[i].name, f);
            return;
        }
    fprintf(f, "%lld", (long long)n);
}
