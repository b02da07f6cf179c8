/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the fuzz targets of the example programs' readers share.  An input is a line that names a
 * reader, then the file that it reads.
 */
#ifndef TESTS_FUZZ_READERS_H
#define TESTS_FUZZ_READERS_H

#include "fuzz/fuzz.h"

struct fuzz_reader {
    const char *name;
    const char *file; /* what the file is called, in a directory of its own */
    /* Reads it, or its directory, and what is in it.  Returns 0, or -1 after a sentence. */
    int (*read)(const char *path, const char *directory);
};

/* Runs the reader that the input names, if there is one; a refusal without a sentence aborts. */
void fuzz_readers_run(const struct fuzz_reader *readers, int n, const uint8_t *data, size_t size);

/* A file of the source tree. */
const char *fuzz_source(char dst[4096], const char *name);

#endif
