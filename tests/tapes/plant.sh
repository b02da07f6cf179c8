#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Faults of passes over tapes, tests/tapes/faults: each is one line of the library that is wrong.
#
# Without arguments, as build-aux/lint calls it: each still applies to one file of the source tree,
# wherever that moved to; a fault whose code is gone has to be planted anew.  With those of
# configure, as "make check-tapes-faults" calls it: each is built in a copy of the tree, and
# test_tapes must find it within TAPES (2,000) tapes from SEED on.
set -eu

src=$(cd "${srcdir:-.}" && pwd)
command -v patch >/dev/null || exit 77
: "${TAPES:=2000}" "${SEED:=1}" "${OMP_WAIT_POLICY:=passive}"
export OMP_WAIT_POLICY
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# target FAULT TREE: the one file with the name that the fault gives and with all of its context.
target() {
    name=$(sed -n '1s,.*/,,p' "$1")
    find "$2/ops" "$2/runtime" -name "$name" | while read -r file; do
        ! patch --dry-run -s -f -F0 -r - "$file" "$1" >"$work/log" 2>&1 || echo "$file"
    done >"$work/files"
    if [ "$(wc -l <"$work/files")" != 1 ]; then
        echo "${1#"$src/"} applies to $(wc -l <"$work/files") files, not to one: plant it anew"
        return 1
    fi
    cat "$work/files"
}

missed=0
for fault in "$src"/tests/tapes/faults/*.patch; do
    target "$fault" "$src" >"$work/said" || { cat "$work/said" && missed=1; }
done
[ $missed = 0 ] || exit 1
[ $# -gt 0 ] || exit 0

# ---- building them ----------------------------------------------------------------------------

# What make needs again; the test programs that are built in the tree are large.
mkdir "$work/tree" "$work/build"
(cd "$src" && tar -cf - --exclude=./.git --exclude='*.o' --exclude=./build --exclude=.libs .) |
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

build
for fault in "$src"/tests/tapes/faults/*.patch; do
    name=$(basename "$fault" .patch)
    file=$(target "$fault" "$work/tree")
    cp -p "$file" "$work/whole"
    patch -s -F0 "$file" "$fault"
    build
    tests/tapes/test_tapes "$TAPES" "$SEED" >"$work/found" 2>&1 || true
    first=$(sed -n 's/^FAIL tape \([0-9]*\),.*/\1/p' "$work/found" | head -n 1)
    if [ -n "$first" ]; then
        what=$(sed -n 's/^FAIL tape [^:]*: //p' "$work/found" | head -n 1)
        echo "$name: found by tape $((first - SEED + 1)): $what"
    else
        echo "$name: NOT FOUND: $(tail -n 1 "$work/found")"
        missed=$((missed + 1))
    fi
    cp "$work/whole" "$file"
done
[ "$missed" = 0 ]
