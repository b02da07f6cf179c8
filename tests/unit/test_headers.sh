#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The public headers compile with all warnings as errors: each alone, as the oldest and the newest C
# and C++ that they are for, and in a program that uses every macro of them, in all standards between
# C11 and C23, C++11 and C++20 that the compiler knows.  With gcc, clang and $CC, as far as they are
# there.  Deprecated names warn.  Skipped without a C++ compiler, after the C part.
set -eu

runtime=${srcdir:-.}/runtime
program=${srcdir:-.}/tests/unit/public_headers.c
strict='-Wall -Wextra -pedantic -Werror -fsyntax-only'

# knows COMPILER LANGUAGE STANDARD
knows() {
    echo 'int main(void) { return 0; }' | $1 -x "$2" -std="$3" -fsyntax-only - 2>/dev/null
}

# compile COMPILER LANGUAGE STANDARD ARGUMENT...
compile() {
    compiler=$1
    language=$2
    standard=$3
    shift 3
    $compiler -std="$standard" $strict -I"$runtime" -x "$language" "$@" ||
        { echo "FAIL: $* as $standard with $compiler" && exit 1; }
}

# all COMPILER LANGUAGE STANDARD...: the first and the last that it knows stand for single headers.
all() {
    compiler=$1
    language=$2
    shift 2
    first=
    last=
    for standard in "$@"; do
        knows "$compiler" "$language" "$standard" || continue
        compile "$compiler" "$language" "$standard" "$program"
        first=${first:-$standard}
        last=$standard
    done
    for standard in $first $last; do
        for header in "$runtime"/ckpt.h "$runtime"/ckpt_*.h; do
            compile "$compiler" "$language" "$standard" -include "$header" /dev/null
        done
    done
    [ -n "$first" ]
}

for cc in "${CC:-cc}" gcc clang; do
    all "$cc" c c11 c17 c2x c23 || [ "$cc" != "${CC:-cc}" ] || exit 1
done

# deprecated NAME EXPRESSION: $CC says what to use in its place.
deprecated() {
    printf '#include <ckpt.h>\nint main(void) { ckpt_tape *t = 0; (void)t; (void)%s; return 0; }\n' "$2" |
        LC_ALL=C ${CC:-cc} -I"$runtime" -fsyntax-only -x c - 2>&1 | grep -q "use $1" ||
        { echo "FAIL: no warning that says to use $1" && exit 1; }
}
deprecated ckpt_gelu_tanh 'ckpt_gelu(t, CKPT_NONE)'
deprecated CKPT_NN_GELU_TANH CKPT_NN_GELU

found=no
for cxx in "${CXX:-c++}" g++ clang++; do
    if all "$cxx" c++ c++11 c++14 c++17 c++20; then
        found=yes
    fi
done
[ $found = yes ] || exit 77
