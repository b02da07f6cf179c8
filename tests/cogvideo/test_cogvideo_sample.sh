#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# cogvideo-sample: latents match diffusers in float64, with the same bits under every budget; every
# solver and guidance, adapters, wrong input.
set -u

. "${srcdir:-.}/tests/model/programs.sh"

sample=${COGVIDEO_SAMPLE:-./cogvideo-sample}
models=$root/tests/cogvideo
device="--device ${CKPT_DEVICE:-cpu} --threads 1 --dtype fp32"
clip=$models/5b/clip.safetensors
small="$device --model $models/5b --snr-shift 1 --text $clip --frames 5 --height 48 --width 80 --steps 4"

# values FILE: the values of its only tensor, after a header whose length is its first number.
values() {
    n=$(od -An -tu8 -N8 "$1")
    od -An -v -tf4 -w4 -j $((8 + n)) "$1"
}

# as_diffusers TOLERANCE OPTION...: four steps from its noise.
as_diffusers() {
    tolerance=$1
    shift
    "$sample" $small --noise "$clip" --solver ddim --out "$work/clip" "$@" >"$work/out" 2>&1 ||
        fail "$*: $(cat "$work/out")"
    values "$models/5b/clip_expected.safetensors" >"$work/a"
    values "$work/clip/latents-1.safetensors" >"$work/b"
    paste "$work/a" "$work/b" | awk -v most="$tolerance" '
        { error += ($1 - $2) ^ 2; norm += $1 ^ 2 }
        END { r = sqrt(error / norm); if (!(NR == 1920 && r <= most)) { print NR, r; exit 1 } }' \
        >"$work/out" || fail "$*: relative error $(cat "$work/out")"
}

as_diffusers 1e-5
as_diffusers 1e-5 --micro-batch 1
as_diffusers 1e-1 --dtype bf16

# draw NAME OPTION...: to a directory of that name.
draw() {
    name=$1
    shift
    "$sample" $small --out "$work/$name" "$@" >"$work/out" 2>"$work/err" ||
        fail "$name: $*: $(tail -n 2 "$work/err")"
}

# same NAME NAME and other NAME NAME: of the latents that were drawn.
same() {
    cmp -s "$work/$1/latents-1.safetensors" "$work/$2/latents-1.safetensors" || fail "$2 is not $1"
}
other() {
    cmp -s "$work/$1/latents-1.safetensors" "$work/$2/latents-1.safetensors" && fail "$2 is $1"
}

draw free
draw again
same free again
refuses 1 "needs at least" "$sample" $small --out "$work/tight" --vram 16K
draw tight --vram "$(needed)"
same free tight
refuses 1 "needs at least" "$sample" $small --out "$work/tight" --vram 16K --host 4M
draw host --vram "$(needed)" --host 4M
same free host
draw seed --sample-seed 1
other free seed
draw ddim --solver ddim
other free ddim
draw cosine --guidance-schedule cosine
other free cosine
draw reference --guidance-schedule reference
other cosine reference
draw alone --guidance 1
other free alone
draw away --negative "$clip" # guidance away from the prompt itself is none
draw none --negative "$clip" --guidance 3
values "$work/away/latents-1.safetensors" >"$work/a"
values "$work/none/latents-1.safetensors" >"$work/b"
paste "$work/a" "$work/b" | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-5) exit 1 }' ||
    fail "the same prompt twice leads somewhere"

# The solver and the spacing are those of scheduler_config.json.
mkdir -p "$work/model/scheduler"
cp -R "$models/5b" "$work/model/transformer"
# scheduler CLASS KEYS: such a file in the model.
scheduler() {
    printf '{"_class_name": "CogVideoX%sScheduler", "prediction_type": "v_prediction", "snr_shift_scale": 1.0,
        "rescale_betas_zero_snr": true%s}' "$1" "$2" >"$work/model/scheduler/scheduler_config.json"
}
scheduler DDIM ', "timestep_spacing": "trailing"'
draw class --model "$work/model"
same ddim class
draw dpm --model "$work/model" --solver dpm
same free dpm
runs "memory" "${COGVIDEO_TRAIN:-./cogvideo-train}" $device --model "$work/model" --random --data random --frames 5 \
    --height 48 --width 80 --steps 1 --sample-steps 61 # which draws nothing
refuses 1 "61 steps of sampling: diffusers would take one more" "$sample" $small --model "$work/model" --steps 61
scheduler DPM ""
draw leading --model "$work/model"
other free leading

draw adapters --lora-rank 3 --lora-alpha 6 --load "$models/5b/adapters.safetensors"
other free adapters

# With a picture, and with a latent frame that is not part of the clip: what trains takes it.
image=$models/5b-i2v/image.safetensors
runs "latents:" "$sample" $device --model "$models/5b-i2v" --snr-shift 1 --frames 9 --height 64 --width 96 \
    --text "$clip" --image "$image" --steps 2 --out "$work/i2v"
runs "latents:" "$sample" $device --model "$models/15" --snr-shift 1 --frames 9 --height 64 --width 32 \
    --text "$clip" --steps 2 --out "$work/new"
runs "profile: op" "$sample" $small --steps 2 --out "$work/profile" --profile
grep -aq '"shape":\[16,3,8,4\]' "$work/new/latents-1.safetensors" || fail "the first latent frame is still there"
runs "plan:" "$sample" $small --plan-only --out "$work/plan"
[ -e "$work/plan" ] && fail "--plan-only writes something"

refuses 2 "model DIR is missing" "$sample"
refuses 2 "give one of" "$sample" --model "$models/5b"
refuses 2 "give ddim or dpm" "$sample" $small --solver euler
refuses 2 "constant, cosine or reference" "$sample" $small --guidance-schedule linear
refuses 2 "is for I2V" "$sample" $small --image "$clip"
refuses 2 "continues a picture" "$sample" $device --model "$models/5b-i2v" --text "$clip"
refuses 2 "is for programs that train" "$sample" $small --plan-out x
refuses 2 "multiple of 4" "$sample" $small --frames 6
refuses 1 'no tensor "prompt_embedding"' "$sample" $small --text "$models/5b/step.safetensors" --out "$work/x"
refuses 1 "no-such" "$sample" $small --noise "$work/no-such" --out "$work/x"
refuses 1 'no tensor "noise"' "$sample" $small --noise "$models/5b/step.safetensors" --out "$work/x"
refuses 1 "is expected" "$sample" $small --noise "$clip" --height 64 --out "$work/x"
refuses 1 "position table" "$sample" $device --model "$models/5b-i2v" --snr-shift 1 --text "$clip" --image "$image" \
    --frames 5 --height 64 --width 96 --out "$work/x"
refuses 1 "no scheduler_config.json" "$sample" $device --model "$models/5b" --text "$clip" --frames 5 --height 48 \
    --width 80 --out "$work/x"

finish
