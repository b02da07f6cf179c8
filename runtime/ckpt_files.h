/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libckpt: tensors in files.  Three parts: safetensors files of any kind, the parameters of a
 * context in such files, and states, from which training goes on.
 *
 * What ckpt_file_open opens: a safetensors file; or several as one, by their index
 * (*.safetensors.index.json) or by the directory where they are, as Hugging Face has them:
 * model.safetensors, diffusion_pytorch_model.safetensors or the index of one of these.  Index and
 * files must agree in both directions, and the files lie beside the index.  What torch.save wrote
 * (.bin, .pt, .pth, .ckpt) is recognised by its bytes; the sentence says how to convert it.
 *
 * Checksums: files that libckpt writes carry them in their metadata (ckpt.checksum...), unless they
 * were written to a pipe.  That of the header is compared when the file is opened, that of a tensor
 * when all of it was read.  Files without them are read as they are.
 *
 * ckpt_load_params and ckpt_load_params_aliased check names, shapes and headers before anything is
 * changed, and values as they are read, once: after CKPT_EFORMAT or CKPT_EIO they may be of both,
 * and the context refuses to step and to save until a file with all parameters was loaded.  Where
 * all names of a file begin with "module." (DistributedDataParallel), and none here, that is left
 * out.
 */
#ifndef CKPT_FILES_H
#define CKPT_FILES_H

#include "ckpt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- safetensors files ------------------------------------------------------------------------
 */

/* A tensor file that was opened and whose header was checked against the format and file size. */
typedef struct ckpt_file ckpt_file;

struct ckpt_file_entry {
    size_t size;
    const char *name;
    const char *dtype; /* as the file names it: "F32", "BF16", "I64", ... */
    int ndim;
    int64_t shape[CKPT_MAX_DIMS];
    int64_t numel;
};

#define CKPT_FILE_ENTRY_INIT                                                                       \
    {                                                                                              \
        sizeof(struct ckpt_file_entry), NULL, NULL, 0, {0}, 0                                      \
    }

/* Opens one file, or several as one.  Returns 0, CKPT_EIO, CKPT_EFORMAT, CKPT_ENOMEM. */
CKPT_API int ckpt_file_open(ckpt_file **f, const char *path);
CKPT_API void ckpt_file_close(ckpt_file *f);
CKPT_API int ckpt_file_count(const ckpt_file *f);
/* Describes tensor i: 0, or CKPT_EINVAL for no such tensor or a size that was not set. */
CKPT_API int ckpt_file_entry(const ckpt_file *f, int i, struct ckpt_file_entry *e);
/* Returns the index of a name, or CKPT_ENAME. */
CKPT_API int ckpt_file_find(const ckpt_file *f, const char *name);
/* Reads entry i as fp32 (from F32, BF16, F16, F64) or as i32 (from I32, I64, U8, BOOL); n must be
 * its number of elements.  Returns 0, CKPT_EINVAL, CKPT_EIO, CKPT_EFORMAT (dtype, checksum). */
CKPT_API int ckpt_file_read_f32(ckpt_file *f, int i, float *dst, int64_t n);
CKPT_API int ckpt_file_read_i32(ckpt_file *f, int i, int32_t *dst, int64_t n);

/* ckpt_file_read_f32 of n elements from first on, for tensors that are larger than what one wants
 * in memory. */
CKPT_API int ckpt_file_read_part_f32(ckpt_file *f, int i, int64_t first, float *dst, int64_t n);

/* What a line of the metadata says, or NULL where there is none, as in several files.  Valid until
 * the file is closed. */
CKPT_API const char *ckpt_file_note(const ckpt_file *f, const char *key);

/* A file being written: add tensors, then commit, which writes a temporary file with checksums,
 * syncs it and renames it over path.  Data is borrowed until then. */
typedef struct ckpt_file_writer ckpt_file_writer;
CKPT_API int ckpt_file_create(ckpt_file_writer **w, const char *path);
CKPT_API int ckpt_file_add(ckpt_file_writer *w, const char *name, enum ckpt_dtype dtype, int ndim,
                           const int64_t *shape, const void *data);
CKPT_API int ckpt_file_commit(ckpt_file_writer *w);   /* writes and frees w */
CKPT_API void ckpt_file_abandon(ckpt_file_writer *w); /* frees w, writes nothing */

/* ---- parameters -------------------------------------------------------------------------------
 */

/* Called for each name that does not fit: what is "missing" (in the file) or "unexpected". */
typedef void (*ckpt_name_report)(void *user, const char *what, const char *name);

/*
 * Loads parameters by name from what ckpt_file_open opens.  Shapes must agree: a difference is an
 * error.  Names that are missing from the file or unexpected in it are reported, and counted in
 * *unmatched (may be NULL).  Returns 0, CKPT_EIO, CKPT_EFORMAT (also for values that are not
 * finite), CKPT_ESHAPE, CKPT_ENOMEM; CKPT_ENAME where both are NULL and not one name fits; of
 * several ranks CKPT_ECOMM (ckpt_dist.h).
 */
CKPT_API int ckpt_load_params(ckpt *c, const char *path, ckpt_name_report report, void *user,
                              int *unmatched);

/* Saves a slot of every parameter as fp32 (of a buffer always the value), atomically; values that
 * are not finite are CKPT_ENAN, and the file at path stays. */
CKPT_API int ckpt_save_params(ckpt *c, const char *path, enum ckpt_slot slot);

/*
 * Says that files hold the values of a parameter in another order.
 *   shape NULL: axis i of the tensor in a file is axis axes[i] of the parameter.  A kernel
 *     [K, kh, kw, C] that files keep as [K, C, kh, kw] has {0, 3, 1, 2}.  ndim is the parameter's.
 *   shape [ndim], of as many elements: the parameter is seen so, and files have that view with its
 *     axes in the order of axes, under the parameter's own shape.  Rows [H D, C] whose pairs stand
 *     side by side here, and in the two halves of each head in files, are seen as [H, D/2, 2, C]
 *     and have {0, 2, 1, 3}.
 * Loading and saving then move the values, bit for bit; ckpt_param_get and ckpt_param_set do not.
 * Returns 0, CKPT_ENAME (no such parameter), CKPT_EINVAL (not a permutation; another number of axes
 * or elements).
 */
CKPT_API int ckpt_param_file_axes(ckpt *c, ckpt_tensor param, int ndim, const int64_t *shape,
                                  const int *axes);

/*
 * Another name under which a file may hold a parameter: the i-th, i from 0, goes to alias.  Returns
 * false when there is none.
 */
typedef bool (*ckpt_name_alias)(void *user, const char *name, int i, char *alias, size_t size);

/*
 * ckpt_load_params for files that may call parameters otherwise: where a name is not in the file
 * its other names are looked for, in order.  report and alias get the same user; alias may be NULL.
 * Under another name axes of size 1 at the end of a shape do not count: [512, 512, 1, 1] is taken
 * for [512, 512].
 */
CKPT_API int ckpt_load_params_aliased(ckpt *c, const char *path, ckpt_name_alias alias,
                                      ckpt_name_report report, void *user, int *unmatched);

/* Whether the parameter of that name is meant. */
typedef bool (*ckpt_param_filter)(void *user, const char *name);

/* ckpt_save_params of the parameters that filter (NULL: all) returns true for: where one context
 * holds several models, each has a file of its own.  All ranks must filter alike. */
CKPT_API int ckpt_save_params_filtered(ckpt *c, const char *path, enum ckpt_slot slot,
                                       ckpt_param_filter filter, void *user);

/* ckpt_save_params_filtered of values, where a weight that has an adapter (ckpt_lora) is written
 * with what that adds to it, in fp32, and adapters are left out: who loads both would add them
 * twice.  Nothing changes in the context. */
CKPT_API int ckpt_save_params_merged(ckpt *c, const char *path, ckpt_param_filter filter,
                                     void *user);

/*
 * ckpt_save_params_filtered with a line of the file's metadata, text under key, for readers that
 * know what it means; key NULL: none.  Both are UTF-8; keys that begin with "ckpt." and "format"
 * are the library's.  Returns what ckpt_save_params_filtered does, or CKPT_EINVAL.
 */
CKPT_API int ckpt_save_params_noted(ckpt *c, const char *path, enum ckpt_slot slot,
                                    ckpt_param_filter filter, void *user, const char *key,
                                    const char *text);

/* ---- states of training -----------------------------------------------------------------------
 */
/*
 * All that training goes on from, in one file: the values of all parameters, moments and moving
 * averages, in fp32, or in bf16 or 8 bits what is kept so (options.state, bf16 parameters that are
 * not trained), the number of updates by all programs, from which the random numbers of the next
 * step follow, and how many steps each program has run.  A run that loads it computes the bits that
 * the run which saved it would have:
 * under another budget, with other tiers, with other micro-steps as far as these change no bits,
 * and among another number of ranks up to the order of their sums.
 *
 *     ckpt_open -> ckpt_param ... -> ckpt_compile -> ckpt_load_state -> ckpt_feed, ckpt_step ...
 *
 * What a step is fed and its learning rate are the program's own: they should follow from
 * ckpt_updates.
 */

/*
 * Writes the state between two steps as a safetensors file, atomically: whatever happens meanwhile,
 * path holds the state it had or the new one.  The tensors are value/NAME, exp_avg/NAME,
 * exp_avg_sq/NAME and ema/NAME.  Every tensor, the counts and the notes are written with checksums;
 * to a pipe they cannot be.  A call of all ranks together; rank 0 writes.
 * Returns 0; CKPT_EINVAL: a step is under way, or no program of the context trains; CKPT_EDEVICE
 * when a step failed and left the weights in pieces; CKPT_EIO, CKPT_ENOMEM, CKPT_ECOMM.
 */
CKPT_API int ckpt_save_state(ckpt *c, const char *path);

/*
 * A note that the states of this context carry: what else the bits of this run follow from, as the
 * options of a trainer and a digest of its data.  One of that name is replaced.  Names that begin
 * with "ckpt." are the library's: it notes the settings of the optimizer but for the learning rate,
 * dtype and shape of all inputs of a sample, the dtypes of parameters, and that of small state
 * ("ckpt.state": where such a difference is allowed, the nearest values are taken).  To be called
 * before a state is saved or loaded.  Both are UTF-8; other bytes become '?'.
 * Returns 0, CKPT_EINVAL or CKPT_ENOMEM.
 */
CKPT_API int ckpt_state_note(ckpt *c, const char *name, const char *text);
/* In the metadata of a state the name of such a note stands behind this: see ckpt_file_note. */
#define CKPT_STATE_NOTE "ckpt.run."

/*
 * Goes on from a state.  The same programs that train must have been compiled, in the same order,
 * and the notes that both this run and the state have must be the same.
 *
 * Names, shapes, counts and notes are checked before anything is changed.  The values are checked
 * against their checksums as they are read, once: where one is damaged, or cannot be read, values
 * are of both, and the context refuses to step and to save until a whole state was loaded.
 * A state without checksums, as older versions wrote, is read as it is.
 * A call of all ranks together, each of which reads the file.
 *
 * Returns 0; CKPT_EFORMAT: not a state, or a damaged one; CKPT_EINVAL: another seed, other
 * programs, batches (of all ranks together) or notes, a step under way; CKPT_ENAME: the file lacks
 * what is trained here, or has more; CKPT_ESHAPE; CKPT_EIO, CKPT_ENOMEM, CKPT_ECOMM.
 */
CKPT_API int ckpt_load_state(ckpt *c, const char *path);

/*
 * Asked about each note that differs, before anything is changed: was is what the state says, is
 * what this run says, NULL where there is no such note.  "ckpt.checksum" with was NULL: the state
 * has no checksums.  "ckpt.step_samples": those of a step of one program, of all ranks together.
 * Returns whether to go on, though the bits are then not those of a run that was never interrupted.
 * All ranks must answer alike.
 */
typedef bool (*ckpt_state_change)(void *user, const char *name, const char *was, const char *is);

/* ckpt_load_state that asks.  What is refused is in the sentence of CKPT_EINVAL. */
CKPT_API int ckpt_load_state_changed(ckpt *c, const char *path, ckpt_state_change allow,
                                     void *user);

/* Updates of the parameters so far, by all programs, those before a state that was loaded included.
 */
CKPT_API int64_t ckpt_updates(const ckpt *c);

/*
 * A program that does not train is in no state, and begins to count its steps anew.  Where its
 * random numbers should not, as the noise of an encoder that works for a training program, this
 * says by which step the next one draws them, 0 <= step < 2^52, on whatever rank; those after it
 * go on from there.
 * Returns 0; CKPT_EINVAL: no such step, a program that trains, or (the first time, on other ranks
 * than 0) one that has a step under way; the code of a device.
 */
CKPT_API int ckpt_set_random_step(ckpt_program *p, int64_t step);

#ifdef __cplusplus
}
#endif
#endif
