/* SPDX-License-Identifier: Apache-2.0 */
/* Members of tar files, as webdataset writes them: read where they lie, not unpacked. */
#ifndef EXAMPLES_SHARD_H
#define EXAMPLES_SHARD_H

#include <stdint.h>

/*
 * Calls found with every regular member of a tar file, in order: its name, and where its bytes
 * begin in the file.  Names like __this__ are passed over, as webdataset does.  A file that ends
 * early has the members before that, which is said.  Returns 0; -1 after a sentence, or when found
 * does not return 0.
 */
int shard_read(const char *path,
               int (*found)(void *user, const char *member, int64_t start, int64_t size),
               void *user);

#endif
