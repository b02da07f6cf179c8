/* SPDX-License-Identifier: Apache-2.0 */
/* Can the kernels of this build run on the current GPU? */
#ifndef CKPT_CUDA_PROBE_H
#define CKPT_CUDA_PROBE_H

#ifdef __cplusplus
extern "C" {
#endif

/* Returns 0 or CKPT_EDEVICE. */
int cuda_probe(void);

#ifdef __cplusplus
}
#endif
#endif
