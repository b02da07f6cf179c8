#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# rows.sh with programs that only write what a trainer and a peer do: rows come as runs end, also of
# runs that fail or are cut, with a ratio to the first; and mix.py writes conversations that fit.
set -u

command -v python3 >/dev/null || exit 77
root=$(cd "${srcdir:-.}" && pwd)
folder=$(mktemp -d)
export OUT=$folder LIMIT=20 PYTHON=python3 STEPS=5 DEVICE=cpu
# shellcheck source=tests/bench/rows.sh
. "$root/tests/bench/rows.sh"
trap 'rm -rf "$folder" "$work"' EXIT
failed=0
fail() {
    echo "FAIL: $*"
    failed=1
}
rows_to rows 4
[ "$steps" = 5 ] || fail "STEPS is not taken"

# A trainer of steps of $MS, whose rows are filled in half; DO is what it does at the end.
cat >"$folder/some-train" <<'END'
#!/bin/bash
while [ "$1" != --log ]; do shift; done
echo '{"config": {"data": "data: x, 50.0 % of the rows filled"}}' >"$2"
for i in 900 900 900 $MS $MS; do
    printf '{"step": 1, "loss": 2, "ms": %s, "predicted_ms": 8, "arena_bytes": 0, "process_bytes": 0, "tokens_per_second": 300}\n' $i
done >>"$2"
echo "some-train: it says why" >&2
eval "$DO"
END
chmod +x "$folder/some-train"

# row TEXT: the last row of the file.
row() {
    tail -n 1 "$results" | grep -q -- "$1" || fail "no \"$1\" in: $(tail -n 1 "$results")"
}
run() {
    MS=$1 DO=$2 ours "a row" "$folder/some-train" >/dev/null
}
run 10 true
row "^a row  *10.00 ms, predicted 8.00, arena 0.00 GiB, process 0.00 GiB, loss 2.000, 150 tokens/s in 50.0 % of the places\$"
run 15 true
row ", 1.500 of a row\$"
run 15 false
row "failed (1): some-train: it says why ; until then 15.00 ms"
limit=3
run 15 "sleep 60"
row "failed (124): some-train: .*until then 15.00 ms"
limit=20
compare_with_next
run 20 true
row "of the places\$"
ours "none" "$folder/none" >/dev/null
row "failed (127)\$"

here=$folder
printf 'print("{1}", flush=True)\nraise ValueError("too large")\n' >"$folder/fails.py"
peer "a peer" fails.py >/dev/null
row "^a peer  *failed (1): ValueError: too large; until then {1}\$"
printf 'import time\nprint("{2}", flush=True)\ntime.sleep(60)\n' >"$folder/waits.py"
limit=5
peer "a peer" waits.py >/dev/null
limit=20
row "failed (124); until then {2}\$"
printf 'print("{1}")\nprint("{3}")\n' >"$folder/ends.py"
peer "a peer" ends.py >/dev/null
row "a peer  *{3}\$"

if [ -x ./lm-train ]; then
    python3 "$root/tests/bench/mix.py" 256 100 "$folder/talks.jsonl" || fail "mix.py"
    ./lm-train --model tiny-llama --layers 1 --device cpu --length 256 --pack --batch 1 --steps 1 --data "$folder/talks.jsonl" \
        --tokenizer bytes --chat-template "$root/tests/model/chat/ends.jinja" >"$folder/out" 2>&1 || fail "$(tail -n 2 "$folder/out")"
    grep -q " 100 conversations, .* [89][0-9.]* % of the rows filled" "$folder/out" || fail "rows: $(grep data: "$folder/out")"
fi
exit $failed
