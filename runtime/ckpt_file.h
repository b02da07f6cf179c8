/*
 * libckpt: files that other programs wrote, whose tensors lie in memory in another order or have
 * other names than here, or are read in parts.
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
 * ckpt_load and ckpt_load_named check names, shapes and headers before anything is changed, and
 * values as they are read, once: after CKPT_EFORMAT or CKPT_EIO they may be of both, and the
 * context refuses to step and to save until a file with all parameters was loaded.  Where all names
 * of a file begin with "module." (DistributedDataParallel), and none here, that is left out.
 */
#ifndef CKPT_FILE_H
#define CKPT_FILE_H

#include "ckpt.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Says that files hold a parameter with its axes in another order: axis i of the tensor in a file
 * is axis axes[i] of the parameter.  A kernel [K, kh, kw, C] that files keep as [K, C, kh, kw] has
 * {0, 3, 1, 2}.  ckpt_load and ckpt_save then move the values, bit for bit; ckpt_param_get and
 * ckpt_param_set do not.  Returns 0, CKPT_ENAME (no such parameter), CKPT_EINVAL (not a permutation
 * of its axes).
 */
CKPT_API int ckpt_param_file_axes(ckpt *c, ckpt_tensor param, const int *axes);

/*
 * Another name under which a file may hold a parameter: the i-th, i from 0, goes to other.  Returns
 * false when there is none.
 */
typedef bool (*ckpt_other_name)(void *user, const char *name, int i, char *other, size_t size);

/*
 * ckpt_load for files that may call parameters otherwise: where a name is not in the file its other
 * names are looked for, in order.  report and other get the same user; other may be NULL.
 * Under another name axes of size 1 at the end of a shape do not count: [512, 512, 1, 1] is taken
 * for [512, 512].
 */
CKPT_API int ckpt_load_named(ckpt *c, const char *path, ckpt_other_name other,
                             ckpt_name_report report, void *user, int *unmatched);

/* Whether the parameter of that name is meant. */
typedef bool (*ckpt_name_choice)(void *user, const char *name);

/* ckpt_save of the parameters that choose (NULL: all) returns true for: where one context holds
 * several models, each has a file of its own.  All ranks must choose alike. */
CKPT_API int ckpt_save_chosen(ckpt *c, const char *path, enum ckpt_slot slot,
                              ckpt_name_choice choose, void *user);

/* ckpt_file_read_f32 of n elements from first on, for tensors that are larger than what one wants
 * in memory. */
CKPT_API int ckpt_file_read_part_f32(ckpt_file *f, int i, int64_t first, float *dst, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
