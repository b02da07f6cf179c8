#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The fuzz targets on their committed corpora, all initial files and all findings, and on the same
# files damaged in FUZZ_SEEDS reproducible ways each.
srcdir=${srcdir:-.}
export srcdir
failed=0
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

target() {
    name=$1
    shift
    if ./tests/fuzz/fuzz_"$name" --seeds "${seeds:-${FUZZ_SEEDS:-100}}" "$@"; then
        echo "fuzz_$name: ok: $*"
    else
        echo "fuzz_$name: failed: $*" >&2
        failed=1
    fi
}
. "$srcdir/tests/fuzz/inputs.sh"
# libsentencepiece follows damaged tables out of its memory: the file as it is.
seeds=0
target video --line pieces "$tests/text/tokenizer/spiece.model"
exit $failed
