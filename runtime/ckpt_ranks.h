/*
 * libckpt: several ranks that train one model (--ranks, --zero).  Every rank runs the same program:
 * the same model, the same options that shape the step, the same seed, its own samples.  A batch of
 * ckpt_compile is what one rank feeds; a step trains on those of all ranks together.  For random
 * ops sample i of rank r is number r * batch + i.  The loss is the mean over all.
 *
 *   - All parameters are made before the first program is compiled.
 *   - ckpt_compile, ckpt_step, ckpt_save, those of ckpt_state.h, and ckpt_param_get after the first
 *     compile are calls of all ranks together, in the same order.  Rank 0 writes what is saved;
 *     every rank reads what it loads.
 *   - Gradients that are fetched are those of the rank's own samples.
 *   - Gradients travel and are added in fp32; with grad_dtype CKPT_BF16 those of bf16 parameters,
 *     once those of a step are complete, travel as bf16 and their sum over the ranks is rounded
 *     once to bf16 (by NCCL on each way it goes; over several hosts with a copy each, in each host
 *     and then once more).
 *   - Ranks are on one host that run on one kernel, or that have the same CKPT_HOST_NAME in their
 *     environment.
 *   - Ranks that meet by themselves ("tcp:", "file:") prove to each other that they know the
 *     CKPT_JOB_TOKEN of their environment, where there is one; see ckpt(3).
 *   - CKPT_ECOMM means that another rank failed, is gone or runs something else.  All ranks get a
 *     sentence that says which and where, and the context is of no use any more.
 */
#ifndef CKPT_RANKS_H
#define CKPT_RANKS_H

#include "ckpt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Number of this rank, from 0, and how many there are.  One rank alone is 0 of 1. */
CKPT_API int ckpt_rank(const ckpt *c);
CKPT_API int ckpt_ranks(const ckpt *c);

/*
 * Ends all ranks behind the same step, as when one of them is interrupted: ckpt_wish_end tells with
 * every step that is submitted from then on that this rank would like to end, and may be called by
 * a signal handler; ckpt_end_wished is true once a step has been waited for with which any rank
 * told so, which is the same step on all of them.  For one rank alone it is true at once.
 */
CKPT_API void ckpt_wish_end(ckpt *c);
CKPT_API bool ckpt_end_wished(const ckpt *c);

/* Where a rank runs, in words, as "host 0, GPU at 0000:18:00.0, NUMA node 1, NVLink x18 to others
 * there"; known from the first compile on, before that and for one rank alone "". */
CKPT_API const char *ckpt_rank_place(const ckpt *c, int rank);

#ifdef __cplusplus
}
#endif
#endif
