/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every rank knows the inputs of all ranks, so each computes the expected result: sums term by term
 * in the order of ranks.  The terms differ so much in size that another order gives other bits.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt_tools.h"
#include "core/checksum.h"
#include "dist/exercise.h"

/* Counts of nothing, of few elements, and near one message (128 KiB) and two, for 4 bytes and for
 * 2. */
static const int64_t counts[] = {0, 1, 3, 1021, 1025, 32768, 32769, 65537};
enum { N_COUNTS = (int)(sizeof counts / sizeof *counts) };

struct one {
    struct comm_call call;
    bool in_place;
    int64_t give, get; /* elements of src and dst */
    char *src, *dst, *must;
};

static float value(int rank, int64_t i, int64_t call)
{
    static const float sizes[] = {0x1p-12f, 0x1p-9f, 0x1p-6f, 0x1p-3f, 1, 0x1p3f, 0x1p6f, 0x1p9f};
    uint64_t h = ((uint64_t)call << 40 | (uint64_t)rank << 32 | (uint64_t)i) + 1;
    h = (h ^ h >> 30) * UINT64_C(0xbf58476d1ce4e5b9); /* two rounds of SplitMix64 */
    h = (h ^ h >> 27) * UINT64_C(0x94d049bb133111eb);
    return (float)((int32_t)(h >> 40) % 2001 - 1000) * sizes[h >> 32 & 7];
}

static void put(char *dst, int64_t i, enum ckpt_dtype dtype, float v)
{
    if (dtype == CKPT_F32)
        memcpy(dst + i * 4, &v, 4);
    else
        ckpt_to_bf16(&v, (uint16_t *)(void *)dst + i, 1);
}

/* The input of a rank at element i, rounded to the dtype. */
static float given(const struct one *o, int rank, int64_t i, int64_t n_call)
{
    float v = value(rank, i, n_call);
    uint16_t rounded;
    if (o->call.dtype == CKPT_F32)
        return v;
    ckpt_to_bf16(&v, &rounded, 1);
    ckpt_from_bf16(&rounded, &v, 1);
    return v;
}

static void expect(const struct comm *c, const struct one *o)
{
    int64_t count = o->call.count, n_call = c->n_calls;
    for (int64_t i = 0; i < o->get; i++) {
        float v = 0;
        switch (o->call.kind) {
        case COMM_ALL_GATHER:
            v = given(o, (int)(i / count), i % count, n_call);
            break;
        case COMM_ALL_TO_ALL:
            v = given(o, (int)(i / count), c->rank * count + i % count, n_call);
            break;
        case COMM_BROADCAST:
            v = given(o, o->call.root, i, n_call);
            break;
        case COMM_SHIFT:
            v = given(o, (c->rank + c->size - 1) % c->size, i, n_call);
            break;
        default:
            for (int r = 0; r < c->size; r++) {
                int64_t at = o->call.kind == COMM_REDUCE_SCATTER ? c->rank * count + i : i;
                float term = given(o, r, at, n_call);
                v = r ? v + term : term;
            }
        }
        put(o->must, i, o->call.dtype, v);
    }
}

static bool allocate(const struct comm *c, struct one *o)
{
    int64_t unit = ckpt_dtype_size(o->call.dtype), count = o->call.count;
    const enum comm_kind kind = o->call.kind;
    o->give = kind == COMM_REDUCE_SCATTER || kind == COMM_ALL_TO_ALL ? count * c->size : count;
    o->get = kind == COMM_ALL_GATHER || kind == COMM_ALL_TO_ALL ? count * c->size : count;
    size_t bytes = (size_t)(count * c->size * unit) + 8;
    o->src = malloc(bytes);
    o->dst = o->in_place ? o->src : malloc(bytes);
    o->must = malloc(bytes);
    if (!o->src || !o->dst || !o->must)
        return false;
    memset(o->src, 0xee, bytes);
    memset(o->dst, 0xee, bytes);
    o->call.src = o->src;
    o->call.dst = o->dst;
    if (o->in_place && o->call.kind == COMM_ALL_GATHER)
        o->call.src = o->src + c->rank * count * unit;
    if (o->in_place && o->call.kind == COMM_REDUCE_SCATTER)
        o->call.dst = o->src + c->rank * count * unit;
    return true;
}

static int compare(const struct comm *c, const struct one *o, uint64_t *digest, char *wrong,
                   size_t size)
{
    static const char *const kinds[] = {"all_gather", "reduce_scatter", "all_reduce",
                                        "broadcast",  "all_to_all",     "shift"};
    int64_t bytes = o->get * ckpt_dtype_size(o->call.dtype);
    const char *got =
        o->call.kind == COMM_BROADCAST && c->rank == o->call.root ? o->call.src : o->call.dst;
    *digest = hash_mix(*digest, (int64_t)checksum(got, bytes));
    if (!bytes || !memcmp(got, o->must, (size_t)bytes))
        return 0;
    for (int64_t i = 0; i < bytes; i++) {
        if (got[i] == o->must[i])
            continue;
        snprintf(wrong, size, "%s of %lld, dtype %d, in place %d: rank %d of %d, byte %lld",
                 kinds[o->call.kind], (long long)o->call.count, (int)o->call.dtype, o->in_place,
                 c->rank, c->size, (long long)i);
        return CKPT_ENAN;
    }
    return 0;
}

static int run_one(struct comm *c, struct one *o, uint64_t *digest, char *wrong, size_t size)
{
    int rc = allocate(c, o) ? 0 : CKPT_ENOMEM;
    if (!rc) {
        char *src = (char *)(uintptr_t)o->call.src;
        for (int64_t i = 0; i < o->give; i++)
            put(src, i, o->call.dtype, value(c->rank, i, c->n_calls));
        expect(c, o);
        rc = comm_run(c, &o->call, NULL);
        snprintf(wrong, size, "%s", rc ? c->reason : "");
    }
    if (!rc)
        rc = compare(c, o, digest, wrong, size);
    if (!o->in_place)
        free(o->dst);
    free(o->src);
    free(o->must);
    return rc;
}

enum { KINDS = COMM_SHIFT + 1 };

/* The kind, the count, the dtype and whether it is in place are the digits of n. */
static struct one nth(int64_t n, int size)
{
    struct one o = {0};
    o.call.kind = (enum comm_kind)(n % KINDS);
    n /= KINDS;
    o.call.count = counts[n % N_COUNTS];
    n /= N_COUNTS;
    o.call.dtype = n % 2 ? CKPT_BF16 : CKPT_F32;
    o.in_place = n / 2 && o.call.kind != COMM_ALL_TO_ALL && o.call.kind != COMM_SHIFT;
    o.call.root = (int)(o.call.count % size);
    o.call.name = "exercise";
    return o;
}

int64_t exercise_calls(void)
{
    return KINDS * N_COUNTS * 2 * 2;
}

int exercise(struct comm *c, uint64_t *digest, char *wrong, size_t size)
{
    int rc = 0;
    *digest = HASH_START;
    for (int64_t n = 0; n < exercise_calls() && !rc; n++) {
        struct one o = nth(n, c->size);
        c->step = n;
        if (o.call.kind != COMM_SHIFT || !c->hosts) /* NCCL has no shift */
            rc = run_one(c, &o, digest, wrong, size);
    }
    if (!rc)
        rc = comm_barrier(c, "the end");
    return rc;
}

int exercise_open_groups(struct comm *c, struct comm *groups[EXERCISE_GROUPS], char *wrong,
                         size_t size)
{
    int rc = 0;
    for (int stride = 1; stride <= EXERCISE_GROUPS && !rc; stride++) {
        int first = stride == 1 ? c->rank / 2 * 2 : c->rank % 2;
        groups[stride - 1] = NULL;
        if (c->size < 3 || first + stride >= c->size || first > c->rank)
            continue;
        rc = comm_open_group(c, 2, (const int[]){first, first + stride}, &groups[stride - 1]);
        if (rc)
            snprintf(wrong, size, "%s", error_get());
    }
    return rc ? rc : comm_barrier(c, "groups");
}

int exercise_groups(struct comm *c, uint64_t *digest, char *wrong, size_t size)
{
    struct comm *groups[EXERCISE_GROUPS] = {NULL};
    int rc = exercise_open_groups(c, groups, wrong, size);
    for (int i = 0; i < EXERCISE_GROUPS; i++) {
        uint64_t part = 0;
        if (!rc && groups[i])
            rc = exercise(groups[i], &part, wrong, size);
        *digest = hash_mix(*digest, (int64_t)part);
    }
    for (int i = 0; i < EXERCISE_GROUPS; i++)
        comm_close(groups[i]);
    if (!rc)
        rc = comm_barrier(c, "the end of groups");
    return rc;
}
