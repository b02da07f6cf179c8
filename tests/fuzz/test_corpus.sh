#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The fuzz targets on their committed corpora: every file a fuzzer begins with, and every finding.
srcdir=${srcdir:-.}
failed=0
for name in csv graph hello index machine options plan safetensors state; do
    if ./tests/fuzz/fuzz_$name "$srcdir/tests/fuzz/corpus/$name"; then
        echo "fuzz_$name: ok"
    else
        echo "fuzz_$name: failed" >&2
        failed=1
    fi
done
exit $failed
