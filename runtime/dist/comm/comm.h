/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that train together.  A communicator runs collectives: every rank calls the same ones in
 * the same order, or all of them fail with one sentence that names the rank, the op and the step.
 *
 * Between ranks on CPUs a call returns when its result is there, and sums are made in the order of
 * ranks, in fp32, rounded once: the bits depend on the number of ranks, not on what carries them.
 * NCCL's calls go to a stream and return at once; in which order it adds is its own affair.
 */
#ifndef CKPT_COMM_H
#define CKPT_COMM_H

#include "core/base.h"

enum comm_kind {
    COMM_ALL_GATHER,
    COMM_REDUCE_SCATTER,
    COMM_ALL_REDUCE,
    COMM_BROADCAST,
    COMM_BARRIER
};

#define COMM_NAME     64 /* bytes of a call's name that other ranks see, its end included */
#define COMM_DEADLINE 30.0

/*
 * One collective.  count is what a rank gives (all_gather) or gets (reduce_scatter), else the
 * whole, in elements; the other side has comm->size times that.  In place: src of an all_gather is
 * dst + rank * count, dst of a reduce_scatter is src + rank * count, src of an all_reduce is dst;
 * other overlaps are not allowed.  A broadcast reads src at the root and writes dst elsewhere.
 */
struct comm_call {
    enum comm_kind kind;
    enum ckpt_dtype dtype; /* sums are of fp32 or bf16 */
    int root;
    int64_t count;
    const void *src;
    void *dst;
    const char *name; /* for sentences: "gradients of blocks.3" */
};

struct comm;

struct comm_ops {
    bool takes_stream; /* buffers are device memory, run() only hands over */
    /* Returns 0, CKPT_EINVAL (count, dtype) or CKPT_ECOMM; after that every call fails alike. */
    int (*run)(struct comm *c, const struct comm_call *call, void *stream);
    /* Looks whether another rank gave up or the transport failed, without waiting for anything:
     * 0 or CKPT_ECOMM.  For whoever waits for a stream. */
    int (*check)(struct comm *c);
    /* Tells all ranks why this one cannot go on; their next call or check fails with it. */
    void (*give_up)(struct comm *c, const char *sentence);
    /* See comm_open_group; NULL where there are no groups to make. */
    int (*group)(struct comm *c, int n, const int *ranks, struct comm **group);
    void (*close)(struct comm *c);
};

struct comm {
    const struct comm_ops *ops;
    const char *name; /* "self", "threads", "mpi", "tcp", "nccl" */
    int rank, size;
    double deadline;           /* seconds to wait for another rank */
    int64_t step;              /* set by the caller, for sentences */
    int64_t n_calls;           /* since open */
    struct comm *hosts;        /* of one that takes a stream: the one that it was opened over */
    char how[128];             /* "Open MPI 4.1.4", "NCCL 2.28.9" */
    char reason[CKPT_MESSAGE]; /* the sentence after CKPT_ECOMM */
};

/* The calls below return 0 or the code of comm->ops->run.  A NULL comm is one rank alone. */
int comm_run(struct comm *c, const struct comm_call *call, void *stream);
int comm_barrier(struct comm *c, const char *name);
/* Every rank's bytes (a multiple of 4) to all, in their order.  On a comm that takes no stream. */
int comm_gather(struct comm *c, const void *mine, void *all, size_t bytes, const char *name);
void comm_close(struct comm *c);

/*
 * What all ranks must have in common: "plan", "value" of "fc1.weight", "--lr".  A call of all ranks
 * with the same list.  Every rank gets the same answer: 0, or CKPT_ECOMM with a sentence that says
 * which ranks differ in what from most, as "rank 1 HOW another plan than rank 0" where HOW is
 * "started with".  The version of the library is always compared, first.  On a comm that takes no
 * stream; the bytes are 16 a term and rank.
 */
struct comm_term {
    const char *name, *of; /* of: NULL if the name says all */
    uint64_t value;        /* of a signature */
    int64_t group;         /* ranks whose terms have the same one here are compared */
    const char *text;      /* what to show of the value where it differs; NULL: nothing */
};
int comm_agree(struct comm *c, const char *how, const struct comm_term *terms, int n);

/*
 * Opening.  All return 0, CKPT_ENOMEM, CKPT_EINVAL or CKPT_ECOMM, the sentence in error_get().
 */

/* One rank alone. */
int comm_open_self(struct comm **c);

/* Ranks in one process, one thread each, for tests: fills ranks[0 .. size-1].  Each is closed by
 * itself. */
int comm_open_threads(struct comm **ranks, int size, double deadline);

/* The processes that mpirun or srun started, through libckpt's MPI plugin. */
int comm_open_mpi(struct comm **c, double deadline);

/*
 * Processes that meet by themselves: "tcp:HOST:PORT", where rank 0 listens and nowhere else, or
 * "file:PATH" on a disk that all see, where rank 0 writes its address and a secret.  Ranks that
 * have a secret prove it to each other; it does not travel.  What connects and is no rank of the
 * job is sent away and counted.  Ranks of another size of job or another version of the library are
 * an error that all are told.
 */
struct comm_rendezvous {
    const char *where;
    const char *job;   /* its name, up to 63 bytes, so that jobs are told apart; NULL: "" */
    const char *token; /* its secret, JOB_TOKEN_LEAST bytes or more; NULL: that of the file */
    int rank, size;
};
int comm_open_tcp(struct comm **c, const struct comm_rendezvous *m, double deadline);

/*
 * A communicator of n >= 2 of the ranks of c, this one among them, in rising order; there they have
 * numbers from 0 on.  A call of those ranks together, with the same list.  What fails in a group
 * fails in c and is told to all ranks of c, under the numbers that they have there; deadline and
 * step are those of c.  It is closed before c.
 */
int comm_open_group(struct comm *c, int n, const int *ranks, struct comm **group);

/* The one that carries calls of hosts. */
static inline struct comm *comm_of_hosts(struct comm *c)
{
    return c->hosts ? c->hosts : c;
}

/*
 * The same ranks on GPUs.  control is any of the above: it carries NCCL's id, and is where failures
 * are told; it becomes part of the new communicator and is closed with it (on failure it is left
 * open).  The device must be the current one of this thread.  Sums of which all ranks have equal
 * parts come out the same from reduce_scatter and all_reduce.  Unless the environment says
 * otherwise, NVLink multicast and the registration of buffers are switched off for the process, and
 * NCCL takes more multiprocessors for shorter where the ranks are together, all on one host.
 */
int comm_open_nccl(struct comm **c, struct comm *control, bool together);

/* "rank 2", "ranks 1 and 3", "ranks 0, 1 and 5": those of n that are marked. */
void comm_name_ranks(char *dst, size_t size, const bool *which, int n);

/* Rank and size as the launcher tells them (Open MPI, PMI, Slurm, RANK and WORLD_SIZE); 0 of 1
 * where there is none.  Returns 0, or CKPT_EINVAL with the sentence in error_get() where it tells
 * half of it, or no ranks. */
int comm_launched_as(int *rank, int *size);

#endif
