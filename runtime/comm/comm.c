/* What all communicators share: checks of calls, one rank alone, what all must agree on. */
#include <stdlib.h>
#include <string.h>
#include "comm/comm.h"

/* ---- one rank alone -------------------------------------------------------------------------- */

/* Nothing moves but what does not stand where it is wanted. */
static int alone_run(struct comm *c, const struct comm_call *call, void *stream)
{
    int64_t bytes = call->count * ckpt_dtype_size(call->dtype);
    (void)stream;
    c->n_calls++;
    if (call->kind != COMM_BARRIER && call->kind != COMM_BROADCAST && bytes &&
        call->dst != call->src)
        memmove(call->dst, call->src, (size_t)bytes);
    return 0;
}

static int alone_check(struct comm *c)
{
    (void)c;
    return 0;
}

static void alone_give_up(struct comm *c, const char *sentence)
{
    snprintf(c->reason, sizeof c->reason, "%s", sentence);
}

static void alone_close(struct comm *c)
{
    free(c);
}

int comm_open_self(struct comm **c)
{
    static const struct comm_ops ops = {
        .run = alone_run, .check = alone_check, .give_up = alone_give_up, .close = alone_close};
    *c = calloc(1, sizeof **c);
    if (!*c)
        return error_set(CKPT_ENOMEM, "no memory for a communicator");
    **c = (struct comm){.ops = &ops, .name = "self", .size = 1, .how = "one rank"};
    return 0;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static int refuse(struct comm *c, const struct comm_call *call, const char *what)
{
    snprintf(c->reason, sizeof c->reason, "collective \"%s\": %s", call->name ? call->name : "",
             what);
    return CKPT_EINVAL;
}

int comm_run(struct comm *c, const struct comm_call *call, void *stream)
{
    bool sums = call->kind == COMM_REDUCE_SCATTER || call->kind == COMM_ALL_REDUCE;
    if (!c)
        return 0;
    if (call->count < 0)
        return refuse(c, call, "a negative number of elements");
    if (sums && call->dtype != CKPT_F32 && call->dtype != CKPT_BF16)
        return refuse(c, call, "only fp32 and bf16 are added up");
    if (call->kind == COMM_BROADCAST && (call->root < 0 || call->root >= c->size))
        return refuse(c, call, "there is no such root");
    return c->ops->run(c, call, stream);
}

int comm_barrier(struct comm *c, const char *name)
{
    return comm_run(c, &(struct comm_call){.kind = COMM_BARRIER, .name = name}, NULL);
}

int comm_gather(struct comm *c, const void *mine, void *all, size_t bytes, const char *name)
{
    return comm_run(c,
                    &(struct comm_call){.kind = COMM_ALL_GATHER,
                                        .dtype = CKPT_I32,
                                        .count = (int64_t)(bytes / sizeof(int32_t)),
                                        .src = mine,
                                        .dst = all,
                                        .name = name},
                    NULL);
}

void comm_close(struct comm *c)
{
    if (c)
        c->ops->close(c);
}

int comm_open_group(struct comm *c, int n, const int *ranks, struct comm **group)
{
    return c->ops->group(c, n, ranks, group);
}

/* ---- agreement ------------------------------------------------------------------------------- */

struct terms {
    char version[16];
    int64_t n;
    struct {
        char name[24];
        uint64_t value;
    } term[COMM_MAX_TERMS];
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

static const char *plural(const bool *which, int n)
{
    int count = 0;
    for (int r = 0; r < n; r++)
        count += which[r];
    return count == 1 ? "s" : "";
}

/* Marks the ranks whose bytes at this offset are not those of rank 0; how many. */
static int mark_others(const struct terms *all, int n, size_t offset, size_t bytes, bool *other)
{
    int count = 0;
    for (int r = 0; r < n; r++) {
        other[r] = memcmp((const char *)&all[r] + offset, (const char *)all + offset, bytes) != 0;
        count += other[r];
    }
    return count;
}

static int compare_terms(struct comm *c, const struct terms *all, bool *other)
{
    char who[256];
    if (mark_others(all, c->size, offsetof(struct terms, version), sizeof all->version, other)) {
        int odd = 0;
        while (!other[odd])
            odd++;
        comm_name_ranks(who, sizeof who, other, c->size);
        return comm_fail(c, "%s run%s libckpt %.16s, rank 0 %.16s: install one version", who,
                         plural(other, c->size), all[odd].version, all->version);
    }
    for (int64_t i = 0; i < all->n; i++) {
        if (!mark_others(all, c->size, offsetof(struct terms, term[i]), sizeof all->term[i], other))
            continue;
        comm_name_ranks(who, sizeof who, other, c->size);
        return comm_fail(c, "%s started with another %.24s than rank 0", who, all->term[i].name);
    }
    return 0;
}

int comm_agree(struct comm *c, const struct comm_term *terms, int n)
{
    if (!c || c->size == 1)
        return 0;
    struct terms mine = {.n = min_i64(n, COMM_MAX_TERMS)};
    struct terms *all = calloc((size_t)c->size, sizeof *all);
    bool *other = calloc((size_t)c->size, sizeof *other);
    snprintf(mine.version, sizeof mine.version, "%s", ckpt_version());
    for (int i = 0; i < mine.n; i++) {
        snprintf(mine.term[i].name, sizeof mine.term[i].name, "%s", terms[i].name);
        mine.term[i].value = terms[i].value;
    }
    int rc = all && other ? 0 : CKPT_ENOMEM;
    if (!rc)
        rc = comm_gather(c, &mine, all, sizeof mine, "agreement");
    if (!rc)
        rc = compare_terms(c, all, other);
    free(all);
    free(other);
    return rc;
}
