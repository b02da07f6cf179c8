#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every public call has a man page, every op its place in doc/ops.md, and groff reports nothing about
# the manual.
set -u
srcdir=${srcdir:-.}
[ -d man/man3 ] || exit 77
AWK=${AWK-awk} "$srcdir/build-aux/man-calls" --list >test_man.tmp || exit 1
while read -r call page header; do
    if [ ! -s "man/man3/$call.3" ] || [ ! -s "man/man3/$page.3" ]; then
        echo "$call of $header has no page"
        exit 1
    fi
done <test_man.tmp
[ "$(wc -l <test_man.tmp)" -gt 200 ] || exit 1
# Every call, struct and enum of the headers stands on one page of the site's topics, with members.
AWK=${AWK-awk} srcdir=$srcdir "$srcdir/build-aux/man-md" man test_man.md || exit 1
labels=$(sed -n 's/^(\(ckpt[a-z0-9_]*\))=$/\1/p' test_man.md/api-*.md | sort)
twice=$(printf '%s\n' "$labels" | uniq -d)
lacking=$(grep -ohE '^(CKPT_API|struct|enum)[^(;{]* \*?ckpt_[a-z0-9_]+( \{|\()' "$srcdir"/runtime/ckpt*.h |
    grep -oE 'ckpt_[a-z0-9_]+( \{|\()' | grep -oE '[a-z0-9_]+' | grep -vxF "$labels")
lacking="$lacking$(grep -oE '^ *ckpt_[a-z0-9_]+;' "$srcdir/libckpt.map" | tr -d ' ;' | grep -vx ckpt_command |
    grep -vxF "$labels")"
[ -z "$twice$lacking" ] || { echo "pages of topics: twice: $twice; not there: $lacking"; exit 1; }
for member in "int64_t micro_batch" "double step_seconds" CKPT_EBUDGET; do
    grep -q "$member" test_man.md/api-*.md || { echo "no member $member on the pages of topics"; exit 1; }
done
rm -rf test_man.md
# Every op that a model records is in the tables of the ops.
while read -r call page header; do
    case $header in
    *ckpt_ops.h | *ckpt_conv.h)
        grep -q "\`$call\`" "$srcdir/doc/ops.md" || { echo "$call is not in doc/ops.md"; exit 1; }
        ;;
    esac
done <test_man.tmp
rm -f test_man.tmp
# Where it is missing, the rest is checked.
groff=$(command -v groff || echo :)
cd man || exit 1
# shellcheck disable=SC2046
said=$($groff -man -Tutf8 -ww $(grep -L '^\.so' man3/*.3) man7/ckpt.7 2>&1 >/dev/null)
[ -z "$said" ] || { printf '%s\n' "$said"; exit 1; }
cd .. || exit 1
said=$($groff -man -Tutf8 -ww "$srcdir"/doc/man/*.1 2>&1 >/dev/null)
[ -z "$said" ] || { printf '%s\n' "$said"; exit 1; }

# Completions know every option of the pages.
for page in "$srcdir"/doc/man/*.1; do
    program=$(basename "$page" .1)
    options=$(awk '/^\.\\" options.*: begin/ { on = 1 } /^\.\\" options.*: end/ { on = 0 }
        on && /^\.TP/ { n++ } END { print n }' "$page")
    known=$(grep -c " -l " "completions/fish/$program.fish")
    [ "$options" = "$known" ] || { echo "$program: fish completes $known of $options options"; exit 1; }
    if command -v bash >/dev/null; then
        bash -n "completions/bash/$program" || exit 1
    fi
    if command -v fish >/dev/null; then
        fish --no-execute "completions/fish/$program.fish" || exit 1
    fi
done
if command -v zsh >/dev/null; then
    zsh -n completions/zsh/_libckpt || exit 1
fi
# A name with blanks is one name.
if command -v bash >/dev/null; then
    blank=$(mktemp -d) && : >"$blank/a b"
    said=$(bash -c '. completions/bash/lm-train; COMP_WORDS=(lm-train --data "$1/a"); COMP_CWORD=2
        _lm_train; printf "<%s>" "${COMPREPLY[@]}"' bash "$blank")
    rm -rf "$blank"
    [ "$said" = "<$blank/a b>" ] || { echo "bash completes $said"; exit 1; }
    said=$(bash -c '. completions/bash/lm-train; COMP_WORDS=(lm-train --schedule c); COMP_CWORD=2
        _lm_train; printf "<%s>" "${COMPREPLY[@]}"')
    [ "$said" = "<constant><cosine>" ] || { echo "bash completes a value by $said"; exit 1; }
fi
