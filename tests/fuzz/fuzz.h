/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the fuzz targets of file parsers share: one file in memory for all inputs, and a main that
 * repeats findings.
 *
 * With libFuzzer:   clang -fsanitize=fuzzer,address,undefined -DWITH_LIBFUZZER ...
 * Without:          the program runs the files named on its command line, and all files of a
 *                   directory that is named there.  --seeds N before them: each is then damaged in
 *                   N ways (mutate.h), or with --seed N in the N-th alone.  --line TEXT: files
 *                   behind it have that line in front.
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
