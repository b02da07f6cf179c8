/* SPDX-License-Identifier: Apache-2.0 */
/* NVRTC, loaded at run time if it is installed: compiles CUDA source to machine code, without a
 * device. */
#ifndef CKPT_CUDA_NVRTC_H
#define CKPT_CUDA_NVRTC_H

#include "core/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the library as 1000 major + 10 minor, or 0 if it is not installed. */
int nvrtc_version(void);

/* Compiles for an architecture such as 90. *image is malloc'ed.  Returns 0, or a negative code with
 * the first lines of the compiler's log in `reason`. */
int nvrtc_compile(const char *source, int arch, char **image, size_t *bytes, char *reason,
                  size_t size);

/* The compiler options, as part of the key of a cached image. */
const char *nvrtc_options(void);

#ifdef __cplusplus
}
#endif
#endif
