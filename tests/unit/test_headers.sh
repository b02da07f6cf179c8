#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Each public header compiles alone, as C11 and as C++17, with all warnings as errors; and so does a
# program that uses every macro of them.  Skipped without a C++ compiler, after the C part.
set -eu

runtime=${srcdir:-.}/runtime
program=${srcdir:-.}/tests/unit/public_headers.c
strict='-Wall -Wextra -pedantic -Werror -fsyntax-only'
cxx=${CXX:-c++}

# compile LANGUAGE: the command line of the compiler but for the file.
compile() {
    case $1 in
    c) ${CC:-cc} -x c -std=c11 $strict -I"$runtime" "$2" ;;
    c++) $cxx -x c++ -std=c++17 $strict -I"$runtime" "$2" ;;
    esac
}

all() {
    for file in "$runtime"/ckpt.h "$runtime"/ckpt_*.h "$program"; do
        compile "$1" "$file" || { echo "FAIL: $file as $1" && exit 1; }
    done
}

all c
echo 'int main() { return 0; }' | $cxx -x c++ -std=c++17 -fsyntax-only - 2>/dev/null || exit 77
all c++
