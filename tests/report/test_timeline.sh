#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The page of a plan in a real browser: it loads without errors, draws every kind of bytes, reacts
# to hovering, zooms and moves, and shows waits and a second plan on top of its own.  A script acts
# like a user and writes the outcome into the title.  Skipped without Chromium.
set -eu
. "${srcdir:-.}/tests/first_failure.sh"

ckpt=${CKPT_COMMAND:-./ckpt}
mlp=${EXAMPLES:-./examples}/mlp
[ -x "$ckpt" ] && [ -x "$mlp" ] || exit 77
selftest=$srcdir/tests/report/timeline_selftest.js

find_browser

# load PAGE: the document after its scripts ran is in dom, what the console said in log.
load() {
    awk -v last="$(grep -n '^</script>' "$1" | tail -n 1 | cut -d: -f1)" -v test="$selftest" '
        NR == last { while ((getline line < test) > 0) print line }
        { print }' "$1" >"$work/tested.html"
    timeout 120 "$browser" --headless --no-sandbox --disable-gpu --enable-logging=stderr --v=0 \
        --user-data-dir="$work/profile" --virtual-time-budget=5000 --dump-dom \
        "file://$work/tested.html" >"$work/dom" 2>"$work/log" || fail "the browser failed: $(tail -3 "$work/log")"
    ! grep "CONSOLE" "$work/log" || fail "the console is not empty"
}

"$mlp" --plan-only --graph-out "$work/mlp.graph" --plan-out "$work/mlp.plan" >/dev/null
smallest=$(sed -n 's/^min_budget //p' "$work/mlp.plan")
for budget in "$smallest" 1G; do
    "$ckpt" plan --graph "$work/mlp.graph" --vram "$budget" --timeline "$work/page.html" >/dev/null
    load "$work/page.html"
    grep -q "<title>selftest ok</title>" "$work/dom" || fail "$(grep '<title>' "$work/dom")"
done

# Host and NVMe tiers, copies, and names that could break out of the page.
offloaded=${OFFLOADED_PAGE:-./tests/report/offloaded_page}
"$offloaded" "$work/offloaded.html"
load "$work/offloaded.html"
grep -q "<title>selftest ok</title>" "$work/dom" || fail "offloaded: $(grep '<title>' "$work/dom")"
grep -q 'data-waits="[1-9]' "$work/dom" || fail "offloaded: nothing waits"

# A page with missing drawings must not pass.
sed 's/c.fillRect(x, y0, 1.5, y1 - y0 + .3);//' "$work/page.html" >"$work/broken.html"
load "$work/broken.html"
grep -q "<title>selftest failed: no .* is drawn" "$work/dom" || fail "an empty page passed"
echo ok
