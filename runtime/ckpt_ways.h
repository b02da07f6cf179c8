/*
 * libckpt: one step recorded in several ways.  A model may be cut in pieces that are computed one
 * after the other, as frames of a clip or bands of a picture: small pieces need less memory and
 * take longer.  The planner sees each way as a whole and takes the best.
 */
#ifndef CKPT_WAYS_H
#define CKPT_WAYS_H

#include "ckpt.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ckpt_way {
    ckpt_recorder record;
    void *user;
    /* Its results have the same bits as those of every other way that says so; then which one a
     * budget takes cannot be seen in the numbers.  A way that trains never has: the sums of
     * gradients over pieces have another order. */
    bool same_bits;
};

/*
 * ckpt_compile, but records and plans each of n ways to write down the same step and takes the one
 * whose plan is the fastest of those that fit the budget; with options.micro_batch CKPT_AUTO, each
 * at every size of micro-steps.  Of two that are as fast the first is taken.  All must have the
 * same inputs and outputs.  *way (may be NULL) tells which it was.  When none fits the sentence is
 * about the last, so put that which needs least there.
 *
 * Random values follow from where their call stands on the tape: record them before what differs.
 * Where several were chosen among, and not all have the same bits, the budget may change the last
 * bits of the numbers: ckpt_program_info.choice_changes_bits and the plan table say so.
 */
CKPT_API int ckpt_compile_fastest(ckpt *c, int n, const struct ckpt_way *ways,
                                  const struct ckpt_adamw *optimizer, int64_t batch,
                                  ckpt_program **p, int *way);

#ifdef __cplusplus
}
#endif
#endif
