/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ranks of a job: which of them this one is, where they run, what it has of each parameter,
 * and what all must agree on.
 *
 * The dist room decides how several ranks train one model:
 *
 * - comm carries calls between ranks: threads, sockets, MPI, NCCL behind one table of
 *   functions.  Every rank calls the same collectives in the same order, or all fail with one
 *   sentence;
 * - shard lays parameters out: those of a block in one flat bucket, cut into equal shares
 *   (layout.h), and says what of it the tape has to know (sharing.h);
 * - ranks_hosts.c finds where ranks run and which of them share one copy of everything: all, or
 *   those of each host; ranks_device.c which GPU each takes; ranks_copies.c what copies of all
 *   ranks of a host reach together;
 * - ranks_agree.c compares what must be the same: options, model and program before a plan, values
 *   before a first step and after a load, and every --check-ranks updates what several ranks
 *   have.  Ranks that differ have no weights to go on with;
 * - values.c reads and writes values of parameters wherever they are: on the host before they have
 *   a place, in memory, in the shares of other ranks.
 *
 * Buckets are parameters themselves, the hidden ones at the end of the list; so planner, memory
 * and update need no word about ranks.  With one rank there is no communicator and every call here
 * is over at once.
 *
 * The room may know the core, memory, and the machine that plans are made for.  It knows nothing
 * of programs: who has them hands in how many steps they made and how many updates are under
 * way.  A call of all ranks is marked so; it must be made by all, in the same order, by one thread
 * each.
 */
#ifndef CKPT_RANKS_INSIDE_H
#define CKPT_RANKS_INSIDE_H

#include <stdatomic.h>
#include "ckpt_dist.h"
#include "dist/comm/comm.h"
#include "memory/memory.h"
#include "plan/graph/machine.h"
#include "dist/shard/sharing.h"

struct rank_place;

struct ranks {
    int32_t *groups;              /* of the optimizer, per parameter: see ranks_lay_out */
    struct ckpt_options *options; /* of the context, as are those up to the error */
    struct params *params;
    struct memory *memory;
    struct machine *machine; /* to plan with: what ranks reach together is a part of it */
    struct error *error;
    struct sharing sharing;
    struct comm *comm; /* of two ranks or more; NULL: one alone, or others only planned for */
    int32_t *noted;    /* see struct ops_ranks; NULL but on a GPU */
    int32_t seen;      /* of noted: how often */
    double seen_at;    /* and when that changed, in clock_seconds() */
    int rank;
    uint64_t host;                /* where this rank runs */
    int hosts;                    /* that the ranks run on; 0: not known yet */
    int per_host;                 /* ranks on each of the hosts; 0: not all have as many */
    int *placements;              /* ranks, host by host; NULL: not known yet */
    struct comm *within, *across; /* of several copies: the ranks of this one; those of its place */
    int over;                     /* enum ranks_over */
    bool settled;                 /* on how they share */
    char routes[64];              /* from this rank's GPU to those of others on its host; or "" */
    struct rank_place *places;    /* per rank: where it runs; NULL: not known yet */
    int asked_zero;               /* what sharing.zero is unless no rank shares anything */
    atomic_int request[CKPT_REQUESTS]; /* 1: of this rank */
    bool requested[CKPT_REQUESTS];     /* by any of several, in a step that has ended */
    bool values_agreed;                /* all ranks have set their parameters to the same */
    uint64_t rates;                    /* a digest of all learning rates so far */
};

/* Makes this one of the ranks of comm, which it takes over.  zero: see struct sharing.  Before the
 * first program is compiled. */
void ranks_join(struct ranks *job, struct comm *comm, int zero);

/* Opens what the options ask for (ranks, zero); before the device, for it depends on the others on
 * the same host which GPU this rank takes: ranks_placement tells its index.  ranks_open_device
 * opens NCCL, where the device is one for it, and refuses two ranks on one GPU, or GPUs for some
 * only. All return 0 or a code, the sentence in error_get(). */
int ranks_open(struct ranks *job);
int ranks_placement(struct ranks *job, int *index);
int ranks_open_device(struct ranks *job);
/* Closes what is open, having told the others why if there is a code. */
void ranks_close(struct ranks *job, int code);

/* What a rank tells of where it runs. */
struct rank_place {
    uint64_t host;
    uint64_t processors;  /* a mark of those that its threads may run on */
    int32_t node;         /* of NUMA: nearest to its GPU, or where it runs now; -1: not known */
    int32_t wants_copies; /* it wants to know what copies of all ranks of a host reach */
    char over[8];         /* --shard-over, which decides what follows */
    char gpu[32];         /* on the bus, or "" */
    char routes[64];      /* to the GPUs of others on its host, or "" */
    char text[192];       /* all that in words */
};

/* How many ranks, this one included, have their threads where this one has them: on one host, near
 * the same node and allowed the same processors. */
int ranks_beside(const struct ranks *job);

/* Sets host_copies of the machine to what copies of all ranks of a host reach together, if every
 * rank wants to know: it has a host tier, and its machine file does not say.  It stays 0 where
 * there is no room to copy.  Calls of all ranks, after they know where they are; returns 0 or a
 * code, the sentence in the error. */
bool ranks_want_copies(const struct ranks *job);
int ranks_time_copies(struct ranks *job);

/* Lines about all ranks, for the plan table. */
void ranks_print_places(const struct ranks *job, FILE *f);

/* The same, or what CKPT_HOST_NAME says: ranks with one name share as those of a host do. */
uint64_t ranks_host_name(void);

/* Where n ranks run, a number for each host: placements are the ranks, host by host, in the order
 * in which the hosts are met.  Returns how many every host has, or 0 if not all have as many; *most
 * is how many the fullest has. */
int ranks_sort_by_host(int n, const uint64_t *of, int *placements, int *hosts, int *most);

/* Finds out where the ranks run and lays the parameters out, once.  groups: of the optimizer of
 * each parameter, which share no bucket, LAYOUT_FROZEN where it is not trained; NULL: all in one.
 * Returns 0 or a code, the sentence in the context. */
int ranks_lay_out(struct ranks *job, const int32_t *groups);

/* What ranks share can be spread over those of each host, or over all of them: which is allowed by
 * the options and by where they run, and once one is settled on, whether it is that one.
 * Calls of all ranks; ranks_share returns 0 or a code, the sentence in the error. */
enum ranks_over { OVER_HOST, OVER_ALL, OVER_COUNT };
bool ranks_may_share(const struct ranks *job, enum ranks_over over);
int ranks_share(struct ranks *job, enum ranks_over over);
void ranks_settle(struct ranks *job);

/* Parts of the above (ranks_hosts.c): placements and per_host; sharing.group_ranks, what follows
 * from it, and the communicators of groups. */
int ranks_find_hosts(struct ranks *job);
int ranks_choose_group(struct ranks *job, enum ranks_over over);
void ranks_close_groups(struct ranks *job);
/* The rank from which all take the share of this place. */
int ranks_owner(const struct ranks *job, int place);

/* What carries calls of hosts, at the update that all ranks have come to: which step of a device a
 * rank looked at last is its own affair. */
struct comm *ranks_hosts(struct ranks *job);

/* All ranks must have recorded the same (ranks_agree.c): program is the signature of the graph,
 * optimizer that of its settings or 0.  Returns 0 or a code, as those below. */
int ranks_agree(struct ranks *job, uint64_t program, uint64_t optimizer);
/* What ckpt_agree was given. */
int ranks_agree_facts(struct ranks *job, const struct ckpt_fact *facts, int n);
/* What ckpt_gather_ranks was given. */
int ranks_gather(struct ranks *job, const void *own, size_t bytes, void *all);
/* Keeps in mind what a slot of a parameter was set to: all n elements of it. */
void ranks_note_set(struct ranks *job, struct param *p, enum ckpt_slot slot, const float *src,
                    int64_t n);
/* After a file was loaded: all must have loaded the same.  Nothing before the first compile, where
 * the first step asks. */
int ranks_agree_loaded(struct ranks *job, uint64_t steps);
/* Before a step of all ranks: what was set, if that is new or the program runs for the first time,
 * and every --check-ranks updates what several of them have. */
struct ranks_step {
    bool first;      /* of its program */
    uint64_t steps;  /* a digest of how many each program has handed over */
    int64_t updates; /* those under way included */
    float lr;
};
int ranks_before_step(struct ranks *job, const struct ranks_step *s);

/* What this rank requests with the step it hands over (enum ckpt_request): 1 or 0.  A stop lasts,
 * a save is requested once. */
int ranks_take_request(struct ranks *job, int request);

/* Tells the others that this rank ends, with the context's sentence.  Returns code. */
int ranks_give_up(struct ranks *job, int code);

/* Does every rank have all of this slot of a bucket?  The elements of parameter i that this rank
 * has in it, from `at` in the parameter and from in_bucket in what it has of the bucket. */
bool ranks_is_whole(const struct ranks *job, int slot);
int64_t ranks_own_part(const struct ranks *job, int32_t i, int slot, int64_t *at,
                       int64_t *in_bucket);

/* Is p a bucket?  Writes over dst, this rank's part of it, what only the host has: what was set, or
 * what follows from the seed. */
bool ranks_is_bucket(const struct ranks *job, const struct param *p);
void ranks_initial(const struct ranks *job, const struct param *bucket, float *dst);

/* The bucket that holds a parameter since it was filled, or NULL. */
struct param *ranks_bucket_of(const struct ranks *job, const struct param *p);
/* A slot of a parameter that stands in a bucket, as fp32.  All ranks call get together. */
int ranks_get(struct ranks *job, const struct param *p, int slot, float *dst);
int ranks_set(struct ranks *job, const struct param *p, int slot, const float *src);

/* A parameter in a bucket that is infinite or NaN in what this rank has of it, or NULL.  Asks no
 * other rank. */
const struct param *ranks_find_broken(struct ranks *job);

#endif
