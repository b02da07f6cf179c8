/* SPDX-License-Identifier: Apache-2.0 */
/* NVRTC, loaded where it is installed: CUDA sources to machine code, without a device. */
#ifndef CKPT_CUDA_NVRTC_H
#define CKPT_CUDA_NVRTC_H

#include "core/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* 1000 major + 10 minor of the library, as CUDA numbers its versions; 0 where there is none. */
int nvrtc_version(void);

/* Compiles for an architecture such as 90.  *image is malloc'ed.  Returns 0, or a negative code and
 * the first lines of the compiler's reason. */
int nvrtc_compile(const char *source, int arch, char **image, size_t *bytes, char *reason,
                  size_t size);

/* What it compiles with, for whoever keeps the result. */
const char *nvrtc_options(void);

#ifdef __cplusplus
}
#endif
#endif
