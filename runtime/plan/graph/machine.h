/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model of a machine, and its files: JSON, one number a line.  Rates are in bytes or operations
 * per second, times in seconds.
 */
#ifndef CKPT_PLAN_MACHINE_H
#define CKPT_PLAN_MACHINE_H

#include "core/base.h"
#include "algorithms.h"

struct json_t; /* a JSON object of Jansson */

/* The median seconds of an op that was timed; key is graph_op.cost_key. */
struct machine_cost {
    uint64_t key;
    double seconds;
};

enum {
    MACHINE_DEVICES = 8,
    MACHINE_CHOICE = 512 /* bytes of the text of an algorithm, with its end */
};

/*
 * The links that carry collectives.  A rate is the bus bandwidth of a rank in a large collective,
 * each way, as benchmarks of collectives print it.  net is the rate of one rank between hosts while
 * all ranks of a host send.
 */
struct links {
    double host, host_latency; /* between ranks of a host: B/s, seconds a hop */
    double net, net_latency;
    int64_t ranks_per_host;
    double overhead;   /* seconds of a collective beside bytes and hops: ranks begin together */
    double contention; /* seconds that concurrent ops lose per second of a collective */
};

struct machine {
    char name[64];
    char file[64];                     /* name of its file without the directory, or "" */
    char devices[MACHINE_DEVICES][64]; /* names of its hardware as drivers report them */
    int32_t n_devices;
    bool estimate;                     /* from public figures, not measured */
    enum ckpt_backend backend;         /* of its kernels */
    int64_t capability;                /* CUDA: 90 for compute capability 9.0, 0: not known */
    int64_t memory;                    /* device bytes, for --vram 80% */
    int64_t process;                   /* device bytes of a process beside its arena */
    double flops, bandwidth, overhead; /* matrix rate, device memory B/s (read + write), s per op */
    double attention;                  /* its rate as a share of flops; 0: not known, then 1 */
    double d2h, h2d;                   /* copies between device and host, B/s, one at a time */
    double d2h_both, h2d_both;         /* the same while both directions run */
    double copy_overhead;              /* seconds of each copy beside its bytes */
    double host_copies;                /* B/s of all devices of a host together, each way while
                                        * both run; 0: not known, then unlimited */
    double host_bandwidth;             /* host memory, B/s (read + write) */
    double host_update;                /* AdamW on the host, B/s (read + write), while copies run;
                                        * 0: not known */
    double nvme_read, nvme_write;      /* 0: none */
    double nvme_both;                  /* B/s of each while both run; 0: as alone */
    double nvme_endurance;             /* bytes that may be written in its lifetime; 0: unknown */
    struct links links;                /* to other ranks */
    struct machine_cost *costs;        /* sorted by key, each key once */
    int32_t n_costs;
    struct algorithms algorithms; /* of products, faster than the library's first choice */
    char source[512];             /* where the figures come from */
};

/* The number of ranks on the first host if `ranks` ranks fill one host after the other. */
static inline int64_t links_beside(const struct links *l, int64_t ranks)
{
    return min_i64(ranks, max_i64(1, l->ranks_per_host));
}

extern const struct machine machine_cpu;  /* a plain CPU, an estimate */
extern const struct machine machine_cuda; /* a data centre GPU, an estimate */

/*
 * Reads a machine file.  A path without '/' and '.' is a name: of a file NAME.json in the directory
 * that CKPT_MACHINE_DIR names, or else of one that came with the library ("h200-141").  Returns 0,
 * CKPT_EIO, CKPT_EFORMAT or CKPT_ENOMEM with the sentence; m then holds nothing to free.
 */
int machine_read(const char *path, struct machine *m);

/* As machine_read, of a file or of a JSON object that is named in sentences. */
int machine_read_file(const char *path, struct machine *m);
int machine_take(const char *what, struct json_t *root, struct machine *m);

/* The names of the machines that came with the library, in their order; returns how many. */
int machine_shipped(char names[][64], int most);

/*
 * Finds the first machine for hardware of this name: first among the files in CKPT_MACHINE_DIR in
 * the order of their names, then among those that came with the library.  Returns false and leaves
 * m unchanged if there is none.  Skips files that cannot be read.
 */
bool machine_for_device(const char *device, struct machine *m);

/*
 * Reads a link file: {"format": "libckpt-links 1", ...} and any of the members of links in
 * machine files; those that are missing stay.  Returns as machine_read.
 */
int machine_read_links(const char *path, struct machine *m);

/* The same machine gives the same bytes.  Returns 0, CKPT_EIO or CKPT_ENOMEM. */
int machine_write(const struct machine *m, const char *path);

void machine_free(struct machine *m);

/*
 * The machine as one of `ranks` ranks sees it, which fill one host after the other: their copies
 * share host_copies.  The costs are borrowed from m; do not free them.
 */
struct machine machine_for_rank(const struct machine *m, int64_t ranks);

/* The machine where this share of the host tier is not pinned; the costs are borrowed, too. */
struct machine machine_pageable(const struct machine *m, double share);

/* Sorts by key, and equal keys by seconds. */
void machine_sort_costs(struct machine_cost *costs, int32_t n);

/* The measured seconds of an op; false if it was not measured here. */
bool machine_cost(const struct machine *m, uint64_t key, double *seconds);

/* The bytes that --vram auto leaves free: enough for the context of another process. */
static inline int64_t machine_margin(const struct machine *m, int64_t bytes)
{
    return min_i64(m->process, bytes / 8);
}

/* Whether the run only plans, with the rates of another machine: it then needs no device of its
 * own. */
static inline bool machine_is_foreign(const struct ckpt_options *o)
{
    return o->plan_only && o->machine && *o->machine;
}

#endif
