/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared code of the fuzz targets of file parsers: one file in memory for all inputs, and a main
 * function that repeats findings.
 *
 * With libFuzzer:   clang -fsanitize=fuzzer,address,undefined -DWITH_LIBFUZZER ...
 * Without:          the program runs the files named on its command line, and all files of a named
 *                   directory.  After --seeds N each file is damaged in N ways (mutate.h), after
 *                   --seed N in the N-th only.  --line TEXT: the following files get that line in
 *                   front.
 */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include "core/base.h"

/* The target.  It aborts if a parser breaks its contract. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The path of a file with this data, valid until the next call. */
const char *fuzz_file(const uint8_t *data, size_t size);

/* A refusal must have a sentence of one nonempty line.  Aborts otherwise. */
void fuzz_sentence(int rc, const char *message);

#endif
