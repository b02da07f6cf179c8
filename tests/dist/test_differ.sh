#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ranks started with other options or files are refused by all ranks before the first step, with a
# sentence that names the rank and the difference; old weights are kept.
. "${srcdir:-.}/tests/model/programs.sh"
both="--device cpu --threads 1 --comm-deadline 20"
stdit="${STDIT_TRAIN:-./stdit-train} $both --latent 2x4x4 --hidden 16 --heads 2 --depth 1
    --caption-channels 8 --text-tokens 4 --sample-steps 0 --batch 1 --steps 2"
vae="${VAE_TRAIN:-./vae-train} $both --random 5x8x8 --spatial-widths 8,8 --temporal-widths 8,8,8
    --steps 1"

# run RANK OPTION...: one of two.
run() {
    rank=$1
    shift
    RANK=$rank WORLD_SIZE=2 timeout 100 $program --ranks "file:$work/meet" "$@" \
        >"$work/$rank.out" 2>"$work/$rank.err"
}

# differ WORDS ZERO ONE: the options of rank 0 and of rank 1 end both, and both say these words.
differ() {
    run 1 $3 &
    run 0 $2 && fail "$2: rank 0 went on"
    wait $! && fail "$3: rank 1 went on"
    for rank in 0 1; do
        grep -q -- "rank $rank: rank 1 $1" "$work/$rank.err" ||
            fail "$2, $3: rank $rank says no \"$1\": $(tail -n 2 "$work/$rank.err")"
    done
}

# alike ZERO ONE: what may differ.
alike() {
    run 1 $2 &
    run 0 $1 || fail "$1: rank 0: $(tail -n 2 "$work/0.err")"
    wait $! || fail "$2: rank 1: $(tail -n 2 "$work/1.err")"
}

program=$stdit
differ "started with another --warmup (100) than rank 0 (0)" "--warmup 0" "--warmup 100"
differ "started with another --lr (0.002) than rank 0 (0.001)" "--lr 1e-3" "--lr 2e-3"
differ "started with another --steps (0) than rank 0 (3)" "--steps 3" "--steps 0"
differ "started with another --mask-stage (1) than rank 0 (none)" "" "--mask-stage 1"
differ "started with another --ema-decay (0.5) than rank 0 (0.99)" "" "--ema-decay 0.5"
differ "started with another --save-state (given)" "" "--save-state $work/s"
differ "started with another --seed" "" "--seed 7"
differ "started with another --check-ranks" "" "--check-ranks 7"
differ "started with another --zero" "" "--zero 2"
differ "started with another --state" "--dtype bf16" "--dtype bf16 --state bf16"
differ "started with another --state" "--dtype bf16 --state bf16" "--dtype bf16 --state 8bit"
alike "--log $work/log --vram 1M" "--vram 2M --threads 2 --out $work"

# compared before every step, with one under way, and no rank in another's way
alike "--check-ranks 1 --steps 40 --zero 3" "--check-ranks 1 --steps 40 --zero 3"

# files: their contents count, not their paths
for i in 1 2; do
    runs "memory:" $stdit --steps 1 --seed $i --save "$work/w$i" --batch 2
    runs "memory:" $stdit --lr 1e-$i --save-state "$work/s$i" --batch 2
done
cp "$work/w1" "$work/copy"
alike "--zero 3 --load $work/w1" "--zero 3 --load $work/copy"
for zero in 0 3; do
    echo "old" >"$work/old"
    keep="--zero $zero --save $work/old"
    differ "started with another --load (given) than rank 0 (not given)" "$keep" \
        "$keep --load $work/w1"
    differ "reached step 1 with another value of '.*' than rank 0" "$keep --load $work/w1" \
        "$keep --load $work/w2"
    differ "loaded another value of '.*' than rank 0" "$keep --resume $work/s1" \
        "$keep --resume $work/s2"
    [ "$(cat "$work/old")" = old ] || fail "weights of ranks that differ were saved"
done

program=$vae
differ "started with another --kl-weight (1e-05) than rank 0 (1e-06)" "" "--kl-weight 1e-5"
differ "started with another --temporal-widths (8,8,16) than rank 0 (8,8,8)" "" \
    "--temporal-widths 8,8,16"
finish
