#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The loss of lm-train is the mean over the targets of a batch, however unevenly they are spread over
# its samples: with any --micro-batch, under any budget with --micro-batch auto, on one rank and on
# two, with 8-bit products, activations and state, and the validation loss with any --batch.
. "${srcdir:-.}/tests/model/programs.sh"

word() { # NUMBER...: each as four bytes, the lowest first
    for number; do
        printf "$(printf '\\%03o\\%03o\\%03o\\%03o' $((number & 255)) $((number >> 8 & 255)) 0 0)"
    done
}

# Eight rows of 64 tokens of an LLMQ file.  Row 0 is trained on all tokens, the others on two each.
masked() {
    printf 'BIN.TOK\n'
    word 2 4 513 256 1
    head -c 996 /dev/zero
    i=0 token=7
    while [ $i -lt 513 ]; do
        token=$(((token * 141 + 29) % 256)) i=$((i + 1))
        word $token
    done
    printf '\376\377\377\377\377\377\377\377\141' # bits 1 to 64, and two of row 1
    for row in 2 3 4 5 6 7; do
        printf '\0\0\0\0\0\0\0\140'
    done
    printf '\0\0\0\0\0\0\0\0'
}

masked >"$work/mask.bin"
small="--device cpu --threads 1 --layers 1 --hidden 32 --mlp 64 --heads 2 --length 64 --steps 2
    --warmup 0 --in-order --data $work/mask.bin"

# close FILE OTHER WHAT [SHARE]: numbers that differ by a millionth, or that share, at the most.
close() {
    [ -s "$1" ] && paste "$1" "$2" | awk -v share="${4:-1e-6}" '{
        n = NF / 2
        for (i = 1; i <= n; i++)
            bad += ($i - $(i + n)) ^ 2 > (share * $i) ^ 2
    } END { exit bad || !NF }' || fail "$3: $(cat "$2") instead of $(cat "$1")"
}

# one FILE OPTION...: losses and norms of two steps.
one() {
    to=$1
    shift
    ${LM_TRAIN:-./lm-train} $small --log "$work/log" "$@" >"$work/out" 2>"$work/err" ||
        fail "$*: $(tail -n 1 "$work/err")"
    sed -n 's/.*"step": [0-9]*, "loss": \([^,]*\), "grad_norm": \([^,]*\),.*/\1 \2/p' "$work/log" >"$to"
    rm -f "$work/log"
}

one "$work/whole" --batch 8
for micro in 1 2 4; do
    one "$work/split" --batch 8 --micro-batch $micro
    close "$work/whole" "$work/split" "--micro-batch $micro"
done
for more in "--matmul fp8" "--activations 8bit" "--state bf16 --grad-dtype bf16" \
    "--state 8bit --grad-dtype bf16"; do
    wide="--batch 8 --dtype bf16 --hidden 128 --mlp 256 $more"
    one "$work/rounded" $wide
    one "$work/split" $wide --micro-batch 2
    close "$work/rounded" "$work/split" "$more --micro-batch 2" 2e-3
done
one "$work/split" --batch 8 --micro-batch 2 --loss-chunk auto
close "$work/whole" "$work/split" "--loss-chunk auto"
for vram in none 700K; do
    one "$work/split" --batch 8 --micro-batch auto --vram $vram
    close "$work/whole" "$work/split" "--micro-batch auto --vram $vram"
done
grep -q 'micro-steps of' "$work/out" || fail "the small budget did not split the batch"
two="${LM_TRAIN:-./lm-train} $small --batch 4 --micro-batch 2 --ranks file:$work/meet"
RANK=1 WORLD_SIZE=2 timeout 100 $two >"$work/out.1" 2>&1 &
RANK=0 WORLD_SIZE=2 timeout 100 $two --log "$work/log" >"$work/out" 2>&1 || fail "$(tail -n 1 "$work/out")"
wait $! || fail "rank 1: $(tail -n 1 "$work/out.1")"
sed -n 's/.*"step": [0-9]*, "loss": \([^,]*\), "grad_norm": \([^,]*\),.*/\1 \2/p' "$work/log" >"$work/split"
close "$work/whole" "$work/split" "two ranks"

# validation OPTION...: the loss of the weights of $work/w.
validation() {
    ${LM_TRAIN:-./lm-train} $small --load "$work/w" --lr 0 --val "$work/mask.bin" "$@" 2>"$work/err" |
        tr '\r' '\n' | sed -n 's/.*validation loss //p' | tail -n 1
}

${LM_TRAIN:-./lm-train} $small --batch 8 --lr 0.01 --save "$work/w" >/dev/null 2>&1
want=$(validation --batch 1)
[ -n "$want" ] || fail "no validation loss: $(tail -n 1 "$work/err")"
for batch in 2 3 5 8 16; do
    got=$(validation --batch $batch)
    [ "$got" = "$want" ] || fail "validation with --batch $batch: $got instead of $want"
done
finish
