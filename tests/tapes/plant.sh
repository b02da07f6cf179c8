#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Plants each fault of tests/tapes/faults in a copy of the source tree: test_tapes must find it
# within TAPES (2,000) tapes.  Arguments: the source tree, the arguments of configure.
set -eu

src=$(cd "$1" && pwd)
shift
: "${TAPES:=2000}" "${SEED:=1}" "${OMP_WAIT_POLICY:=passive}"
export OMP_WAIT_POLICY
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/tree" "$work/build"
(cd "$src" && tar -cf - --exclude=./.git --exclude='./build*/*.o' --exclude=./build*/.libs .) |
    tar -xf - -C "$work/tree"
cd "$work/build"
"$work/tree/configure" --quiet --disable-shared "$@" >"$work/log" 2>&1 || {
    cat "$work/log"
    exit 1
}

build() {
    make -j2 tests/tapes/test_tapes >"$work/log" 2>&1 || {
        tail -n 30 "$work/log"
        exit 1
    }
}

missed=0
build
for fault in "$src"/tests/tapes/faults/*.patch; do
    name=$(basename "$fault" .patch)
    patch -s -d "$work/tree" -p0 <"$fault"
    build
    tests/tapes/test_tapes "$TAPES" "$SEED" >"$work/found" 2>&1 || true
    first=$(sed -n 's/^FAIL tape \([0-9]*\),.*/\1/p' "$work/found" | head -n 1)
    if [ -n "$first" ]; then
        echo "$name: found by tape $((first - SEED + 1)): $(sed -n 's/^FAIL tape [^:]*: //p' "$work/found" | head -n 1)"
    else
        echo "$name: NOT FOUND: $(tail -n 1 "$work/found")"
        missed=$((missed + 1))
    fi
    patch -s -R -d "$work/tree" -p0 <"$fault"
done
[ "$missed" = 0 ]
