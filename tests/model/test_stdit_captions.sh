#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# stdit-train --text-encoder: captions of videos are encoded before the first step, with the bits of
# text-encode, in host memory and in files, by ranks, in buckets, resumed.
set -u

. "${srcdir:-.}/tests/model/programs.sh"

vae=${VAE_TRAIN:-./vae-train} encode=${TEXT_ENCODE:-./text-encode}
here=$root/tests/text
coder="--text-encoder $here/t5 --tokenizer $here/tokenizer"
train="${STDIT_TRAIN:-./stdit-train} --device cpu --threads 1 --hidden 16 --heads 2 --depth 1
    --text-tokens 12 --batch 2 --steps 6 --sample-steps 0 --vae $work/vae"

# clip FILE WIDTH HEIGHT FRAMES
clip() {
    {
        echo "RGBCLIP $2 $3 $4 8"
        head -c $(($2 * $3 * $4 * 3)) /dev/urandom
    } >"$1"
}

# learn NAME OPTION...: its weights go to $work/NAME.
learn() {
    name=$1
    shift
    $train --save "$work/$name" "$@" >"$work/out" 2>"$work/err" ||
        fail "$name: $(tail -n 2 "$work/err")"
}

# same A B WHAT
same() {
    cmp -s "$work/$1" "$work/$2" || fail "$3"
}

# Twenty clips of two files with 18 captions: one is there twice, one is missing.
clip "$work/a.rgb" 20 18 9
clip "$work/b.rgb" 20 18 12
{
    echo path,num_frames,height,width,text
    for i in 1 2 3 4 5 6 7 8 9; do
        echo "a.rgb,9,18,20,A hare $i sits by the sea"
        echo "b.rgb,12,18,20,the old fisherman $i"
    done
    echo "a.rgb,9,18,20,A hare 1 sits by the sea"
    echo "b.rgb,12,18,20,"
} >"$work/list.csv"
"$encode" --model "$here/t5" --tokenizer "$here/tokenizer" --device cpu --threads 1 --dtype fp32 \
    --family opensora --length 12 --csv "$work/list.csv" --output "$work/y" >"$work/out" 2>"$work/err" || {
    grep -q "built without" "$work/err" && exit 77
    fail "text-encode: $(cat "$work/err")"
}
"$vae" --size 16x16 --lengths 5 --image-share 0 --video "$root/examples/data/bunny.rgb" --steps 1 \
    --save "$work/vae" >"$work/out" 2>&1 || fail "vae-train: $(cat "$work/out")"

# ---- the bits of features ------------------------------------------------------------------------

data="--video-dir $work/list.csv --size 16x16 --frames 5"
learn features $data --text "$work/y"
learn memory $data $coder
same features memory "in host memory: other weights than from features"
grep -q "20 captions, 19 of them different" "$work/out" || fail "what is said: $(cat "$work/out")"
grep -q "1 of 20 clips have no caption" "$work/err" || fail "a caption that is missing"
learn files $data $coder --text "$work/text"
same features files "in files: other weights than from features"
learn alone $data --text "$work/text"
same features alone "files without the encoder: other weights"
# What is there is not made again: without the weights of the encoder it would not work.
mkdir "$work/half"
learn first $data $coder --text "$work/half" --steps 3 --save-state "$work/state"
touch -d 2001-01-01 "$work/half/text-00000.safetensors"
learn rest $data $coder --text "$work/half" --resume "$work/state"
same features rest "resumed: other weights"
[ "$work/half/text-00000.safetensors" -ot "$work/list.csv" ] || fail "resumed: encoded again"
refuses 1 "needs at least" $train $data $coder --vram 1K
# A budget that the training does not fit in is refused before the encoder runs.
refuses 1 "needs at least" $train $data $coder --vram 700K --hidden 256 --text "$work/none"
[ -z "$(ls "$work/none")" ] || fail "refused behind the encoder"
learn tight $data $coder --vram 2M --host 8M
same features tight "a budget: other weights"
learn half16 $data $coder --dtype bf16
learn half16f $data $coder --dtype bf16 --text "$work/text16"
same half16 half16f "bf16: memory and files differ"
runs "predicted step" $train $data $coder --plan-only --text "$work/nothing"
[ ! -e "$work/nothing" ] || fail "a plan wrote"

# ---- ranks ---------------------------------------------------------------------------------------

# two NAME OPTION...: a process for each of two ranks, a clip each.
two() {
    name=$1
    shift
    rm -f "$work/meet"
    for rank in 1 0; do
        RANK=$rank WORLD_SIZE=2 timeout 100 $train $data --batch 1 --save "$work/$name" "$@" \
            --ranks "file:$work/meet" >"$work/out.$rank" 2>&1 &
    done
    wait
}
two ranks --text "$work/y"
two ranks_memory $coder
same ranks ranks_memory "two ranks in memory: $(tail -n 2 "$work/out.0" "$work/out.1")"
two ranks_files $coder --text "$work/ranks_text"
same ranks ranks_files "two ranks in files: $(tail -n 2 "$work/out.0" "$work/out.1")"
diff -r "$work/text" "$work/ranks_text" >/dev/null || fail "two ranks: other files"

# ---- buckets, a clip that cannot be read, a directory ----------------------------------------------

echo '{"144p": {"1": [1.0, 2], "5": [1.0, 1]}}' >"$work/table.json"
sed 's/,18,20,/,144,256,/; s/^b.rgb,12/c.rgb,1/' "$work/list.csv" >"$work/sizes.csv"
clip "$work/a.rgb" 256 144 9
clip "$work/c.rgb" 256 144 1
buckets="${train%--batch*} --steps 4 --vae $work/vae --buckets $work/table.json --video-dir $work/sizes.csv"
runs "weights" $buckets --text "$work/y" --save "$work/w"
runs "weights" $buckets $coder --save "$work/w2"
same w w2 "buckets: other weights than from features"
sed -i '4s/a.rgb/gone.rgb/' "$work/list.csv"
clip "$work/a.rgb" 20 18 9
learn bad $data --text "$work/y"
learn bad2 $data $coder
same bad bad2 "a clip that cannot be read: other captions"
mkdir "$work/videos"
clip "$work/videos/1.rgb" 16 16 5
clip "$work/videos/2.rgb" 16 16 5
echo "a hare" >"$work/videos/1.txt"
silent="--video-dir $work/videos --frames 5 --size 16x16"
refuses 1 "1 of 2 clips have no caption: 2.rgb; .*--empty-captions" $train $silent $coder
runs "2 captions, 2 of them different" $train $silent $coder --empty-captions

# ---- wrong input ---------------------------------------------------------------------------------

refuses 1 "other captions" $train $silent --text "$work/text" --empty-captions
refuses 2 "empty-captions is for" $train $silent --empty-captions
refuses 1 "other settings" $train $data $coder --dtype bf16 --text "$work/text"
rm "$work/videos/1.txt"
refuses 1 "no clip has a caption" $train $silent $coder
refuses 1 "no-such" $train $data --text-encoder "$work/no-such" --tokenizer "$here/tokenizer"
refuses 1 "directory" $train $data $coder --text "$work/y"
rm "$work/text/text-00000.safetensors"
refuses 1 "text-00000.safetensors" $train $data --text "$work/text"
refuses 2 "which is not given" "${STDIT_TRAIN:-./stdit-train}" $coder
refuses 2 "is for --text-encoder" $train $data --tokenizer "$here/tokenizer"
refuses 1 "has no clip" "${STDIT_TRAIN:-./stdit-train}" --cache "$work/half"

finish
