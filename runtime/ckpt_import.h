/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libckpt: models of PyTorch as recorders.  torch.export.save writes a model into a .pt2 archive:
 *
 *     program = torch.export.export(model.train(), (batch,), strict=False)
 *     torch.export.save(program, "model.pt2")
 *
 * ckpt_import_open() makes its parameters in a context, ckpt_import_record() records it on a tape
 * as hand-written calls would: with a loss, an optimizer and budgets as of any other model.
 *
 * Differences from PyTorch.  Random values (dropout) are the library's.  fp64 is computed in fp32,
 * whole numbers have 32 bits.  A model that was exported without dynamic dimensions has one batch
 * size.
 */
#ifndef CKPT_IMPORT_H
#define CKPT_IMPORT_H

#include "ckpt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A model that was read. */
typedef struct ckpt_import ckpt_import;

/*
 * Reads an archive and makes its parameters and buffers in the context, under their names in
 * PyTorch; those that share memory there are one, under the first name.  Their values are those of
 * the archive, zeros if the model was exported without or options.plan_only is set.  Kernels of
 * convolutions lie with channels last, matrices that addmm reads as [out, in], and both are in
 * files as PyTorch has them (ckpt_param_file_axes).  Nothing of the archive is executed.  Returns
 * 0; CKPT_EIO; CKPT_EFORMAT for an archive that is damaged, or has ops that are not supported: the
 * sentence names them with the module and the line that calls each; what ckpt_param() returns;
 * CKPT_ENOMEM.
 */
CKPT_API int ckpt_import_open(ckpt *c, const char *path, ckpt_import **m);
/* Frees what was read; the parameters stay.  Programs that recorded the model need it no longer
 * once they are compiled.  NULL is allowed. */
CKPT_API void ckpt_import_close(ckpt_import *m);

/* An input or an output of a model. */
struct ckpt_import_value {
    size_t size;
    const char *name; /* in the exported program */
    struct ckpt_desc desc;
    bool loss; /* an output: the model's own loss, the first float without axes; it is fp32 here */
    /* Of each axis the dynamic dimension that it is ("s17"); "": a size that follows from some;
     * NULL: one that is fixed. */
    const char *dimension[CKPT_MAX_DIMS];
};

#define CKPT_IMPORT_VALUE_INIT                                                                     \
    {                                                                                              \
        sizeof(struct ckpt_import_value), NULL, {CKPT_F32, 0, {0}, {0}, 0}, false,                 \
        {                                                                                          \
            NULL                                                                                   \
        }                                                                                          \
    }

/* The numbers of tensors that the model takes and gives; -1 for NULL. */
CKPT_API int ckpt_import_input_count(const ckpt_import *m);
CKPT_API int ckpt_import_output_count(const ckpt_import *m);
/* The i-th of them.  Sizes of dynamic dimensions are those that were set last, or at the export.
 * Returns 0, CKPT_ENAME (no such input or output), CKPT_EINVAL. */
CKPT_API int ckpt_import_input(const ckpt_import *m, int i, struct ckpt_import_value *value);
CKPT_API int ckpt_import_output(const ckpt_import *m, int i, struct ckpt_import_value *value);

/* Sets a dynamic dimension by its name in the exported program ("s17"), or by an input and its axis
 * ("ids.0").  Returns 0, CKPT_ENAME, CKPT_ESHAPE (not in the range of the dimension). */
CKPT_API int ckpt_import_set_size(ckpt_import *m, const char *dimension, int64_t n);

/*
 * Whether the model is recorded in the mode of its export (true, at first), or as where its modules
 * are evaluated: without dropout, and with the running statistics of batch norm.  For a program
 * that measures what another one trains.  Returns 0, CKPT_EINVAL.
 */
CKPT_API int ckpt_import_set_training(ckpt_import *m, bool trains);

/* The number of parameters and buffers that the archive has no values of, so that they are zeros
 * until a file gives them; -1 for NULL. */
CKPT_API int ckpt_import_missing(const ckpt_import *m);

/*
 * Records the model.  inputs and outputs have as many elements as the counts above.  Inputs are
 * float tensors or i32, by their dtype in PyTorch; their sizes set the dynamic dimensions.  Each
 * call records the model once more, with the same parameters; buffers, and parameters that are not
 * trained, get with the step what ops in place write to them or to views of them
 * (ckpt_update_buffer).  The tape keeps CKPT_ESHAPE for inputs of other shapes, and CKPT_EFORMAT
 * for what the library cannot record, with the op, the module and the line; outputs are then
 * CKPT_NONE.
 */
CKPT_API void ckpt_import_record(ckpt_tape *t, ckpt_import *m, const ckpt_tensor *inputs,
                                 ckpt_tensor *outputs);

/*
 * Writes a copy of the archive with the present values of the parameters and buffers in the place
 * of its own, for torch.export.load: the program, the names and all else stay.  The archive is read
 * again from the path that was opened; an adapter (ckpt_lora) is only in it after
 * ckpt_lora_merge().  With several ranks all call it, and rank 0 writes.  Returns 0; CKPT_EINVAL:
 * the archive has no values that could be replaced; CKPT_EFORMAT: it is another one now; CKPT_ENAN:
 * a value is not finite; CKPT_EIO, CKPT_ENOMEM, CKPT_ECOMM.
 */
CKPT_API int ckpt_import_save(ckpt_import *m, const char *path);

/* Each recording call stores the caller's source location: see the end of ckpt.h. */
#ifndef CKPT_NO_AT
#define ckpt_import_record(t, ...) ckpt_import_record(CKPT_AT(t), __VA_ARGS__)
#endif

#ifdef __cplusplus
}
#endif
#endif
