#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# --sample-every of cogvideo-train: sampling between steps changes no bit and no memory of the
# training; the clips equal those of cogvideo-sample from the same weights; a stop ends sampling.
set -u

. "${srcdir:-.}/tests/model/programs.sh"

sample=${COGVIDEO_SAMPLE:-./cogvideo-sample}
models=$root/tests/cogvideo
clip=$models/5b/clip.safetensors
device="--device cpu --threads 1 --dtype fp32 --snr-shift 1"
mkdir -p "$work/m/vae" "$work/m/transformer"
tests/cogvideo/test_vae model "$work/m/vae" || fail "no autoencoder"
cp "$models"/5b/* "$work/m/transformer"
draws="--sample-text $clip --sample-steps 3 --guidance 3 --sample-seed 5"
train="${COGVIDEO_TRAIN:-./cogvideo-train} $device --data random --frames 5 --height 16 --width 32
    --warmup 0 --lr 1e-3"
full="$train --model $work/m --batch 2 --ema-decay 0.9"
bare="$train --model $models/5b --batch 2 --ema-decay 0.9" # latents alone
lora="--lora-rank 3"

# draw NAME OPTION...: a run of $full whose files are called so; it must succeed.
draw() {
    name=$1
    shift
    $full --log "$work/$name.log" --save "$work/$name.w" --save-ema "$work/$name.e" "$@" \
        >"$work/$name.out" 2>"$work/$name.err" || fail "$name: $(tail -n 2 "$work/$name.err")"
}

# watch NAME OPTION...: the same with clips behind every second step.
watch() {
    name=$1
    shift
    draw "$name" $draws --sample-every 2 --out "$work/$name" "$@"
}

# same A B WHAT: both runs have the same weights and averages; clip: the same files.
same() {
    cmp -s "$work/$1.w" "$work/$2.w" && cmp -s "$work/$1.e" "$work/$2.e" || fail "$3"
}
clip() {
    cmp "$work/$1" "$work/$2" >"$work/said" 2>&1 || fail "$3: $(cat "$work/said")"
}

# ---- no bit, no byte ------------------------------------------------------------------------------

draw plain --steps 5
watch often --steps 5 --tensorboard "$work/tb"
watch ema --steps 5 --sample-ema
same plain often "clips changed the training"
same plain ema "clips from the average changed the training"
for step in 2 4 5; do
    for end in safetensors png; do
        [ -s "$work/often/step-0000000$step.$end" ] || fail "no $end of step $step"
    done
done
[ -s "$work/often/step-00000004.mp4" ] || [ -s "$work/often/step-00000004.rgb" ] || fail "no video"
[ "$(ls "$work/often" | wc -l)" = 9 ] || fail "other files: $(ls "$work/often")"
[ "$(sed -n 's/.*"arena_bytes": \([0-9]*\), "process_bytes": \([0-9]*\).*/\1 \2/p' \
    "$work/often.log" | sort -u | wc -l)" = 1 ] || fail "clips changed the memory"
# The resident set grows while files, libraries and threads are used for the first time, by 0.2 MiB
# in the first four clips, more on a busy machine, then by 8 KiB with each clip.
runs "step 20: sampled" $full $draws --sample-every 2 --steps 20 --out "$work/long" --log "$work/long.log"
sed -n 's/.*"rss": \([0-9]*\).*/\1/p' "$work/long.log" | awk 'NR == 12 { first = $1 } { last = $1 }
    END { exit !(NR == 20 && last <= first + 262144) }' || fail "the resident set grows"

# What cogvideo-sample samples from weights that were saved there.
draw end --steps 2
alone="$sample $device --model $work/m --text $clip --frames 5 --height 16 --width 32 --steps 3
    --guidance 3 --sample-seed 5"
runs "latents:" $alone --load "$work/end.w" --out "$work/alone"
clip alone/latents-1.safetensors often/step-00000002.safetensors "not the clip of these weights"
runs "latents:" $alone --load "$work/end.e" --out "$work/mean"
clip mean/latents-1.safetensors ema/step-00000002.safetensors "not the clip of the average"
cmp -s "$work/ema/step-00000002.safetensors" "$work/often/step-00000002.safetensors" &&
    fail "average and weights draw the same"
runs "video:" $alone --load "$work/end.w" --output "$work/alone/pictures"
cp "$work/often/step-00000002.safetensors" "$work/latents"
runs "9 frames of 32 x 16\|8 frames of 32 x 16\|5 frames of 32 x 16" ${COGVIDEO_DECODE:-./cogvideo-decode} \
    --device cpu --threads 1 --dtype fp32 --model "$work/m" --latents "$work/latents" \
    --output "$work/decoded"
diff -r "$work/alone/pictures" "$work/decoded" >"$work/said" || fail "other videos: $(cat "$work/said")"

# ---- crossings -----------------------------------------------------------------------------------

draw bf16 --steps 3 --dtype bf16
watch bf16s --steps 3 --dtype bf16 --sample-ema
same bf16 bf16s "bf16: clips changed the training"
draw lora --steps 3 $lora --dtype bf16
watch loras --steps 3 $lora --dtype bf16 --sample-ema --solver ddim --guidance-schedule reference
same lora loras "adapters: clips changed the training"
# A state of adapters leaves out the autoencoder, too, which comes from the same files.
watch part --steps 2 $lora --dtype bf16 --sample-ema --save-state "$work/adapters"
grep -aq '"value/vae\.' "$work/adapters" && fail "the autoencoder is in a state of adapters"
watch more --steps 3 $lora --dtype bf16 --sample-ema --resume "$work/adapters"
same lora more "adapters, resumed: clips changed the training"
grep -aq "vae\." "$work/loras.w" "$work/often.w" && fail "the autoencoder is among the weights"
# The smallest budget that all programs fit in, by the refusals.
budget=64K
for try in 1 2 3 4; do
    $full $draws --steps 1 --vram "$budget" --host 64M --out "$work/x" >"$work/out" 2>"$work/err" && break
    grep -q "needs at least" "$work/err" || fail "$budget: $(cat "$work/err")"
    budget=$(needed)
done
watch tiers --steps 5 --sample-ema --vram "$budget" --host 64M
same plain tiers "tiers: clips changed the training"
clip ema/step-00000004.safetensors tiers/step-00000004.safetensors "tiers: another clip"
clip ema/step-00000004.png tiers/step-00000004.png "tiers: another video"
draw sums --steps 3 --micro-batch 1
watch sums1 --steps 3 --micro-batch 1
same sums sums1 "accumulation: clips changed the training"

# Goes on at a step of clips: they are there already, those to come are the same.
watch first --steps 2 --save-state "$work/state"
watch rest --steps 5 --resume "$work/state"
same plain rest "resume: clips changed the training"
[ ! -e "$work/rest/step-00000002.png" ] || fail "resume: drawn again"
clip often/step-00000004.png rest/step-00000004.png "resume: another clip"

# A guidance of 1 has no other half, and no steps between leave the end.
runs "step 3: sampled" $bare --steps 3 --sample-text "$clip" --guidance 1 --sample-steps 2 --out "$work/last"
[ "$(ls "$work/last")" = step-00000003.safetensors ] || fail "$(ls "$work/last")"

# Two ranks, their state in parts.
for zero in 1 3; do
    for every in "" "$draws --sample-every 2 --sample-ema"; do
        name=ranks$zero${every:+s}
        for rank in 1 0; do
            RANK=$rank WORLD_SIZE=2 timeout 200 $full --batch 1 --steps 3 --zero $zero $every \
                ${every:+--out "$work/$name"} --save "$work/$name.w" --save-ema "$work/$name.e" \
                --ranks "file:$work/meet" >/dev/null 2>"$work/err.$rank" &
        done
        wait
    done
    same "ranks$zero" "ranks${zero}s" "ranks: $(tail -n 2 "$work/err.0") $(tail -n 2 "$work/err.1")"
    [ -s "$work/ranks${zero}s/step-00000002.png" ] || fail "ranks: no clips"
done

# A signal while it draws: the state is that of the step before.  When it comes depends on the load
# of the machine, so several moments are tried until one lies in the drawing.
for delay in 0.1 0.05 0.2 0 0.4 0.02 0.8; do
    rm -rf "$work/s" "$work/s.log"
    $bare --steps 2 $draws --sample-every 1 --sample-ema --sample-steps 1000 --out "$work/s" \
        --log "$work/s.log" --save "$work/s.w" --save-ema "$work/s.e" >"$work/s.out" 2>&1 &
    pid=$!
    wait_steps "$work/s.log" 0
    sleep $delay
    kill -TERM $pid 2>/dev/null
    wait $pid || fail "a signal while it draws: $(tail -n 2 "$work/s.out")"
    ! grep -q "step 1: not sampled" "$work/s.out" || break
done
grep -q "step 1: not sampled" "$work/s.out" || fail "no word of it: $(cat "$work/s.out")"
draw one --steps 1
same one s "a signal left the average in the place of the weights"
[ "$(ls "$work/s")" = "" ] || fail "half a clip: $(ls "$work/s")"

# A budget in which the training fits and the decoder does not: refused before the first step.
refuses 1 "needs at least" $bare --ema-decay 0 --host 64M --vram 64K
least=$(needed)
rm -f "$work/tight.log"
refuses 1 "needs at least" $full --ema-decay 0 --host 64M --vram "$least" $draws --log "$work/tight.log"
[ ! -e "$work/tight.log" ] || fail "refused behind the first step"

# ---- prompts, pictures, wrong input -----------------------------------------------------------------

refuses 2 "cogvideo-sample samples" $full $draws --steps 0
refuses 2 "needs --sample-text" $full --sample-every 2
refuses 2 "sample-every" $full $draws --sample-every 0
refuses 2 "ema needs --sample-text" $full --sample-ema
refuses 2 "there is no average" $full $draws --sample-ema --ema-decay 0
refuses 2 "give ddim or dpm" $full $draws --solver euler
refuses 2 "constant, cosine or reference" $full $draws --guidance-schedule linear
refuses 2 "give one of" $full $draws --sample-prompt a
refuses 2 "for prompts, and none is given" $full $draws --tokenizer x
refuses 2 "is for I2V" $full $draws --sample-image "$clip"
refuses 2 "continues a picture" $train --model "$models/5b-i2v" $draws
refuses 2 "prompts are not encoded" $full --sample-prompt a --ranks "file:$work/meet"
refuses 1 "no-such" $full $draws --vae "$work/no-such"
refuses 1 'no tensor "prompt_embedding"' $full --sample-text "$models/5b/step.safetensors"
refuses 1 "no-such" $full --sample-text "$work/no-such"
refuses 1 'no tensor "prompt_embedding"' $full $draws --negative "$models/5b/step.safetensors"
runs "there is no vae/ in" $bare --steps 1 $draws --out "$work/latents-alone"
[ "$(ls "$work/latents-alone")" = step-00000001.safetensors ] || fail "$(ls "$work/latents-alone")"

# What follows a picture.
image=$models/5b-i2v/image.safetensors
runs "step 1: sampled" ${COGVIDEO_TRAIN:-./cogvideo-train} $device --model "$models/5b-i2v" --data random \
    --frames 9 --height 64 --width 96 --steps 1 $draws --sample-image "$image" --out "$work/i2v"

finish
