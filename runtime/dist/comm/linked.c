/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A communicator over a link.  Every message starts with a header that identifies the call, and
 * carries a checksum.  So a rank that runs another program, or a corrupted byte, is detected and
 * named where it happens.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "core/checksum.h"
#include "dist/comm/linked.h"

#define HEAD_MAGIC UINT64_C(0x31676e69726e6974)

struct head {
    uint64_t magic, sum;
    int64_t seq, step, piece, count;
    int32_t phase, kind, dtype, root;
    uint64_t group;
    char name[COMM_NAME];
};

enum { MESSAGE = (int)sizeof(struct head) + LINKED_PIECE };

static struct linked *linked(struct comm *c)
{
    return (struct linked *)c;
}

static void sleep_for(double seconds)
{
    struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&t, NULL);
}

/* ---- sentences ------------------------------------------------------------------------------- */

static const char *kind_name(int32_t kind)
{
    static const char *const names[] = {[COMM_ALL_GATHER] = "all_gather",
                                        [COMM_REDUCE_SCATTER] = "reduce_scatter",
                                        [COMM_ALL_REDUCE] = "all_reduce",
                                        [COMM_BROADCAST] = "broadcast",
                                        [COMM_ALL_TO_ALL] = "all_to_all",
                                        [COMM_SHIFT] = "shift",
                                        [COMM_BARRIER] = "barrier"};
    return kind >= 0 && kind <= COMM_BARRIER ? names[kind] : "an unknown call";
}

/* Keeps the first sentence.  The rank that detected the failure sends it to the others. */
static int fail(struct linked *l, bool broadcast, const char *fmt, ...) CKPT_PRINTF(3, 4);
static int fail(struct linked *l, bool broadcast, const char *fmt, ...)
{
    va_list ap;
    if (l->failed)
        return CKPT_ECOMM;
    l->failed = true;
    va_start(ap, fmt);
    error_vset(l->comm.reason, sizeof l->comm.reason, CKPT_ECOMM, fmt, ap);
    va_end(ap);
    if (broadcast && !l->dead)
        l->link->ops->abort(l->link, l->comm.reason);
    return CKPT_ECOMM;
}

/* Names the ranks whose messages of a round are missing, or that did not take this rank's. */
static void name_late(const struct linked *l, int slot, char *who, size_t size)
{
    const struct link_part *parts = l->parts[slot];
    int n = l->comm.size;
    bool *late = calloc((size_t)n, sizeof *late);
    bool silent = false;
    snprintf(who, size, "another rank");
    if (!late)
        return;
    for (int r = 0; r < n; r++)
        silent |= late[r] = parts[r].in && !parts[r].came;
    for (int r = 0; r < n && !silent; r++)
        late[r] = parts[r].out && !parts[r].sent;
    comm_name_ranks(who, size, late, n);
    free(late);
}

/* Ranks of a group may be late because they wait in another group for the rank that caused the
 * delay.  Which deadline ends first is chance, so the sentence mentions this. */
static int fail_late(struct linked *l, const struct rank_group *ranks, int slot, const char *where)
{
    char who[256], flight[FLIGHT_TEXT];
    name_late(l, slot, who, sizeof who);
    flight_tell(flight, &l->comm.flight, l->comm.rank, "");
    return fail(l, true, "%s did not reach %s within %g s (rank %d waited%s)%s", who, where,
                l->comm.deadline, l->comm.rank,
                ranks->members ? "; they may be waiting for another rank of their group" : "",
                flight);
}

/* A rank that read another one's sentence ends, and its connection can break here before the
 * sentence arrives. */
static void await_abort_text(struct link *link)
{
    double until = clock_seconds() + 0.2;
    while (!*link->abort_text && clock_seconds() < until) {
        link->ops->progress(link);
        link->ops->wait(link, 1e-3);
    }
}

/* slot: of the round that this rank waits for, or -1.  A sentence about ranks that waited says what
 * the one that detected it was doing; this rank adds its own. */
static int fail_broken(struct linked *l, const char *where, int slot)
{
    struct link *link = l->link;
    char late[256] = "", flight[FLIGHT_TEXT];
    await_abort_text(link);
    if (slot >= 0)
        name_late(l, slot, late, sizeof late);
    flight_tell(flight, &l->comm.flight, l->comm.rank, late);
    if (*link->abort_text)
        return fail(l, false, "%s%s", link->abort_text,
                    flight_is_told(link->abort_text) ? flight : "");
    if (link->lost >= 0)
        return fail(l, true, "rank %d is gone at %s: %s%s", link->lost, where, link->reason,
                    flight);
    return fail(l, true, "the ranks lost each other at %s: %s%s", where, link->reason, flight);
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static void fill_head(struct linked *l, const struct exchange *f, int64_t p, struct head *h)
{
    *h = (struct head){.magic = HEAD_MAGIC,
                       .seq = f->ranks->calls,
                       .step = l->comm.step,
                       .piece = p,
                       .count = f->call->count,
                       .phase = f->phase,
                       .kind = (int32_t)f->call->kind,
                       .dtype = (int32_t)f->call->dtype,
                       .root = f->call->root,
                       .group = f->ranks->id};
    snprintf(h->name, sizeof h->name, "%s", f->call->name ? f->call->name : "");
}

static bool fault_is_due(struct linked *l, enum comm_fault_kind kind)
{
    if (l->fault.kind != kind || l->fault.call != l->calls)
        return false;
    l->fault.kind = COMM_FAULT_NONE;
    return true;
}

/* True if this rank was stopped by the fault. */
static bool inject_fault(struct linked *l)
{
    if (fault_is_due(l, COMM_FAULT_DELAY))
        sleep_for(l->fault.seconds);
    if (fault_is_due(l, COMM_FAULT_KILL)) {
        l->dead = true;
        fail(l, false, "rank %d was stopped by a test", l->comm.rank);
    }
    return l->dead;
}

/* The rank in the whole communicator of a group member. */
static int member(const struct rank_group *c, int rank)
{
    return c->members ? c->members[rank] : rank;
}

static void put_message(struct linked *l, int slot, int to, const struct head *h,
                        struct span outgoing)
{
    struct link_part *part = &l->parts[slot][to];
    char *message = l->out[slot] + (int64_t)to * MESSAGE;
    memcpy(message, h, sizeof *h);
    if (outgoing.bytes)
        memcpy(message + sizeof *h, outgoing.data, (size_t)outgoing.bytes);
    part->out = message;
    part->out_bytes = (int64_t)sizeof *h + outgoing.bytes;
    part->sent = false;
    if (l->fault.to == to && fault_is_due(l, COMM_FAULT_CORRUPT))
        message[part->out_bytes - 1] ^= 0x10;
    if (l->fault.to == to && fault_is_due(l, COMM_FAULT_DROP)) {
        part->out = NULL;
        part->sent = true;
    }
}

static void start_piece(struct linked *l, const struct exchange *f, int64_t p)
{
    int slot = (int)(p % LINK_SLOTS);
    struct head h;
    fill_head(l, f, p, &h);
    for (int r = 0; r < l->comm.size; r++)
        l->parts[slot][r] = (struct link_part){.sent = true, .came = true};
    for (int r = 0; r < f->ranks->size; r++) {
        int other = member(f->ranks, r);
        struct link_part *part = &l->parts[slot][other];
        if (r == f->ranks->rank)
            continue;
        struct span outgoing = f->outgoing(f, p, r);
        if (outgoing.bytes >= 0) {
            h.sum = checksum(outgoing.data, outgoing.bytes);
            put_message(l, slot, other, &h, outgoing);
        }
        if (f->expect(f, p, r) >= 0) {
            part->in = l->in[slot] + (int64_t)other * MESSAGE;
            part->capacity = MESSAGE;
            part->came = false;
        }
    }
    l->link->ops->start(l->link, slot, l->parts[slot]);
}

static int check_message(struct linked *l, const struct exchange *f, int64_t p, int r)
{
    int from = member(f->ranks, r), rank = l->comm.rank;
    const struct link_part *part = &l->parts[p % LINK_SLOTS][from];
    struct head mine, theirs;
    char here[192], there[192], flight[FLIGHT_TEXT];
    fill_head(l, f, p, &mine);
    flight_describe(here, sizeof here, kind_name(mine.kind), mine.name, mine.step);
    memset(&theirs, 0, sizeof theirs);
    memcpy(&theirs, part->in, (size_t)min_i64(part->got, (int64_t)sizeof theirs));
    theirs.name[sizeof theirs.name - 1] = '\0';
    mine.sum = theirs.sum;
    if (theirs.magic != HEAD_MAGIC)
        return fail(l, true, "data from rank %d to rank %d in %s arrived damaged", from, rank,
                    here);
    if (mine.seq != theirs.seq || mine.group != theirs.group || mine.phase != theirs.phase ||
        mine.piece != theirs.piece)
        return fail(l, true,
                    "a message of rank %d to rank %d in %s (call %lld) was lost: one of call %lld "
                    "came instead",
                    from, rank, here, (long long)mine.seq, (long long)theirs.seq);
    if (memcmp(&mine, &theirs, sizeof mine)) {
        flight_describe(there, sizeof there, kind_name(theirs.kind), theirs.name, theirs.step);
        flight_tell(flight, &l->comm.flight, rank, "");
        return fail(l, true,
                    "rank %d is at %s with %lld elements, rank %d at %s with %lld: they do not run "
                    "the same program%s",
                    from, there, (long long)theirs.count, rank, here, (long long)mine.count,
                    flight);
    }
    int64_t bytes = part->got - (int64_t)sizeof theirs;
    if (bytes != f->expect(f, p, r) ||
        checksum((const char *)part->in + sizeof theirs, bytes) != theirs.sum)
        return fail(l, true, "data from rank %d to rank %d in %s arrived damaged", from, rank,
                    here);
    return 0;
}

static bool round_is_over(const struct link_part *parts, int n)
{
    for (int r = 0; r < n; r++)
        if (!parts[r].sent || !parts[r].came)
            return false;
    return true;
}

/* Waits for a round.  Pauses are short at first: most rounds end within microseconds. */
static int await_piece(struct linked *l, const struct exchange *f, int slot)
{
    double begin = clock_seconds(), pause = 0;
    char where[192];
    for (;;) {
        bool alive = l->link->ops->progress(l->link);
        if (alive && round_is_over(l->parts[slot], l->comm.size))
            return 0;
        double waited = clock_seconds() - begin;
        if (!alive || *l->link->abort_text || waited > l->comm.deadline) {
            flight_describe(where, sizeof where, kind_name((int32_t)f->call->kind),
                            f->call->name ? f->call->name : "", l->comm.step);
            return !alive || *l->link->abort_text ? fail_broken(l, where, slot)
                                                  : fail_late(l, f->ranks, slot, where);
        }
        l->link->ops->wait(l->link, pause);
        pause = pause < 1e-3 ? pause + 2e-6 : 1e-3;
    }
}

static int finish_piece(struct linked *l, const struct exchange *f, int64_t p)
{
    int slot = (int)(p % LINK_SLOTS);
    int rc = await_piece(l, f, slot);
    for (int r = 0; r < f->ranks->size && !rc; r++) {
        struct link_part *part = &l->parts[slot][member(f->ranks, r)];
        l->from[r] = part->in ? (const char *)part->in + sizeof(struct head) : NULL;
        if (part->in)
            rc = check_message(l, f, p, r);
    }
    if (!rc)
        f->receive(f, p, l->from);
    return rc;
}

/* One round is prepared while the previous one is in progress. */
int linked_exchange(const struct exchange *f)
{
    struct linked *l = f->ranks->l;
    int rc = 0;
    for (int64_t p = 0; p <= f->n_pieces && !rc; p++) {
        if (p < f->n_pieces)
            start_piece(l, f, p);
        if (p > 0)
            rc = finish_piece(l, f, p - 1);
    }
    return rc;
}

/* ---- the communicator ------------------------------------------------------------------------ */

/* In the flight recorder: the bytes of the whole buffer. */
static bool begin_call(struct linked *l, const struct comm_call *call, int ranks)
{
    bool shares = call->kind == COMM_ALL_GATHER || call->kind == COMM_REDUCE_SCATTER ||
                  call->kind == COMM_ALL_TO_ALL;
    return flight_begin(&l->comm.flight, kind_name((int32_t)call->kind),
                        call->name ? call->name : "", l->comm.step,
                        call->count * (shares ? ranks : 1) * ckpt_dtype_size(call->dtype));
}

static int run_among(const struct rank_group *ranks, const struct comm_call *call)
{
    struct linked *l = ranks->l;
    if (l->failed || inject_fault(l))
        return CKPT_ECOMM;
    bool recorded = begin_call(l, call, ranks->size);
    int rc = linked_collective(ranks, call);
    l->calls++;
    if (recorded && !rc)
        flight_end(&l->comm.flight);
    return rc;
}

static int linked_run(struct comm *c, const struct comm_call *call, void *stream)
{
    struct rank_group all = {linked(c), c->rank, c->size, NULL, c->n_calls++, HASH_START};
    (void)stream;
    return run_among(&all, call);
}

static int linked_check(struct comm *c)
{
    struct linked *l = linked(c);
    char where[64];
    if (l->failed)
        return CKPT_ECOMM;
    bool alive = l->link->ops->progress(l->link);
    if (alive && !*l->link->abort_text)
        return 0;
    snprintf(where, sizeof where, "step %lld", (long long)c->step);
    return fail_broken(l, where, -1);
}

static void linked_give_up(struct comm *c, const char *sentence)
{
    fail(linked(c), true, "rank %d gave up at step %lld: %s", c->rank, (long long)c->step,
         sentence);
}

/* ---- groups ---------------------------------------------------------------------------------- */

/*
 * A group has no link of its own; its messages use the link of all ranks.  Every rank is in one
 * call at a time and all in the same order, so the next message from another rank is always the
 * expected one.
 */
struct group {
    struct comm comm;
    struct rank_group ranks;
    int members[];
};

static struct group *group(struct comm *c)
{
    return (struct group *)c;
}

static int after_call(struct group *g, int rc)
{
    if (rc)
        memcpy(g->comm.reason, g->ranks.l->comm.reason, sizeof g->comm.reason);
    return rc;
}

static int group_run(struct comm *c, const struct comm_call *call, void *stream)
{
    struct group *g = group(c);
    (void)stream;
    g->ranks.calls = c->n_calls++;
    return after_call(g, run_among(&g->ranks, call));
}

static int group_check(struct comm *c)
{
    return after_call(group(c), linked_check(&group(c)->ranks.l->comm));
}

static void group_give_up(struct comm *c, const char *sentence)
{
    linked_give_up(&group(c)->ranks.l->comm, sentence);
    after_call(group(c), CKPT_ECOMM);
}

static void group_close(struct comm *c)
{
    free(c);
}

static int open_group(struct comm *c, int n, const int *ranks, struct comm **out)
{
    static const struct comm_ops ops = {
        .run = group_run, .check = group_check, .give_up = group_give_up, .close = group_close};
    struct group *g = calloc(1, sizeof *g + (size_t)n * sizeof *ranks);
    if (!g)
        return error_set(CKPT_ENOMEM, "no memory for a communicator");
    g->comm = (struct comm){.ops = &ops, .name = c->name, .size = n};
    memcpy(g->comm.how, c->how, sizeof c->how);
    memcpy(g->members, ranks, (size_t)n * sizeof *ranks);
    while (ranks[g->comm.rank] != c->rank)
        g->comm.rank++;
    g->ranks = (struct rank_group){linked(c), g->comm.rank, n, g->members, 0, HASH_START};
    for (int r = 0; r < n; r++)
        g->ranks.id = hash_mix(g->ranks.id, ranks[r]);
    *out = &g->comm;
    return 0;
}

/* ---- opening and closing --------------------------------------------------------------------- */

static void free_slots(struct linked *l)
{
    for (int s = 0; s < LINK_SLOTS; s++) {
        free(l->parts[s]);
        free(l->out[s]);
        free(l->in[s]);
    }
}

/* After a failure the link may still use the buffers. */
static void linked_close(struct comm *c)
{
    struct linked *l = linked(c);
    if (l->link->ops->close(l->link, l->failed))
        free_slots(l);
    free(l->from);
    free(l);
}

static const struct comm_ops linked_ops = {.run = linked_run,
                                           .check = linked_check,
                                           .give_up = linked_give_up,
                                           .group = open_group,
                                           .close = linked_close};

int comm_open_linked(struct comm **c, const char *name, struct link *link, double deadline)
{
    struct linked *l = calloc(1, sizeof *l);
    size_t n = (size_t)link->size;
    bool ok = l != NULL;
    if (!ok) {
        link->ops->close(link, false);
        return error_set(CKPT_ENOMEM, "no memory for %zu ranks", n);
    }
    l->comm.ops = &linked_ops;
    l->comm.name = name;
    l->link = link;
    l->comm.rank = link->rank;
    l->comm.size = link->size;
    l->comm.deadline = deadline > 0 ? deadline : COMM_DEADLINE;
    snprintf(l->comm.how, sizeof l->comm.how, "%s", link->how);
    l->from = calloc(n, sizeof *l->from);
    ok = l->from != NULL;
    for (int s = 0; s < LINK_SLOTS && ok; s++) {
        l->parts[s] = calloc(n, sizeof *l->parts[s]);
        l->out[s] = malloc(n * MESSAGE);
        l->in[s] = malloc(n * MESSAGE);
        ok = l->parts[s] && l->out[s] && l->in[s];
    }
    if (!ok) {
        linked_close(&l->comm);
        return error_set(CKPT_ENOMEM, "no memory for the messages of %zu ranks", n);
    }
    *c = &l->comm;
    return 0;
}

void comm_inject(struct comm *c, const struct comm_fault *fault)
{
    linked(c)->fault = *fault;
}
