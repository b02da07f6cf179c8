#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# --images and --image-drop of cogvideo-train: pictures noised and encoded in each step are the same
# under every budget, for any number of ranks and after a resume; each line of the data has its own
# picture; a dropped picture has no influence; wrong input.
set -u

. "${srcdir:-.}/tests/model/programs.sh"

models=$root/tests/cogvideo
features=$models/5b-i2v/step.safetensors
mkdir -p "$work/m/vae" "$work/m/transformer"
tests/cogvideo/test_vae model "$work/m/vae" || fail "no autoencoder"
cp "$models"/5b-i2v/* "$work/m/transformer"
train="${COGVIDEO_TRAIN:-./cogvideo-train} --device cpu --threads 1 --snr-shift 1 --warmup 0 --lr 1e-3"
i2v="$train --model $work/m --features $features --batch 2 --steps 4"
{
    printf 'RGBCLIP 2 2 1 8\n'
    printf 'abcdefghijkl'
} >"$work/small.rgb"
cp "$root/examples/data/bunny.rgb" "$work/bunny.rgb"
printf 'bunny.rgb\nsmall.rgb\n' >"$work/images.txt"
images="--images $work/images.txt"

# draw NAME OPTION...: the losses and weights of a run, in $work/NAME and NAME.w.
losses() {
    sed -n 's/^{"step": [0-9]*, "loss": \([^,]*\),.*/\1/p' "$1"
}
draw() {
    name=$1
    shift
    rm -f "$work/$name.log"
    $i2v "$@" --log "$work/$name.log" --save "$work/$name.w" >"$work/out" 2>"$work/err" ||
        fail "$name: $(tail -n 2 "$work/err")"
    losses "$work/$name.log" >"$work/$name"
}
same() {
    [ -s "$work/$1" ] && cmp -s "$work/$1" "$work/$2" || fail "$3: $(paste "$work/$1" "$work/$2")"
}
other() {
    cmp -s "$work/$1" "$work/$2" && fail "$3"
}

# ---- what is seen ---------------------------------------------------------------------------------

draw encoded --image-drop 0
draw free $images --image-drop 0
other free encoded "the picture of the data was taken"
draw again $images --image-drop 0
same free again "another run"
grep -aq "vae\." "$work/free.w" && fail "the autoencoder is among the weights"
[ "$(sed -n 's/.*"arena_bytes": \([0-9]*\).*/\1/p' "$work/free.log" | sort -u | wc -l)" = 1 ] ||
    fail "encoding changes the memory"
draw none $images --image-drop 0 --image-noise-mean -1000
draw little $images --image-drop 0 --image-noise-mean -4
other none little "noise changes nothing"
other free little "the level changes nothing"
draw spread $images --image-drop 0 --image-noise-std 0
other free spread "the spread changes nothing"
printf 'small.rgb\nbunny.rgb\n' >"$work/other.txt"
draw swapped --images "$work/other.txt" --image-drop 0
other free swapped "another picture changes nothing"

# Dropped: of all, no picture counts; of one in twenty some.
draw all $images --image-drop 1
draw zeros --image-drop 1
same all zeros "a picture that was dropped is seen"
other all encoded "nothing is dropped"
draw published --steps 60 --lr 0
draw nothing --steps 60 --lr 0 --image-drop 0
n=$(paste "$work/published" "$work/nothing" | awk '$1 != $2 { n++ } END { print n + 0 }')
[ "$n" -ge 1 ] && [ "$n" -le 16 ] || fail "$n of 60 steps of two had a picture dropped, not some 6"

# ---- crossings ------------------------------------------------------------------------------------

budget=64K
for try in 1 2 3 4; do
    $i2v $images --vram "$budget" --host 64M >"$work/out" 2>"$work/err" && break
    grep -q "needs at least" "$work/err" || fail "$budget: $(cat "$work/err")"
    budget=$(needed)
done
draw tiers $images --image-drop 0 --vram "$budget" --host 64M
same free tiers "tiers"
cmp -s "$work/free.w" "$work/tiers.w" || fail "tiers: other weights"
draw first $images --image-drop 0 --steps 3 --save-state "$work/state"
draw rest $images --image-drop 0 --resume "$work/state"
cat "$work/first" "$work/rest" >"$work/both"
same free both "going on"
refuses 1 "image-noise-std" $i2v $images --image-drop 0 --image-noise-std 1 --resume "$work/state"
draw adapters $images --lora-rank 2 --dtype bf16
# In fp32: in bf16 the sums of two ranks round otherwise, 4e-5 of the loss after three steps.
draw exact $images --image-drop 0 --dtype fp32
for rank in 1 0; do
    RANK=$rank WORLD_SIZE=2 timeout 100 $i2v $images --image-drop 0 --dtype fp32 --batch 1 --log "$work/two.log" \
        --ranks "file:$work/meet" >/dev/null 2>"$work/err.$rank" &
done
wait
losses "$work/two.log" >"$work/two"
paste "$work/exact" "$work/two" | awk '{ d = $1 - $2; if (d * d > 1e-10 * $1 * $1) bad = 1 }
    END { exit bad || NR != 4 }' || fail "two ranks: $(tail -n 2 "$work/err.0") $(cat "$work/two")"

# Clips drawn between steps share the arena, too.
draw watched $images --image-drop 0 --sample-every 2 --sample-text "$models/5b/clip.safetensors" \
    --sample-image "$models/5b-i2v/image.safetensors" --sample-steps 2 --out "$work/drawn"
same free watched "clips changed the training"

# A line that is passed over takes its picture with it.
latents=$work/latents
mkdir "$latents"
# tensor FILE NAME SHAPE ELEMENTS: all of them 0.7, which is "333?" as bytes.
tensor() {
    {
        printf '\310\0\0\0\0\0\0\0'
        printf '%-200s' "{\"$2\":{\"dtype\":\"F32\",\"shape\":[$3],\"data_offsets\":[0,$((4 * $4))]}}"
        yes '333?' | tr -d '\n' | head -c $((4 * $4))
    } >"$1"
}
tensor "$latents/a.safetensors" encoded_video 16,3,8,12 4608
tensor "$latents/b.safetensors" encoded_video 16,3,8,12 4608
tensor "$work/y.safetensors" prompt_embedding 3,5,12 180
printf 'a.mp4\ngone.mp4\nb.mp4\n' >"$work/videos.txt"
printf 'a\nb\nc\n' >"$work/prompts.txt"
printf 'small.rgb\ngone.rgb\nbunny.rgb\n' >"$work/three.txt"
listed="$train --model $work/m --data $work --latents $latents --text $work/y.safetensors --batch 2 --steps 2"
runs "1 of 3 samples are skipped" $listed --images "$work/three.txt" --image-drop 0

# ---- wrong input ----------------------------------------------------------------------------------

refuses 1 "2 pictures for 3 clips" $listed $images
printf 'small.rgb\nnot-there.rgb\n' >"$work/lost.txt"
refuses 1 "not-there.rgb" $i2v --images "$work/lost.txt" --image-drop 0
refuses 1 "no-such" $i2v --images "$work/no-such"
refuses 1 "there is no vae/ in" $train --model "$models/5b-i2v" --features "$features" $images
refuses 1 "no-such" $i2v $images --vae "$work/no-such"
refuses 2 "images is for I2V" $train --model "$models/5b" --data random $images
refuses 2 "image-drop is for I2V" $train --model "$models/5b" --data random --image-drop 0.1
refuses 2 "are for --images" $i2v --image-noise-mean -2
refuses 2 "random has none" $train --model "$work/m" --data random $images
refuses 2 "image-drop" $i2v --image-drop 2

finish
