/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libckpt: tensors in files.  Three parts: safetensors files of any kind, the parameters of a
 * context in such files, and training states, from which a run resumes.
 *
 * ckpt_file_open opens a safetensors file, or several files as one: by their index
 * (*.safetensors.index.json, a state of several ranks) or by their directory, as on Hugging Face:
 * model.safetensors, diffusion_pytorch_model.safetensors or the index of one of these.  Index and
 * files must match in both directions, and the files must be beside the index.  A directory of
 * shard-*.safetensors, a distributed checkpoint of PyTorch (HuggingFaceStorageWriter), opens, too:
 * tensors of which its files have pieces are joined.  Files of torch.save (.bin, .pt, .pth,
 * .ckpt) are recognised by their bytes; the sentence says how to convert them.
 *
 * A .npy file of NumPy opens as a file with one tensor, called as the file is without ".npy".
 *
 * Checksums: files that libckpt writes have checksums in their metadata (ckpt.checksum...), unless
 * they were written to a pipe.  The header's checksum is compared when the file is opened, a
 * tensor's when all of it was read.  Files without checksums are read unchecked.
 *
 * ckpt_load_params and ckpt_load_params_aliased validate names, shapes and headers before anything
 * changes.  Values are checked as they are read, once: after CKPT_EFORMAT or CKPT_EIO the values
 * may be a mixture of old and new, and the context refuses to step and to save until a file with
 * all parameters was loaded.  If all names of a file begin with "module." (DistributedDataParallel)
 * and none here does, the prefix is ignored.
 */
#ifndef CKPT_FILES_H
#define CKPT_FILES_H

#include "ckpt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- safetensors files ----------------------------------------------------------------------- */

/* An open tensor file whose header was validated against the format and the file size. */
typedef struct ckpt_file ckpt_file;

struct ckpt_file_entry {
    size_t size;
    const char *name;
    const char *dtype; /* as in the file: "F32", "BF16", "I64", ... */
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
/* Reads entry i as fp32 (from F32, BF16, F16, F64, and codes of F8 or I8) or as i32 (from I32, I64,
 * the integers of 8 and 16 bits, BOOL); n must be its number of elements.  Returns 0, CKPT_EINVAL,
 * CKPT_EIO, CKPT_EFORMAT (dtype, checksum). */
CKPT_API int ckpt_file_read_f32(ckpt_file *f, int i, float *dst, int64_t n);
CKPT_API int ckpt_file_read_i32(ckpt_file *f, int i, int32_t *dst, int64_t n);

/* The same for n elements starting at element first, for tensors too large to read at once; a
 * checksum covers the whole tensor and is not compared. */
CKPT_API int ckpt_file_read_part_f32(ckpt_file *f, int i, int64_t first, float *dst, int64_t n);
CKPT_API int ckpt_file_read_part_i32(ckpt_file *f, int i, int64_t first, int32_t *dst, int64_t n);

/* The text of a metadata entry, of a file or of an index, or NULL if there is none.  Valid until
 * the file is closed. */
CKPT_API const char *ckpt_file_note(const ckpt_file *f, const char *key);

/* A file being written: add tensors, then commit, which writes a temporary file with checksums,
 * syncs it and renames it to path.  Data passed to add must stay valid until then. */
typedef struct ckpt_file_writer ckpt_file_writer;
CKPT_API int ckpt_file_create(ckpt_file_writer **w, const char *path);
CKPT_API int ckpt_file_add(ckpt_file_writer *w, const char *name, enum ckpt_dtype dtype, int ndim,
                           const int64_t *shape, const void *data);
CKPT_API int ckpt_file_commit(ckpt_file_writer *w);   /* writes and frees w */
CKPT_API void ckpt_file_abandon(ckpt_file_writer *w); /* frees w, writes nothing */

/* Removes a file, and with the index of a state (ckpt_save_state) its parts that no other index in
 * the folder has.  Returns 0 or CKPT_EIO. */
CKPT_API int ckpt_file_remove(const char *path);

/* ---- parameters ------------------------------------------------------------------------------ */

/* Called for each name without a match: what is "missing" (in the file) or "unexpected". */
typedef void (*ckpt_name_report)(void *user, const char *what, const char *name);

/*
 * Loads parameters by name from anything ckpt_file_open opens.  A different shape is an error.
 * 8-bit floats NAME are multiplied by the scales in NAME_scale or NAME_scale_inv, if the file has
 * them: one, one for each row, or one for each block of 128 x 128.
 * A parameter [E, N, K] that files have as [E, K, N] (ckpt_param_file_axes) may be in MXFP4, as the
 * published gpt-oss is: NAME_blocks, U8 [E, N, K / 32, 16], and NAME_scales, U8 [E, N, K / 32].
 * Names that are missing from the file or unexpected in it are reported, and counted in *unmatched
 * (may be NULL).  Returns 0, CKPT_EIO, CKPT_EFORMAT (also for values that are not finite, and for a
 * state where no name matches), CKPT_ENAME (weights where no name matches), CKPT_ESHAPE,
 * CKPT_ENOMEM; with several ranks CKPT_ECOMM (ckpt_dist.h).
 */
CKPT_API int ckpt_load_params(ckpt *c, const char *path, ckpt_name_report report, void *user,
                              int *unmatched);

/* Saves a slot of every parameter as fp32 (for buffers always the value), atomically.  Values that
 * are not finite are CKPT_ENAN, and the old file stays. */
CKPT_API int ckpt_save_params(ckpt *c, const char *path, enum ckpt_slot slot);

/*
 * Declares that files store the values of a parameter in another order.
 *
 *   shape NULL: axis i of the tensor in a file is axis axes[i] of the parameter.  A kernel [K, kh,
 *   kw, C] that files store as [K, C, kh, kw] has {0, 3, 1, 2}. ndim is the parameter's.
 *
 *   shape [ndim], with as many elements: the parameter is viewed with this shape; files store the
 *   view with its axes in the order of axes, under the parameter's own shape.  Rows [H D, C] with
 *   adjacent pairs here, and with the two halves of each head in files, are viewed as [H, D/2, 2,
 *   C] and have {0, 2, 1, 3}.
 *
 * Loading and saving then move the values, bit for bit; ckpt_param_get and ckpt_param_set do not.
 * Returns 0, CKPT_ENAME (no such parameter), CKPT_EINVAL (not a permutation; another number of axes
 * or elements).
 */
CKPT_API int ckpt_param_file_axes(ckpt *c, ckpt_tensor param, int ndim, const int64_t *shape,
                                  const int *axes);

/*
 * Declares that files store a parameter as n tensors, as those of single experts: its rows (of the
 * last axis) divide into n equal parts, one after the other, and part i is a tensor [rows / n,
 * columns] called names[i], which is copied.  Loading reads the parts where a file does not have
 * the parameter whole, under its own name; ckpt_save_params and its kin write parts, states the
 * whole.  Returns 0, CKPT_ENAME (no such parameter), CKPT_EINVAL (the rows do not divide; with
 * ckpt_param_file_axes; a second call), CKPT_ENOMEM.
 */
CKPT_API int ckpt_param_file_parts(ckpt *c, ckpt_tensor param, int n, const char *const *names);

/*
 * Writes the i-th alternative name (from 0) of a parameter in files to alias.  Returns false if
 * there is none.
 */
typedef bool (*ckpt_name_alias)(void *user, const char *name, int i, char *alias, size_t size);

/*
 * ckpt_load_params with alternative names: if a name is not in the file, its aliases are tried in
 * order. report and alias get the same user; alias may be NULL.  Under an alias, trailing axes of
 * size 1 are ignored: [512, 512, 1, 1] matches [512, 512].
 */
CKPT_API int ckpt_load_params_aliased(ckpt *c, const char *path, ckpt_name_alias alias,
                                      ckpt_name_report report, void *user, int *unmatched);

/* Returns whether the parameter with that name is selected. */
typedef bool (*ckpt_param_filter)(void *user, const char *name);

/*
 * ckpt_save_params for the parameters that filter (NULL: all) selects: if one context holds several
 * models, each gets its own file.  All ranks must select the same.
 *
 * A file of adapters alone (ckpt_lora_only), or with parameters of ckpt_lora_whole(), has PEFT's
 * settings in its metadata, under "lora_adapter_metadata" with the prefix of the names, as
 * diffusers reads them: r, lora_alpha, rank_pattern, alpha_pattern, target_modules, lora_dropout,
 * use_dora, modules_to_save.  The note "lora-base" of ckpt_state_note(), about the weights below,
 * is there, too.  With the prefix "base_model.model." of PEFT's own files the settings are also
 * written to adapter_config.json beside the file: PEFT loads a directory whose
 * adapter_model.safetensors was written so, with the same prefix before the names of whole
 * parameters (ckpt_lora_whole), which an alias adds.  ckpt_load_params reads tensors alone:
 * the program gives ckpt_lora the rank and alpha that ckpt_file_note has of them.
 */
CKPT_API int ckpt_save_params_filtered(ckpt *c, const char *path, enum ckpt_slot slot,
                                       ckpt_param_filter filter, void *user);

/* ckpt_save_params_filtered under other names: each parameter gets its first alternative name, if
 * it has one.  filter and alias (NULL: none) get the same user.  Beside a factor A that becomes
 * LAYER.lora_down.weight, as in kohya's files, the adapter's alpha is written as LAYER.alpha, in
 * place of PEFT's settings in the metadata. */
CKPT_API int ckpt_save_params_aliased(ckpt *c, const char *path, enum ckpt_slot slot,
                                      ckpt_param_filter filter, ckpt_name_alias alias, void *user);

/* ckpt_save_params_filtered for values with adapters (ckpt_lora) merged: each weight is written
 * with its adapter's product added, in fp32. Adapters are left out, because loading both would add
 * them twice.  The context does not change. */
CKPT_API int ckpt_save_params_merged(ckpt *c, const char *path, ckpt_param_filter filter,
                                     void *user);

/*
 * ckpt_save_params_aliased for a model trained with options.qat, as compressed-tensors stores
 * "int-quantized" models: of each weight that a program of this context rounds, NAME.weight has the
 * codes (I8) and NAME.weight_scale the scale of each row, fp32, with sizes of 1 for the other axes,
 * or [1]; NAME.input_scale [1] and NAME.input_zero_point (I8) [1] are of its operand, the latter
 * with ranges "average", neither with "dynamic".  Weights are codes times scales.  Others are fp32;
 * parameters of ranges are left out.  The metadata have the settings under "quantization_config",
 * as they belong in the config.json of a model.  CKPT_EINVAL if nothing is rounded, or before the
 * first step.  ckpt_load_params reads such a file: codes times scales.
 */
CKPT_API int ckpt_save_params_int8(ckpt *c, const char *path, enum ckpt_slot slot,
                                   ckpt_param_filter filter, ckpt_name_alias alias, void *user);

/*
 * ckpt_save_params_filtered with an entry in the file's metadata, text under key; key NULL: none.
 * Both are UTF-8; keys that begin with "ckpt." and the key "format" are reserved.  Returns what
 * ckpt_save_params_filtered does, or CKPT_EINVAL.
 */
CKPT_API int ckpt_save_params_noted(ckpt *c, const char *path, enum ckpt_slot slot,
                                    ckpt_param_filter filter, void *user, const char *key,
                                    const char *text);

/* ---- states of training ---------------------------------------------------------------------- */
/*
 * The complete state of training: the values of all parameters, moments and moving averages, in
 * fp32, or in bf16 or 8 bits where they are stored so (options.state, bf16 parameters that are not
 * trained); the number of updates by all programs, which the random numbers of the next step depend
 * on; and the number of steps of each program.  A run that loads it computes the same bits as the
 * run that saved it: under another budget, with other tiers, with other micro-steps as far as these
 * change no bits, and with another number of ranks or ZeRO stage up to the order of their sums.
 *
 *   ckpt_open -> ckpt_param ... -> ckpt_compile -> ckpt_load_state -> ckpt_feed, ckpt_step ...
 *
 * The program provides the input data and the learning rate of each step: they should depend on
 * ckpt_updates.
 */

/*
 * Writes the state between two steps, atomically: path always holds the old or the new state.  The
 * tensors are value/NAME, exp_avg/NAME, exp_avg_sq/NAME and ema/NAME.  Every tensor, the counts and
 * the notes have checksums, except when written to a pipe.  Collective.
 *
 * One rank writes one safetensors file.  Of several ranks each writes a part of its own, all at
 * once, path.part-ID-00001-of-00004.safetensors and so on, in a folder that all share; then rank 0
 * writes at path an index of them, which also opens as one file.  A tensor that lies on several
 * ranks is cut into pieces: runs of its elements, in the order of memory.  The index has a checksum
 * of each part, so that no part of another save passes.  Then parts of path that no index in the
 * folder has are removed: of the state before, and of saves that a crash ended.  So a hard link, a
 * copy or another name of an index keeps its state.
 *
 * With options.save_async the call copies the state to host memory, at a place that is planned
 * inside options.host (CKPT_EINVAL by ckpt_compile if it has no room), and returns: a thread
 * writes the same bytes, and path is the old state until it ends.  The next ckpt_save_state or
 * ckpt_load_state waits for it first, and if it failed returns its code and sentence instead; so
 * does ckpt_submit once it has failed.  ckpt_close waits, too, but cannot tell: call ckpt_save_wait
 * before.
 *
 * Returns 0; CKPT_EINVAL: a step is in progress, no program of the context trains, or path is not a
 * regular file and there are several ranks; CKPT_ENAN: a value is not finite; CKPT_EDEVICE: a step
 * failed and left the weights inconsistent; CKPT_EIO, CKPT_ENOMEM, CKPT_ECOMM.
 */
CKPT_API int ckpt_save_state(ckpt *c, const char *path);

/* Waits until the state of the last ckpt_save_state is on the disk; without options.save_async it
 * is.  Collective.  Returns what that save would have returned without it, once. */
CKPT_API int ckpt_save_wait(ckpt *c);
/* Whether a state was begun by options.save_async and not waited for. */
CKPT_API bool ckpt_is_saving(const ckpt *c);

/* The bytes of the values in such a file, so that a caller can compare them with the space on a
 * disk; header and notes take some KB more.  Returns them, or the codes of ckpt_save_state for
 * contexts that have no state; CKPT_ENOMEM. */
CKPT_API int64_t ckpt_state_bytes(ckpt *c);

/*
 * Sets a note in the states of this context about what else the bits of this run depend on, such as
 * the options of a trainer and a digest of its data.  Replaces a note with the same name.  Names
 * that begin with "ckpt." are reserved: the library notes the settings of the optimizer except the
 * learning rate, dtype and shape of all inputs of a sample, the dtypes of parameters, and the dtype
 * of optimizer state ("ckpt.state": if such a difference is allowed, the nearest values are used).
 * Call it before a state is saved or loaded.  Both are UTF-8; other bytes become '?'.  Returns 0,
 * CKPT_EINVAL or CKPT_ENOMEM.
 */
CKPT_API int ckpt_state_note(ckpt *c, const char *name, const char *text);
/* Prefix of such a note's name in the metadata of a state: see ckpt_file_note. */
#define CKPT_STATE_NOTE "ckpt.run."

/*
 * Lets states leave out frozen weights that came from a file, as below adapters.  from: the file in
 * words, for messages; NULL: states have all values again, as they do without this call.
 *
 * Call it before the weights are loaded (ckpt_load_params and its kin, ckpt_import_open).  A state
 * then has name, shape and a digest of the values of each parameter that is not trained and still
 * has the value of its file.  Others stay in the state: those without a file, those that
 * ckpt_param_set() or another state changed, buffers (ckpt_update_buffer).  A context that resumes
 * such a state makes the call and loads the same weights first, of any dtype or file with the same
 * values; other weights, or none, are CKPT_EINVAL, with the name of a parameter that differs.  The
 * digest is of the values of the file; parameters of another dtype than before round them anew.
 * Returns 0, CKPT_EINVAL or CKPT_ENOMEM.
 */
CKPT_API int ckpt_state_base(ckpt *c, const char *from);

/*
 * Resumes from a state.  The same training programs must have been compiled, in the same order, and
 * notes that both this run and the state have must be equal.  Names, shapes, counts and notes are
 * validated before anything changes.  Values are checked against their checksums as they are read,
 * once: if one is damaged or cannot be read, the values are a mixture of old and new, and the
 * context refuses to step and to save until a complete state was loaded.  A state without
 * checksums, from older versions, is read unchecked.  Collective; every rank reads all of it,
 * whatever number of ranks saved it.
 * Returns 0; CKPT_EFORMAT: not a state, or a damaged one, a part that is missing or of another
 * save; CKPT_EINVAL: another seed, other programs, batches (of all ranks together) or notes, a step
 * in progress, other frozen weights (ckpt_state_base); CKPT_ENAME: the file lacks trained
 * parameters, or has others; CKPT_ESHAPE; CKPT_EIO, CKPT_ENOMEM, CKPT_ECOMM.
 */
CKPT_API int ckpt_load_state(ckpt *c, const char *path);

/*
 * Called for each note that differs, before anything changes: was is the note of the state, is the
 * note of this run, NULL if there is no such note.  "ckpt.checksum" with was NULL: the state has no
 * checksums.  "ckpt.step_samples": samples per step of one program, over all ranks.  Returns
 * whether to continue, although the bits then differ from an uninterrupted run.  All ranks must
 * answer the same.
 */
typedef bool (*ckpt_state_change)(void *user, const char *name, const char *was, const char *is);

/* ckpt_load_state with a callback for differences.  The sentence of CKPT_EINVAL lists refused
 * ones. */
CKPT_API int ckpt_load_state_changed(ckpt *c, const char *path, ckpt_state_change allow,
                                     void *user);

/* The number of updates of the parameters by all programs, including those before a loaded
 * state. */
CKPT_API int64_t ckpt_updates(const ckpt *c);

/*
 * A program that does not train is not part of a state, and counts its steps from 0. If its random
 * numbers should continue, such as the noise of an encoder that serves a training program, this
 * sets the step number that its next step uses for random numbers, 0 <= step < 2^52, on whatever
 * rank; later steps count on from there.  Returns 0; CKPT_EINVAL: no such step, a program that
 * trains, or (the first time, on ranks other than 0) a program with a step in progress; the code of
 * a device.
 */
CKPT_API int ckpt_set_random_step(ckpt_program *p, int64_t step);

#ifdef __cplusplus
}
#endif
#endif
