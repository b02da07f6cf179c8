#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every block of commands and of C in README.md and doc/*.md is run by a test of this folder, part of
# a file of the tree, or marked as not run, with the reason.
. "${srcdir:-.}/tests/recipes/pages.sh"

# squeezed FILE: without comments and blanks.
squeezed() {
    sed -e 's|/\*[^*]*\*/||g' -e 's|//.*||' "$1" | tr -d ' \n\t'
}

# check_part PAGE BLOCK FILE
check_part() {
    [ -s "$root/$3" ] || fail "$1: part of $3, which is not there"
    squeezed "$root/$3" >"$work/whole"
    grep -qF -- "$(squeezed "$2")" "$work/whole" || fail "$1: this is no part of $3: $(cat "$2")"
}

for page in README.md $(cd "$root" && ls doc/*.md); do
    rm -rf "$work/blocks"
    mkdir "$work/blocks"
    : >"$work/blocks/parts"
    blocks "$root/$page" "$work/blocks"
    n=$(find "$work/blocks" -name '[0-9][0-9]' | wc -l)
    i=0
    while read -r file; do
        i=$((i + 1))
        check_part "$page" "$work/blocks/part-$(printf %02d $i)" "$file"
    done <"$work/blocks/parts"
    [ "$n" -eq 0 ] || grep -qE "^ *(run_)?page $page $n( |\$)" "$root"/tests/recipes/test_*.sh ||
        fail "$page: no test of tests/recipes runs its $n blocks (run_page $page $n), and they are not marked"
done
finish
