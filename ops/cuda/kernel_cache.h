/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiled kernels on disk, in $XDG_CACHE_HOME/libckpt/kernels or ~/.cache/libckpt/kernels: a file
 * an entry, named by its key.  A file that is damaged, of another key or not the user's own counts
 * as none.  Without a place to write, nothing is kept.
 */
#ifndef CKPT_CUDA_KERNEL_CACHE_H
#define CKPT_CUDA_KERNEL_CACHE_H

#include "core/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Two independent digests of what an image was made from. */
struct kernel_key {
    uint64_t name, check;
};

struct kernel_key kernel_key_of(const char *source, const char *options, int arch, int version);

/* The directory, or "" where there is none to be had. */
void kernel_cache_directory(char *dst, size_t size);

/* *image is malloc'ed.  Returns false where there is no good entry. */
bool kernel_cache_read(const struct kernel_key *key, char **image, size_t *bytes);

/* Under a name of its own first, then in place at once: whoever reads sees all of it or nothing.
 * What fails is no error. */
void kernel_cache_write(const struct kernel_key *key, const char *image, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
