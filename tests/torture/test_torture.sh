#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A few faults of each kind and some limits of address space;  "make torture" tests all.  After two
# steps, later steps allocate no memory and create no thread, whatever the tiers.
./tests/torture/torture
rc=$?
[ $rc -eq 77 ] && exit 77

job=./tests/torture/.libs/job
[ -x $job ] || job=./tests/torture/job
work=$(mktemp -d ./torture.still.XXXXXX) || exit 1
trap 'rm -rf "$work"' EXIT

slow="--machine ${srcdir:-.}/tests/torture/slow.json"

# still STEPS BATCH OPTION...
still() {
    LD_LIBRARY_PATH=./.libs LD_PRELOAD=./tests/torture/shim.so $job "$@" >"$work/out" 2>&1
    if [ "$(grep -c '^calls .* 0$' "$work/out")" -ne 6 ]; then
        echo "FAIL: steps ask for memory: $*"
        grep '^calls\|^job' "$work/out"
        rc=1
    fi
}

still 50 64 - - - --device cpu --threads 1
still 50 256 - - - --device cpu --threads 2 --micro-batch 128
still 8 8192 - - - --device cpu --threads 2 --micro-batch 4096 --vram 7M --host 32M $slow
still 8 8192 - - - --device cpu --threads 2 --micro-batch 4096 --vram 7M --nvme "$work:32M" $slow
exit $rc
