/* SPDX-License-Identifier: Apache-2.0 */
/* Members of tar files, as webdataset and tar write them: read in place, without unpacking. */
#ifndef EXAMPLES_SHARD_H
#define EXAMPLES_SHARD_H

#include <stdint.h>

/* Bytes of a member that are in the file.  Between runs are holes: zeros. */
struct shard_run {
    int64_t at, bytes; /* in the member */
    int64_t start;     /* in the file */
};

struct shard_member {
    char *name;
    int64_t start, size;         /* its bytes in the file; with runs, size includes the holes */
    const struct shard_run *run; /* [runs] of a member with holes, ascending; else NULL */
    int64_t runs;
};

struct shard {
    struct shard_member *member; /* in the order of the file */
    int64_t n, room;
    struct shard_holes *holes; /* owns the runs */
};

/*
 * Lists the regular members of a tar file, and links to them, which have the bytes of the member
 * that they name.  Skips names like __this__, as webdataset does.  Of members of one name the last
 * counts.  Links that lead nowhere are left out with a note; a truncated file gives the complete
 * members and a note.  Returns 0, or -1 after an error message; close s in either case.
 */
int shard_open(struct shard *s, const char *path);
void shard_close(struct shard *s);

#endif
