#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The small examples: an op made outside the library has the right gradient, and the perceptron
# learns the same numbers under the smallest budget as without one.
set -eu

examples=${EXAMPLES:-./examples}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "FAIL: $*"
    exit 1
}

"$examples/custom_op" >"$work/custom" || fail "custom_op: $(cat "$work/custom")"
grep -q "the gradient is right" "$work/custom" || fail "custom_op: $(cat "$work/custom")"

CKPT_VERIFY=1 "$examples/custom_op" >"$work/custom" || fail "custom_op: $(cat "$work/custom")"

"$examples/mlp" >"$work/free" || fail "mlp: $(cat "$work/free")"
"$examples/mlp" --vram 1M >"$work/out" 2>"$work/refusal" && fail "mlp: 1M was not refused"
smallest=$(sed -n 's/.*needs at least \([0-9]*\) bytes.*/\1/p' "$work/refusal")
[ -n "$smallest" ] || fail "mlp: the refusal names no budget: $(cat "$work/refusal")"
"$examples/mlp" --vram "$smallest" >"$work/tight" || fail "mlp --vram $smallest: $(cat "$work/tight")"
grep "^step" "$work/free" >"$work/a"
grep "^step" "$work/tight" >"$work/b"
cmp "$work/a" "$work/b" || fail "mlp: the budget changed the losses"
sed -n '1s/.*loss //p;$s/.*loss //p' "$work/a" | {
    read -r first
    read -r last
    awk "BEGIN { exit !($last < $first / 4) }" || fail "mlp: the loss went from $first to $last"
}
echo ok
