/* SPDX-License-Identifier: Apache-2.0 */
/* Members of tar files, as webdataset writes them: read in place, without unpacking. */
#ifndef EXAMPLES_SHARD_H
#define EXAMPLES_SHARD_H

#include <stdint.h>

/*
 * Calls found for every regular member of a tar file, in order, with its name, the offset of its
 * bytes in the file, and its size.  Skips names like __this__, as webdataset does.  A truncated
 * file gives the complete members and a message.  Returns 0; -1 after an error message, or if found
 * does not return 0.
 */
int shard_read(const char *path,
               int (*found)(void *user, const char *member, int64_t start, int64_t size),
               void *user);

#endif
