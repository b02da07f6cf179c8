#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# From clips to clips as a user does it: an autoencoder, stdit-train --video-dir on its latents,
# stdit-sample with the trained weights; budgets; wrong input gets one sentence each.
set -u

. "${srcdir:-.}/tests/model/programs.sh"

train=${STDIT_TRAIN:-./stdit-train} sample=${STDIT_SAMPLE:-./stdit-sample}
vae=${VAE_TRAIN:-./vae-train}
model="--hidden 32 --heads 2 --depth 1 --size 16x16"

# clip FILE FRAMES ANNOUNCED: noise as a raw clip of 16 x 16.
clip() {
    {
        echo "RGBCLIP 16 16 $3 8"
        head -c $(($2 * 768)) /dev/urandom
    } >"$1"
}

losses() {
    sed -n 's/.*"step": [0-9]*, "loss": \([^,]*\),.*/\1/p' "$1"
}

"$vae" --size 16x16 --lengths 5 --image-share 0 --video "$root/examples/data/bunny.rgb" --steps 1 \
    --save "$work/vae" >"$work/out" 2>&1 || fail "vae-train: $(cat "$work/out")"

# ---- training: two files of two clips and of one, and files that are none -----------------------------

mkdir "$work/videos"
clip "$work/videos/a.rgb" 11 11
clip "$work/videos/b.rgb" 6 6
clip "$work/videos/short.rgb" 3 3
echo "no clip" >"$work/videos/notes.txt"
data="$model --video-dir $work/videos --vae $work/vae --frames 5 --out $work/o"
runs "short.rgb is left out" "$train" $data --steps 4 --sample-steps 0 --log "$work/log" \
    --save "$work/w" --save-ema "$work/e"
grep -q "3 x 5 frames of 16 x 16, latents \[4, 2, 2, 2\]" "$work/out" || fail "the clips: $(cat "$work/out")"
grep -q "spatial_vae" "$work/w" && fail "the autoencoder is in the weights of the model"
[ "$(losses "$work/log" | wc -l)" = 4 ] || fail "4 steps, $(losses "$work/log" | wc -l) losses"
[ "$(losses "$work/log" | sort -u | wc -l)" = 4 ] || fail "steps have the same loss"

# Two steps and two more are the same four, to the bit: the noise of the latents continues, too.  A batch
# in pieces is the same up to the order of sums; clips count.
runs "state" "$train" $data --steps 2 --sample-steps 0 --save-state "$work/state"
runs "after 2 steps" "$train" $data --steps 4 --sample-steps 0 --resume "$work/state" \
    --log "$work/rest" --save "$work/w2" --save-ema "$work/e2"
[ "$(losses "$work/log" | tail -n 2)" = "$(losses "$work/rest")" ] || fail "resumed: other losses"
cmp -s "$work/w" "$work/w2" && cmp -s "$work/e" "$work/e2" || fail "resumed: other weights"
runs "weights" "$train" $data --clips 1 --steps 4 --sample-steps 0 --log "$work/other" --save "$work/w2"
cmp -s "$work/w" "$work/w2" && fail "--clips 1 read the same clips"
runs "2 micro-steps of 2" "$train" $data --batch 4 --micro-batch 2 --steps 1 --sample-steps 0

# The budget holds weights and activations of both; below the least it is refused, with that.
refuses 1 "needs at least" "$train" $data --steps 1 --sample-steps 0 --vram 1M
smallest=$(needed)
runs "weights" "$train" $data --steps 4 --sample-steps 0 --vram "$((smallest + 1048576))" \
    --log "$work/tight" --save "$work/w2"
paste "$work/log" "$work/tight" >"$work/both"
losses "$work/log" >"$work/free" && losses "$work/tight" | paste "$work/free" - |
    awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-4 * $1) bad = 1 } END { exit bad || NR != 4 }' ||
    fail "a budget changed the losses"

# Without --frames: those of the longest video, 11 here, so one clip of one file; the included clip has 16.
all="${model% --size*} --vae $work/vae --steps 1 --sample-steps 0"
runs "no video has 17 frames; clips have 11" "$train" $all --video-dir "$work/videos"
grep -q ": .* 1 x 11 frames of 64 x 40" "$work/out" || fail "the longest video: $(cat "$work/out" "$work/err")"
grep -q "b.rgb is left out" "$work/err" || fail "b.rgb, of 6 frames: $(cat "$work/err")"
runs "clips have 16" "$train" $all --video-dir "$root/examples/data/bunny.rgb"
grep -q ": .* 1 x 16 frames of 64 x 40" "$work/out" || fail "the included clip: $(cat "$work/out")"
clip "$work/long.rgb" 18 18
runs "1 x 17 frames of 64 x 40" "$train" $all --video-dir "$work/long.rgb"
refuses 1 "has 16 frames" "$train" $all --video-dir "$root/examples/data/bunny.rgb" --frames 17

# ---- sampling: frames of a chunk and a part of one, twice the same ------------------------------------

weights="$model --load $work/e --vae $work/vae"
runs "sampled" "$sample" $weights --frames 20 --steps 2 --out "$work/s"
[ "$(ls "$work/s/sample" | wc -l)" = 20 ] || fail "not a picture a frame"
[ -s "$work/s/sample.mp4" ] || [ -s "$work/s/sample.rgb" ] || fail "no video"
[ -s "$work/s/sample.png" ] || fail "no strip"
runs "sampled" "$sample" $weights --frames 20 --steps 2 --out "$work/s2"
cmp -s "$work/s/sample/frame-00019.png" "$work/s2/sample/frame-00019.png" || fail "sampled twice"
runs "sampled" "$sample" $weights --frames 20 --steps 2 --sample-seed 5 --out "$work/s2"
cmp -s "$work/s/sample/frame-00019.png" "$work/s2/sample/frame-00019.png" && fail "--sample-seed"
refuses 1 "needs at least" "$sample" $weights --steps 2 --out "$work/s2" --vram 64K
runs "profile: op" "$sample" $weights --frames 20 --steps 1 --out "$work/s3" --profile
runs "sampled" "$sample" $weights --frames 1 --steps 2 --size 15x9 --out "$work/s3" --vram 8M --host 8M
[ "$(head -n 1 "$work/s3/sample.rgb")" = "RGBCLIP 15 9 1 24" ] || fail "an odd size"
runs "sampled" "$train" $data --steps 2 --sample-steps 2
[ -s "$work/o/clip.png" ] || fail "no strip of the data"
runs "budget" "$sample" --model XL/2 --hidden 96 --heads 4 --depth 1 --plan-only --size 64x64 --vram 4G

# ---- what goes wrong ---------------------------------------------------------------------------------

refuses 2 "--video-dir needs --vae" "$train" $model --video-dir "$work/videos"
refuses 2 "are for --video-dir" "$train" $model --vae "$work/vae"
refuses 2 "exclude each other" "$train" $data --video x
refuses 2 "are required" "$sample" $model --vae "$work/vae"
refuses 2 "no such preset" "$sample" $weights --model none
refuses 2 "--steps: 0 is out of range" "$sample" $weights --steps 0
refuses 1 "No such file" "$train" $data --video-dir "$work/nothing"
mkdir "$work/empty"
refuses 1 "there is no video in it" "$train" $data --video-dir "$work/empty"
refuses 1 "no parameter of this model" "$train" $data --vae "$work/w"
for partial in "" --partial; do
    refuses 1 "no parameter of this model\|autoencoder only" "$sample" $weights --load "$work/vae" $partial
done
refuses 1 "has no tensor" "$sample" $weights --text "$work/vae"
# Without text, and with guidance, the null caption is seen: a file has to have it.
bare="--plan-only --hidden 24 --heads 2 --depth 2 --caption-channels 20 --text-tokens 10 --size 16x16 --frames 5"
captions=$root/tests/model/stdit_features.safetensors
LC_ALL=C sed 's/y_embedder\.y_embedding/Y_embedder.y_embedding/' "$root/tests/model/stdit_weights.safetensors" >"$work/null"
refuses 1 "1 parameter is missing" "$sample" $bare --load "$work/null"
refuses 1 "missing: y_embedder.y_embedding" "$sample" $bare --load "$work/null" --text "$captions" --guidance 7
runs "predicted step" "$sample" $bare --load "$work/null" --text "$captions" --guidance 1
runs "predicted step" "$sample" $bare --load "$work/null" --partial
refuses 1 "such preset" "$sample" $weights --vae-model none
# A video that ends before its frames: other clips take the place of those that it lacks.
clip "$work/cut.rgb" 4 5
refuses 1 "no clip can be read" "$train" $data --video-dir "$work/cut.rgb" --steps 1
mkdir "$work/cut"
cp "$work/videos/b.rgb" "$work/cut"
clip "$work/cut/a.rgb" 9 11
runs "the next clip takes its place" "$train" $data --video-dir "$work/cut" --steps 3 \
    --sample-steps 0 --log "$work/cut.log"
grep -q "a.rgb: ends before the 11 announced frames" "$work/err" || fail "a video that ends early"
[ "$(losses "$work/cut.log" | wc -l)" = 3 ] || fail "a video that ends early stops the run"

finish
