#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Inputs of stdit-sample: given frames of references, noise, consecutive segments; against a float64
# reference of Open-Sora 1.2's loop, with the same bits under any budget.
set -u

. "${srcdir:-.}/tests/model/programs.sh"

vae=${VAE_TRAIN:-./vae-train} compare=${COMPARE:-./tests/model/compare}
here=$root/tests/model
sample="${STDIT_SAMPLE:-./stdit-sample} --device cpu --threads 1 --dtype fp32 --load $here/stdit_weights.safetensors
    --hidden 24 --heads 2 --depth 2 --caption-channels 20 --text-tokens 10 --vae $work/vae
    --out $work/o"

"$vae" --size 16x16 --lengths 5 --image-share 0 --video "$root/examples/data/bunny.rgb" --steps 1 \
    --save "$work/vae" >"$work/out" 2>&1 || fail "vae-train: $(cat "$work/out")"

# clip FILE FRAMES: noise as a raw clip of 20 x 18.
clip() {
    {
        echo "RGBCLIP 20 18 $2 8"
        head -c $(($2 * 1080)) /dev/urandom
    } >"$1"
}

# draw NAME OPTION...: its latents go to $work/NAME.
draw() {
    name=$1
    shift
    $sample --latents "$work/$name" "$@" >"$work/out" 2>"$work/err" ||
        fail "$name: $(tail -n 2 "$work/err")"
}

# same A B WHAT
same() {
    cmp "$work/$1" "$work/$2" >"$work/said" 2>&1 || fail "$3: $(cat "$work/said")"
}

# ---- the reference ---------------------------------------------------------------------------------

data=$here/stdit_sample.safetensors
given="--text $data --noise $data --reference $here/stdit_sample_given.safetensors --steps 6
    --guidance 3 --mask-strategy 0,0,-5,0,2;0,0,1,3,1,0.55;0,0,8,-1,1,0.9"
draw given $given
"$compare" "$here/stdit_sample_expected.safetensors" "$work/given" 1e-5 0 || fail "the reference"
draw one $given --micro-batch 1
"$compare" "$here/stdit_sample_expected.safetensors" "$work/one" 1e-5 0 || fail "clip by clip"
draw half $given --dtype bf16 --exact-timestep
"$compare" "$here/stdit_sample_expected.safetensors" "$work/half" 0.2 0 || fail "bf16"
refuses 1 "needs at least" $sample $given --vram 1K --host 64M --latents "$work/x"
[ ! -e "$work/x" ] || fail "refused, and latents were written"
draw tight $given --vram 5200K --host 64M # 8.1 MiB without a budget
same given tight "a budget"

# A picture at the end of a clip, a clip of one frame, a plan alone.
small="--size 16x16 --steps 2 --guidance 1"
clip "$work/clip.rgb" 40
clip "$work/picture.rgb" 1
draw edited $small --reference "$work/picture.rgb" --mask-strategy 0,0,0,-1,1,0.5
draw first $small --frames 1 --reference "$work/picture.rgb" --mask-strategy 0,0,0,0,1,0.5
runs "predicted step" $sample $small --reference "$work/clip.rgb" --mask-strategy "0,0,-2" --plan-only

# ---- segments --------------------------------------------------------------------------------------

loop="--size 15x9 --steps 2 --guidance 1 --frames 34 --loop 3 --reference $work/clip.rgb;$work/picture.rgb"
draw loop $loop --mask-strategy "0,0,0,0,5,0.3;1,1,0,-3;2,2,0,7,2,0.7"
grep -q "3 segments each.*68 frames" "$work/out" || fail "segments: $(cat "$work/out")"
[ "$(ls "$work/o/sample" | grep -c frame)" = 68 ] || fail "not the frames of all segments"
[ "$(head -n 1 "$work/o/sample.rgb")" = "RGBCLIP 15 9 68 24" ] || fail "not one video"
[ "$(wc -c <"$work/o/sample.rgb")" = $((68 * 405 + 19)) ] || fail "frames are missing"
draw plain $loop --mask-strategy 0
mkdir "$work/files"
draw small $loop --mask-strategy 0 --vram 1600K --nvme "$work/files:64M" # 2.2 MiB without
same plain small "segments in a budget"
# What a segment begins with is the end of the one before, whoever says it.
draw told $loop --mask-strategy "0;1,2,-5,0,5;2,3,-5,0,5"
same plain told "a segment as a reference"
draw edit $loop --mask-strategy 0 --condition-edit 0.4
cmp -s "$work/plain" "$work/edit" && fail "--condition-edit changes nothing"
draw aligned $loop --mask-strategy "0,0,1,2" --align 5
draw aligned2 $loop --mask-strategy "0,0,0,0"
same aligned aligned2 "--align 5"
rm -r "$work/o"
draw ten --size 15x9 --steps 1 --guidance 1 --frames 51 --condition-frames 10 --loop 2
[ "$(ls "$work/o/sample" | grep -c frame)" = 68 ] || fail "--condition-frames 10"

# ---- a signal: nothing half written ------------------------------------------------------------------

rm -r "$work/o"
$sample $small --steps 1000000 --latents "$work/broken" >"$work/out" 2>&1 &
pid=$!
sleep 1
kill -TERM $pid
wait $pid && fail "a signal: it ended well"
[ ! -e "$work/broken" ] || fail "a signal: latents of what was not drawn"

# ---- wrong input -------------------------------------------------------------------------------------

one="$small --reference $work/picture.rgb"
refuses 1 "up to six numbers" $sample $one --mask-strategy "0,x"
refuses 1 "an edit ratio" $sample $one --mask-strategy "0,0,0,0,1,2"
refuses 1 "a length of 0" $sample $one --mask-strategy "0,0,0,0,0"
refuses 1 "reference 1; there is 1" $sample $one --mask-strategy "0,1"
refuses 1 "no segment 1 with --loop 1" $sample $one --mask-strategy "1"
refuses 1 "start of 3 in a reference of 1 latent" $sample $one --mask-strategy "0,0,3"
refuses 1 "start of 7 in clips of 5 latent" $sample $one --mask-strategy "0,0,0,7"
runs "1 of 4 latent frames are given" $sample $one --mask-strategy "0,0,0,0,4"
refuses 1 "without a mask strategy" $sample $one
refuses 1 "reference 0; there are 0" $sample $small --mask-strategy "0"
refuses 1 "No such file" $sample $small --reference "$work/none.rgb" --mask-strategy 0
refuses 1 "name is empty" $sample $small --reference "$work/picture.rgb;" --mask-strategy 0
refuses 1 "samples are" $sample $small --mask-strategy 0 \
    --reference "$here/stdit_sample_given.safetensors"
refuses 1 "not a file of vae-encode" $sample $small --reference "$data" --mask-strategy 0
refuses 2 "no frames in common" $sample $small --loop 2 --condition-frames 0
refuses 2 "a multiple of 5" $sample $small --loop 2 --condition-frames 3
refuses 2 "are for --loop" $sample $small --condition-frames 5
refuses 1 "leaves none of them to sample" $sample $small --loop 2
refuses 2 "--loop: 0 is out of range" $sample $small --loop 0
refuses 2 "--align: 0 is out of range" $sample $small --align 0
refuses 1 "has no tensor \"noise\"" $sample $small --noise "$work/vae"
refuses 1 "\"noise\" is \[2, 4, 5, 5, 8\]; \[1, 4, 5, 2, 2\] is expected" $sample $small --noise "$data"
refuses 1 "No such file" $sample $small --noise "$work/none"
refuses 1 "latents" $sample $small --latents "$work/none/x"

finish
