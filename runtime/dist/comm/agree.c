/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares state that all ranks must have in common.  Every rank passes the same list of terms,
 * each with a signature; all get the same result.  The sentence names the ranks that differ from
 * the majority; on a tie, the lowest rank counts as the majority.
 */
#include <stdlib.h>
#include <string.h>
#include "dist/comm/comm.h"

enum { NAME_BYTES = 128, TEXT_BYTES = 48 };

/* Sent by each rank first.  If all are equal and no term has a group, nothing else is sent. */
struct hello {
    char version[16];
    int64_t n;
    uint64_t all; /* digest of all terms */
    int64_t grouped;
};

/* One per rank and term. */
struct signature {
    uint64_t value;
    int64_t group;
};

/* One per rank, for the first term that differs. */
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

/* One entry per rank inside a gathered array. */
struct column {
    const char *first;
    size_t bytes, stride;
};

struct agreement {
    struct comm *comm;
    const int64_t *group; /* per rank: only ranks of one group are compared; NULL: all */
    bool *odd;            /* per rank */
    char who[256];        /* names of the odd ranks */
};

static bool is_same(const struct column *k, int a, int b)
{
    return !memcmp(k->first + (size_t)a * k->stride, k->first + (size_t)b * k->stride, k->bytes);
}

static bool is_together(const struct agreement *g, int a, int b)
{
    return !g->group || g->group[a] == g->group[b];
}

/* The first rank that differs from another of its group, or -1. */
static int find_difference(const struct agreement *g, const struct column *k)
{
    int n = g->comm->size;
    for (int a = 0; a < n; a++)
        for (int b = a + 1; b < n; b++)
            if (is_together(g, a, b) && !is_same(k, a, b))
                return a;
    return -1;
}

/* The first rank of the group that has the group's most frequent entry. */
static int find_majority(const struct agreement *g, const struct column *k, int member)
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

/* Marks and names the ranks that differ from the majority.  Returns a rank of the majority, and the
 * first odd rank in *odd; -1 if all agree. */
static int find_odd(struct agreement *g, const struct column *k, int *odd)
{
    int member = find_difference(g, k), n = g->comm->size;
    if (member < 0)
        return -1;
    int normal = find_majority(g, k, member);
    *odd = -1;
    for (int r = 0; r < n; r++) {
        g->odd[r] = is_together(g, member, r) && !is_same(k, normal, r);
        if (g->odd[r] && *odd < 0)
            *odd = r;
    }
    comm_name_ranks(g->who, sizeof g->who, g->odd, n);
    return normal;
}

/* "run", for one rank "runs". */
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

/* *alike: nothing more needs to be compared. */
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

/* Collective: all ranks found the same term to differ. */
static int report_difference(struct agreement *g, const char *how, const struct comm_term *t,
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

static struct hello sign_terms(const struct comm_term *terms, int n, struct signature *mine)
{
    struct hello h = {.n = n, .all = HASH_START};
    for (int i = 0; i < n; i++) {
        const struct comm_term *term = &terms[i];
        uint64_t of = term->of ? hash_text(term->of) : 0;
        uint64_t name = hash_mix(hash_text(term->name), (int64_t)of);
        mine[i] = (struct signature){hash_mix(name, (int64_t)term->value), term->group};
        h.all = hash_mix(h.all, (int64_t)mine[i].value);
        h.grouped |= term->group != 0;
    }
    return h;
}

/* mine has n signatures; all has n signatures per rank. */
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
            rc = report_difference(g, how, &terms[i], normal, odd);
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
