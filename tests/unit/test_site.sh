#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The site builds without a warning, loads nothing from other hosts, and its links have targets.
set -u
srcdir=${srcdir:-.}
[ -n "${SPHINXBUILD-}" ] && [ -d man/man3 ] || exit 77
work=test_site.tmp
trap 'rm -rf "$work" "$work".*' EXIT
said=$("$srcdir/build-aux/site" man "$work" "$work.html" -n -W --keep-going 2>&1) ||
    { printf '%s\n' "$said"; exit 1; }
"$srcdir/build-aux/check-links" --html "$work.html" || exit 1
for page in index doc/tutorial doc/bench/h200 doc/reference/topics doc/reference/api-losses search; do
    [ -s "$work.html/$page.html" ] || { echo "no page $page"; exit 1; }
done
# Calls in code are links to the manual.
grep -q 'href="reference/api-programs.html#ckpt-compile"' "$work.html/doc/pytorch.html" ||
    { echo "ckpt_compile in doc/pytorch.md is no link"; exit 1; }
# The search knows the calls.
grep -q "ckpt_compile_variants" "$work.html/searchindex.js" ||
    { echo "the search of the site does not know ckpt_compile_variants"; exit 1; }
