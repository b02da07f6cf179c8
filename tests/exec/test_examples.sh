#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The small examples: an op made outside the library has the right gradient, and the perceptron
# learns the same numbers under the smallest budget as without one.
set -eu
. "${srcdir:-.}/tests/first_failure.sh"

examples=${EXAMPLES:-./examples}

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

"$examples/gpt" "${srcdir:-.}/README.md" >"$work/free" || fail "gpt: $(cat "$work/free")"
"$examples/gpt" "${srcdir:-.}/README.md" --vram 1M >"$work/out" 2>"$work/refusal" && fail "gpt: 1M was not refused"
smallest=$(sed -n 's/.*needs at least \([0-9]*\) bytes.*/\1/p' "$work/refusal")
"$examples/gpt" "${srcdir:-.}/README.md" --vram "$smallest" >"$work/tight" || fail "gpt --vram $smallest: $(cat "$work/tight")"
cmp "$work/free" "$work/tight" || fail "gpt: the budget changed losses or text"
sed -n 's/^step.*loss //p' "$work/free" | sed -n '1p;$p' | {
    read -r first
    read -r last
    awk "BEGIN { exit !($last < $first / 1.7) }" || fail "gpt: the loss went from $first to $last"
}
for wrong in "$work/nothing" /dev/null; do
    "$examples/gpt" "$wrong" >/dev/null 2>"$work/refusal" && fail "gpt: $wrong was taken"
    [ "$(wc -l <"$work/refusal")" = 1 ] || fail "gpt: no sentence: $(cat "$work/refusal")"
done
echo ok
