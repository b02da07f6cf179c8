#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# After an install below a DESTDIR, the examples build and run against the library, with gcc and
# with clang; after a move, CMake and pkg-config still find it; after an uninstall, nothing is left.
set -eu
srcdir=${srcdir:-.}
work=$(pwd)/installcheck-work
[ -f Makefile ] || exit 77
trap 'rm -rf "$work"' EXIT
rm -rf "$work"
mkdir -p "$work"

fail() {
    echo "FAIL: $*"
    exit 1
}

# value NAME: what the build takes for a directory or a flag.
value() {
    printf 'print-value: ; @echo "$(%s)"\n' "$1" >"$work/value.mk"
    MAKEFLAGS= make -s -f Makefile -f "$work/value.mk" print-value
}

prefix=$(value prefix)
libdir=$(value libdir)
examples=$(value docdir)/examples
CFLAGS="$(value CFLAGS) $(value SANITIZER_FLAGS)"
PC_STATIC=$(value PC_STATIC)
version=$(value VERSION)
export CFLAGS PC_STATIC version
tree=$work/tree
MAKEFLAGS= make -s install DESTDIR="$tree" >"$work/install.log" 2>&1 ||
    fail "install: $(tail -5 "$work/install.log")"

# What programs train on without options.
for file in bunny.rgb design.md; do
    [ -s "$tree$(value pkgdatadir)/$file" ] || fail "no $file for programs without options"
done

# The links of the installed pages lead to installed files.
doc=$tree$(value docdir)
find "$doc" -name '*.md' | while read -r page; do
    grep -o '](\([^)#:]*\)[)#]' "$page" | sed 's/^](//; s/.$//' | while read -r link; do
        [ -z "$link" ] || [ -e "${page%/*}/$link" ] || echo "${page#"$doc/"}: $link"
    done
done >"$work/dead"
[ ! -s "$work/dead" ] || fail "dead links in installed pages: $(cat "$work/dead")"

use() {
    "${SHELL:-/bin/sh}" "$srcdir/tests/install/use_installed.sh" "$@" || exit 1
}

CC=$(value CC) use "$tree" "$prefix" "$libdir" "$examples" gcc

# A static library leaves all names but ckpt_... to the program: as one links it by hand and by CMake.
archive=$tree$libdir/libckpt.a
if [ -f "$archive" ] && [ -n "$(value ONE_OBJECT | sed 's/^no$//')" ]; then
    nm -g --defined-only "$archive" | awk 'NF == 3 && $3 !~ /^ckpt_/ { print $3 }' >"$work/names"
    [ ! -s "$work/names" ] || fail "libckpt.a defines names of others: $(head -5 "$work/names")"
    mkdir "$work/own"
    cp "$srcdir/tests/install/own_names.c" "$work/own"
    needs=$(PKG_CONFIG_PATH=$tree$libdir/pkgconfig pkg-config --static --libs libckpt |
        sed 's/-lckpt//')
    # shellcheck disable=SC2086
    $(value CC) $CFLAGS "-I$tree$(value includedir)" "$work/own/own_names.c" "$archive" $needs \
        -o "$work/own/own_names" >"$work/own.log" 2>&1 || fail "$(cat "$work/own.log")"
    (cd "$work/own" && ./own_names) || fail "a program with names of its own"
    cat >"$work/own/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.13)
project(own C)
find_package(ckpt REQUIRED)
add_executable(own_names own_names.c)
target_link_libraries(own_names ckpt::ckpt_static)
CMAKE
    if command -v cmake >/dev/null; then
        { cmake -S "$work/own" -B "$work/own/cmake" -DCMAKE_C_FLAGS="$CFLAGS" \
            -DCMAKE_PREFIX_PATH="$tree$prefix" && cmake --build "$work/own/cmake"; } \
            >"$work/own.log" 2>&1 || fail "$(cat "$work/own.log")"
        (cd "$work/own" && ./cmake/own_names) || fail "ckpt::ckpt_static"
    fi
elif [ -f "$archive" ]; then
    echo "not tested: configure found no way to hide the inner names of libckpt.a"
fi

# The file of pkg-config names the directories that "make install" is given.
MAKEFLAGS= make -s install-data DESTDIR="$work/other" prefix=/elsewhere >"$work/install.log" 2>&1 ||
    fail "install-data with another prefix: $(tail -5 "$work/install.log")"
pc=$work/other/elsewhere/${libdir#"$prefix/"}/pkgconfig/libckpt.pc
[ "$(pkg-config --variable=prefix "$pc")" = /elsewhere ] || fail "$pc has another prefix"
[ "$(pkg-config --variable=includedir "$pc")" = /elsewhere/include ] || fail "$pc: no includedir"
[ "$(pkg-config --define-variable=prefix=/moved --variable=libdir "$pc")" = \
    "/moved/${libdir#"$prefix/"}" ] || fail "$pc does not follow a prefix"
rm -rf "$work/other"

# libtool fails at a path with a space, where some files are there already: it is refused before the first.
MAKEFLAGS= make -s install prefix="$work/a space" >"$work/space.log" 2>&1 && fail "make install into a path with a space"
grep -q "libtool installs into no path with a space" "$work/space.log" || fail "no reason: $(tail -3 "$work/space.log")"
[ ! -e "$work/a space" ] || fail "files in a path that was refused"
configure=$(cd "$srcdir" && pwd)/configure
if [ ! -e "$srcdir/config.status" ]; then # a tree that was configured itself refuses all others
    mkdir "$work/configure"
    (cd "$work/configure" && "$configure" --prefix="$work/a space") >"$work/space.log" 2>&1 &&
        fail "configure takes a prefix with a space"
    grep -q "libtool cannot install into a path with a space" "$work/space.log" || fail "no reason: $(tail -3 "$work/space.log")"
fi

# The whole tree moved, to a path with a space: a program follows.  pkg-config takes the prefix to be above lib.
if [ "$libdir" = "$prefix/lib" ]; then
    mv "$tree$prefix" "$work/a space"
    flags=$(PKG_CONFIG_PATH="$work/a space/lib/pkgconfig" pkg-config ${PC_STATIC-} --define-prefix --cflags --libs libckpt)
    eval "$(value CC) $CFLAGS -o '$work/spaced' '$work/a space${examples#"$prefix"}/mlp.c' $flags" >"$work/space.log" 2>&1 ||
        fail "a path with a space: $(cat "$work/space.log")"
    mv "$work/a space" "$tree$prefix"
fi

# The whole tree moved: nothing in it names the place it was built for.
mv "$tree$prefix" "$work/moved"
CC=$(value CC) use "$work/moved" "" "${libdir#"$prefix"}" "${examples#"$prefix"}" moved
mv "$work/moved" "$tree$prefix"

# Another compiler, and the zoo with it.  A sanitizer's run-time library is of one compiler.
if command -v clang >/dev/null && [ -z "$(value SANITIZER_FLAGS)" ]; then
    CC=clang CFLAGS=-O1 TARGETS='all zoo' use "$tree" "$prefix" "$libdir" "$examples" clang
fi
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
if [ -x "$nvcc" ] && [ -z "$(value SANITIZER_FLAGS)" ]; then
    NVCC=$nvcc TARGETS="cuda NVCC=$nvcc" use "$tree" "$prefix" "$libdir" "$examples" cuda
fi

# The cache of the loader is renewed where it has the directory, and only for an install in place.
cat >"$work/ldconfig" <<'SH'
#!/bin/sh
[ "$1" = -v ] || { echo called >>"${0%/*}/called"; exit; }
echo "/listed/lib: (from /etc/ld.so.conf:1)"
SH
chmod +x "$work/ldconfig"
# renewed LIBDIR DESTDIR: yes or no.
renewed() {
    rm -f "$work/called"
    MAKEFLAGS= make -s install-exec-hook LDCONFIG="$work/ldconfig" libdir="$1" DESTDIR="$2" >"$work/hook.log" 2>&1 ||
        fail "install-exec-hook for $1"
    [ -e "$work/called" ] && echo yes || echo no
}
[ "$(renewed /listed/lib "")" = yes ] || fail "make install leaves the loader's cache as it was"
[ "$(renewed /listed/lib "$tree")" = no ] || fail "an install below DESTDIR calls ldconfig"
[ "$(renewed /listed "")" = no ] || fail "ldconfig is called for a directory that it does not read"

MAKEFLAGS= make -s uninstall DESTDIR="$tree" >"$work/uninstall.log" 2>&1 ||
    fail "uninstall: $(tail -5 "$work/uninstall.log")"
left=$(find "$tree" ! -type d && find "$tree$prefix" -mindepth 1 -name '*ckpt*')
[ -z "$left" ] || fail "left by uninstall: $left"
