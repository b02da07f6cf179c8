/*
 * libckpt: all that training goes on from, in one file: the fp32 values of all parameters, moments
 * and moving averages, the number of updates, and how many steps each program has run, from which
 * its random numbers follow.  A run that loads it computes the bits that the run which saved it
 * would have: under another budget, with other tiers, with other micro-steps as far as these change
 * no bits, and among another number of ranks up to the order of their sums.
 *
 *     ckpt_open -> ckpt_param ... -> ckpt_compile -> ckpt_load_state -> ckpt_feed, ckpt_step ...
 *
 * What a step is fed and its learning rate are the program's own: they should follow from
 * ckpt_updates.
 */
#ifndef CKPT_STATE_H
#define CKPT_STATE_H

#include "ckpt.h"

#ifdef __cplusplus
extern "C" {
#endif

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
 * dtype and shape of all inputs of a sample, and the dtypes of parameters.  To be called before a
 * state is saved or loaded.  Both are UTF-8; other bytes become '?'.
 * Returns 0, CKPT_EINVAL or CKPT_ENOMEM.
 */
CKPT_API int ckpt_state_note(ckpt *c, const char *name, const char *text);

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
 * has no checksums.  Returns whether to go on, though the bits are then not those of a run that was
 * never interrupted.  All ranks must answer alike.
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
