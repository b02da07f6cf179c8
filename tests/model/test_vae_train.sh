#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# vae-train as a user or a script runs it: it learns, the budget changes no number, pieces add up to
# the whole, saved weights are read back, and wrong input gets one sentence and a status that is not
# 0.
set -u

. "${srcdir:-.}/tests/model/programs.sh"

train=${VAE_TRAIN:-./vae-train}
clip=$root/examples/data/bunny.rgb

small="--groups 2 --spatial-widths 4,4 --temporal-widths 4,4,4 --size 16x8 --lengths 3
    --image-share 0 --batch 2 --clips 2 --steps 6"
several="--lengths 3,4 --image-share 0.3"

# on_clip OPTION...: a short run on the raw clip.
on_clip() {
    "$train" $small --video "$clip" "$@" >"$work/out" 2>"$work/err"
}

# losses LOG: what the steps computed, without times and memory.
losses() {
    sed -n 's/^{"step": \([0-9]*\), "loss": \([^,]*\), "grad_norm": \([^,]*\),.*"frames": \([0-9]*\),.*/\1 \2 \3 \4/p' "$1"
}

# ---- the budget changes no number -----------------------------------------------------------------

on_clip $several --log "$work/free.log" --save "$work/free" || fail "no budget: $(cat "$work/err")"
[ "$(losses "$work/free.log" | wc -l)" = 6 ] || fail "the log has not one line a step"
[ "$(losses "$work/free.log" | cut -d' ' -f4 | sort -u | wc -l)" -gt 1 ] || fail "all clips are as long"
refuses 1 "needs at least" "$train" $small $several --video "$clip" --vram 64K
"$train" $small --lengths 4 --image-share 0 --video "$clip" --vram 64K >"$work/out" 2>"$work/err"
smallest=$(needed)
refuses 1 "needs at least" "$train" $small --video "$clip" $several --vram $((smallest - 1))
on_clip $several --vram "$smallest" --log "$work/tight.log" --save "$work/tight" ||
    fail "smallest budget: $(cat "$work/err")"
[ "$(losses "$work/free.log")" = "$(losses "$work/tight.log")" ] || fail "the budget changed the losses"
cmp -s "$work/free" "$work/tight" || fail "the budget changed the weights"
peak=$(sed -n '$s/.*"arena_bytes": \([0-9]*\),.*/\1/p' "$work/tight.log")
[ "$peak" = "$smallest" ] || fail "the arena is $peak, not $smallest"

# Clips and frames one at a time: the same up to the order of sums.
on_clip $several --micro-batch 1 --frames-2d 1 --log "$work/pieces.log" || fail "pieces: $(cat "$work/err")"
losses "$work/free.log" >"$work/a"
losses "$work/pieces.log" >"$work/b"
paste -d' ' "$work/a" "$work/b" | awk '{
    d = ($2 - $6) / $2
    if ($1 != $5 || $4 != $8 || d * d > 1e-8) exit 1
}' || fail "pieces differ from the whole: $(cat "$work/a" "$work/b")"

# Where the whole does not fit, frames are taken apart.
refuses 1 "needs at least" "$train" $small --lengths 4 --image-share 0 --video "$clip" \
    --micro-batch auto --vram 64K
less=$(needed)
[ "$less" -lt "$smallest" ] || fail "pieces need $less, the whole $smallest"
on_clip --lengths 4 --image-share 0 --steps 1 --micro-batch auto --vram "$less" ||
    fail "auto: $(cat "$work/err")"
grep -q "2-D part: [12] frames at a time" "$work/out" || fail "frames were not taken apart: $(cat "$work/out")"

# ---- every program is planned before the first step ---------------------------------------------------

# In stage 1 the reconstruction has the 2-D decoder beside what trains: it needs more, and is what
# any smaller budget is refused for.
stage1="$small --stage 1 --video $clip --steps 2"
refuses 1 "vae-train: reconstruction: .*no plan fits 64.00 KiB" "$train" $stage1 --vram 64K --log "$work/none"
[ -e "$work/none" ] && fail "a step was run though the reconstruction does not fit"
both=$(needed)
refuses 1 "reconstruction" "$train" $stage1 --plan-only --vram "$((both - 1))"
runs "PSNR" "$train" $stage1 --vram "$both" --log "$work/some"
[ "$(sed -n 's/.*"arena_bytes": \([0-9]*\),.*/\1/p' "$work/some" | sort -u)" = "$both" ] ||
    fail "memory changed: $(cat "$work/some")"
runs "PSNR" "$train" $stage1 --vram "$both" --host 16M
runs "peak" "$train" $stage1 --vram "$both" --plan-only

# ---- stages ---------------------------------------------------------------------------------------

for stage in 1 2; do
    on_clip --stage $stage --load "$work/free" --save "$work/stage$stage" ||
        fail "stage $stage: $(cat "$work/err")"
done

# ---- a codebook -----------------------------------------------------------------------------------

# Entries that nothing comes near move to rows of the step, the same under every budget.
codebook="--quantizer vq --codebook 64 --codebook-decay 0.5"
on_clip $codebook --log "$work/vq.log" --save "$work/vq" || fail "vq: $(cat "$work/err")"
grep -q "perplexity [1-9]" "$work/out" || fail "vq: nothing is said of the codebook"
refuses 1 "needs at least" "$train" $small $codebook --video "$clip" --vram 64K
least=$(needed)
for budget in "$least" $((least * 5 / 4)); do
    rm -f "$work/vq-tight.log"
    on_clip $codebook --vram "$budget" --log "$work/vq-tight.log" --save "$work/vq-tight" ||
        fail "vq, tight: $(cat "$work/err")"
    [ "$(losses "$work/vq.log")" = "$(losses "$work/vq-tight.log")" ] ||
        fail "vq: the budget changed the losses"
    cmp -s "$work/vq" "$work/vq-tight" || fail "vq: the budget changed weights or codebook"
done
# moved LOG: how many entries did in each step.
moved() {
    sed -n 's/.*"commitment": [0-9.e-]*, "codebook_used": [1-9][0-9]*, "codebook_moved": \([0-9]*\),.*/\1/p' "$1"
}
[ "$(moved "$work/vq.log" | wc -l)" = 6 ] || fail "vq: nothing in the log"
[ "$(moved "$work/vq.log" | sort -u | wc -l)" -gt 1 ] || fail "vq: $(moved "$work/vq.log") moved"
on_clip $codebook --load "$work/vq" --steps 0 || fail "vq: load: $(cat "$work/err")"
refuses 1 "codebook" "$train" $small --video "$clip" --quantizer vq --codebook 32 --load "$work/vq"
refuses 1 "3 of a codebook" "$train" $small --video "$clip" --quantizer vq --load "$work/free"

# ---- it learns ------------------------------------------------------------------------------------

on_clip --steps 60 --lr 3e-3 --out "$work/out.d" || fail "60 steps: $(cat "$work/err")"
sed -n 's/^difference of a value: \([0-9.]*\) over.* \([0-9.]*\) over.*/\1 \2/p' "$work/out" | {
    read -r first last
    awk "BEGIN { exit !($last < 0.7 * $first) }" || { echo "FAIL: from $first to $last"; exit 1; }
} || failures=$((failures + 1))
grep -q "PSNR [0-9]" "$work/out" || fail "no PSNR"
[ -s "$work/out.d/clip.png" ] && [ -s "$work/out.d/reconstruction-1.png" ] || fail "no pictures"

# ---- weights --------------------------------------------------------------------------------------

on_clip --load "$work/free" --steps 1 --lr 0 --save "$work/again" || fail "load: $(cat "$work/err")"
cmp -s "$work/free" "$work/again" || fail "weights that were loaded and saved differ"
for partial in "" --partial; do
    refuses 1 "has no parameter of this model" "$train" $small --video "$clip" $partial \
        --load "$root/tests/model/stdit_weights.safetensors"
done
refuses 1 "shape" "$train" $small --video "$clip" --spatial-widths 4,8 --load "$work/free"
refuses 1 "step" "$train" $small --video "$clip" --lr 1e25 --clip-norm 0 --warmup 0 --save "$work/nan"
[ -s "$work/nan" ] || fail "no weights after NaN"

# ---- resumed runs ---------------------------------------------------------------------------------

# Programs of two lengths and for images, then a codebook, which moves between steps.
on_clip $several --save-state "$work/whole.state" --log "$work/whole.log" || fail "$(cat "$work/err")"
on_clip $several --steps 3 --save-state "$work/state" --save-every 2 || fail "$(cat "$work/err")"
on_clip $several --resume "$work/state" --vram "$smallest" --save-state "$work/rest.state" \
    --log "$work/rest.log" || fail "--resume: $(cat "$work/err")"
losses "$work/whole.log" | sed -n 4,6p >"$work/a"
losses "$work/rest.log" >"$work/b"
cmp -s "$work/a" "$work/b" || fail "resumed: $(cat "$work/a" "$work/b")"
cmp -s "$work/whole.state" "$work/rest.state" || fail "the state of a resumed run differs"
refuses 1 "trained programs" "$train" $small --video "$clip" --resume "$work/state"
on_clip $codebook --steps 3 --save-state "$work/vq.state" || fail "vq: $(cat "$work/err")"
on_clip $codebook --resume "$work/vq.state" --save "$work/vq-rest" ||
    fail "vq, resumed: $(cat "$work/err")"
cmp -s "$work/vq" "$work/vq-rest" || fail "vq: weights or codebook of a resumed run differ"

# Sizes that are not whole cells are padded, and a message says so.
on_clip --size 15x9 --steps 2 || fail "15 x 9: $(cat "$work/err")"
grep -q "padded to 16 x 10" "$work/out" || fail "the padding is not reported"

# ---- bad input ------------------------------------------------------------------------------------

refuses 2 "did you mean --vram" "$train" --vrm 2G
refuses 2 "as 64x40" "$train" --size 40by24
refuses 2 "as 17x256x256" "$train" --random 15x45
refuses 2 "exclude each other" "$train" --random 4x8x8 --video "$clip"
refuses 2 "fp32 or bf16" "$train" --dtype fp16
refuses 2 "no such preset" "$train" --model big
refuses 2 "do not divide into" "$train" --groups 3
refuses 2 "as 128,256" "$train" --spatial-widths 4,,8
refuses 2 "three levels" "$train" --temporal-widths 4,8
refuses 2 "numbers of frames" "$train" --lengths 0
refuses 2 "numbers of frames" "$train" --lengths 9-5
refuses 2 "different ones" "$train" --lengths 1-65
refuses 2 "must have the 9 frames" "$train" --lengths 9 --frames 8
refuses 2 "does not divide" "$train" --batch 4 --micro-batch 3
refuses 2 "stage" "$train" --stage 4
refuses 2 "kl or vq" "$train" --quantizer pq
refuses 2 "codebook" "$train" --quantizer vq --codebook 0
refuses 2 "are for --quantizer vq" "$train" --codebook 64
refuses 2 "loss on pixels" "$train" --stage 1 --lpips "$work/free"
refuses 1 "nothing-here" "$train" $small --video "$clip" --lpips "$work/nothing-here"
refuses 1 "features.0.weight" "$train" $small --video "$clip" --lpips "$work/free"
refuses 2 "unexpected argument" "$train" clip.mp4
refuses 1 "has 16 frames" "$train" $small --video "$clip" --frames 40
refuses 1 "/nonexistent" "$train" $small --video "$clip" --save /nonexistent/weights
refuses 1 "/nonexistent" "$train" $small --video "$clip" --log /nonexistent/log
refuses 1 "/nonexistent" "$train" $small --video "$clip" --out /nonexistent/frames
refuses 1 "nothing-here" "$train" $small --video "$work/nothing-here"
refuses 1 'no tensor "x"' "$train" --tensors "$work/free"
head -c 50000 "$clip" >"$work/short.rgb"
refuses 1 "16 announced frames" "$train" $small --video "$work/short.rgb" --clips 1 --frames 16

finish
