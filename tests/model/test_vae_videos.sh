#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# vae-train --video-dir: clips read during training have the bits of clips in memory, with any
# threads, memory and budget, and after a resume; unreadable videos are skipped and counted.
set -u

. "${srcdir:-.}/tests/model/programs.sh"

train=${VAE_TRAIN:-./vae-train}
small="--groups 2 --spatial-widths 4,4 --temporal-widths 4,4,4 --size 16x8 --image-share 0.3 --batch 2"

# clip FILE WIDTH HEIGHT FRAMES ANNOUNCED
clip() {
    {
        echo "RGBCLIP $2 $3 $5 8"
        head -c $(($2 * $3 * $4 * 3)) /dev/urandom
    } >"$1"
}

# same TEXT OPTION...: runs, and must save the weights of $work/w.
same() {
    text=$1
    shift
    rm -f "$work/w2"
    runs "$text" "$train" $small "$@" --save "$work/w2"
    cmp -s "$work/w" "$work/w2" || fail "other weights: $*"
}

# ---- as clips in memory -----------------------------------------------------------------------------

mkdir "$work/one"
clip "$work/one/1.rgb" 20 18 41 41
few="--lengths 3,4 --clips 3 --steps 6"
for options in "" "--stride 2 --frames 6" "--size 15x9"; do
    runs "PSNR" "$train" $small $few $options --video "$work/one/1.rgb" --save "$work/w"
    mv "$work/out" "$work/said"
    same "loader: at most" $few $options --video-dir "$work/one"
    [ "$(grep PSNR "$work/out")" = "$(grep PSNR "$work/said")" ] ||
        fail "$options: $(grep PSNR "$work/said" "$work/out")"
done

# ---- any threads, memory and budget -------------------------------------------------------------------

mkdir "$work/videos"
for i in 1 2 3; do
    clip "$work/videos/$i.rgb" 20 18 $((6 + i * 3)) $((6 + i * 3))
done
data="--lengths 3,4 --video-dir $work/videos"
runs "videos: .*videos, 8 x 4 frames" "$train" $small $data --steps 8 --log "$work/log" --save "$work/w" \
    --out "$work/pictures"
grep -q "data: steps waited for it during [0-9]" "$work/out" || fail "no share of waiting: $(cat "$work/out")"
[ "$(grep -c '"data_ms": [0-9]' "$work/log")" = 8 ] || fail "no data_ms in the log"
[ -s "$work/pictures/clip.png" ] && [ -s "$work/pictures/reconstruction-7.png" ] || fail "no pictures"
for choice in "--workers 1" "--workers 5" "--workers 1 --loader-memory 4300K" "--host 16M" \
    "--quantizer kl --frames-2d 0"; do
    same "PSNR" $data --steps 8 $choice
done
refuses 1 "needs at least" "$train" $small $data --lengths 4 --image-share 0 --vram 64K
same "PSNR" $data --steps 8 --vram "$(needed)"
refuses 1 "the largest clip take" "$train" $small $data --loader-memory 1M
refuses 1 "the largest clip take" "$train" $small $data --loader-memory 1M --plan-only
runs "loader: at most" "$train" $small $data --plan-only
runs "perplexity" "$train" $small $data --steps 3 --quantizer vq
runs "PSNR" "$train" $small $data --steps 0

# ---- going on ---------------------------------------------------------------------------------------

runs "PSNR" "$train" $small $data --steps 3 --save-state "$work/state"
same "after 3 steps" $data --steps 8 --resume "$work/state" --workers 3

# two OPTION...: by two ranks.
two() {
    rm -f "$work/meet"
    for rank in 0 1; do
        RANK=$rank WORLD_SIZE=2 timeout 100 "$train" $small $data --ranks "file:$work/meet" "$@" \
            >"$work/rank.$rank" 2>&1 &
    done
    wait
    grep -q memory: "$work/rank.0" || fail "two ranks, $*: $(tail -n 3 "$work/rank.0" "$work/rank.1")"
}
two --batch 1 --steps 4 --save "$work/w"
two --batch 1 --steps 2 --save-state "$work/two.state" --workers 1
two --batch 1 --steps 4 --resume "$work/two.state" --save "$work/w2"
cmp -s "$work/w" "$work/w2" || fail "two ranks, resumed: other weights"

# ---- tables, and videos that cannot be read ---------------------------------------------------------------

{
    echo "path,num_frames,height,width"
    for i in 1 2 3; do
        echo "videos/$i.rgb,$((6 + i * 3)),18,20"
        echo "gone$i.rgb,19,18,20"
    done
    echo "videos/1.rgb,2,18,20" # too short for all but images
} >"$work/list.csv"
bad="--lengths 3,4 --video-dir $work/list.csv"
runs "the next clip takes its place" "$train" $small $bad --steps 9 --save "$work/w"
[ "$(grep -c 'gone1.rgb: cannot be read' "$work/err")" = 1 ] || fail "gone1.rgb: $(cat "$work/err")"
same "PSNR" $bad --steps 9 --workers 4
refuses 1 "clips cannot be read, more than --max-bad 1" "$train" $small $bad --steps 9 --max-bad 1

# A run that goes on names none again, and counts on: two more are too many.
runs "the next clip takes its place" "$train" $small $bad --steps 1 --save-state "$work/bad.state"
first=$(grep -c "cannot be read" "$work/err")
[ "$first" -ge 1 ] && [ "$first" -le 2 ] || fail "one step met $first bad clips"
runs "after 1 steps" "$train" $small $bad --steps 9 --resume "$work/bad.state" --max-bad 3
[ "$(grep -c "cannot be read" "$work/err")" = $((3 - first)) ] || fail "named again: $(cat "$work/err")"
refuses 1 "3 clips cannot be read, more than --max-bad 2" "$train" $small $bad --steps 9 \
    --resume "$work/bad.state" --max-bad 2

# Those of all ranks.
data=$bad
two --batch 1 --steps 2 --save-state "$work/two.state"
known=$(grep -ho "gone[123].rgb: cannot be read" "$work/rank.0" "$work/rank.1" | sort -u | wc -l)
[ "$known" -gt "$(grep -c "cannot be read" "$work/rank.0")" ] || fail "the second rank met none: $known"
two --batch 1 --steps 9 --resume "$work/two.state"
again=$(cat "$work/rank.0" "$work/rank.1" | grep -c "cannot be read")
[ "$again" -le $((2 * (3 - known))) ] || fail "$again are named again, $known were known"
refuses 1 "$known clips cannot be read, more than --max-bad $((known - 1))" "$train" $small $bad --batch 2 \
    --steps 9 --resume "$work/two.state" --max-bad $((known - 1))
refuses 1 "no video has the 40 frames" "$train" $small --lengths 40 --video-dir "$work/list.csv"

if command -v tar >/dev/null; then
    mkdir "$work/tars"
    # A box "free" of 1 MiB that is a hole, before one of 8 bytes.
    {
        cat "$root/examples/data/bunny.mp4"
        printf '\000\020\000\010free'
    } >"$work/tars/1.mp4"
    truncate -s +1M "$work/tars/1.mp4"
    printf '\000\000\000\010free' >>"$work/tars/1.mp4"
    (cd "$work/tars" && tar --sparse -cf a.tar 1.mp4)
    if "$train" $small --lengths 3 --steps 2 --video-dir "$work/tars/a.tar" --save "$work/w" \
        >"$work/out" 2>"$work/err"; then
        same "PSNR" --lengths 3 --steps 2 --video-dir "$work/tars/1.mp4"
    else
        grep -qE "without (FFmpeg|libarchive)" "$work/err" || fail "a.tar: $(cat "$work/err")"
    fi
fi

# ---- bad input --------------------------------------------------------------------------------------

refuses 2 "exclude each other" "$train" --video-dir "$work/videos" --video "$work/one/1.rgb"
refuses 2 "exclude each other" "$train" --video-dir "$work/videos" --random 4x8x8
refuses 2 "a size is expected" "$train" $small $data --loader-memory 50%
refuses 2 "--workers: 0 is out of range" "$train" $small $data --workers 0
refuses 2 "--hwaccel nothing:" "$train" $small $data --hwaccel nothing
refuses 2 "FFmpeg" "$train" $small $data --hwaccel :0
refuses 2 "--hwaccel" "$train" --hwaccel cuda --video "$work/one/1.rgb"
# A name that FFmpeg has, and a device that nobody has.
for name in cuda:99 vaapi:/dev/none; do
    "$train" $small $data --steps 1 --hwaccel "$name" >"$work/out" 2>"$work/err" && fail "$name: no refusal"
    grep -qE "^vae-train: --hwaccel $name: (there is no such device|FFmpeg has no|built without)" \
        "$work/err" || fail "$name: $(cat "$work/err")"
done
refuses 1 "nothing-here" "$train" $small --video-dir "$work/nothing-here"
mkdir "$work/empty"
refuses 1 "there is no video in it" "$train" $small --video-dir "$work/empty"
refuses 1 "is left out" "$train" $small --frames 40 --video-dir "$work/videos"

finish
