/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libckpt: several ranks that train one model (--ranks, --zero).  Every rank runs the same program:
 * the same model, the same options that shape the step, the same seed, its own samples.  The batch
 * of ckpt_compile is the number of samples of one rank; a step trains on the samples of all ranks.
 * For random ops sample i of rank r is number r * batch + i.  The loss is the mean over all ranks.
 * Ranks that split sequences have the same samples in groups: see ckpt_sample_group.
 * After ckpt_mix_programs() the ranks of a step may run different programs.
 *
 * With options.stages groups of as many neighbouring ranks are the stages of a pipeline.  Each
 * records the whole model, feeds the whole inputs of its group, and keeps a part of its ops and
 * parameters, which the library chooses by the speed and the memory of each rank.  Ranks with one
 * stage in several pipelines share its parameters by options.zero.  A micro-step goes from rank to
 * rank, so options.micro_batch says how many are under way.  Ranks of one pipeline may have
 * options.device "cpu" beside others on GPUs: what they send each other goes through host memory,
 * and last bits depend on the cut.  CKPT_EINVAL: options.zero above 0 with one pipeline, several
 * pipelines on unlike devices, shard_over "host", options.sequence or options.tensor above 1,
 * micro_batch CKPT_AUTO, plan and graph files, an elastic job; ckpt_mix_programs; an output in a
 * program that trains; a new value of a buffer or a cache; more stages than places to cut;
 * parameters that programs read in another order.  All ranks of a pipeline get the loss and the
 * outputs of a program that does not train, and so ckpt_wait is collective among them.
 *
 *   - All parameters are made before the first program is compiled.
 *   - These calls are collective: all ranks make them together, in the same order: ckpt_compile,
 *     ckpt_step, ckpt_save_params, ckpt_agree, ckpt_gather_ranks, ckpt_save_state, ckpt_load_state,
 *     and after the first compile ckpt_load_params, ckpt_param_get and ckpt_param_set.  Rank 0
 *     writes saved files; every rank reads the files it loads.
 *   - Ranks that differ are refused with a sentence that names them and the difference: before a
 *     plan (model, options, optimizer, batch, program), after a load and before the first step of a
 *     program (values, moments and averages that were set, number of steps, learning rate), and
 *     every options.check_ranks updates (all bytes that several ranks hold, the learning rates
 *     since the first step).  Data that only one rank holds, its share, is compared when it is set.
 *   - A value that is not finite ends the step of all ranks with CKPT_ENAN and changes no weights;
 *     all run the step again together, and the sentence names the rank and the op or input where it
 *     came up first.  After an index out of range its rank returns CKPT_EINDEX and names it, the
 *     others return CKPT_ENAN and name the rank.
 *   - Fetched gradients are those of the rank's own samples.
 *   - Gradients are sent and added in fp32. With grad_dtype CKPT_BF16, gradients of bf16 parameters
 *     are sent as bf16 once they are complete for a step, and their sum over the ranks is rounded
 *     once to bf16 (NCCL rounds at every hop; with a replica per host the sum is rounded in each
 *     host and then again).
 *   - Ranks count as on one host if they run under one kernel or have the same CKPT_HOST_NAME in
 *     their environment.
 *   - options.ranks "env" is "tcp:HOST:PORT" with MASTER_ADDR and MASTER_PORT of the environment
 *     (torchrun), or with the first host of Slurm's list and a port of the job's number.
 *   - Ranks that connect by themselves ("tcp:", "file:") prove to each other that they know the
 *     CKPT_JOB_TOKEN of their environment, if it is set; see ckpt(7).
 *   - CKPT_ECOMM means that another rank failed, is gone or runs another program.  All ranks get a
 *     sentence that names the rank and the place, and the context can no longer be used.  If a rank
 *     did not come to a collective within options.comm_deadline, is gone, or came to another one,
 *     the sentence of each rank also says which collective it was in (kind, name, step, bytes,
 *     number, seconds) and which it completed last.
 */
#ifndef CKPT_DIST_H
#define CKPT_DIST_H

#include "ckpt.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Elastic jobs: a rank that is lost does not end the job.  options.ranks is "elastic:N:WHERE", with
 * WHERE "tcp:HOST:PORT" or "file:PATH", and N a number that ranks divide, such as the samples of a
 * step.  The launcher's number of a process is then its seat.  At first all seats form the job.
 * When a rank is lost, the others get CKPT_ECOMM and call ckpt_restart: the program begins again,
 * ckpt_open forms a job of the processes that are there, as many as divide N, and
 * ckpt_load_state(c, CKPT_PEERS) continues from the state that ckpt_save_state(c, CKPT_PEERS) kept
 * in memory.  Processes that come later, in place of lost ones, wait in ckpt_open; rank 0 learns of
 * them by ckpt_job_grows, and if it restarts, the job forms again with them.  The host of
 * "tcp:" must not be lost.
 *
 * As a path of a state: host memory of this rank and of the next one, so that no loss of one rank
 * loses it, unless the next job has to leave out several others for N.  Two states are kept, of
 * which one is whole at any time.  ckpt_compile takes the memory from options.host, or returns
 * CKPT_EINVAL with the bytes if that is too small.
 */
#define CKPT_PEERS "memory of the ranks"

/* Whether this context failed because a rank is lost; NULL: whether ckpt_open did, in a process
 * that was in the job before. */
CKPT_API bool ckpt_rank_is_lost(const ckpt *c);

/* Whether an elastic job would have more ranks if it formed again; on other ranks than 0 false.
 * Rank 0 calls it between steps, at least once in options.comm_deadline: processes that wait are
 * answered by it. */
CKPT_API bool ckpt_job_grows(ckpt *c);

/*
 * What an elastic job has of the job before it.  again: a rank was in it.  saved: it wrote a state
 * to the disk.  updates: those of the newest state in memory that is complete; -1: there is none.
 * Collective.  Returns 0, CKPT_EINVAL: a NULL argument, CKPT_ENOMEM, CKPT_ECOMM.
 */
CKPT_API int ckpt_job_history(ckpt *c, bool *again, bool *saved, int64_t *updates);

/*
 * Executes the program of this process again with these arguments; argv ends with NULL.  States in
 * memory stay, and nothing else: no other context may be open.  c is NULL after ckpt_open failed.
 * Returns only if it fails: CKPT_EINVAL: the job is not elastic, or argv is NULL; CKPT_EIO,
 * CKPT_ENOMEM.
 */
CKPT_API int ckpt_restart(ckpt *c, char *const *argv);

/* The number of this rank, from 0, and the number of ranks.  A single rank is 0 of 1. */
CKPT_API int ckpt_rank(const ckpt *c);
CKPT_API int ckpt_ranks(const ckpt *c);

/*
 * The number of this rank's group, and the number of groups, where groups of options.sequence
 * neighbouring ranks split the tokens of their samples, or of options.tensor the wide layers of the
 * model, or of options.stages its layers: the ranks of a group have the same samples, the batch of
 * ckpt_compile is that of a group, and for random ops sample i of group g is number g * batch + i.
 * If all these options are 1 each rank is a group.
 */
CKPT_API int ckpt_sample_group(const ckpt *c);
CKPT_API int ckpt_sample_groups(const ckpt *c);

/*
 * This rank's tokens of x, whose axis is the sequence that the ranks of a group split: equal parts,
 * in order of ranks.  If they do not divide, all ranks have the first ones, as few as possible,
 * before their own.  It is x itself if options.sequence is 1 or the program does not train.  All
 * inputs, constants and parameters with one element for each token are given to it once, also those
 * that are made of them with all tokens, such as positions; every rank of a group feeds the same
 * whole inputs.
 *
 * Ops that treat tokens alike then compute as they do with all.  ckpt_attention of q, k and v with
 * tokens exchanges them: each rank attends from all tokens to all, for its part of the heads.  If
 * the heads of q do not divide among the ranks, or those of k neither divide nor are divided, each
 * rank gathers all of k and v instead, and attends from its own tokens.  Bias and boundaries
 * (first, lengths) are those of all tokens.  With k and v that all ranks have nothing is exchanged,
 * nor where the tokens are on an axis before that of the queries; causal is refused then.
 * ckpt_cross_attention takes q with the tokens on any axis.  A loss counts the tokens of all ranks:
 * ckpt_cross_entropy and ckpt_linear_cross_entropy with labels of the same tokens,
 * ckpt_masked_mean, ckpt_mean over all axes at once.  Sums over tokens may be added, scaled, and
 * divided by such counts; they are refused where tokens do not divide.
 *
 * CKPT_EINVAL, where it is recorded, with the op: an op that may relate tokens to each other, draws
 * random numbers for them, cuts or joins their axis, reads a whole operand where it needs that of
 * its tokens; an output of tokens.  CKPT_ESHAPE: there are not two tokens for each rank.
 * ckpt_compile: the recorder never called it, or the loss is no mean over all tokens.
 */
CKPT_API ckpt_tensor ckpt_sequence(ckpt_tape *t, ckpt_tensor x, int axis);

/*
 * The same of the elements of an axis from `first` on; those before, such as the text of a video,
 * all ranks have.  ckpt_concat of a tensor that all ranks have and one with tokens, along the axis
 * of tokens, gives such a tensor too, and ckpt_slice cuts it there again.
 */
CKPT_API ckpt_tensor ckpt_sequence_after(ckpt_tape *t, ckpt_tensor x, int axis, int64_t first);

/*
 * x with another axis split: all its tokens, and of `axis` the part that is this rank's, in one
 * exchange.  For ops that relate tokens along one axis, but not along another, as attention inside
 * each frame of a video does.  Where an axis does not divide all ranks have its first elements.  It
 * is x itself if it has no tokens, or has them on this axis, or ranks would get less than two
 * elements of an axis, or together a tenth too many.
 */
CKPT_API ckpt_tensor ckpt_sequence_along(ckpt_tape *t, ckpt_tensor x, int axis);

/*
 * Wide layers that the ranks of a group split (options.tensor neighbouring ranks, which have the
 * same samples as those that split sequences).  Each rank stores and trains its part of a
 * parameter: an equal part of an axis, or of each of `blocks` equal blocks of it, such as those of
 * q, k and v in one weight.  Programs read the part; files, ckpt_param_get and ckpt_param_set have
 * the whole; a fetched gradient is that of the part.  ckpt_nn_attention and ckpt_nn_mlp split
 * theirs.  Other layers of a program call it before values are set.
 *
 * A weight w [N, K] of ckpt_linear that is split along axis 0, with its bias, gives this rank's
 * columns of the result; one that is split along axis 1 reads such columns, and the results of all
 * ranks are added up, before the bias: so a pair of them costs one sum forward and one backward.
 * What is between may treat columns or heads one by one: element-wise ops, reshapes that keep the
 * parts whole, norms and rotations inside a head, attention with this rank's heads.  An axis of one
 * head that a reshape makes is known as one only in ckpt_nn_attention.
 *
 * Returns 0, also if options.tensor is 1; CKPT_ENAME; CKPT_ESHAPE: the parts would not be equal;
 * CKPT_EINVAL.  Where a program reads a part so that the result would not be that of one rank, or
 * draws random numbers for it, recording is CKPT_EINVAL, with the op; so is a split parameter that
 * is not trained, and matrix optimizers of one (Muon, Adafactor).
 */
CKPT_API int ckpt_param_split(ckpt *c, ckpt_tensor param, int axis, int64_t blocks);

/* All tokens of x, on each rank of the group: for a small tensor such as a prediction, whose loss
 * may then be any.  It is x itself if it has no tokens. */
CKPT_API ckpt_tensor ckpt_sequence_all(ckpt_tape *t, ckpt_tensor x);
#ifndef CKPT_NO_AT
#define ckpt_sequence(t, ...)       ckpt_sequence(CKPT_AT(t), __VA_ARGS__)
#define ckpt_sequence_after(t, ...) ckpt_sequence_after(CKPT_AT(t), __VA_ARGS__)
#define ckpt_sequence_along(t, ...) ckpt_sequence_along(CKPT_AT(t), __VA_ARGS__)
#define ckpt_sequence_all(t, ...)   ckpt_sequence_all(CKPT_AT(t), __VA_ARGS__)
#endif

/*
 * The number of this process among those that a launcher started (mpirun, srun, torchrun), and how
 * many those are, from its environment, with --ranks or without; 0 of 1 without a launcher.  A
 * program that would train alone, and write the same files as the others, can refuse to.  Returns
 * 0, or CKPT_EINVAL: the variables contradict each other; rank or ranks is NULL.  The sentence is
 * in ckpt_error(NULL).
 */
CKPT_API int ckpt_launched(int *rank, int *ranks);

/*
 * Compares facts that all ranks must share but that the library does not know: options of a
 * program, a schedule, data that all read.  The bytes of data are compared, and shown if they are
 * short text; the name describes them, such as "--lr".  Collective, with the same list of n facts.
 * Returns 0; CKPT_ECOMM: a rank has another value, and the sentence names it; CKPT_ENOMEM.
 */
struct ckpt_fact {
    const char *name;
    const void *data;
    size_t bytes;
};
CKPT_API int ckpt_agree(ckpt *c, const struct ckpt_fact *facts, int n);

/*
 * This rank ends for a reason of the program, such as a file that it cannot read.  The others,
 * which would wait for it, get CKPT_ECOMM from their next collective call, with the number of this
 * rank and the reason.  c NULL: the program ends before ckpt_open, as it refuses its options: this
 * process joins the job that opt names for that, and waits 10 seconds for others to tell (under MPI
 * as long as ckpt_open).  With a context only ckpt_close may follow; a second call changes nothing.
 * An elastic job goes on without this rank once it has formed.  Returns 0, also for one rank alone;
 * CKPT_EINVAL: no reason, neither context nor options, or options.ranks names no job to join;
 * CKPT_ENOMEM; CKPT_ECOMM: not all others came.  ckpt_open does the same where it fails.
 */
CKPT_API int ckpt_give_up(ckpt *c, const struct ckpt_options *opt, const char *reason);

/*
 * Gathers data of all ranks on all ranks: `own` has `bytes` bytes on every rank, `all` receives the
 * bytes of all ranks in order.  Collective, between steps.  A single rank gets its own bytes.
 * Returns 0; CKPT_EINVAL: a NULL buffer, or a step is in progress; CKPT_ECOMM: a rank is gone or
 * has another number of bytes; CKPT_ENOMEM.
 */
CKPT_API int ckpt_gather_ranks(ckpt *c, const void *own, size_t bytes, void *all);

/*
 * From now on ranks may submit different programs in one step, such as one for each shape of their
 * clips: all programs that train must have one optimizer, the same number of micro-steps and, in
 * their plans, the same collectives in the same order.  Each rank's batch counts equally in the
 * loss, whatever its size; a mean over some elements is still that over the elements of all ranks.
 * Random values are numbered by step and rank, not by sample.  Programs count the steps of their
 * rank; a state stores those of rank 0.  All ranks call it after the last compile and before the
 * first step.  Returns 0; CKPT_EINVAL: programs differ in that, and the sentence names the first
 * difference, or a step is in progress; CKPT_EDEVICE.  *differs (may be NULL) is then the program
 * that differs from the first one, else NULL.
 */
CKPT_API int ckpt_mix_programs(ckpt *c, const ckpt_program **differs);

/*
 * Requests of one rank to all ranks, for example after a signal: to stop, or to save.
 * ckpt_request_... send the request with the next submitted step, and may be called by a signal
 * handler. ckpt_stop_requested is true after waiting for a step with which any rank requested it.
 * ckpt_save_requested is true under the same condition, once for each request, and clears it.  Both
 * become true after the same step on all ranks.  For a single rank they are true immediately.
 */
CKPT_API void ckpt_request_stop(ckpt *c);
CKPT_API bool ckpt_stop_requested(const ckpt *c);
CKPT_API void ckpt_request_save(ckpt *c);
CKPT_API bool ckpt_save_requested(ckpt *c);

/*
 * This rank has no data for the step of a training program that it submits next, and the other
 * ranks would wait for it: that step changes nothing on any rank, nor does one submitted after it,
 * and ckpt_wait returns CKPT_ESTOP on all ranks.  The weights and the state of the step before are
 * whole and can be saved.  What is fed then does not matter.  With a single rank the call does
 * nothing: it can just submit no step.
 */
CKPT_API void ckpt_request_abandon(ckpt *c);

/*
 * The seconds that each rank computed in a step, without what it waited for the others: in
 * seconds[r] the mean over the steps between two turns of rank r; one rank has its turn with each
 * update of a program.  0: not known yet, or a single rank.  Time between steps, such as that of a
 * save, does not count, nor does that until a step is submitted.  All ranks get the same numbers
 * after the same step.  seconds has ckpt_ranks(c) numbers.  Returns 0; CKPT_EINVAL: an argument is
 * NULL.
 */
CKPT_API int ckpt_rank_seconds(ckpt *c, double *seconds);

/* The location of a rank as text, such as "host 0, GPU at 0000:18:00.0, NUMA node 1, NVLink x18 to
 * others there".  It is known from the first compile on; before that and for a single rank it is
 * "". */
CKPT_API const char *ckpt_rank_location(const ckpt *c, int rank);

#ifdef __cplusplus
}
#endif
#endif
