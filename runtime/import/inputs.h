/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the inputs of a program are in a context: parameters, buffers that a step changes or files
 * of weights have, and constants.  A kernel of a convolution is a parameter with channels last.
 */
#ifndef CKPT_IMPORT_INPUTS_H
#define CKPT_IMPORT_INPUTS_H

#include "import/tensor.h"
#include "import/weights.h"

struct model_input {
    ckpt_tensor param; /* CKPT_NONE: it is a constant, or the user's */
    bool reordered;    /* axis i of the parameter is axis[i] of PyTorch's */
    int axis[TENSOR_AXES];
    bool changes;           /* a step writes its memory: a buffer, or a parameter not trained */
    const struct model_input *tied; /* an input before it that is the same memory, or NULL */
    struct tensor constant; /* of constants */
};

/*
 * Makes the parameters of a program and reads its constants, which live as long as the program.
 * in: one per input of the program, zeros.  Returns 0 or a code with the sentence of the thread.
 */
int model_inputs_make(ckpt *c, struct pt2_program *p, const struct weights *w,
                      struct model_input *in);

#endif
