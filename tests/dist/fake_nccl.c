/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL between threads of one process, on host memory, to test the callers of NCCL without a GPU.
 * It is as strict about arguments as NCCL, reports calls as in progress, and aborts slowly.  A call
 * is complete when it returns; sums are computed in the order of ranks, in fp32, rounded once.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "dist/comm/nccl_api.h"

enum { RANKS = 8, WORLDS = 256, SYSTEM_ERROR = 2, BAD_ARGUMENT = 4, BAD_USE = 5 };
enum kind { GATHER, SCATTER, REDUCE, EXCHANGE };

struct call {
    enum kind kind;
    const void *src;
    void *dst;
    size_t count;
    nccl_dtype dtype;
    struct part {
        const void *src;
        void *dst;
        size_t sent, expected;
    } parts[RANKS]; /* EXCHANGE: with each rank; count is what all send here */
};

struct world {
    pthread_mutex_t lock;
    pthread_cond_t news;
    int size, joined, here;
    bool broken; /* a call of some rank failed: nobody waits for it any more */
    int64_t round;
    struct call calls[RANKS];
};

struct ncclComm {
    struct world *world;
    int rank, polls; /* that will still say that the last call is under way */
    bool finalized;
};

/* For tests: how many communicators were aborted, and how many were destroyed after they were
 * finalized. */
extern int fake_nccl_aborted, fake_nccl_destroyed;
int fake_nccl_aborted, fake_nccl_destroyed;

/* For tests: the call that fails, counted from 1 over all ranks (0: none), and how many calls there
 * were. */
extern int fake_nccl_fails, fake_nccl_calls;
int fake_nccl_fails, fake_nccl_calls;

static bool fails(void)
{
    return __atomic_add_fetch(&fake_nccl_calls, 1, __ATOMIC_SEQ_CST) == fake_nccl_fails;
}

static void break_up(struct world *w)
{
    pthread_mutex_lock(&w->lock);
    w->broken = true;
    pthread_cond_broadcast(&w->news);
    pthread_mutex_unlock(&w->lock);
}

nccl_result ncclGetVersion(int *version)
{
    if (fails())
        return (nccl_result)SYSTEM_ERROR;
    *version = 22809;
    return NCCL_OK;
}

nccl_result ncclGetUniqueId(NCCL_ID *id)
{
    static struct world worlds[WORLDS]; /* none is given back: ranks may still leave it */
    static int n;
    int taken = __atomic_fetch_add(&n, 1, __ATOMIC_SEQ_CST);
    struct world *w = &worlds[taken % WORLDS];
    if (fails())
        return (nccl_result)SYSTEM_ERROR;
    if (taken >= WORLDS)
        return (nccl_result)BAD_USE;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->news, NULL);
    memset(id, 0, sizeof *id);
    memcpy(id->internal, &w, sizeof w);
    return NCCL_OK;
}

nccl_result ncclCommInitRankConfig(struct ncclComm **comm, int size, NCCL_ID id, int rank,
                                   NCCL_CONFIG *config)
{
    struct world *w;
    memcpy(&w, id.internal, sizeof w);
    if (!w || size > RANKS || rank < 0 || rank >= size || config->magic != NCCL_MAGIC ||
        config->blocking != 0 || getenv("NCCL_NVLS_ENABLE") == NULL)
        return (nccl_result)BAD_ARGUMENT;
    if (fails())
        return (nccl_result)SYSTEM_ERROR;
    struct ncclComm *c = calloc(1, sizeof *c);
    *c = (struct ncclComm){.world = w, .rank = rank};
    pthread_mutex_lock(&w->lock);
    w->size = size;
    w->joined++;
    pthread_mutex_unlock(&w->lock);
    *comm = c;
    return NCCL_IN_PROGRESS;
}

nccl_result ncclCommGetAsyncError(struct ncclComm *comm, nccl_result *error)
{
    if (fails())
        return (nccl_result)SYSTEM_ERROR;
    pthread_mutex_lock(&comm->world->lock);
    bool under_way = comm->world->joined < comm->world->size || comm->polls > 0;
    pthread_mutex_unlock(&comm->world->lock);
    comm->polls -= comm->polls > 0;
    *error = under_way ? NCCL_IN_PROGRESS : NCCL_OK;
    return NCCL_OK;
}

nccl_result ncclCommFinalize(struct ncclComm *comm)
{
    if (fails())
        return (nccl_result)SYSTEM_ERROR;
    comm->finalized = true;
    return NCCL_OK;
}

nccl_result ncclCommDestroy(struct ncclComm *comm)
{
    __atomic_add_fetch(&fake_nccl_destroyed, comm->finalized, __ATOMIC_SEQ_CST);
    free(comm);
    return NCCL_OK;
}

nccl_result ncclCommAbort(struct ncclComm *comm)
{
    break_up(comm->world);
    nanosleep(&(struct timespec){0, 200000000}, NULL);
    __atomic_add_fetch(&fake_nccl_aborted, 1, __ATOMIC_SEQ_CST);
    free(comm);
    return NCCL_OK;
}

const char *ncclGetErrorString(nccl_result result)
{
    return result == (nccl_result)BAD_ARGUMENT ? "invalid argument" : "invalid usage";
}

const char *ncclGetLastError(struct ncclComm *comm)
{
    (void)comm;
    return "of the fake";
}

/* ---- collectives ----------------------------------------------------------------------------- */

static size_t unit_of(nccl_dtype dtype)
{
    return dtype == NCCL_BFLOAT16 ? 2 : 4;
}

static float load(const void *p, size_t i, nccl_dtype dtype)
{
    uint32_t bits;
    float v;
    if (dtype == NCCL_BFLOAT16)
        bits = (uint32_t)((const uint16_t *)p)[i] << 16;
    else
        bits = ((const uint32_t *)p)[i];
    memcpy(&v, &bits, sizeof v);
    return v;
}

static void store(void *p, size_t i, nccl_dtype dtype, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    if (dtype == NCCL_BFLOAT16)
        ((uint16_t *)p)[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    else
        ((uint32_t *)p)[i] = bits;
}

static void await_all(struct world *w)
{
    pthread_mutex_lock(&w->lock);
    int64_t round = w->round;
    if (++w->here == w->size) {
        w->here = 0;
        w->round++;
        pthread_cond_broadcast(&w->news);
    }
    while (w->round == round && !w->broken)
        pthread_cond_wait(&w->news, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

static size_t result_count(const struct world *w, const struct call *c)
{
    return c->kind == GATHER ? c->count * (size_t)w->size : c->count;
}

/* What the others send to a rank, one after another. */
static void receive(const struct world *w, const struct ncclComm *comm, char *dst)
{
    const struct call *c = &w->calls[comm->rank];
    for (int r = 0; r < w->size; r++) {
        const size_t bytes = c->parts[r].expected * unit_of(c->dtype);
        if (bytes)
            memcpy(dst, w->calls[r].parts[comm->rank].src, bytes);
        dst += bytes;
    }
}

static void compute(const struct world *w, const struct ncclComm *comm, void *dst)
{
    const struct call *c = &w->calls[comm->rank];
    size_t n = result_count(w, c), unit = unit_of(c->dtype);
    if (c->kind == EXCHANGE)
        receive(w, comm, dst);
    for (size_t i = 0; i < n && c->kind != EXCHANGE; i++) {
        float sum = 0;
        if (c->kind == GATHER) {
            const char *from = w->calls[i / c->count].src;
            memcpy((char *)dst + i * unit, from + i % c->count * unit, unit);
        } else {
            size_t at = c->kind == SCATTER ? (size_t)comm->rank * c->count + i : i;
            for (int r = 0; r < w->size; r++) {
                float term = load(w->calls[r].src, at, c->dtype);
                sum = r ? sum + term : term;
            }
            store(dst, i, c->dtype, sum);
        }
    }
}

static void deliver(const struct world *w, const struct call *c, const char *result, size_t bytes)
{
    if (c->kind != EXCHANGE)
        memcpy(c->dst, result, bytes);
    for (int r = 0; r < w->size && c->kind == EXCHANGE; r++) {
        const size_t part = c->parts[r].expected * unit_of(c->dtype);
        if (part)
            memcpy(c->parts[r].dst, result, part);
        result += part;
    }
}

/* Whether the ranks make one call; of an exchange, whether each sends what this one expects. */
static bool matches(const struct world *w, int rank)
{
    const struct call *own = &w->calls[rank], *first = &w->calls[0];
    bool same = own->kind == first->kind && own->dtype == first->dtype;
    if (own->kind != EXCHANGE)
        return same && own->count == first->count;
    for (int r = 0; r < w->size; r++)
        same = same && w->calls[r].parts[rank].sent == own->parts[r].expected;
    return same;
}

static nccl_result run(struct ncclComm *comm, struct call call)
{
    struct world *w = comm->world;
    if (fails()) {
        break_up(w);
        return (nccl_result)SYSTEM_ERROR;
    }
    if (comm->polls > 0) /* the one before must be asked for until it is through */
        return (nccl_result)BAD_USE;
    w->calls[comm->rank] = call;
    await_all(w);
    if (w->broken) /* the kernel spins until it is aborted */
        return NCCL_IN_PROGRESS;
    const bool same = matches(w, comm->rank);
    size_t bytes = result_count(w, &call) * unit_of(call.dtype);
    char *result = malloc(bytes + 1);
    if (same)
        compute(w, comm, result);
    await_all(w);
    if (same)
        deliver(w, &call, result, bytes);
    free(result);
    comm->polls = 2;
    return same ? NCCL_IN_PROGRESS : (nccl_result)BAD_USE;
}

nccl_result ncclAllGather(const void *src, void *dst, size_t count, nccl_dtype dtype,
                          struct ncclComm *comm, struct CUstream_st *stream)
{
    (void)stream;
    return run(comm, (struct call){GATHER, src, dst, count, dtype, {{0}}});
}

nccl_result ncclReduceScatter(const void *src, void *dst, size_t count, nccl_dtype dtype,
                              nccl_op op, struct ncclComm *comm, struct CUstream_st *stream)
{
    (void)stream;
    if (op != NCCL_SUM)
        return (nccl_result)BAD_ARGUMENT;
    return run(comm, (struct call){SCATTER, src, dst, count, dtype, {{0}}});
}

nccl_result ncclAllReduce(const void *src, void *dst, size_t count, nccl_dtype dtype, nccl_op op,
                          struct ncclComm *comm, struct CUstream_st *stream)
{
    (void)stream;
    if (op != NCCL_SUM)
        return (nccl_result)BAD_ARGUMENT;
    return run(comm, (struct call){REDUCE, src, dst, count, dtype, {{0}}});
}

/* ---- sending and receiving --------------------------------------------------------------------
 */

/* What this thread asked for since ncclGroupStart: at most one part to and from each rank. */
static _Thread_local struct {
    struct ncclComm *comm;
    struct call call;
    bool open;
} group;

nccl_result ncclGroupStart(void);
nccl_result ncclGroupEnd(void);

nccl_result ncclGroupStart(void)
{
    memset(&group, 0, sizeof group);
    group.open = true;
    group.call.kind = EXCHANGE;
    return NCCL_OK;
}

static struct part *part_with(int peer, nccl_dtype dtype, struct ncclComm *comm)
{
    if (!group.open || peer < 0 || peer >= comm->world->size)
        return NULL;
    group.comm = comm;
    group.call.dtype = dtype;
    return &group.call.parts[peer];
}

nccl_result ncclSend(const void *src, size_t count, nccl_dtype dtype, int to, struct ncclComm *comm,
                     struct CUstream_st *stream)
{
    struct part *p = part_with(to, dtype, comm);
    (void)stream;
    if (!p || p->src)
        return (nccl_result)BAD_ARGUMENT;
    p->src = src;
    p->sent = count;
    return NCCL_OK;
}

nccl_result ncclRecv(void *dst, size_t count, nccl_dtype dtype, int from, struct ncclComm *comm,
                     struct CUstream_st *stream)
{
    struct part *p = part_with(from, dtype, comm);
    (void)stream;
    if (!p || p->dst)
        return (nccl_result)BAD_ARGUMENT;
    p->dst = dst;
    p->expected = count;
    group.call.count += count;
    return NCCL_OK;
}

nccl_result ncclGroupEnd(void)
{
    if (!group.open || !group.comm)
        return (nccl_result)BAD_USE;
    group.open = false;
    return run(group.comm, group.call);
}
