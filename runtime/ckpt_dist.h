/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libckpt: several ranks that train one model (--ranks, --zero).  Every rank runs the same program:
 * the same model, the same options that shape the step, the same seed, its own samples.  A batch of
 * ckpt_compile is what one rank feeds; a step trains on those of all ranks together.  For random
 * ops sample i of rank r is number r * batch + i.  The loss is the mean over all.
 *
 *   - All parameters are made before the first program is compiled.
 *   - ckpt_compile, ckpt_step, ckpt_save_params, ckpt_agree, ckpt_gather_ranks, ckpt_save_state,
 * ckpt_load_state, and after the first compile ckpt_load_params, ckpt_param_get and ckpt_param_set
 * are calls of all ranks together, in the same order.  Rank 0 writes what is saved; every rank
 * reads what it loads.
 *   - Ranks that differ are refused with a sentence that names them and what they differ in: before
 *     a plan (model, options, optimizer, program), after a load and before the first step of a
 *     program (what parameters, moments and averages were set to, steps so far, learning rate), and
 *     every options.check_ranks updates (the bytes of all that several ranks have, the learning
 *     rates since the first step).  What only one rank has, its share, is compared when it is set.
 *   - Gradients that are fetched are those of the rank's own samples.
 *   - Gradients travel and are added in fp32; with grad_dtype CKPT_BF16 those of bf16 parameters,
 *     once those of a step are complete, travel as bf16 and their sum over the ranks is rounded
 *     once to bf16 (by NCCL on each way it goes; over several hosts with a copy each, in each host
 *     and then once more).
 *   - Ranks are on one host that run on one kernel, or that have the same CKPT_HOST_NAME in their
 *     environment.
 *   - Ranks that meet by themselves ("tcp:", "file:") prove to each other that they know the
 *     CKPT_JOB_TOKEN of their environment, where there is one; see ckpt(7).
 *   - CKPT_ECOMM means that another rank failed, is gone or runs something else.  All ranks get a
 *     sentence that says which and where, and the context is of no use any more.
 */
#ifndef CKPT_DIST_H
#define CKPT_DIST_H

#include "ckpt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Number of this rank, from 0, and how many there are.  One rank alone is 0 of 1. */
CKPT_API int ckpt_rank(const ckpt *c);
CKPT_API int ckpt_ranks(const ckpt *c);

/*
 * What all ranks must have in common though the library does not know it: options of a program, a
 * schedule, data that all read.  bytes of data are compared, and shown if they are a short text;
 * the name says what they are, as "--lr".  A call of all ranks with the same list of n.
 * Returns 0; CKPT_ECOMM: a rank has another, which the sentence names; CKPT_ENOMEM.
 */
struct ckpt_fact {
    const char *name;
    const void *data;
    size_t bytes;
};
CKPT_API int ckpt_agree(ckpt *c, const struct ckpt_fact *facts, int n);

/*
 * Tells all ranks something of each: `own` has `bytes` bytes on every rank, `all` room for those of
 * all, in the order of ranks.  A call of all ranks, between steps.  One rank alone gets its own.
 * Returns 0; CKPT_EINVAL: no place for them, or a step is under way; CKPT_ECOMM: a rank is gone or
 * has another number of bytes; CKPT_ENOMEM.
 */
CKPT_API int ckpt_gather_ranks(ckpt *c, const void *own, size_t bytes, void *all);

/*
 * What one rank asks of all, as when it gets a signal: to stop, or to save.  ckpt_request_... tell
 * the others with the next step that is submitted, and may be called by a signal handler.
 * ckpt_stop_requested is true once a step has been waited for with which any rank asked so;
 * ckpt_save_requested is so, too, and forgets it: it is true once for each request.  Both turn true
 * behind the same step on all ranks.  For one rank alone they are true at once.
 */
CKPT_API void ckpt_request_stop(ckpt *c);
CKPT_API bool ckpt_stop_requested(const ckpt *c);
CKPT_API void ckpt_request_save(ckpt *c);
CKPT_API bool ckpt_save_requested(ckpt *c);

/* Where a rank runs, in words, as "host 0, GPU at 0000:18:00.0, NUMA node 1, NVLink x18 to others
 * there"; known from the first compile on, before that and for one rank alone "". */
CKPT_API const char *ckpt_rank_location(const ckpt *c, int rank);

#ifdef __cplusplus
}
#endif
#endif
