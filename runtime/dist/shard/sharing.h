/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How ranks share the parameters and their state: what a recorder has to know of ranks.  Decided
 * when ranks join and with the first program; fixed from then on.
 */
#ifndef CKPT_SHARING_H
#define CKPT_SHARING_H

#include "dist/shard/layout.h"

struct sharing {
    int ranks;          /* of the job; 1: one alone */
    int group_ranks;    /* ranks that share one copy of everything: all, or those of each host */
    int replicas;       /* so many copies there are */
    int replica, place; /* which of them this rank has which share of */
    int zero; /* 0: every rank has everything; 1: all values and its share of the state; 2: shares,
                 gathered once a step; 3: when needed */
    bool drop_after_forward; /* what is gathered at 3, whether there is memory to keep it or not */
    struct layout *layout;   /* of the parameters, from the first compile on; NULL: one rank */
};

#endif
