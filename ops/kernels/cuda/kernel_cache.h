/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cache of compiled kernels on disk, in $XDG_CACHE_HOME/libckpt/kernels or
 * ~/.cache/libckpt/kernels, with one file per entry, named by its key.  A file that is damaged, has
 * another key or belongs to another user is ignored.  If the directory is not writable, nothing is
 * cached.
 */
#ifndef CKPT_CUDA_KERNEL_CACHE_H
#define CKPT_CUDA_KERNEL_CACHE_H

#include "core/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Two independent digests of the source and options of an image. */
struct kernel_key {
    uint64_t name, check;
};

struct kernel_key kernel_key_of(const char *source, const char *options, int arch, int version);

/* The directory, or "" if neither variable is set. */
void kernel_cache_directory(char *dst, size_t size);

/* *image is malloc'ed.  Returns false if there is no valid entry. */
bool kernel_cache_read(const struct kernel_key *key, char **image, size_t *bytes);

/* Writes to a temporary file and renames it, so that readers see all of the entry or none.
 * Failures are ignored. */
void kernel_cache_write(const struct kernel_key *key, const char *image, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
