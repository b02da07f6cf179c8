#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every block of commands and of C in README.md and doc/*.md is run by a test of this folder, part of
# a file of the tree, or marked as not run, with the reason.  open_pages lists the pages of which
# this is not true yet: it may only get shorter.
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

open_pages=$root/tests/recipes/open_pages
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
    run=no
    [ "$n" -gt 0 ] && ! grep -qE "^ *(run_)?page $page $n( |\$)" "$root"/tests/recipes/test_*.sh || run=yes
    if grep -qx "$page" "$open_pages"; then
        [ $run = no ] || fail "$page: all its blocks are run: take it off tests/recipes/open_pages"
    elif [ $run = no ]; then
        fail "$page: no test of tests/recipes runs its $n blocks (run_page $page $n), and they are not marked"
    fi
done
while read -r page; do
    [ -e "$root/$page" ] || fail "open_pages: $page is not there"
done <"$open_pages"
echo "$(wc -l <"$open_pages") pages are open"
finish
