/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks on GPUs.  NCCL is started without blocking and asked how it goes, so that a rank that never
 * comes ends in a sentence and not in a hang; its id travels over another communicator, which stays
 * to carry failures.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "dist/comm/comm.h"
#include "dist/comm/nccl_api.h"

#ifdef HAVE_NCCL_H
#define SAME(member, function)                                                                     \
    _Static_assert(__builtin_types_compatible_p(__typeof__(((struct nccl_api *)0)->member),        \
                                                __typeof__(&function)),                            \
                   #function " has another prototype than nccl_api.h says")
SAME(version, ncclGetVersion);
SAME(unique_id, ncclGetUniqueId);
SAME(init, ncclCommInitRankConfig);
SAME(async_error, ncclCommGetAsyncError);
SAME(finalize, ncclCommFinalize);
SAME(destroy, ncclCommDestroy);
SAME(abort, ncclCommAbort);
SAME(error, ncclGetErrorString);
SAME(last_error, ncclGetLastError);
SAME(all_gather, ncclAllGather);
SAME(reduce_scatter, ncclReduceScatter);
SAME(all_reduce, ncclAllReduce);
SAME(broadcast, ncclBroadcast);
_Static_assert(ncclSuccess == NCCL_OK && ncclInProgress == NCCL_IN_PROGRESS &&
                   ncclInt32 == NCCL_INT32 && ncclFloat32 == NCCL_FLOAT32 &&
                   ncclBfloat16 == NCCL_BFLOAT16 && ncclSum == NCCL_SUM,
               "nccl_api.h has other numbers than nccl.h");
_Static_assert(sizeof(NCCL_ID) == 128 &&
                   offsetof(struct nccl_config, blocking) == offsetof(ncclConfig_t, blocking) &&
                   offsetof(struct nccl_config, version) == offsetof(ncclConfig_t, version),
               "nccl_api.h has another layout than nccl.h");
#endif

enum { MOST_GROUPS = 2 };

struct nccl_comm {
    struct comm comm;
    struct comm *control;
    struct nccl_comm *whole;               /* of a group; else itself */
    struct nccl_comm *groups[MOST_GROUPS]; /* open ones, or NULL */
    struct nccl_api api;
    struct ncclComm *nccl;
    bool failed;
    double patience; /* of whole: until when its end waits for threads that abort; 0 before it */
    struct ncclComm *dying; /* what the thread aborts */
    pthread_t undertaker;
    atomic_bool buried;
};

static struct nccl_comm *nccl(struct comm *c)
{
    return (struct nccl_comm *)c;
}

/* ---- the library ----------------------------------------------------------------------------- */

static void *find_library(void)
{
    static const char *const places[] = {"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2",
                                         "/usr/local/cuda/lib/libnccl.so.2"};
    void *lib = NULL;
    for (size_t i = 0; i < sizeof places / sizeof *places && !lib; i++)
        lib = dlopen(places[i], RTLD_NOW | RTLD_LOCAL);
    return lib;
}

static bool find_calls(void *lib, struct nccl_api *api)
{
    const struct {
        const char *name;
        void *member;
    } calls[] = {{"ncclGetVersion", &api->version},
                 {"ncclGetUniqueId", &api->unique_id},
                 {"ncclCommInitRankConfig", &api->init},
                 {"ncclCommGetAsyncError", &api->async_error},
                 {"ncclCommFinalize", &api->finalize},
                 {"ncclCommDestroy", &api->destroy},
                 {"ncclCommAbort", &api->abort},
                 {"ncclGetErrorString", &api->error},
                 {"ncclGetLastError", &api->last_error},
                 {"ncclAllGather", &api->all_gather},
                 {"ncclReduceScatter", &api->reduce_scatter},
                 {"ncclAllReduce", &api->all_reduce},
                 {"ncclBroadcast", &api->broadcast}};
    bool all = true;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        *(void **)calls[i].member = dlsym(lib, calls[i].name);
        all &= *(void **)calls[i].member != NULL;
    }
    return all;
}

/*
 * Multicast takes memory that no budget knows of and adds in the switch, in an order of its own.
 * Buffers of recorded steps are not to be registered behind our back: the pages of the arena are
 * not made to be shared.
 */
static pthread_once_t defaults = PTHREAD_ONCE_INIT;

static void set_defaults(void)
{
    setenv("NCCL_NVLS_ENABLE", "0", 0);
    setenv("NCCL_GRAPH_REGISTER", "0", 0);
}

/* On four H200s a step of stage 3 with 32 takes 0.9 % less than with what NCCL takes by itself, one
 * of stage 2 0.3 %, for 96 MiB of each.  Not measured over a network. */
static void take_more(void)
{
    setenv("NCCL_MIN_CTAS", "32", 0);
}

/* It stays loaded, as CUDA does. */
static int load(struct nccl_comm *n)
{
    int version = 0;
    pthread_once(&defaults, set_defaults);
    void *lib = find_library();
    if (!lib)
        return error_set(CKPT_ECOMM, "ranks on GPUs need NCCL: %s", dlerror());
    if (!find_calls(lib, &n->api) || n->api.version(&version) != NCCL_OK || version < NCCL_OLDEST)
        return error_set(CKPT_ECOMM, "this NCCL is too old: 2.14 is needed");
    snprintf(n->comm.how, sizeof n->comm.how, "NCCL %d.%d.%d, met over %.60s", version / 10000,
             version / 100 % 100, version % 100, n->control->how);
    return 0;
}

/* ---- failures -------------------------------------------------------------------------------- */

static void *bury(void *arg)
{
    struct nccl_comm *n = arg;
    n->api.abort(n->dying);
    atomic_store(&n->buried, true);
    return NULL;
}

/* Kernels that wait for other ranks end with the abort, so that streams run empty.  The abort
 * itself returns when recorded steps are gone, or never: nobody waits for it but a while at the
 * end. */
static void stop(struct nccl_comm *n)
{
    n->failed = true;
    if (!n->nccl)
        return;
    n->dying = n->nccl;
    n->nccl = NULL;
    if (pthread_create(&n->undertaker, NULL, bury, n)) {
        n->api.abort(n->dying);
        n->dying = NULL;
    }
}

/* What all ranks share ends with all its groups, whichever of them failed. */
static void stop_all(struct nccl_comm *n)
{
    struct nccl_comm *whole = n->whole;
    stop(whole);
    for (int i = 0; i < MOST_GROUPS; i++) {
        if (!whole->groups[i])
            continue;
        memcpy(whole->groups[i]->comm.reason, whole->comm.reason, sizeof whole->comm.reason);
        stop(whole->groups[i]);
    }
}

/* False if it may still touch n. */
static bool is_buried(struct nccl_comm *n)
{
    if (!n->dying)
        return true;
    if (n->whole->patience <= 0)
        n->whole->patience = clock_seconds() + 5;
    while (!atomic_load(&n->buried) && clock_seconds() < n->whole->patience)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    if (!atomic_load(&n->buried)) {
        pthread_detach(n->undertaker);
        return false;
    }
    pthread_join(n->undertaker, NULL);
    n->dying = NULL;
    return true;
}

static int fail(struct nccl_comm *n, const char *fmt, ...) CKPT_PRINTF(2, 3);
static int fail(struct nccl_comm *n, const char *fmt, ...)
{
    struct nccl_comm *whole = n->whole;
    va_list ap;
    if (n->failed)
        return CKPT_ECOMM;
    va_start(ap, fmt);
    error_vset(whole->comm.reason, sizeof whole->comm.reason, CKPT_ECOMM, fmt, ap);
    va_end(ap);
    whole->control->step = whole->comm.step;
    whole->control->ops->give_up(whole->control, whole->comm.reason);
    stop_all(n);
    return CKPT_ECOMM;
}

/* Another rank told why, or the link to it broke. */
static int fail_as_control(struct nccl_comm *n)
{
    struct nccl_comm *whole = n->whole;
    if (!n->failed)
        snprintf(whole->comm.reason, sizeof whole->comm.reason, "%s", n->control->reason);
    stop_all(n);
    return CKPT_ECOMM;
}

/* Waits while NCCL works on a call in the background. */
static int settle(struct nccl_comm *n, nccl_result result, const char *what)
{
    double until = clock_seconds() + n->whole->comm.deadline;
    while (result == NCCL_IN_PROGRESS) {
        if (n->api.async_error(n->nccl, &result) != NCCL_OK)
            break;
        if (result != NCCL_IN_PROGRESS)
            break;
        if (n->control->ops->check(n->control))
            return fail_as_control(n);
        if (clock_seconds() > until)
            return fail(n, "%s did not get through within %g s: a rank is missing or stuck", what,
                        n->whole->comm.deadline);
        nanosleep(&(struct timespec){0, 100000}, NULL);
    }
    if (result == NCCL_OK)
        return 0;
    return fail(n, "%s: NCCL: %s (%s)", what, n->api.error(result),
                n->nccl ? n->api.last_error(n->nccl) : "no communicator");
}

/* ---- calls ----------------------------------------------------------------------------------- */

static nccl_dtype dtype_of(enum ckpt_dtype dtype)
{
    return dtype == CKPT_F32 ? NCCL_FLOAT32 : dtype == CKPT_BF16 ? NCCL_BFLOAT16 : NCCL_INT32;
}

/* Hands one call over and waits until NCCL has put it on the stream. */
static int hand_over(struct nccl_comm *n, const struct comm_call *call, struct CUstream_st *stream)
{
    const struct nccl_api *api = &n->api;
    nccl_dtype dtype = dtype_of(call->dtype);
    size_t count = (size_t)call->count;
    char what[192];
    nccl_result result;
    if (call->kind == COMM_ALL_GATHER)
        result = api->all_gather(call->src, call->dst, count, dtype, n->nccl, stream);
    else if (call->kind == COMM_REDUCE_SCATTER)
        result = api->reduce_scatter(call->src, call->dst, count, dtype, NCCL_SUM, n->nccl, stream);
    else if (call->kind == COMM_ALL_REDUCE)
        result = api->all_reduce(call->src, call->dst, count, dtype, NCCL_SUM, n->nccl, stream);
    else
        result = api->broadcast(call->src, call->dst, count, dtype, call->root, n->nccl, stream);
    snprintf(what, sizeof what, "collective \"%s\" of step %lld on rank %d",
             call->name ? call->name : "", (long long)n->whole->comm.step, n->whole->comm.rank);
    return settle(n, result, what);
}

/* A sum in which every rank has an equal part is made by those who own the parts, as that of a
 * reduce_scatter is: so it has the same bits. */
static int reduce_parts(struct nccl_comm *n, const struct comm_call *call,
                        struct CUstream_st *stream)
{
    struct comm_call part = *call;
    part.count = call->count / n->comm.size;
    char *own = (char *)call->dst + n->comm.rank * part.count * ckpt_dtype_size(call->dtype);
    part.kind = COMM_REDUCE_SCATTER;
    part.dst = own;
    int rc = hand_over(n, &part, stream);
    part.kind = COMM_ALL_GATHER;
    part.src = own;
    part.dst = call->dst;
    return rc ? rc : hand_over(n, &part, stream);
}

/* A barrier is one of hosts: whoever wants one of streams orders a sum. */
static int nccl_run(struct comm *c, const struct comm_call *call, void *stream)
{
    struct nccl_comm *n = nccl(c);
    struct comm_call one = *call;
    if (n->failed)
        return CKPT_ECOMM;
    c->n_calls++;
    if (call->kind == COMM_BARRIER) {
        n->control->step = c->step;
        return comm_run(n->control, call, NULL) ? fail_as_control(n) : 0;
    }
    if (call->kind == COMM_ALL_REDUCE && call->count % c->size == 0)
        return reduce_parts(n, call, stream);
    if (one.kind == COMM_BROADCAST && one.root == c->rank)
        one.dst = (void *)(uintptr_t)one.src; /* NCCL writes there as well */
    return hand_over(n, &one, stream);
}

static int check_calls(struct nccl_comm *n)
{
    nccl_result result = NCCL_OK;
    if (n->api.async_error(n->nccl, &result) == NCCL_OK &&
        (result == NCCL_OK || result == NCCL_IN_PROGRESS))
        return 0;
    return fail(n, "rank %d in step %lld: NCCL: %s (%s)", n->whole->comm.rank,
                (long long)n->whole->comm.step, n->api.error(result), n->api.last_error(n->nccl));
}

static int nccl_check(struct comm *c)
{
    struct nccl_comm *n = nccl(c)->whole;
    if (n->failed)
        return CKPT_ECOMM;
    n->control->step = n->comm.step;
    if (n->control->ops->check(n->control))
        return fail_as_control(n);
    int rc = check_calls(n);
    for (int i = 0; i < MOST_GROUPS && !rc; i++)
        if (n->groups[i])
            rc = check_calls(n->groups[i]);
    return rc;
}

static void nccl_give_up(struct comm *c, const char *sentence)
{
    fail(nccl(c), "%s", sentence);
}

static void nccl_close(struct comm *c)
{
    struct nccl_comm *n = nccl(c);
    if (n->nccl && settle(n, n->api.finalize(n->nccl), "the end") == 0)
        n->api.destroy(n->nccl);
    for (int i = 0; i < MOST_GROUPS; i++)
        if (n->whole->groups[i] == n)
            n->whole->groups[i] = NULL;
    comm_close(n->control);
    if (is_buried(n))
        free(n);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Every rank tells whether it found NCCL before any of them waits for the others in it. */
static int meet(struct nccl_comm *n, int loaded)
{
    NCCL_ID id = {{0}};
    struct nccl_config config = {
        .size = sizeof config, .magic = NCCL_MAGIC, .version = NCCL_OLDEST, .blocking = 0};
    if (loaded) {
        n->control->ops->give_up(n->control, error_get());
        return loaded;
    }
    if (n->comm.rank == 0 && n->api.unique_id(&id) != NCCL_OK)
        return fail(n, "NCCL makes no id: %s", n->api.last_error(NULL));
    if (comm_run(n->control,
                 &(struct comm_call){.kind = COMM_BROADCAST,
                                     .dtype = CKPT_I32,
                                     .count = (int64_t)(sizeof id / sizeof(int32_t)),
                                     .src = &id,
                                     .dst = &id,
                                     .name = "NCCL id"},
                 NULL))
        return fail_as_control(n);
    return settle(
        n, n->api.init(&n->nccl, n->comm.size, id, n->comm.rank, (NCCL_CONFIG *)(void *)&config),
        "the start of NCCL");
}

static int open_group(struct comm *c, int n, const int *ranks, struct comm **group);

static const struct comm_ops nccl_ops = {.takes_stream = true,
                                         .run = nccl_run,
                                         .check = nccl_check,
                                         .give_up = nccl_give_up,
                                         .group = open_group,
                                         .close = nccl_close};

static struct nccl_comm *make(struct comm *control)
{
    struct nccl_comm *n = calloc(1, sizeof *n);
    if (!n)
        return NULL;
    n->whole = n;
    n->control = n->comm.hosts = control;
    n->comm.ops = &nccl_ops;
    n->comm.name = "nccl";
    n->comm.rank = control->rank;
    n->comm.size = control->size;
    n->comm.deadline = control->deadline > 0 ? control->deadline : COMM_DEADLINE;
    return n;
}

/*
 * An id of its own, and not a split of what there is: that came with 2.18, and what such a call
 * leaves under way differs from version to version.
 */
static int open_group(struct comm *c, int n, const int *ranks, struct comm **group)
{
    struct nccl_comm *whole = nccl(c), *g;
    struct comm *control;
    int slot = 0, rc = comm_open_group(whole->control, n, ranks, &control);
    if (rc)
        return rc;
    g = make(control);
    while (slot < MOST_GROUPS && whole->groups[slot])
        slot++;
    if (!g || slot == MOST_GROUPS) {
        comm_close(control);
        free(g);
        return error_set(CKPT_ENOMEM, "no memory for a communicator");
    }
    g->whole = whole;
    g->api = whole->api;
    memcpy(g->comm.how, c->how, sizeof c->how);
    whole->groups[slot] = g;
    rc = meet(g, 0);
    if (!rc) {
        *group = &g->comm;
        return 0;
    }
    error_set(rc, "%s", whole->comm.reason);
    nccl_close(&g->comm);
    return rc;
}

int comm_open_nccl(struct comm **c, struct comm *control, bool together)
{
    struct nccl_comm *n = make(control);
    if (!n)
        return error_set(CKPT_ENOMEM, "no memory for a communicator");
    if (together)
        take_more();
    int rc = load(n);
    rc = meet(n, rc);
    if (!rc) {
        *c = &n->comm;
        return 0;
    }
    if (n->failed)
        error_set(rc, "%s", n->comm.reason);
    if (is_buried(n))
        free(n);
    return rc;
}
