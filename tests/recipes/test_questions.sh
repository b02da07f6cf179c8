#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# doc/questions.md is true: its commands run, and every sentence that it quotes (a line that is fenced
# as text, with "..." for what differs) is one string of the sources.
. "${srcdir:-.}/tests/recipes/pages.sh"

# The lines of the sources, with the strings of several lines joined, as the compiler does.
find "$root/runtime" "$root/ops" "$root/examples" -name '*.c' -o -name '*.cc' -o -name '*.cu' |
    LC_ALL=C sort | xargs cat | sed "s/\\\\\"/'/g" | awk '
        /^ *"/ && before ~ /" *\\?$/ {
            sub(/" *\\?$/, "", before)
            sub(/^ *"/, "")
            before = before $0
            next
        }
        { print before; before = $0 }
        END { print before }' >"$work/strings"

# quotes PAGE: what is fenced as text.
quotes() {
    awk '/^```/ { on = !on && /^```text$/; next } on' "$1"
}

# is_said QUOTE: there is a string with these parts, in this order.
is_said() {
    printf '%s\n' "$1" | sed -e 's/[][\\.*^$]/\\&/g' -e 's/\\\.\\\.\\\./[^"]*/g' >"$work/pattern"
    grep -q -f "$work/pattern" "$work/strings"
}

quotes "$root/doc/questions.md" >"$work/quotes"
while IFS= read -r quote; do
    is_said "$quote" || fail "doc/questions.md: the sources do not say: $quote"
done <"$work/quotes"
[ "$(wc -l <"$work/quotes")" -ge 40 ] || fail "doc/questions.md quotes less than 40 sentences"
! is_said "a sentence that ... nobody says" || fail "the test finds what is not there"

program ckpt
program lm-train --device cpu --threads 1 --hidden 16 --heads 2 --layers 1 --mlp 32 --length 16 --batch 2
cp "$root/doc/tour.md" "$work/home/text.txt"
run_page doc/questions.md 2
finish
