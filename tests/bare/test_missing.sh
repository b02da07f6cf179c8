#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Where groff, a C++ compiler, or what sentencepiece's file of pkg-config asks for is missing,
# bootstrap and configure say that, and not something else, and the tests of pages pass.  A folder
# of links without the missing commands is the PATH here; check_bare.sh tries whole systems.
set -u
srcdir=$(cd "${srcdir:-.}" && pwd) || exit 1
[ -x "$srcdir/configure" ] && command -v g++ >/dev/null || exit 77
pkg-config --exists sentencepiece || exit 77
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
unset CC CXX CFLAGS CXXFLAGS CI PKG_CONFIG_PATH
failed=0

fail() {
    echo "FAIL: $*"
    failed=1
}

# says TEXT COMMAND...: it succeeds and says TEXT.
says() {
    text=$1
    shift
    "$@" >"$work/out" 2>&1 || fail "$*: $(tail -n 3 "$work/out")"
    grep -q -- "$text" "$work/out" || fail "no \"$text\" from $*: $(tail -n 3 "$work/out")"
}

# Nothing can be installed with these commands.
mkdir "$work/bin" "$work/pc"
IFS=:
for dir in $PATH; do
    ln -s "$dir"/* "$work/bin/" 2>/dev/null
done
for dir in $(pkg-config --variable pc_path pkg-config); do
    ln -s "$dir"/*.pc "$work/pc/" 2>/dev/null
done
unset IFS
rm -f "$work/bin/apt-get" "$work/bin/sudo" "$work/bin/groff"
PATH=$work/bin
PKG_CONFIG_LIBDIR=$work/pc
export PATH PKG_CONFIG_LIBDIR

# configure in a folder of its own; a summary is its last words.
configures() {
    text=$1
    rm -rf "$work/build" && mkdir "$work/build" && cd "$work/build" || exit 1
    says "$text" "$srcdir/configure" --quiet --without-cuda --without-mpi
    cd "$OLDPWD" || exit 1
}

# The demo is quiet while it configures and compiles, and shows the end of what fails.
BUILDDIR=$work/failed CONFIGURE_FLAGS='' CC=false \
    "$srcdir/bootstrap" demo >"$work/out" 2>"$work/err" &&
    fail "a demo without a compiler"
grep -q "the step that failed: configuring" "$work/err" ||
    fail "bootstrap demo: $(tail -n 3 "$work/err")"
if command -v nvcc >/dev/null && [ ! -e /dev/nvidiactl ] && [ ! -e /dev/dxg ]; then
    grep -q "no NVIDIA card: the demo is built without CUDA" "$work/out" ||
        fail "kernels for no card"
fi
[ "$(grep -c checking "$work/out")" = 0 ] || fail "not quiet: $(head -n 3 "$work/out")"

# Kernels are compiled for the cards that are there, if one kind of code does for all.
cards() {
    rm -rf "$work/bin/nvidia-smi" "$work/card" # a link, where the machine has a card
    printf '#!/bin/sh\nprintf "%s"\n' "$2" >"$work/bin/nvidia-smi"
    chmod +x "$work/bin/nvidia-smi"
    BUILDDIR=$work/card CONFIGURE_FLAGS='' CC=false "$srcdir/bootstrap" build >"$work/out" 2>&1 &&
        fail "a build without a compiler"
    set -- "$1" "$(sed -n 's/^  \$ .*configure *\(.*\)/\1/p' "$work/card/config.log")"
    [ "$2" = "$1" ] || fail "configured with \"$2\", not \"$1\""
}
cards --with-cuda-arch=80 '8.9\n8.6\n'
cards --with-cuda-arch=90 '12.0\n'
cards '' '8.6\n9.0\n'
cards '' '9.0\n7.5\n'
cards '' 'No devices were found\n'
rm -f "$work/bin/nvidia-smi"

cp "$work/pc/sentencepiece.pc" "$work/whole.pc" && rm "$work/pc/sentencepiece.pc"
{ cat "$work/whole.pc"; echo 'Requires.private: ckpt-no-such'; } >"$work/pc/sentencepiece.pc"
says "going on without: libprotobuf-dev " "$srcdir/bootstrap" deps
configures "SentencePiece *no (sentencepiece requires ckpt-no-such, not found)"
cp "$work/whole.pc" "$work/pc/sentencepiece.pc"
rm -f "$work"/bin/*++ "$work"/bin/*++-[0-9]*
says "going on without: g++ " "$srcdir/bootstrap" deps
configures "SentencePiece *no (there is no C++ compiler, such as g++)"
rm "$work/pc/sentencepiece.pc"
says "going on without: g++ libsentencepiece-dev libprotobuf-dev " "$srcdir/bootstrap" deps

# Every package that bootstrap knows stands in doc/build.md or README.md, and debian/control has it
# if it is a library.
for file in "$work"/pc/*.pc; do
    case $file in */jansson.pc | */openblas.pc) ;; *) rm -f "$file" ;; esac
done
packages=$("$srcdir/bootstrap" deps 2>&1 | grep -oE '\blib[a-z0-9.]+-dev' | sort -u)
[ "$(echo "$packages" | wc -l)" -gt 10 ] || fail "bootstrap misses only $packages"
for package in $packages; do
    grep -q "$package" "$srcdir/doc/build.md" "$srcdir/README.md" || fail "no page has $package"
    [ ! -f "$srcdir/debian/control" ] || grep -q "$package" "$srcdir/debian/control" ||
        fail "debian/control has no $package" # which is not in the tarball
done

# The demo asks for what it needs alone.  Where packages came, the build is configured once more.
BUILDDIR=$work/demo
export BUILDDIR
mkdir "$BUILDDIR" && : >"$BUILDDIR/Makefile"
mv "$work/bin/make" "$work/make"
printf '#!/bin/sh\n' >"$work/bin/make"
printf '#!/bin/sh\necho again "$@" >>"%s/again"\n' "$BUILDDIR" >"$BUILDDIR/config.status"
chmod +x "$work/bin/make" "$BUILDDIR/config.status"
ffmpeg="libavformat-dev libavcodec-dev libavutil-dev libswscale-dev"
says "going on without: $ffmpeg zlib1g-dev  *(there is no apt" "$srcdir/bootstrap" demo
says "going on without: zlib1g-dev  *(there is no apt" "$srcdir/bootstrap" demo-light
[ ! -e "$BUILDDIR/again" ] || fail "configured once more without a new package"
if [ "$(id -u)" = 0 ]; then
    cat >"$work/bin/apt-get" <<SH
#!/bin/sh
case "\$*" in
*--assume-no*) echo "0 upgraded, 1 newly installed, 0 to remove" ;;
*install*) printf 'Name: zlib\nDescription: z\nVersion: 1\n' >"$work/pc/zlib.pc" ;;
esac
SH
    chmod +x "$work/bin/apt-get"
    says "installing 1 packages.*: zlib1g-dev$" "$srcdir/bootstrap" demo-light
    says "./bootstrap build also installs: .*libcmocka-dev" "$srcdir/bootstrap" demo-light
    [ "$(wc -l <"$BUILDDIR/again")" = 2 ] || fail "not configured once: $(cat "$BUILDDIR/again")"
    rm "$work/bin/apt-get"
fi
unset BUILDDIR
mv "$work/make" "$work/bin/make"

srcdir=$srcdir sh "$srcdir/tests/unit/test_man.sh" || fail "test_man.sh without groff"
for t in tests/unit/test_headers.sh tests/unit/test_site.sh build-aux/check-links; do
    SPHINXBUILD='' srcdir=$srcdir sh "$srcdir/$t" >"$work/out" 2>&1
    case $? in 0 | 77) ;; *) fail "$t: $(tail -n 3 "$work/out")" ;; esac
done
exit $failed
