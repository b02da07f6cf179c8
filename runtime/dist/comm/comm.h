/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communicators.  A communicator runs collectives: every rank calls the same ones in the same
 * order, or all fail with one sentence that names the rank, the op and the step.
 *
 * Between ranks on CPUs a call returns when its result is complete.  Sums are computed in fp32 in
 * the order of ranks and rounded once, so the bits depend on the number of ranks and not on the
 * transport.  NCCL's calls are queued on a stream and return at once; NCCL chooses its own order of
 * addition.
 */
#ifndef CKPT_COMM_H
#define CKPT_COMM_H

#include "dist/comm/flight.h"

enum comm_kind {
    COMM_ALL_GATHER,
    COMM_REDUCE_SCATTER,
    COMM_ALL_REDUCE,
    COMM_BROADCAST,
    COMM_ALL_TO_ALL,
    COMM_SHIFT,
    COMM_BARRIER
};

#define COMM_NAME     FLIGHT_NAME /* bytes of a call's name that ranks see, including the NUL */
#define COMM_DEADLINE 30.0

/*
 * One collective. count is in elements: a rank's contribution for all_gather, its result for
 * reduce_scatter, what one rank sends to another for all_to_all, else the whole buffer; the other
 * buffer of all_gather and reduce_scatter, and both of all_to_all, have comm->size times as many.
 * Part p of an all_to_all goes to rank p, where it becomes the part of this rank.  A shift sends
 * src to the next rank and fills dst from the rank before, in a ring; not on NCCL.  In place: src
 * of an all_gather is dst + rank * count, dst of a reduce_scatter is src + rank * count, src of an
 * all_reduce is dst; other overlaps are not allowed.  A broadcast reads src at the root and writes
 * dst elsewhere.
 */
struct comm_call {
    enum comm_kind kind;
    enum ckpt_dtype dtype; /* sums support fp32 and bf16 */
    int root;
    int64_t count;
    const void *src;
    void *dst;
    const char *name; /* for error messages: "gradients of blocks.3" */
};

struct comm;
struct comm_lobby;

struct comm_ops {
    bool takes_stream; /* buffers are device memory; run() only queues the call */
    /* Returns 0, CKPT_EINVAL (count, dtype) or CKPT_ECOMM; after CKPT_ECOMM every call fails with
     * the same sentence. */
    int (*run)(struct comm *c, const struct comm_call *call, void *stream);
    /* Polls whether another rank aborted or the transport failed, without blocking: 0 or
     * CKPT_ECOMM.  Used while waiting for a stream. */
    int (*check)(struct comm *c);
    /* Broadcasts why this rank cannot continue; the next call or check of every rank fails with
     * it. */
    void (*give_up)(struct comm *c, const char *sentence);
    /* See comm_open_group; NULL if groups are not supported. */
    int (*group)(struct comm *c, int n, const int *ranks, struct comm **group);
    void (*close)(struct comm *c);
};

struct comm {
    const struct comm_ops *ops;
    const char *name; /* "mpi", "tcp", "nccl" */
    int rank, size;
    double deadline;           /* timeout for waiting on another rank, seconds */
    int64_t step;              /* set by the caller, for error messages; ranks compare it */
    const int64_t *steps_before; /* of a call that a thread of the device runs later, or again in a
                                    recorded step: where step - 1 is then; NULL: step holds */
    int64_t n_calls;           /* number of calls since open */
    struct flight flight;      /* of the communicator for host memory: calls of its groups too; the
                                  caller sets it while it waits for a device */
    struct comm *hosts;        /* if takes_stream: the communicator for host memory below it */
    char how[128];             /* "Open MPI 4.1.4", "NCCL 2.28.9" */
    char reason[CKPT_MESSAGE]; /* the sentence after CKPT_ECOMM */
};

/* The calls below return 0 or the code of comm->ops->run.  A NULL comm means a single rank. */
int comm_run(struct comm *c, const struct comm_call *call, void *stream);
int comm_barrier(struct comm *c, const char *name);
/* Gathers the bytes of every rank (a multiple of 4) on all ranks, in order of ranks.  Not on a
 * communicator that takes a stream. */
int comm_gather(struct comm *c, const void *mine, void *all, size_t bytes, const char *name);
/* Sends the bytes of rank 0 (a multiple of 4) to all ranks; like comm_gather. */
int comm_broadcast(struct comm *c, void *data, size_t bytes, const char *name);
void comm_close(struct comm *c);

/*
 * Compares what all ranks must have in common: "plan", "value" of "fc1.weight", "--lr".  All ranks
 * call it with the same list.  Every rank gets the same result: 0, or CKPT_ECOMM with a sentence
 * that names the ranks that differ from the majority, such as "rank 1 HOW another plan than rank
 * 0", where HOW is "started with".  The library version is always compared, first.  Not on a
 * communicator that takes a stream.  It transfers 16 bytes per term and rank.
 */
struct comm_term {
    const char *name, *of; /* of: NULL if name is complete */
    uint64_t value;        /* a signature */
    int64_t group;         /* only ranks with equal groups in this term are compared */
    const char *text;      /* text that shows the value in the message; NULL: none */
};
int comm_agree(struct comm *c, const char *how, const struct comm_term *terms, int n);

/*
 * Opening.  All return 0, CKPT_ENOMEM, CKPT_EINVAL or CKPT_ECOMM, with the sentence.
 */

/* The processes that mpirun or srun started, through libckpt's MPI plugin. */
int comm_open_mpi(struct comm **c, double deadline);

/*
 * Processes that find each other: "tcp:HOST:PORT", where rank 0 listens on that address only, or
 * "file:PATH" on a shared file system, where rank 0 writes its address and a secret.  Ranks with a
 * secret authenticate each other; the secret is not sent.  Connections from outside the job are
 * closed and counted.  A rank with another job size or another library version is an error on all
 * ranks.
 */
struct comm_rendezvous {
    const char *where;
    const char *job;   /* job name, up to 63 bytes, which separates jobs; NULL: "" */
    const char *token; /* the secret, JOB_TOKEN_MIN bytes or more; NULL: the secret of the file */
    int rank, size;
    int patience;         /* the other ranks wait for rank 0 as many deadlines; 0: one */
    const char *gives_up; /* not NULL: this process joins only to tell the others why it ends */
    /*
     * Not NULL: an elastic job.  rank is the seat of this process among `size`.  Whoever is there
     * forms the job: at first all seats; again, once each process that was in it before has come
     * but one, or the deadline passes.  The number of ranks is the largest that divides `divides`,
     * so some may have to wait for the next time.  *lobby, of the new rank 0, keeps the place for
     * this job.
     */
    struct comm_lobby **lobby;
    int64_t divides;
    int former_rank, former_size; /* in the job before; size 0: this process is new, or, set by
                                     comm_open_tcp, a job formed without it */
};
/* *c stays NULL where this process gives up: 0, the others know it. */
int comm_open_tcp(struct comm **c, struct comm_rendezvous *m, double deadline);

/* Whether a job of `ranks` would have more if it formed again: processes wait at the place.  Does
 * not block.  Both accept NULL. */
bool comm_lobby_grows(struct comm_lobby *l, int ranks);
void comm_lobby_close(struct comm_lobby *l);

/*
 * A communicator of n >= 2 ranks of c, this one among them, in ascending order; their numbers in
 * the group start at 0. Those ranks call it together with the same list.  A failure in a group
 * fails c on all its ranks, with their numbers in c; deadline and step come from c.  Close it
 * before c.
 */
int comm_open_group(struct comm *c, int n, const int *ranks, struct comm **group);

/* The communicator for host memory. */
static inline struct comm *comm_of_hosts(struct comm *c)
{
    return c->hosts ? c->hosts : c;
}

/*
 * The same ranks on GPUs. control is any of the above: it carries NCCL's id and failure messages.
 * It belongs to the new communicator and is closed with it (on failure it stays open).  The device
 * must be the current one of this thread.  Sums in which all ranks have equal parts have the same
 * bits from reduce_scatter and all_reduce.  Unless the environment says otherwise, NVLink multicast
 * and buffer registration are disabled for the process, and NCCL uses more multiprocessors where
 * `together` says that all ranks are on one host.
 */
int comm_open_nccl(struct comm **c, struct comm *control, bool together);

/* "rank 2", "ranks 1 and 3", "ranks 0, 1 and 5": lists the marked ones of n ranks. */
void comm_name_ranks(char *dst, size_t size, const bool *which, int n);

/* Rank and size from the launcher's environment (Open MPI, PMI, Slurm, PMIx, RANK and WORLD_SIZE);
 * 0 of 1 without a launcher.  Returns 0, or CKPT_EINVAL with the sentence if only one of the two is
 * set or the numbers are invalid. */
int comm_launched_as(int *rank, int *size);
/* Where the ranks of the launcher meet, as "tcp:HOST:PORT": MASTER_ADDR and MASTER_PORT of
 * torchrun, or the first host of Slurm's list with a port that follows from the number of the job.
 * Returns 0 or CKPT_EINVAL. */
int comm_launched_where(char *dst, size_t size);
/* Whether a launcher's variables are set. */
bool comm_is_launched(void);

#endif
