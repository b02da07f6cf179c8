#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# --sample-every of stdit-train: samples between steps change no bit and no memory of the training,
# equal those of a run that ends there, and a stop ends sampling.
set -u

. "${srcdir:-.}/tests/model/programs.sh"

vae=${VAE_TRAIN:-./vae-train}
small="${STDIT_TRAIN:-./stdit-train} --hidden 16 --heads 2 --depth 1 --device cpu --threads 1
    --sample-steps 2 --guidance 3"
train="$small --frames 4 --size 8x8 --batch 2 --video $root/examples/data/bunny.rgb"

# draw NAME OPTION...: a run whose files are called so; it must succeed.
draw() {
    name=$1
    shift
    $train --out "$work/$name" --log "$work/$name.log" --save "$work/$name.w" \
        --save-ema "$work/$name.e" "$@" >"$work/$name.out" 2>"$work/$name.err" ||
        fail "$name: $(tail -n 2 "$work/$name.err")"
}

# same A B WHAT: both runs have the same weights and averages.
same() {
    cmp -s "$work/$1.w" "$work/$2.w" && cmp -s "$work/$1.e" "$work/$2.e" || fail "$3"
}

# strip A B WHAT: the pictures are the same.
strip() {
    cmp "$work/$1" "$work/$2" >"$work/said" 2>&1 || fail "$3: $(cat "$work/said")"
}

# ---- no bit, no byte -----------------------------------------------------------------------------

draw plain --steps 5
draw often --steps 5 --sample-every 2 --tensorboard "$work/tb"
draw ema --steps 5 --sample-every 2 --sample-ema
same plain often "samples changed the training"
same plain ema "samples from the average changed the training"
for file in step-00000002.png step-00000002-1.png step-00000004.png; do
    [ -s "$work/often/$file" ] || fail "no $file"
done
[ "$(ls "$work/often" | grep -c step-)" = 4 ] || fail "other samples: $(ls "$work/often")"
[ "$(sed -n 's/.*"arena_bytes": \([0-9]*\), "process_bytes": \([0-9]*\).*/\1 \2/p' \
    "$work/often.log" | sort -u | wc -l)" = 1 ] || fail "samples changed the memory"
sed -n 's/.*"rss": \([0-9]*\).*/\1/p' "$work/often.log" | awk 'NR == 3 { first = $1 } { last = $1 }
    END { exit !(NR == 5 && last <= first + 524288) }' || fail "the resident set grows"

# A run that ends there draws the same, from the average where it has one.
draw end --steps 2
strip end/sample.png ema/step-00000002.png "the average is not that of step 2"
strip end/sample-1.png ema/step-00000002-1.png "the second clip"
runs "sampled" $train --steps 2 --ema-decay 0 --out "$work/bare"
strip bare/sample.png often/step-00000002.png "the weights are not those of step 2"
cmp -s "$work/ema/step-00000002.png" "$work/often/step-00000002.png" &&
    fail "average and weights draw the same"

# ---- crossings -----------------------------------------------------------------------------------

draw bf16 --steps 3 --dtype bf16
draw bf16s --steps 3 --dtype bf16 --sample-every 1 --sample-ema
same bf16 bf16s "bf16: samples changed the training"
refuses 1 "needs at least" $train --vram 64K --host 64M
draw tiers --steps 5 --sample-every 2 --sample-ema --vram "$(needed)" --host 64M
same plain tiers "tiers: samples changed the training"
strip ema/step-00000004.png tiers/step-00000004.png "tiers: other samples"
draw sums --steps 5 --micro-batch 1 --sample-every 2
draw sums0 --steps 5 --micro-batch 1
same sums sums0 "accumulation: samples changed the training"

# Resumes at a step with samples: they exist already, and later ones are the same.
draw first --steps 2 --sample-every 2 --sample-ema --save-state "$work/state"
draw rest --steps 5 --sample-every 2 --sample-ema --resume "$work/state"
same plain rest "resume: samples changed the training"
[ ! -e "$work/rest/step-00000002.png" ] || fail "resume: sampled again"
strip ema/step-00000004.png rest/step-00000004.png "resume: other samples"

draw late --steps 2 --sample-every 3
[ "$(ls "$work/late" | grep -c step-)" = 0 ] || fail "samples behind the end"

# Two ranks, their state in parts.
for every in "" "--sample-every 2 --sample-ema"; do
    for rank in 1 0; do
        RANK=$rank WORLD_SIZE=2 timeout 100 $train --batch 1 --steps 4 --zero 1 $every \
            --out "$work/ranks" --save "$work/ranks$every.w" --save-ema "$work/ranks$every.e" \
            --ranks "file:$work/meet" >/dev/null 2>"$work/err.$rank" &
    done
    wait
done
same ranks "ranks--sample-every 2 --sample-ema" "ranks: $(tail -n 2 "$work/err.0")"
[ -s "$work/ranks/step-00000002.png" ] || fail "ranks: no samples"

# A signal while it samples, which would take hours: the state is of the previous step.
$train --steps 2 --sample-every 1 --sample-ema --sample-steps 1000000 --out "$work/s" \
    --log "$work/s.log" --save "$work/s.w" --save-ema "$work/s.e" >"$work/s.out" 2>&1 &
pid=$!
wait_steps "$work/s.log" 0
sleep 0.2
kill -TERM $pid
wait $pid || fail "a signal while it samples: $(tail -n 2 "$work/s.out")"
grep -q "step 1: not sampled" "$work/s.out" || fail "no word of it: $(cat "$work/s.out")"
draw one --steps 1
same one s "a signal left the average in the place of the weights"
[ "$(ls "$work/s")" = "" ] || fail "half a sample: $(ls "$work/s")"

# ---- videos --------------------------------------------------------------------------------------

"$vae" --size 16x16 --lengths 5 --image-share 0 --video "$root/examples/data/bunny.rgb" --steps 1 \
    --save "$work/vae" >"$work/out" 2>&1 || fail "vae-train: $(cat "$work/out")"
videos="$small --size 16x16 --video-dir $root/examples/data/bunny.rgb --vae $work/vae --frames 5
    --clips 1 --steps 3 --out $work/v"
runs "step 2: sampled" $videos --sample-every 2
for file in step-00000002.png sample.png sample/frame-00004.png; do
    [ -s "$work/v/$file" ] || fail "videos: no $file"
done
[ -s "$work/v/step-00000002.mp4" ] || [ -s "$work/v/step-00000002.rgb" ] || fail "no video"

# Budgets in which the training alone fits, or nothing: refused before the first step, once.
tight="$videos --ema-decay 0 --host 64M --log $work/tight.log"
smallest=100000
while ! $tight --sample-steps 0 --vram $smallest >"$work/out" 2>"$work/err"; do
    needed >"$work/needed"
    [ -s "$work/needed" ] || break
    smallest=$(cat "$work/needed")
done
grep -q '"step": 3' "$work/tight.log" || fail "no budget for the training: $(cat "$work/err")"
rm -f "$work/tight.log"
for budget in 100000 "$smallest"; do
    refuses 1 "needs at least" $tight --sample-every 2 --vram "$budget"
    [ ! -e "$work/tight.log" ] || fail "refused behind the first step"
done
runs "step 2: sampled" $tight --sample-every 2 --vram "$(needed)"

# ---- wrong input ---------------------------------------------------------------------------------

refuses 2 "nothing would be sampled" $train --sample-every 2 --sample-steps 0
refuses 2 "is for --sample-every" $train --sample-ema
refuses 2 "there is no average" $train --sample-every 2 --sample-ema --ema-decay 0
refuses 2 "sample-every" $train --sample-every 0
finish
