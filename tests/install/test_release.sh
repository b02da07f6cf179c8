#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The files of a release, as far as they can be made anywhere: checksums, notes, citation with the place
# of the repository and without, container files that have what bootstrap knows.
set -u
srcdir=${srcdir:-.}
[ -x "$srcdir/configure" ] && [ -e "$srcdir/.git" ] && command -v autoconf >/dev/null || exit 77
fail() {
    echo "FAIL: $*"
    exit 1
}
release() {
    PLACE=$1 srcdir=$srcdir sh "$srcdir/build-aux/release" trial >release.tmp 2>&1 || fail "$(tail -n 5 release.tmp)"
    rm -f release.tmp
    (cd release && sha256sum -c --quiet SHA256SUMS) || fail "checksums"
}
trap 'rm -rf release' EXIT
version=$("$srcdir/build-aux/version")
release ""
! grep -q "^repository-code" release/CITATION.cff || fail "a place that is not known"
grep -q "^version: $version$" release/CITATION.cff || fail "CITATION.cff: $(grep version release/CITATION.cff)"
grep -q "^# libckpt $version" release/NOTES.md && grep -q "^## All changes" release/NOTES.md || fail "no notes"
tar -tzf "release/libckpt-$version.tar.gz" "libckpt-$version/configure" >/dev/null || fail "no configure"
for file in Containerfile Containerfile.cuda; do
    grep -q "^COPY libckpt-$version.tar.gz" release/$file || fail "$file without the tarball"
    for package in $(grep -oE '\blib[a-z0-9.]+-dev' "$srcdir/bootstrap" | sort -u); do
        case $package in library-dev | libcmocka-dev | libclang-rt-dev) continue ;; esac
        grep -q "$package" release/$file || fail "$file has no $package"
    done
done
MAKE=true release https://example.org/libckpt # with the tarball of before
grep -q "^repository-code: https://example.org/libckpt$" release/CITATION.cff || fail "no place in CITATION.cff"
grep -q "git clone -b v$version https://example.org/libckpt" release/NOTES.md || fail "no place in the notes"
cp "$srcdir/README.md" release/README.md
PLACE=https://example.org/libckpt srcdir=$srcdir sh "$srcdir/build-aux/release" readme release/README.md
grep -q "git clone https://example.org/libckpt" release/README.md && ! grep -q "ADDRESS" release/README.md ||
    fail "README.md without the place"
echo ok
