/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all ranks must have in common, and who has it otherwise.  Every rank gives the same list of
 * terms, a signature each; all get the same answer.  The odd one out is told from the others by
 * number: whoever differs from most is named, from the lowest rank where two are equally many.
 */
#include <stdlib.h>
#include <string.h>
#include "dist/comm/comm.h"

enum { NAME_BYTES = 128, TEXT_BYTES = 48 };

/* Of each rank, first.  Where all are alike and none has groups, that is all. */
struct hello {
    char version[16];
    int64_t n;
    uint64_t all; /* of all terms */
    int64_t grouped;
};

/* Of each rank and term. */
struct signature {
    uint64_t value;
    int64_t group;
};

/* Of each rank, about the first term that differs. */
struct shown {
    char text[TEXT_BYTES];
};

/* "rank 0", "ranks 1 and 3", "ranks 0, 1 and 5". */
void comm_name_ranks(char *dst, size_t size, const bool *which, int n)
{
    int count = 0, seen = 0;
    size_t used = 0;
    for (int r = 0; r < n; r++)
        count += which[r];
    *dst = '\0';
    for (int r = 0; r < n && used < size; r++) {
        if (!which[r])
            continue;
        const char *before = seen == 0           ? (count == 1 ? "rank " : "ranks ")
                             : seen + 1 == count ? " and "
                                                 : ", ";
        used += (size_t)snprintf(dst + used, size - used, "%s%d", before, r);
        seen++;
    }
}

static int comm_fail(struct comm *c, const char *fmt, ...) CKPT_PRINTF(2, 3);
static int comm_fail(struct comm *c, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    error_vset(c->reason, sizeof c->reason, CKPT_ECOMM, fmt, ap);
    va_end(ap);
    return CKPT_ECOMM;
}

/* An entry of each rank in a gathered array. */
struct column {
    const char *first;
    size_t bytes, stride;
};

struct agreement {
    struct comm *comm;
    const int64_t *group; /* per rank: only those of one group are compared; NULL: all */
    bool *odd;            /* per rank */
    char who[256];        /* which are odd, in words */
};

static bool is_same(const struct column *k, int a, int b)
{
    return !memcmp(k->first + (size_t)a * k->stride, k->first + (size_t)b * k->stride, k->bytes);
}

static bool is_together(const struct agreement *g, int a, int b)
{
    return !g->group || g->group[a] == g->group[b];
}

/* The first rank that another of its group differs from, or -1. */
static int find_difference(const struct agreement *g, const struct column *k)
{
    int n = g->comm->size;
    for (int a = 0; a < n; a++)
        for (int b = a + 1; b < n; b++)
            if (is_together(g, a, b) && !is_same(k, a, b))
                return a;
    return -1;
}

/* The first of those in the group of a rank whose entry most of it have. */
static int find_normal(const struct agreement *g, const struct column *k, int member)
{
    int most = 0, normal = member;
    for (int a = 0; a < g->comm->size; a++) {
        int like = 0;
        for (int b = 0; b < g->comm->size; b++)
            like += is_together(g, member, b) && is_same(k, a, b);
        if (is_together(g, member, a) && like > most) {
            most = like;
            normal = a;
        }
    }
    return normal;
}

/* Marks and names the ranks that have another entry than most.  Returns a rank to compare them
 * with, and the first of them in *odd; -1 where all agree. */
static int find_odd(struct agreement *g, const struct column *k, int *odd)
{
    int member = find_difference(g, k), n = g->comm->size;
    if (member < 0)
        return -1;
    int normal = find_normal(g, k, member);
    *odd = -1;
    for (int r = 0; r < n; r++) {
        g->odd[r] = is_together(g, member, r) && !is_same(k, normal, r);
        if (g->odd[r] && *odd < 0)
            *odd = r;
    }
    comm_name_ranks(g->who, sizeof g->who, g->odd, n);
    return normal;
}

/* "run", of one rank "runs". */
static const char *ending(const struct agreement *g)
{
    return strncmp(g->who, "ranks", 5) ? "s" : "";
}

static bool all_alike(const struct comm *c, const struct hello *all)
{
    bool alike = true;
    for (int r = 0; r < c->size; r++)
        alike &= all[r].all == all->all && !all[r].grouped;
    return alike;
}

/* *alike: there is nothing more to compare. */
static int compare_hellos(struct agreement *g, struct hello mine, bool *alike)
{
    struct comm *c = g->comm;
    struct hello *all = calloc((size_t)c->size, sizeof *all);
    struct column version = {(const char *)all, sizeof mine.version, sizeof mine};
    struct column count = {(const char *)all + offsetof(struct hello, n), sizeof mine.n,
                           sizeof mine};
    int odd = -1;
    snprintf(mine.version, sizeof mine.version, "%s", ckpt_version());
    int rc = all ? comm_gather(c, &mine, all, sizeof mine, "agreement") : CKPT_ENOMEM;
    int normal = rc ? -1 : find_odd(g, &version, &odd);
    if (normal >= 0)
        rc = comm_fail(c, "%s run%s libckpt %.16s, rank %d %.16s: install one version", g->who,
                       ending(g), all[odd].version, normal, all[normal].version);
    normal = rc ? -1 : find_odd(g, &count, &odd);
    if (normal >= 0)
        rc = comm_fail(c, "%s run%s another program than rank %d", g->who, ending(g), normal);
    *alike = !rc && all_alike(c, all);
    free(all);
    return rc;
}

/* All are here because of this term. */
static int say_difference(struct agreement *g, const char *how, const struct comm_term *t,
                          int normal, int odd)
{
    struct comm *c = g->comm;
    struct shown mine = {""}, *all = calloc((size_t)c->size, sizeof *all);
    char name[NAME_BYTES], here[TEXT_BYTES + 4] = "", there[TEXT_BYTES + 4] = "";
    snprintf(mine.text, sizeof mine.text, "%s", t->text ? t->text : "");
    int rc = all ? comm_gather(c, &mine, all, sizeof mine, "agreement") : CKPT_ENOMEM;
    if (!rc && (*all[odd].text || *all[normal].text)) {
        snprintf(there, sizeof there, " (%.*s)", TEXT_BYTES, all[odd].text);
        snprintf(here, sizeof here, " (%.*s)", TEXT_BYTES, all[normal].text);
    }
    free(all);
    if (rc)
        return rc;
    snprintf(name, sizeof name, t->of ? "%s of '%s'" : "%s", t->name, t->of);
    return comm_fail(c, "%s %s another %s%s than rank %d%s", g->who, how, name, there, normal,
                     here);
}

static uint64_t mix_text(uint64_t h, const char *text)
{
    for (; text && *text; text++)
        h = hash_mix(h, *text);
    return h;
}

static struct hello sign_terms(const struct comm_term *terms, int n, struct signature *mine)
{
    struct hello h = {.n = n, .all = HASH_START};
    for (int i = 0; i < n; i++) {
        uint64_t value = mix_text(mix_text(HASH_START, terms[i].name), terms[i].of);
        mine[i] = (struct signature){hash_mix(value, (int64_t)terms[i].value), terms[i].group};
        h.all = hash_mix(h.all, (int64_t)mine[i].value);
        h.grouped |= terms[i].group != 0;
    }
    return h;
}

/* mine has n signatures, all those of each rank behind each other. */
static int compare_terms(struct agreement *g, const char *how, const struct comm_term *terms, int n,
                         const struct signature *mine, struct signature *all, int64_t *group)
{
    int size = g->comm->size, odd = -1;
    int rc = comm_gather(g->comm, mine, all, (size_t)n * sizeof *mine, "agreement");
    g->group = group;
    for (int i = 0; i < n && !rc; i++) {
        struct column k = {(const char *)&all[i].value, sizeof all->value, (size_t)n * sizeof *all};
        for (int r = 0; r < size; r++)
            group[r] = all[(int64_t)r * n + i].group;
        int normal = find_odd(g, &k, &odd);
        if (normal >= 0)
            rc = say_difference(g, how, &terms[i], normal, odd);
    }
    return rc;
}

int comm_agree(struct comm *c, const char *how, const struct comm_term *terms, int n)
{
    if (!c || c->size == 1)
        return 0;
    size_t size = (size_t)c->size;
    struct agreement g = {.comm = c, .odd = calloc(size, sizeof *g.odd)};
    struct signature *mine = calloc((size_t)n * (size + 1) + 1, sizeof *mine);
    int64_t *group = calloc(size, sizeof *group);
    bool alike = false;
    int rc = g.odd && mine && group ? 0 : CKPT_ENOMEM;
    if (!rc)
        rc = compare_hellos(&g, sign_terms(terms, n, mine), &alike);
    if (!rc && !alike)
        rc = compare_terms(&g, how, terms, n, mine, mine + n, group);
    if (rc == CKPT_ENOMEM)
        snprintf(c->reason, sizeof c->reason, "no memory to compare %d ranks", c->size);
    free(g.odd);
    free(mine);
    free(group);
    return rc;
}
