/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks on GPUs.  NCCL is initialized without blocking and polled, so that a missing rank gives an
 * error message and not a hang.  NCCL's id is sent over another communicator, which stays open to
 * carry failure messages.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include "core/thread_team.h"
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
SAME(send, ncclSend);
SAME(recv, ncclRecv);
SAME(group_start, ncclGroupStart);
SAME(group_end, ncclGroupEnd);
_Static_assert(ncclSuccess == NCCL_OK && ncclInProgress == NCCL_IN_PROGRESS &&
                   ncclInt32 == NCCL_INT32 && ncclFloat32 == NCCL_FLOAT32 &&
                   ncclBfloat16 == NCCL_BFLOAT16 && ncclSum == NCCL_SUM,
               "nccl_api.h has other numbers than nccl.h");
_Static_assert(sizeof(NCCL_ID) == 128 &&
                   offsetof(struct nccl_config, blocking) == offsetof(ncclConfig_t, blocking) &&
                   offsetof(struct nccl_config, version) == offsetof(ncclConfig_t, version),
               "nccl_api.h has another layout than nccl.h");
#endif

enum { MAX_GROUPS = 3 };

struct nccl_comm {
    struct comm comm;
    struct comm *control;
    struct nccl_comm *whole; /* of a group: the communicator of all ranks; else itself */
    struct nccl_comm *groups[MAX_GROUPS]; /* open groups, or NULL */
    struct nccl_api api;
    struct ncclComm *nccl;
    bool failed;
    double close_until;        /* of whole: end of the wait for abort threads; 0: not closing */
    struct ncclComm *aborting; /* communicator that the thread aborts */
    pthread_t abort_thread;
    atomic_bool aborted;
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
                 {"ncclSend", &api->send},
                 {"ncclRecv", &api->recv},
                 {"ncclGroupStart", &api->group_start},
                 {"ncclGroupEnd", &api->group_end}};
    bool all = true;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        *(void **)calls[i].member = dlsym(lib, calls[i].name);
        all &= *(void **)calls[i].member != NULL;
    }
    return all;
}

/*
 * NVLink multicast uses memory outside the budget and adds in the switch, in its own order.
 * Registration of buffers of recorded steps is disabled because the pages of the arena cannot be
 * shared.
 */
static pthread_once_t defaults = PTHREAD_ONCE_INIT;

static void set_defaults(void)
{
    setenv("NCCL_NVLS_ENABLE", "0", 0);
    setenv("NCCL_GRAPH_REGISTER", "0", 0);
}

/* On four H200s a step of stage 3 with 32 multiprocessors takes 0.9 % less than with NCCL's
 * default, a step of stage 2 0.3 % less, for 96 MiB on each GPU.  Not measured over a network. */
static void use_more_ctas(void)
{
    setenv("NCCL_MIN_CTAS", "32", 0);
}

/* The library stays loaded, like CUDA. */
static int load(struct nccl_comm *n)
{
    int version = 0;
    pthread_once(&defaults, set_defaults);
    void *lib = find_library();
    if (!lib)
        return error_set(CKPT_ECOMM, "ranks on GPUs need NCCL: %s", dlerror());
    if (!find_calls(lib, &n->api) || n->api.version(&version) != NCCL_OK || version < NCCL_OLDEST)
        return error_set(CKPT_ECOMM, "this NCCL is too old: 2.14 is needed");
    snprintf(n->comm.how, sizeof n->comm.how, "NCCL %d.%d.%d, rendezvous over %.60s",
             version / 10000, version / 100 % 100, version % 100, n->control->how);
    return 0;
}

/* ---- failures -------------------------------------------------------------------------------- */

static void *run_abort(void *arg)
{
    struct nccl_comm *n = arg;
    n->api.abort(n->aborting);
    atomic_store(&n->aborted, true);
    return NULL;
}

/* The abort ends kernels that wait for other ranks, so that streams drain. ncclCommAbort itself
 * returns only when recorded steps are gone, or never; so a thread calls it, and only close waits
 * for it, for a short time. */
static void stop(struct nccl_comm *n)
{
    n->failed = true;
    if (!n->nccl)
        return;
    n->aborting = n->nccl;
    n->nccl = NULL;
    if (thread_start(&n->abort_thread, run_abort, n)) {
        n->api.abort(n->aborting);
        n->aborting = NULL;
    }
}

/* A failure of one group ends the communicator and all its groups. */
static void stop_all(struct nccl_comm *n)
{
    struct nccl_comm *whole = n->whole;
    stop(whole);
    for (int i = 0; i < MAX_GROUPS; i++) {
        if (!whole->groups[i])
            continue;
        memcpy(whole->groups[i]->comm.reason, whole->comm.reason, sizeof whole->comm.reason);
        stop(whole->groups[i]);
    }
}

/* False if the abort thread may still access n. */
static bool abort_has_ended(struct nccl_comm *n)
{
    if (!n->aborting)
        return true;
    if (n->whole->close_until <= 0)
        n->whole->close_until = clock_seconds() + 5;
    while (!atomic_load(&n->aborted) && clock_seconds() < n->whole->close_until)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    if (!atomic_load(&n->aborted)) {
        pthread_detach(n->abort_thread);
        return false;
    }
    pthread_join(n->abort_thread, NULL);
    n->aborting = NULL;
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

/* Another rank sent the reason, or the connection to it failed. */
static int fail_as_control(struct nccl_comm *n)
{
    struct nccl_comm *whole = n->whole;
    if (!n->failed)
        snprintf(whole->comm.reason, sizeof whole->comm.reason, "%s", n->control->reason);
    stop_all(n);
    return CKPT_ECOMM;
}

#define LITTLE_SHARED (64 << 20) /* bytes; NCCL takes about 10 MiB for each pair of GPUs */

/* NCCL's sentence does not say what helps where /dev/shm is too small, as Docker's 64 MB are. */
static const char *shared_memory_hint(void)
{
    struct statvfs s;
    const bool little = !statvfs("/dev/shm", &s) && s.f_bavail * s.f_frsize < LITTLE_SHARED;
    return little ? "; /dev/shm has little left: in a container give --ipc=host or --shm-size=1g"
                  : "";
}

/* Waits while NCCL processes a call in the background. */
static int wait_for_call(struct nccl_comm *n, nccl_result result, const char *what)
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
    return fail(n, "%s: NCCL: %s (%s)%s", what, n->api.error(result),
                n->nccl ? n->api.last_error(n->nccl) : "no communicator", shared_memory_hint());
}

/* ---- calls ----------------------------------------------------------------------------------- */

static nccl_dtype dtype_of(enum ckpt_dtype dtype)
{
    return dtype == CKPT_F32 ? NCCL_FLOAT32 : dtype == CKPT_BF16 ? NCCL_BFLOAT16 : NCCL_INT32;
}

/* One call to NCCL, which sends all parts together: of an all-to-all one to and from each rank, of
 * a broadcast the same from the root to each.  The first error counts. */
static nccl_result exchange(struct nccl_comm *n, const struct comm_call *call,
                            struct CUstream_st *stream)
{
    const struct nccl_api *api = &n->api;
    const nccl_dtype dtype = dtype_of(call->dtype);
    const bool all = call->kind == COMM_ALL_TO_ALL;
    const size_t count = (size_t)call->count,
                 bytes = all ? count * (size_t)ckpt_dtype_size(call->dtype) : 0;
    const int own = n->comm.rank, root = call->root;
    nccl_result result = api->group_start();
    for (int r = 0; r < n->comm.size && result == NCCL_OK; r++) {
        const size_t at = (size_t)r * bytes;
        if (all || (own == root && r != root))
            result = api->send((const char *)call->src + at, count, dtype, r, n->nccl, stream);
        if ((all || (own != root && r == root)) &&
            (result == NCCL_OK || result == NCCL_IN_PROGRESS))
            result = api->recv((char *)call->dst + at, count, dtype, r, n->nccl, stream);
        result = result == NCCL_IN_PROGRESS ? NCCL_OK : result;
    }
    const nccl_result end = api->group_end();
    return result == NCCL_OK ? end : result;
}

/* Makes one NCCL call and waits until it is queued on the stream. */
static int enqueue(struct nccl_comm *n, const struct comm_call *call, struct CUstream_st *stream)
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
        result = exchange(n, call, stream);
    snprintf(what, sizeof what, "collective \"%s\" of step %lld on rank %d",
             call->name ? call->name : "", (long long)n->whole->comm.step, n->whole->comm.rank);
    return wait_for_call(n, result, what);
}

/* If count divides evenly, an all-reduce runs as reduce-scatter and all-gather, so its bits equal
 * those of a reduce-scatter. */
static int reduce_parts(struct nccl_comm *n, const struct comm_call *call,
                        struct CUstream_st *stream)
{
    struct comm_call part = *call;
    part.count = call->count / n->comm.size;
    char *own = (char *)call->dst + n->comm.rank * part.count * ckpt_dtype_size(call->dtype);
    part.kind = COMM_REDUCE_SCATTER;
    part.dst = own;
    int rc = enqueue(n, &part, stream);
    part.kind = COMM_ALL_GATHER;
    part.src = own;
    part.dst = call->dst;
    return rc ? rc : enqueue(n, &part, stream);
}

/* A barrier synchronizes hosts; to synchronize streams, callers use a sum. */
static int nccl_run(struct comm *c, const struct comm_call *call, void *stream)
{
    struct nccl_comm *n = nccl(c);
    if (n->failed)
        return CKPT_ECOMM;
    c->n_calls++;
    if (call->kind == COMM_BARRIER) {
        n->control->step = c->step;
        return comm_run(n->control, call, NULL) ? fail_as_control(n) : 0;
    }
    if (call->kind == COMM_ALL_REDUCE && call->count % c->size == 0)
        return reduce_parts(n, call, stream);
    return enqueue(n, call, stream);
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
    for (int i = 0; i < MAX_GROUPS && !rc; i++)
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
    if (n->nccl && wait_for_call(n, n->api.finalize(n->nccl), "the end") == 0)
        n->api.destroy(n->nccl);
    for (int i = 0; i < MAX_GROUPS; i++)
        if (n->whole->groups[i] == n)
            n->whole->groups[i] = NULL;
    comm_close(n->control);
    if (abort_has_ended(n))
        free(n);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Every rank reports whether it found NCCL before any rank waits inside NCCL. */
static int init_nccl(struct nccl_comm *n, int loaded)
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
    if (comm_broadcast(n->control, &id, sizeof id, "NCCL id"))
        return fail_as_control(n);
    return wait_for_call(
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
 * A new id instead of ncclCommSplit: that came with 2.18, and its state while in progress differs
 * between versions.
 */
static int open_group(struct comm *c, int n, const int *ranks, struct comm **group)
{
    struct nccl_comm *whole = nccl(c), *g;
    struct comm *control;
    int slot = 0, rc = comm_open_group(whole->control, n, ranks, &control);
    if (rc)
        return rc;
    g = make(control);
    while (slot < MAX_GROUPS && whole->groups[slot])
        slot++;
    if (!g || slot == MAX_GROUPS) {
        comm_close(control);
        free(g);
        return error_set(CKPT_ENOMEM, "no memory for a communicator");
    }
    g->whole = whole;
    g->api = whole->api;
    memcpy(g->comm.how, c->how, sizeof c->how);
    whole->groups[slot] = g;
    rc = init_nccl(g, 0);
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
        use_more_ctas();
    int rc = load(n);
    rc = init_nccl(n, rc);
    if (!rc) {
        *c = &n->comm;
        return 0;
    }
    if (n->failed)
        error_set(rc, "%s", n->comm.reason);
    if (abort_has_ended(n))
        free(n);
    return rc;
}
