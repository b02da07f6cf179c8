/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collectives, as phases of pieces.  Every rank sends directly to every other: this transfers
 * as many bytes as a ring, and the owner of a part of a sum receives all terms and adds them in the
 * order of ranks.
 */
#include <string.h>
#include "ckpt_tools.h"
#include "dist/comm/linked.h"

/* Up to this many bytes every rank computes the whole sum: one round instead of two. */
enum { SMALL_SUM = 4096 };

static int64_t piece_elements(const struct exchange *f)
{
    return LINKED_PIECE / f->unit;
}

/* Elements of piece p in a part of n elements. */
static int64_t piece_length(const struct exchange *f, int64_t p, int64_t n)
{
    return max_i64(0, min_i64(piece_elements(f), n - p * piece_elements(f)));
}

/* Elements that rank r owns. */
static int64_t owned_elements(const struct exchange *f, int r)
{
    return max_i64(0, min_i64(f->share, f->total - r * f->share));
}

static struct span span_at(const struct exchange *f, const void *base, int64_t first, int64_t n)
{
    return (struct span){(char *)(uintptr_t)base + first * f->unit, n * f->unit};
}

/* ---- gathering ------------------------------------------------------------------------------- */

static struct span outgoing_own(const struct exchange *f, int64_t p, int to)
{
    (void)to;
    return span_at(f, f->call->src, p * piece_elements(f),
                   piece_length(f, p, owned_elements(f, f->ranks->rank)));
}

static int64_t expect_own(const struct exchange *f, int64_t p, int from)
{
    return piece_length(f, p, owned_elements(f, from)) * f->unit;
}

static void place_pieces(const struct exchange *f, int64_t p, const char *const *from)
{
    for (int r = 0; r < f->ranks->size; r++) {
        struct span to = span_at(f, f->call->dst, r * f->share + p * piece_elements(f),
                                 piece_length(f, p, owned_elements(f, r)));
        const char *src = from[r] ? from[r] : f->outgoing(f, p, r).data;
        if (to.bytes && to.data != src)
            memmove(to.data, src, (size_t)to.bytes);
    }
}

/* ---- sums ------------------------------------------------------------------------------------ */

enum { SUM_BLOCK = 1024 };

static void load(float *dst, const char *src, enum ckpt_dtype dtype, int64_t n)
{
    if (dtype == CKPT_F32)
        memcpy(dst, src, (size_t)n * sizeof *dst);
    else
        ckpt_from_bf16((const uint16_t *)(const void *)src, dst, n);
}

static void store(char *dst, const float *src, enum ckpt_dtype dtype, int64_t n)
{
    if (dtype == CKPT_F32)
        memcpy(dst, src, (size_t)n * sizeof *src);
    else
        ckpt_to_bf16(src, (uint16_t *)(void *)dst, n);
}

/* dst = the sum of all ranks' terms, in order of ranks. own, this rank's term, may be dst. */
static void sum_terms(const struct exchange *f, char *dst, const char *own, const char *const *from,
                      int64_t n)
{
    float sum[SUM_BLOCK], term[SUM_BLOCK];
    enum ckpt_dtype dtype = f->call->dtype;
    for (int64_t at = 0; at < n; at += SUM_BLOCK) {
        int64_t block = min_i64(SUM_BLOCK, n - at), skip = at * f->unit;
        load(sum, (from[0] ? from[0] : own) + skip, dtype, block);
        for (int r = 1; r < f->ranks->size; r++) {
            load(term, (from[r] ? from[r] : own) + skip, dtype, block);
            for (int64_t i = 0; i < block; i++)
                sum[i] += term[i];
        }
        store(dst + skip, sum, dtype, block);
    }
}

static struct span outgoing_theirs(const struct exchange *f, int64_t p, int to)
{
    return span_at(f, f->call->src, to * f->share + p * piece_elements(f),
                   piece_length(f, p, owned_elements(f, to)));
}

static int64_t expect_mine(const struct exchange *f, int64_t p, int from)
{
    (void)from;
    return piece_length(f, p, owned_elements(f, f->ranks->rank)) * f->unit;
}

static void sum_pieces(const struct exchange *f, int64_t p, const char *const *from)
{
    int64_t n = piece_length(f, p, owned_elements(f, f->ranks->rank));
    sum_terms(f, span_at(f, f->call->dst, p * piece_elements(f), n).data,
              outgoing_theirs(f, p, f->ranks->rank).data, from, n);
}

static struct span outgoing_all(const struct exchange *f, int64_t p, int to)
{
    (void)p;
    (void)to;
    return span_at(f, f->call->src, 0, f->total);
}

static int64_t expect_all(const struct exchange *f, int64_t p, int from)
{
    (void)p;
    (void)from;
    return f->total * f->unit;
}

static void sum_all(const struct exchange *f, int64_t p, const char *const *from)
{
    (void)p;
    sum_terms(f, f->call->dst, f->call->src, from, f->total);
}

/* ---- broadcast ------------------------------------------------------------------------------- */

/* In the first piece every rank sends a message, so that a missing rank is detected. */
static struct span outgoing_root(const struct exchange *f, int64_t p, int to)
{
    (void)to;
    if (f->ranks->rank == f->call->root)
        return span_at(f, f->call->src, p * piece_elements(f), piece_length(f, p, f->total));
    return (struct span){NULL, p ? -1 : 0};
}

static int64_t expect_root(const struct exchange *f, int64_t p, int from)
{
    if (from == f->call->root)
        return piece_length(f, p, f->total) * f->unit;
    return p ? -1 : 0;
}

static void receive_root(const struct exchange *f, int64_t p, const char *const *from)
{
    struct span to = span_at(f, f->call->dst, p * piece_elements(f), piece_length(f, p, f->total));
    if (f->ranks->rank != f->call->root && to.bytes)
        memcpy(to.data, from[f->call->root], (size_t)to.bytes);
}

/* ---- shift ----------------------------------------------------------------------------------- */

static int next_rank(const struct exchange *f, int rank)
{
    return (rank + 1) % f->ranks->size;
}

/* In the first piece every rank sends a message to every other, as in a broadcast. */
static struct span outgoing_next(const struct exchange *f, int64_t p, int to)
{
    if (to == next_rank(f, f->ranks->rank))
        return span_at(f, f->call->src, p * piece_elements(f), piece_length(f, p, f->total));
    return (struct span){NULL, p ? -1 : 0};
}

static int64_t expect_previous(const struct exchange *f, int64_t p, int from)
{
    if (next_rank(f, from) == f->ranks->rank)
        return piece_length(f, p, f->total) * f->unit;
    return p ? -1 : 0;
}

static void receive_previous(const struct exchange *f, int64_t p, const char *const *from)
{
    const int n = f->ranks->size, previous = (f->ranks->rank + n - 1) % n;
    struct span to = span_at(f, f->call->dst, p * piece_elements(f), piece_length(f, p, f->total));
    const char *src = from[previous] ? from[previous] : outgoing_next(f, p, 0).data; /* one rank */
    if (to.bytes)
        memcpy(to.data, src, (size_t)to.bytes);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static struct exchange exchange_of(const struct rank_group *c, const struct comm_call *call,
                                   int64_t share, int64_t total)
{
    struct exchange f = {.call = call,
                         .ranks = c,
                         .unit = ckpt_dtype_size(call->dtype),
                         .share = share,
                         .total = total};
    f.n_pieces = max_i64(1, round_up(share, piece_elements(&f)) / piece_elements(&f));
    return f;
}

static int gather(struct exchange f)
{
    f.outgoing = outgoing_own;
    f.expect = expect_own;
    f.receive = place_pieces;
    return linked_exchange(&f);
}

/* Parts go out as those of a sum do, and are placed as those of a gather are. */
static int all_to_all(struct exchange f)
{
    f.outgoing = outgoing_theirs;
    f.expect = expect_mine;
    f.receive = place_pieces;
    return linked_exchange(&f);
}

static int reduce(struct exchange f)
{
    f.outgoing = outgoing_theirs;
    f.expect = expect_mine;
    f.receive = sum_pieces;
    return linked_exchange(&f);
}

/* Every rank sums its share, then all gather the shares. */
static int all_reduce(const struct rank_group *c, const struct comm_call *call)
{
    int64_t unit = ckpt_dtype_size(call->dtype);
    int64_t share = (call->count + c->size - 1) / c->size;
    if (call->count * unit <= SMALL_SUM) {
        struct exchange f = exchange_of(c, call, call->count, call->count);
        f.outgoing = outgoing_all;
        f.expect = expect_all;
        f.receive = sum_all;
        return linked_exchange(&f);
    }
    int64_t first = min_i64(call->count, c->rank * share);
    struct comm_call part = *call;
    part.dst = (char *)call->dst + first * unit;
    int rc = reduce(exchange_of(c, &part, share, call->count));
    if (rc)
        return rc;
    part.src = part.dst;
    part.dst = call->dst;
    struct exchange back = exchange_of(c, &part, share, call->count);
    back.phase = 1;
    return gather(back);
}

static int broadcast(const struct rank_group *c, const struct comm_call *call)
{
    struct exchange f = exchange_of(c, call, call->count, call->count);
    f.outgoing = outgoing_root;
    f.expect = expect_root;
    f.receive = receive_root;
    return linked_exchange(&f);
}

static int shift(const struct rank_group *c, const struct comm_call *call)
{
    struct exchange f = exchange_of(c, call, call->count, call->count);
    f.outgoing = outgoing_next;
    f.expect = expect_previous;
    f.receive = receive_previous;
    return linked_exchange(&f);
}

int linked_collective(const struct rank_group *c, const struct comm_call *call)
{
    int64_t total = call->count * c->size;
    switch (call->kind) {
    case COMM_ALL_GATHER:
        return gather(exchange_of(c, call, call->count, total));
    case COMM_REDUCE_SCATTER:
        return reduce(exchange_of(c, call, call->count, total));
    case COMM_ALL_REDUCE:
        return all_reduce(c, call);
    case COMM_BROADCAST:
        return broadcast(c, call);
    case COMM_ALL_TO_ALL:
        return all_to_all(exchange_of(c, call, call->count, total));
    case COMM_SHIFT:
        return shift(c, call);
    default:
        return gather(exchange_of(c, call, 0, 0));
    }
}
