#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The demo in few steps: one page that needs nothing else, with the bits compared.
set -eu
srcdir=${srcdir:-.}
top=$(pwd)
command -v base64 >/dev/null || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
    echo "test_demo: $*"
    exit 1
}
cd "$srcdir"
DEMO_STEPS=30 DEMO_COMPARED=3 DEMO_DRAWING=30 PROGRAMS=$top sh examples/demo/demo.sh "$work/out" \
    >"$work/said" 2>"$work/err" ||
    fail "$(tail -n 5 "$work/said" "$work/err")"
page=$(tail -n 1 "$work/said")
# The first picture is there before anything trains.
first=$(grep -n -m1 '/vae/clip.png$' "$work/said" | cut -d: -f1)
[ -n "$first" ] && [ "$first" -lt "$(grep -n '== 1 of 4' "$work/said" | cut -d: -f1)" ] ||
    fail "no picture before the training"
[ -s "$page" ] || fail "the last line is no page: $page"
grep -q "same bits: yes" "$work/said" || fail "no comparison: $(tail -n 5 "$work/said")"
grep -q '<dt>same bits</dt><dd>yes' "$page" || fail "the page does not say that the bits are the same"
for part in '<polyline class="kept"' 'srcdoc="<!doctype' 'iVBOR'; do
    grep -qF "$part" "$page" || fail "the page has no $part"
done
if grep -qE '(src|href)="(https?:|//|[a-z./-]+\.(js|css|png))' "$page"; then
    fail "the page needs other files"
fi
if grep -q '@[a-z.]*@' "$page"; then
    fail "a mark was not replaced: $(grep -o '@[a-z.]*@' "$page" | head -n 3)"
fi
# The picture of README, where Pillow is.
[ -s "$work/out/free.html" ] || fail "no plan without a budget"
if python3 -c 'from PIL import features; exit(not features.check("webp"))' 2>/dev/null; then
    python3 examples/demo/loop.py "$work/out" "$work/loop.webp" >"$work/said" || fail "no picture"
    head -c 12 "$work/loop.webp" | grep -q WEBP || fail "loop.py wrote no WebP"
fi
