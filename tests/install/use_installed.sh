#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# use_installed.sh DESTDIR PREFIX LIBDIR EXAMPLES: builds the installed examples against the installed
# library, by their Makefile and, where CMake is there, by their CMakeLists.txt, and runs them.
# $CC (default cc) and $CFLAGS build them; $PC_STATIC is --static where there is no shared library.
set -eu
destdir=$1
prefix=$2
libdir=$3
examples=$4
work=$(pwd)/installcheck-work/use-${5-examples}

fail() {
    echo "FAIL: $*"
    exit 1
}

rm -rf "$work"
mkdir -p "$work"
cp -r "$destdir$examples/." "$work"
PKG_CONFIG_PATH=$destdir$libdir/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
LD_LIBRARY_PATH=$destdir$libdir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export PKG_CONFIG_PATH LD_LIBRARY_PATH
# The prefix of libckpt.pc, and of no other module.
pkg_config="pkg-config ${PC_STATIC-} --define-variable=prefix=$destdir$prefix"
[ -z "${version-}" ] || [ "$($pkg_config --modversion libckpt)" = "$version" ] ||
    fail "libckpt.pc is not of version $version"

# No flag of an outer make.
MAKEFLAGS= make -s -C "$work" CC="${CC:-cc}" CFLAGS="${CFLAGS--O2} -Wall -Wextra -Werror" \
    PKG_CONFIG="$pkg_config" ${TARGETS-all} >"$work/make.log" 2>&1 || fail "$(cat "$work/make.log")"
[ -x "$work/mlp" ] || exit 0
"$work/mlp" >"$work/losses" || fail "mlp does not run"
grep -q "^step 200  loss" "$work/losses" || fail "mlp: $(cat "$work/losses")"
"$work/custom_op" | grep -q "the gradient is right" || fail "custom_op"

command -v cmake >/dev/null || exit 0
cmake -S "$work" -B "$work/cmake" -DCMAKE_C_COMPILER="${CC##* }" -DCMAKE_C_FLAGS="${CFLAGS-}" \
    -DCMAKE_PREFIX_PATH="$destdir$prefix" >"$work/cmake.log" 2>&1 || fail "$(cat "$work/cmake.log")"
cmake --build "$work/cmake" >"$work/cmake.log" 2>&1 || fail "$(cat "$work/cmake.log")"
"$work/cmake/mlp" | cmp - "$work/losses" || fail "mlp by CMake prints other losses"
