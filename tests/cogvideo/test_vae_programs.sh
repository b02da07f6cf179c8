#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# cogvideo-encode and cogvideo-decode as a user or a script runs them: a clip is encoded and
# decoded, a budget changes no byte, and wrong input gets one sentence and a status that is not 0.
set -u

. "${srcdir:-.}/tests/model/programs.sh"

encode=${COGVIDEO_ENCODE:-./cogvideo-encode} decode=${COGVIDEO_DECODE:-./cogvideo-decode}
mkdir "$work/dir" "$work/dir/vae" "$work/out.d"
tests/cogvideo/test_vae model "$work/dir/vae" || fail "no model"
clip=$root/examples/data/bunny.rgb
model="--model $work/dir"
sizes="--frames 10 --height 16 --width 24"

# ---- there and back ---------------------------------------------------------------------------------

runs "1 of 10 frames, 24 x 16" "$encode" $model $sizes --video "$clip" --output "$work/latents"
grep -q repeated "$work/out" && fail "no frame of the clip is repeated"
{ echo "RGBCLIP 24 16 3 8" && head -c 3456 /dev/zero; } >"$work/short.rgb"
runs "whose last frame is repeated: 1: .*short.rgb" "$encode" $model $sizes --video "$work/short.rgb" --output "$work/repeated"
latents=$work/latents/bunny.safetensors
runs "9 frames of 24 x 16" "$decode" $model --latents "$latents" --output "$work/back.rgb"
[ "$(head -n 1 "$work/back.rgb")" = "RGBCLIP 24 16 9 8" ] || fail "another clip came back"
runs "9 frames" "$decode" $model --latents "$latents" --output "$work/pictures" --fps 16
[ "$(ls "$work/pictures" | wc -l)" = 9 ] || fail "not a picture a frame"

# The noise follows from the seed and the name.
"$encode" $model $sizes --video "$clip" --output "$work/again" >/dev/null 2>&1
cmp -s "$latents" "$work/again/bunny.safetensors" || fail "encoding twice gave different latents"
"$encode" $model $sizes --seed 7 --video "$clip" --output "$work/again" >/dev/null 2>&1
cmp -s "$latents" "$work/again/bunny.safetensors" && fail "--seed changed no sample"
cp "$clip" "$work/hare.rgb"
"$encode" $model $sizes --video "$work/hare.rgb" --output "$work/again" >/dev/null 2>&1
cmp -s "$latents" "$work/again/hare.safetensors" && fail "another name got the same noise"
runs "1 of 10 frames" "$encode" $model $sizes --moments --video "$clip" --output "$work/moments"

# ---- a budget ---------------------------------------------------------------------------------------

refuses 1 "needs at least" "$decode" $model --vram 64K --latents "$latents" --output "$work/x.rgb"
[ "$(wc -l <"$work/err")" = 3 ] || fail "a refusal is not three lines"
[ -e "$work/x.rgb" ] && fail "a refused run left a file"
smallest=$(needed)
runs "9 frames" "$decode" $model --vram "$smallest" --latents "$latents" --output "$work/x.rgb"
cmp -s "$work/back.rgb" "$work/x.rgb" || fail "a budget changed the frames"
runs "2 frames at a time, exact" "$decode" $model --slice 2 --latents "$latents" --output "$work/x.rgb"
cmp -s "$work/back.rgb" "$work/x.rgb" || fail "--slice changed the frames"
runs "exact" "$decode" $model --tiling --latents "$latents" --output "$work/x.rgb"
cmp -s "$work/back.rgb" "$work/x.rgb" || fail "a single tile is not the whole frame"

# With a lower tier caches leave.
model32="$model --dtype fp32"
runs "1 of 17 frames" "$encode" $model32 --frames 17 --height 64 --width 96 --video "$clip" --output "$work/large"
large="--latents $work/large/bunny.safetensors"
runs "17 frames of 96 x 64" "$decode" $model32 $large --output "$work/whole.rgb"
refuses 1 "needs at least" "$decode" $model32 $large --vram 1M --host 256M --output "$work/x.rgb"
runs "offloaded to the host" "$decode" $model32 $large --vram "$(needed)" --host 256M --verify --output "$work/x.rgb"
cmp -s "$work/whole.rgb" "$work/x.rgb" || fail "offloading changed the frames"

runs "smallest possible" "$encode" $model $sizes --plan-only

# A plan needs the shape of a clip and no file: the same plan as that of the file.
runs "smallest possible" "$decode" $model --latents "$latents" --plan-only
grep peak "$work/out" >"$work/peak"
runs "smallest possible" "$decode" $model --clip 9x16x24 --plan-only
grep peak "$work/out" | cmp -s "$work/peak" - || fail "another plan: $(cat "$work/out")"
refuses 1 "multiples of" "$decode" $model --clip 9x17x24 --plan-only
refuses 1 "in place of --latents" "$decode" $model --clip 9x16x24 --latents "$latents" --plan-only
refuses 1 "in place of --latents" "$decode" $model --clip 9x16x24 --output "$work/x.rgb"
refuses 1 "or --clip TxHxW" "$decode" $model --plan-only

# ---- lists ------------------------------------------------------------------------------------------

printf 'hare.rgb\n\n none.rgb \r\n' >"$work/videos.txt"
runs "1 of 10 frames, 24 x 16; 0 existed, 1 skipped" "$encode" $model $sizes --list \
    "$work/videos.txt" --output "$work/out.d"
grep -q "none.rgb: cannot be read" "$work/err" || fail "a missing video is not named"
grep -q "videos.txt: could not be read and are skipped: .*none.rgb" "$work/err" || fail "$(cat "$work/err")"
cmp -s "$work/out.d/hare.safetensors" "$work/again/hare.safetensors" || fail "a list changed a clip"
refuses 1 "no video could be encoded" "$encode" $model $sizes --only-missing --list "$work/videos.txt" \
    --output "$work/out.d"
grep -q "0 of 10 frames, 24 x 16; 1 existed, 1 skipped" "$work/out" || fail "$(cat "$work/out")"
printf 'a/hare.rgb\nhare.mp4\n' >"$work/twice.txt"
refuses 1 "would have the same file" "$encode" $model $sizes --list "$work/twice.txt" --output "$work/out.d"
: >"$work/empty.txt"
refuses 1 "names no video" "$encode" $model $sizes --list "$work/empty.txt" --output "$work/out.d"

# ---- a cache of videos of other shapes and rates ----------------------------------------------------

# video SIDE FRAMES RATE STEP: frames of 16 x 16 between sides of SIDE columns; of the frames
# 0 on each STEP-th.
video() {
    {
        echo "RGBCLIP $((16 + 2 * $1)) 16 $2 $3"
        LC_ALL=C awk -v side="$1" -v n="$2" -v step="$4" 'BEGIN {
            for (f = 0; f < n; f++)
                for (y = 0; y < 16; y++)
                    for (x = -side; x < 16 + side; x++)
                        printf("%c%c%c", (x < 0 || x > 15) ? 120 : 40 + x, 30 + y, 20 + 5 * f * step)
        }'
    } >"$work/videos/clip.rgb"
    echo "a clip" >"$work/videos/clip.txt"
}

# cache NAME OPTION...: the latents of that video, in $work/NAME.
cache() {
    name=$1
    shift
    runs "the manifest is written" ./video-encode $model --dtype fp32 --size 16x16 --frames 9 --data "$work/videos" \
        --output "$work/$name" "$@"
}

# values NAME: those of the shard, without the header, which has the settings.
values() {
    tail -c $((4 * 4 * 3 * 2 * 2)) "$work/$1"/latents-00000.safetensors
}

# expect_equal A B, expect_other A B
expect_equal() {
    [ "$(values "$1" | cksum)" = "$(values "$2" | cksum)" ] || fail "$2 has other latents than $1"
}
expect_other() {
    [ "$(values "$1" | cksum)" != "$(values "$2" | cksum)" ] || fail "$2 has the latents of $1"
}

mkdir "$work/videos"
video 0 9 8 1 && cache plain
cache plain8 --fps 8
expect_equal plain plain8
video 8 9 8 1 && cache stretched
expect_other plain stretched
cache cropped --fit crop
expect_equal plain cropped
refuses 1 "other than in this run: fit" ./video-encode $model --dtype fp32 --size 16x16 --frames 9 \
    --data "$work/videos" --output "$work/cropped"
video 0 5 8 2 && cache slow
grep -q "last frame is repeated: 1" "$work/out" || fail "no frame was repeated"
video 0 9 16 1 && cache slow8 --fps 8
grep -q "last frame is repeated: 1" "$work/out" || fail "no frame is missing at half of the rate"
expect_equal slow slow8
video 0 4 8 1 && cache doubled --fps 16
grep -q " 0 clips could not be read" "$work/out" || fail "a short video of half of the rate was not read"
video 0 18 8 1 && cache whole
grep -q "only the beginning" "$work/out" && fail "the whole video was used"
cache begun --fps 8 --fit crop
grep -q "only the beginning is used (--fps): 1" "$work/out" || fail "its end is not named"
expect_equal plain begun
expect_other plain whole
refuses 2 "crop" ./video-encode $model --fit best --data "$work/videos" --output "$work/x"
refuses 2 "are for --model DIR" ./video-encode --vae "$work/dir/vae" --fps 8 --data "$work/videos" --output "$work/x"
refuses 2 "out of range" ./video-encode $model --fps 0 --data "$work/videos" --output "$work/x"

# ---- what goes wrong ---------------------------------------------------------------------------------

refuses 2 "--model DIR is missing" "$decode" --latents "$latents" --output "$work/x.rgb"
refuses 1 "--latents FILE is missing" "$decode" $model --output "$work/x.rgb"
refuses 1 "one of the two" "$encode" $model $sizes --output "$work/out.d"
refuses 1 "multiples of 8" "$encode" $model --height 20 --video "$clip" --output "$work/out.d"
refuses 2 "--frames: 0 is out of range" "$encode" $model --frames 0 --video "$clip" --output "$work/out.d"
refuses 1 "No such file" "$decode" --model "$work/no" --latents "$latents" --output "$work/x.rgb"
json='{"latents":{"dtype":"F32","shape":[2,4,2,3],"data_offsets":[0,192]}}'
{
    printf "\\$(printf %03o ${#json})\0\0\0\0\0\0\0%s" "$json"
    head -c 192 /dev/zero
} >"$work/four"
refuses 1 "latents of 4 channels" "$decode" $model --latents "$work/four" --output "$work/x.rgb"
refuses 1 "no 'encoded_video' and no 'latents'" "$decode" $model --output "$work/x.rgb" \
    --latents "$work/moments/bunny.safetensors"
head -c 2000 "$latents" >"$work/half"
refuses 1 "half" "$decode" $model --latents "$work/half" --output "$work/x.rgb"

mkdir "$work/other"
cp "$work/dir/vae/diffusion_pytorch_model.safetensors" "$work/other"
sed 's/AutoencoderKLCogVideoX/AutoencoderKL/' "$work/dir/vae/config.json" >"$work/other/config.json"
refuses 1 "is not \"AutoencoderKLCogVideoX\"" "$decode" --model "$work/other" --latents "$latents" \
    --output "$work/x.rgb"
sed 's/"layers_per_block": 1/"layers_per_block": 2/' "$work/dir/vae/config.json" >"$work/other/config.json"
refuses 1 "not the weights of this autoencoder" "$decode" --model "$work/other" --latents "$latents" \
    --output "$work/x.rgb"
cp "$work/dir/vae/config.json" "$work/other"
head -c 100000 "$work/dir/vae/diffusion_pytorch_model.safetensors" \
    >"$work/other/diffusion_pytorch_model.safetensors"
refuses 1 "diffusion_pytorch_model.safetensors" "$decode" --model "$work/other" --latents "$latents" \
    --output "$work/x.rgb"
rm "$work/other/diffusion_pytorch_model.safetensors"
refuses 1 "diffusion_pytorch_model.safetensors" "$decode" --model "$work/other" --latents "$latents" \
    --output "$work/x.rgb"
printf '{"_class_name": 1' >"$work/other/config.json"
refuses 1 "config.json: line 1" "$decode" --model "$work/other" --latents "$latents" --output "$work/x.rgb"

finish
