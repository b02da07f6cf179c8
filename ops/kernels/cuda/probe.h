/* SPDX-License-Identifier: Apache-2.0 */
/* Which kernels of this build does the current GPU run? */
#ifndef CKPT_CUDA_PROBE_H
#define CKPT_CUDA_PROBE_H

#ifdef __cplusplus
extern "C" {
#endif

/* The compute capability (80: 8.0) whose code the current GPU runs: a newer card translates the
 * code of an older one.  CKPT_EDEVICE: the build has none for it. */
int cuda_compiled_for(void);

#ifdef __cplusplus
}
#endif
#endif
