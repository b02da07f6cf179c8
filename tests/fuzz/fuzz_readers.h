/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared code of the fuzz targets for readers of the example programs.  An input is a line that
 * names a reader, then the file that it reads.
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

/* Runs the reader named by the input, if there is one; aborts after a refusal without a sentence.
 * */
void fuzz_readers_run(const struct fuzz_reader *readers, int n, const uint8_t *data, size_t size);

/* A file of the source tree. */
const char *fuzz_source(char dst[4096], const char *name);

#endif
