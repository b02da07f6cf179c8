#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# vae-encode and vae-decode as a user or a script runs them: a clip of any length is encoded and
# decoded in the memory of one chunk, and wrong input gets one sentence and a status that is not 0.
set -u

. "${srcdir:-.}/tests/model/programs.sh"

train=${VAE_TRAIN:-./vae-train} encode=${VAE_ENCODE:-./vae-encode} decode=${VAE_DECODE:-./vae-decode}
# A cell is 2 x 2 pixels, so tests of odd sizes are small.
small="--groups 2 --spatial-widths 4,4 --temporal-widths 4,4,4"

# clip FILE WIDTH HEIGHT ANNOUNCED BYTES: noise as a raw clip.
clip() {
    {
        echo "RGBCLIP $2 $3 $4 25"
        head -c "$5" /dev/urandom
    } >"$1"
}

# host: KiB that the program before took, from its report.
host() {
    sed -n 's/^memory:.* \([0-9.]*\) MiB of the host$/\1/p' "$work/out" | awk '{ print int($1 * 1024) }'
}

"$train" $small --size 16x8 --lengths 3 --image-share 0 --video "$root/examples/data/bunny.rgb" \
    --steps 1 --save "$work/w" >"$work/out" 2>&1 || fail "vae-train: $(cat "$work/out")"
weights="$small --load $work/w"

# ---- there and back: 40 frames are chunks of 17, 17 and 6; sizes are odd ---------------------------

clip "$work/odd.rgb" 15 9 40 $((40 * 15 * 9 * 3))
runs "15 x 9 are padded to 16 x 10" "$encode" $weights "$work/odd.rgb" "$work/odd"
runs "40 frames of 15 x 9 to 12 latents" "$encode" $weights "$work/odd.rgb" "$work/odd"
runs "40 frames of 15 x 9" "$decode" $weights "$work/odd" "$work/back.rgb"
# Of the second chunk: the first is warm-up, the third another program.
grep -q "^time: .* ms a chunk, mean of 1 after the first" "$work/out" || fail "no time of a chunk"
[ "$(head -n 1 "$work/back.rgb")" = "RGBCLIP 15 9 40 25" ] || fail "the clip came back as another"
[ "$(wc -c <"$work/back.rgb")" = "$(wc -c <"$work/odd.rgb")" ] || fail "the clip came back cut"
runs "40 frames" "$decode" $weights "$work/odd" "$work/pictures"
[ "$(ls "$work/pictures" | wc -l)" = 40 ] || fail "not a picture a frame"
[ -e "$work/odd.partial" ] && fail "a partial file is left"

# A plan needs only the shape of a clip, no file: the same plan as for the file.
for both in "$encode $work/odd.rgb" "$decode $work/odd"; do
    program=${both% *} file=${both#* }
    runs "smallest possible" "$program" $small "$file" --plan-only
    grep "peak\|predicted" "$work/out" >"$work/peak"
    runs "smallest possible" "$program" $small --clip 40x9x15 --plan-only
    grep "peak\|predicted" "$work/out" | cmp -s "$work/peak" - || fail "another plan: $both"
    refuses 2 "or --clip TxHxW" "$program" $small --plan-only
    refuses 2 "is for --plan-only" "$program" $weights "$file" "$work/x" --clip 40x9x15
    refuses 2 "is for --plan-only" "$program" $small "$file" --plan-only --clip 40x9x15
    refuses 2 "give frames, height and width" "$program" $small --plan-only --clip 40x9
done

# The same latents again, others with a sample, other samples with another seed.
"$encode" $weights "$work/odd.rgb" "$work/again" >/dev/null 2>&1
cmp -s "$work/odd" "$work/again" || fail "encoding twice gave different latents"
"$encode" $weights --sample "$work/odd.rgb" "$work/sample" >/dev/null 2>&1
"$encode" $weights --sample --seed 7 "$work/odd.rgb" "$work/other" >/dev/null 2>&1
cmp -s "$work/odd" "$work/sample" && fail "--sample changed nothing"
cmp -s "$work/sample" "$work/other" && fail "--seed changed no sample"

# ---- chunks follow each other: two in one clip give what each gives alone --------------------------

bytes=$((17 * 16 * 8 * 3))
clip "$work/two.rgb" 16 8 34 $((2 * bytes))
for part in 1 2; do
    {
        echo "RGBCLIP 16 8 17 25"
        tail -c $(((3 - part) * bytes)) "$work/two.rgb" | head -c $bytes
    } >"$work/part$part.rgb"
    runs "17 frames" "$encode" $weights "$work/part$part.rgb" "$work/part"
    runs "17 frames" "$decode" $weights "$work/part" "$work/part.rgb"
    tail -c $bytes "$work/part.rgb" >>"$work/parts"
done
runs "34 frames" "$encode" $weights "$work/two.rgb" "$work/two"
runs "34 frames" "$decode" $weights "$work/two" "$work/two.rgb"
tail -c $((2 * bytes)) "$work/two.rgb" | cmp -s - "$work/parts" || fail "chunks are not what they are alone"

# ---- a budget: below the whole, frames pass one by one or in bands, and the arena stays inside -----

refuses 1 "needs at least" "$decode" $weights --vram 16K "$work/odd" "$work/tight.rgb"
smallest=$(needed)
runs "2-D part" "$decode" $weights --vram "$smallest" "$work/odd" "$work/tight.rgb"
[ "$(wc -c <"$work/tight.rgb")" = "$(wc -c <"$work/odd.rgb")" ] || fail "decoding under a budget"
runs "frames" "$decode" $weights "$work/odd" "$work/whole.rgb"
cmp -s "$work/tight.rgb" "$work/whole.rgb" || fail "a budget changed the frames"
runs "in 2 bands, exact" "$decode" $weights --tiles 2 "$work/odd" "$work/exact.rgb"
cmp -s "$work/exact.rgb" "$work/whole.rgb" || fail "exact bands changed the frames"
runs "in 2 bands, blended: approximate" "$decode" $weights --tiles 2 --tile-blend "$work/odd" "$work/tight.rgb"
[ "$(wc -c <"$work/tight.rgb")" = "$(wc -c <"$work/exact.rgb")" ] || fail "blended bands are no frame"
cmp -s "$work/tight.rgb" "$work/exact.rgb" && fail "--tile-blend changed nothing"

# ---- any length in the same memory ------------------------------------------------------------------

# A sanitizer keeps what was freed for a while, per thread, too: nothing of it here, where memory
# counts.
ASAN_OPTIONS="quarantine_size_mb=0:thread_local_quarantine_size_kb=0:${ASAN_OPTIONS-}"
export ASAN_OPTIONS
clip "$work/long.rgb" 16 8 2006 $((2006 * 16 * 8 * 3))
clip "$work/short.rgb" 16 8 40 $((40 * 16 * 8 * 3))
for what in encode decode; do
    for length in short long; do
        if [ $what = encode ]; then
            runs "frames of 16 x 8" "$encode" $weights "$work/$length.rgb" "$work/$length"
        else
            runs "frames of 16 x 8" "$decode" $weights "$work/$length" "$work/back.rgb"
        fi
        eval "$length=$(host)"
    done
    # shellcheck disable=SC2154
    [ "$long" -lt $((short + 2048)) ] ||
        fail "$what: 2006 frames took $long KiB of the host, 40 frames $short"
done
[ "$(wc -c <"$work/back.rgb")" = $((2006 * 16 * 8 * 3 + 21)) ] || fail "the long clip came back cut"

# ---- what goes wrong ---------------------------------------------------------------------------------

clip "$work/cut.rgb" 16 8 40 $((20 * 16 * 8 * 3 + 100))
runs "ends after 20 of 40 announced frames" "$encode" $weights "$work/cut.rgb" "$work/cut"
runs "20 frames of 16 x 8" "$decode" $weights "$work/cut" "$work/back.rgb"
clip "$work/none.rgb" 16 8 40 0
refuses 1 "holds no frame" "$encode" $weights "$work/none.rgb" "$work/none"
[ -e "$work/none" ] || [ -e "$work/none.partial" ] && fail "latents of nothing are left"
refuses 1 "not a file of vae-encode" "$decode" $weights "$work/w" "$work/back.rgb"
refuses 1 "cannot open" "$decode" $weights "$work/nothing" "$work/back.rgb"
refuses 1 "channels" "$decode" --plan-only $small --latent 8 "$work/odd" "$work/back.rgb"
refuses 1 "cells" "$decode" --plan-only $small --spatial-widths 4,4,4 "$work/odd" "$work/back.rgb"
refuses 1 "parameters are missing" "$decode" $weights --temporal-layers 2 "$work/odd" "$work/x.rgb"
refuses 2 "--load FILE is missing" "$encode" $small "$work/odd.rgb" "$work/odd"
refuses 2 "give two files" "$encode" $weights "$work/odd.rgb"
refuses 2 "more" "$encode" $weights "$work/odd.rgb" "$work/odd" more
refuses 2 "--tiles: 0 is out of range" "$encode" $weights --tiles 0 "$work/odd.rgb" "$work/odd"
head -c 2000 "$work/odd" >"$work/half"
refuses 1 "half" "$decode" $weights "$work/half" "$work/back.rgb"
refuses 1 "No such file" "$encode" $weights "$work/odd.rgb" "$work/no/odd"

# ---- video files, where FFmpeg is there ---------------------------------------------------------------

if ! "$encode" $weights "$root/examples/data/bunny.mp4" "$work/bunny" >"$work/out" 2>"$work/err"; then
    grep -q "without FFmpeg" "$work/err" || fail "bunny.mp4: $(cat "$work/err")"
else
    runs "frames of" "$decode" $weights "$work/bunny" "$work/bunny.mp4"
    runs "frames of" "$encode" $weights "$work/bunny.mp4" "$work/again"
    head -c 3000 "$root/examples/data/bunny.mp4" >"$work/broken.mp4"
    refuses 1 "broken.mp4" "$encode" $weights "$work/broken.mp4" "$work/again"
    refuses 1 "must be even" "$decode" $weights "$work/odd" "$work/odd.mp4"
fi

finish
