/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ranks of a job: the identity of this rank, the host and GPU of each rank, the parts of each
 * parameter that this rank stores, and the checks that all ranks agree.
 *
 * The dist room decides how several ranks train one model:
 *
 * - comm carries collectives between ranks through one table of functions; sockets, MPI and NCCL
 *   (and threads, in tests) implement it.  Every rank calls the same collectives in the same order,
 *   or all fail with one sentence;
 * - shard lays parameters out: the parameters of a block form one flat bucket, cut into equal
 *   shares (layout.h). sharing.h holds what the tape has to know about it;
 * - ranks_hosts.c finds the host of each rank and the ranks that share one copy of the model: all
 *   ranks, or the ranks of each host; ranks_device.c selects the GPU of each rank; ranks_copies.c
 *   measures host copies while all ranks of a host copy at once;
 * - ranks_agree.c compares state that must be equal: options, model and program before planning,
 *   values before a first step and after a load, and every --check-ranks updates the bytes that
 *   several ranks hold.  Training stops if ranks differ;
 * - values.c reads and writes parameter values wherever they are stored: on the host before they
 *   have an address, in memory, or in the shares of other ranks.
 *
 * Buckets are hidden parameters at the end of the parameter list, so planner, memory and update
 * need no special case for ranks.  With one rank there is no communicator and every call here
 * returns at once.
 *
 * The room may use the core, memory, and the machine description of plans.  It does not know
 * programs: the caller passes the number of steps and updates.  A call marked "collective" must be
 * made by all ranks, in the same order, by one thread of each.
 */
#ifndef CKPT_RANKS_INSIDE_H
#define CKPT_RANKS_INSIDE_H

#include <stdatomic.h>
#include "ckpt_dist.h"
#include "dist/comm/comm.h"
#include "dist/pace.h"
#include "memory/memory.h"
#include "plan/graph/machine.h"
#include "dist/shard/sharing.h"

struct rank_place;
struct peers;

struct ranks {
    int32_t *groups;              /* optimizer group of each parameter; see ranks_lay_out */
    struct ckpt_options *options; /* of the context, like the members down to error */
    struct params *params;
    struct memory *memory;
    struct machine *machine; /* used for planning; includes the measured rates between ranks */
    struct sharing sharing;
    struct comm *comm; /* two or more ranks; NULL: one rank, or ranks that are only planned */
    int32_t *noted;    /* see struct ops_ranks; NULL except on a GPU */
    int32_t seen;      /* last value of *noted */
    double seen_at;    /* time at which seen changed, in clock_seconds() */
    int rank;
    int gpu;                      /* index of this rank's GPU among those of its host */
    bool on_gpus;                 /* some rank does not have --device cpu */
    uint64_t host;                /* hash that identifies the host of this rank */
    int hosts;                    /* number of hosts; 0: not known yet */
    int per_host;                 /* ranks on each host; 0: hosts have different numbers */
    int *placements;              /* ranks sorted by host; NULL: not known yet */
    struct comm *within, *across; /* with replicas: the ranks of this replica; the ranks with the
                                     same place in each replica */
    struct comm *previous, *next; /* this stage of a pipeline and the one before it; and the one
                                     after it; NULL: all ranks, or none */
    struct comm *sequence;      /* those that split a sequence with this rank; NULL: all or none */
    struct comm *tensor, *data; /* those with other parts of split parameters, and those with the
                                   same parts or stage; NULL: all or none */
    struct comm *pipeline; /* for host memory, the stages of this pipeline; NULL: all or none */
    int over;              /* enum ranks_over */
    struct stage_limit *limits; /* of sharing.limits, which the first program sets */
    struct stage_try *tries;    /* of sharing.tries */
    bool laid_out;              /* stages, which have no layout, are there */
    bool groups_fixed;          /* the choice of group_ranks is final */
    char routes[64]; /* link kinds from this rank's GPU to other GPUs of its host; or "" */
    struct rank_place *places; /* placement of each rank; NULL: not known yet */
    int requested_zero; /* sharing.zero as requested; sharing.zero is 0 where group_ranks would be 1
                         */
    atomic_int request[CKPT_REQUESTS]; /* by this rank; 0: none.  Requests to stop are counted:
                                          each ends the search for a plan under way */
    bool requested[CKPT_REQUESTS];     /* requested by any rank, in a step that has ended */
    bool values_agreed;  /* all ranks have compared the values that were set, and they are equal */
    uint64_t rates;      /* digest of all learning rates so far */
    struct pace pace;    /* open after ranks_lay_out */
    struct peers *peers; /* of an elastic job (peers.h); else NULL */
    struct comm_lobby *lobby; /* of its rank 0 */
};

/* Makes this process a rank of comm and takes ownership of comm. zero: see struct sharing.  Call it
 * before the first program is compiled. */
void ranks_join(struct ranks *job, struct comm *comm, int zero);

/* Opens the communicator that the options request (ranks, zero).  Call it before opening the
 * device, because it selects the index of the GPU from the ranks on the same host.
 * ranks_open_device opens NCCL if the device supports it, or, if stages have unlike devices, a
 * communicator through the host; it refuses two ranks on one GPU, and else GPUs for only some
 * ranks.  All return 0 or a code, with the sentence. */
int ranks_open(struct ranks *job);
int ranks_open_device(struct ranks *job);
/* Closes the communicators.  If code is not 0, first sends the error to the other ranks. */
void ranks_close(struct ranks *job, int code);

/* Joins the job that the options name only to send the others the reason why this rank ends: they
 * would wait for it.  An elastic job that has formed goes on without it.  Call it in place of
 * ranks_open.  Returns 0, or a code: some others did not come. */
int ranks_refuse(struct ranks *job, const char *reason);

/* Placement of one rank, as it sends it to the others. */
struct rank_place {
    uint64_t host;
    uint64_t processors;  /* hash of the processors its threads may run on */
    int32_t node;         /* NUMA node nearest to its GPU, or where it runs now; -1: not known */
    int32_t wants_copies; /* it needs the rate of host copies (ranks_want_copies) */
    int32_t sequence;     /* its --sequence, compared between ranks as the next four */
    int32_t tensor;       /* its --tensor */
    int32_t stages;       /* its --stages */
    int32_t save_async;   /* its --save-async */
    double flops;         /* of its machine */
    char over[8];         /* its --shard-over */
    char gpu[32];         /* PCI bus address, or "" */
    char routes[64];      /* link kinds to other GPUs of its host, or "" */
    char text[192];       /* the placement as a sentence */
};

/* Number of ranks, this one included, whose threads compete with this rank's: same host, same NUMA
 * node, same allowed processors. */
int ranks_beside(const struct ranks *job);

/* Measures host_copies of the machine: the rate of host copies while all ranks of a host copy at
 * once.  It does so only if every rank needs it: there is a host tier, and the machine file does
 * not give the rate.  The rate stays 0 if there is no memory for the measurement.  Collective,
 * after placements are known; returns 0 or a code, with the sentence in the error. */
bool ranks_want_copies(const struct ranks *job);
int ranks_time_copies(struct ranks *job);

/* Prints lines about all ranks for the plan table. */
void ranks_print_places(const struct ranks *job, FILE *f);

/* Hash of the host, or of CKPT_HOST_NAME: ranks with equal names count as ranks of one host. */
uint64_t ranks_host_name(void);

/* What ranks know of each other before they have devices. */
struct ranks_first {
    uint64_t host;
    int32_t on_cpu; /* it has --device cpu; else it has a GPU, unless there is none */
    int32_t sequence, tensor, stages;
};
/* Gathers it, finds the GPU of this rank, and sets *first to that of rank 0.  Ranks are all on GPUs
 * or all on CPUs, unless they are stages.  Collective; returns 0 or a code, with the sentence. */
int ranks_follow(struct ranks *job, struct ranks_first *first);

/* Memory of the host for collectives of unlike stages, whose operands have so many bytes.  Returns
 * 0 or CKPT_ENOMEM, with the sentence. */
int ranks_reserve(struct ranks *job, int64_t bytes);

/* Sorts n ranks by host; of[r] identifies the host of rank r. placements receives the ranks host by
 * host, hosts in order of first appearance.  *most is the largest number of ranks on a host.
 * Returns the number of ranks per host, or 0 if hosts differ in it. */
int ranks_sort_by_host(int n, const uint64_t *of, int *placements, int *hosts, int *most);

/* Finds the hosts of the ranks and lays the parameters out, once. groups: the optimizer group of
 * each parameter; parameters of different groups share no bucket; LAYOUT_FROZEN: not trained; NULL:
 * one group for all.  Returns 0 or a code, with the sentence in the context. */
int ranks_lay_out(struct ranks *job, const int32_t *groups);

/* Whether several ranks have divided the parameters, and wait for each other from then on. */
bool ranks_are_laid_out(const struct ranks *job);

/* Ranks can share a model within each host or over all ranks. ranks_may_share says whether the
 * options and placements allow a choice; after ranks_fix_groups, whether it is the final choice.
 * Collective; ranks_share returns 0 or a code, with the sentence in the error. */
enum ranks_over { OVER_HOST, OVER_ALL, OVER_COUNT };
bool ranks_may_share(const struct ranks *job, enum ranks_over over);
int ranks_share(struct ranks *job, enum ranks_over over);
void ranks_fix_groups(struct ranks *job);

/* Parts of the above (ranks_hosts.c).  They set placements and per_host, then sharing.group_ranks
 * with the members derived from it, and open or close the communicators of groups. */
int ranks_find_hosts(struct ranks *job);
int ranks_choose_group(struct ranks *job, enum ranks_over over);
void ranks_close_groups(struct ranks *job);
/* Opens the communicators with the neighbours of a stage.  ranks_free_cut: from now on a cut into
 * stages respects how fast the ranks are, and no memory. */
int ranks_open_stages(struct ranks *job);
void ranks_free_cut(struct ranks *job);
/* Opens the communicators of the ranks that split a sequence, or parameters, unless these are all.
 */
int ranks_open_sequence(struct ranks *job);
int ranks_open_tensor(struct ranks *job);
/* The rank that broadcasts the share at this place to all. */
int ranks_owner(const struct ranks *job, int place);

/* Stages of a pipeline own parameters once the first program is cut.  ranks_forget_stages: what an
 * earlier cut decided; nothing is placed yet. ranks_share_stages: lays the parameters of each stage
 * out for its ranks in all pipelines, by the stage of each parameter.  Returns 0 or a code. */
void ranks_forget_stages(struct ranks *job);
int ranks_share_stages(struct ranks *job);

/* The communicator for host memory of the ranks with the same programs and plans, which are all, or
 * those of one stage; NULL: this one alone. ranks_lead: whether it plans for them. */
struct comm *ranks_alike(struct ranks *job);
bool ranks_lead(const struct ranks *job);
int ranks_number(const struct ranks *job, int i); /* in the job, of one of them */
/* The one of the stages of this pipeline, by number; NULL: there are none, or only planned ones. */
struct comm *ranks_pipeline(struct ranks *job);

/* The communicator for host memory, with its step set to the last update that all ranks reached.
 * The step of a device that a rank polled last differs between ranks. */
struct comm *ranks_hosts(struct ranks *job);
/* The same, or NULL with one rank. */
struct comm *ranks_all(struct ranks *job);
/* While another rank plans, calls of ranks_hosts wait longer; ends what it began. */
void ranks_await_plan(struct ranks *job, bool begins);

/* Compares what all ranks recorded (ranks_agree.c): batch is the samples of a step on one rank,
 * program the signature of the graph, optimizer the signature of its settings or 0. The graph does
 * not tell all batches apart: its sizes are rounded up. Returns 0 or a code, like the calls
 * below. */
int ranks_agree(struct ranks *job, int64_t batch, uint64_t program, uint64_t optimizer);
/* Compares the facts given to ckpt_agree. */
int ranks_agree_facts(struct ranks *job, const struct ckpt_fact *facts, int n);
/* Returns the code of the first rank whose `own` is not 0, on all ranks, or that of a failure.  The
 * sentence of such a rank is its own, of the others that of the first one, with its number. */
int ranks_agree_code(struct ranks *job, int own);
/* Implements ckpt_gather_ranks. */
int ranks_gather(struct ranks *job, const void *own, size_t bytes, void *all);
/* Stores a digest of the n elements that a slot of a parameter was set to. */
void ranks_note_set(struct ranks *job, struct param *p, enum ckpt_slot slot, const float *src,
                    int64_t n);
/* Compares loaded values after a file was loaded.  Does nothing before the first compile; the first
 * step compares then. */
int ranks_agree_loaded(struct ranks *job, uint64_t steps);
/* Called before a step of all ranks.  Compares the values that were set, if they are new or the
 * program runs for the first time, and every --check-ranks updates the bytes that several ranks
 * hold. */
struct ranks_step {
    bool first;      /* first step of its program */
    uint64_t steps;  /* digest of the number of steps submitted per program */
    int64_t updates; /* including updates in progress */
    float lr;
};
int ranks_before_step(struct ranks *job, const struct ranks_step *s);

/* This rank's request with the step it submits (enum ckpt_request): 1 or 0. A stop request stays
 * set; a save request is cleared. */
int ranks_take_request(struct ranks *job, int request);

/* Sends the context's error to the other ranks: this rank ends.  Returns code. */
int ranks_give_up(struct ranks *job, int code);

/* ranks_is_whole: does every rank that shares a bucket hold the whole of this slot?
 * ranks_own_part: the elements of parameter i that this rank holds, from *at in the parameter, in
 * the order of parts if it is split, and from *in_bucket in this rank's part of the bucket.
 * Returns their number. */
bool ranks_is_whole(const struct ranks *job, int slot);
int64_t ranks_own_part(const struct ranks *job, int32_t i, int slot, int64_t *at,
                       int64_t *in_bucket);

/* ranks_is_bucket: is p a bucket? ranks_initial overwrites dst, this rank's part of a bucket, with
 * the values that only the host has: values that were set, or initial values from the seed. */
bool ranks_is_bucket(const struct ranks *job, const struct param *p);
void ranks_initial(const struct ranks *job, const struct param *bucket, float *dst);

/* The bucket of a parameter, or NULL; ranks_bucket_of: that stores it, or NULL before it was
 * filled.
 */
struct param *ranks_bucket_at(const struct ranks *job, const struct param *p);
struct param *ranks_bucket_of(const struct ranks *job, const struct param *p);
/* Reads or writes a slot of a parameter stored in a bucket, as fp32. ranks_get is collective. */
int ranks_get(struct ranks *job, const struct param *p, int slot, float *dst);
int ranks_set(struct ranks *job, const struct param *p, int slot, const float *src);

/* A parameter in a bucket with an infinite or NaN element in this rank's part, or NULL.  Local to
 * this rank. */
const struct param *ranks_find_broken(struct ranks *job);

#endif
