#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# volume-infer: a model trained on phantoms segments others; the labels do not depend on the budget,
# the number of windows per pass or the kind of file; refusals.
. "${srcdir:-.}/tests/model/programs.sh"
train=${VOLUME_TRAIN:-./volume-train} infer=${VOLUME_INFER:-./volume-infer}
phantom=./examples/volume/phantom
[ -x "$train" ] && [ -x "$infer" ] && [ -x "$phantom" ] || exit 77

d=$work/d
mkdir "$d" && "$phantom" "$d" 12 24 || fail "no phantoms"
sed '12,13d' "$d/list.csv" >"$d/train.csv"
printf 'image,label\nimage-10.mhd,label-10.mhd\nimage-11.mhd,label-11.mhd\n' >"$d/new.csv"
model="--classes 3 --levels 2 --width 8 --threads 1"
runs "weights:" "$train" $model --data "$d/train.csv" --patch 16x16x16 --batch 2 --steps 250 --lr 1e-2 \
    --schedule cosine --save "$work/w"

# find NAME OPTION...: labels of the two phantoms into $work/NAME.
find() {
    name=$1
    shift
    runs "labels:" "$infer" $model --load "$work/w" --data "$d/new.csv" --window 16x16x16 \
        --out "$work/$name" "$@"
}
same() {
    cmp -s "$work/all/image-10.raw" "$work/$1/image-10.raw" &&
        cmp -s "$work/all/image-11.raw" "$work/$1/image-11.raw" || fail "other labels: $1"
}
find all
awk '/Dice/ { n += 2; if ($3 < 0.8 || $5 < 0.8) bad = 1 } END { exit bad || n != 4 }' \
    "$work/out" || fail "not found: $(cat "$work/out")"
least=$(possible "$work/out")
grep -q "^Offset = 10 -20 30" "$work/all/image-10.mhd" || fail "the place is lost"
find together --batch 3 --picture "$work/slice.png"
head -c 4 "$work/slice.png" | grep -q PNG || fail "no picture"
same together
find many --batch 64
same many
find budget --vram "$least" --host 64M
same budget
find threads --threads 2
same threads
find bare --overlap 0
find dense --overlap 0.75 --blend constant
find one --window 24x24x24
cmp -s "$work/all/image-10.raw" "$work/dense/image-10.raw" && fail "the overlap does nothing"

# Smaller than a window, of one voxel, and without a label map.
printf 'DimSize = 1 1 1\nElementType = MET_UCHAR\nElementDataFile = 1.raw\n' >"$d/1.mhd"
printf '\001' >"$d/1.raw"
printf 'image\n1.mhd\n' >"$d/1.csv"
runs "1 windows, smaller than one: padded with 0" "$infer" $model --load "$work/w" \
    --data "$d/1.csv" --window 16x16x16 --out "$work/small"
[ "$(wc -c <"$work/small/1.raw")" -eq 1 ] || fail "one voxel"

refuses 1 "is the folder of the image" "$infer" $model --load "$work/w" --data "$d/new.csv" \
    --window 16x16x16 --out "$d"
refuses 1 "blended scores and labels need" "$infer" $model --load "$work/w" \
    --data "$d/new.csv" --window 16x16x16 --host 10K
refuses 1 "is not of this model\|has shape" "$infer" --classes 3 --levels 3 --width 8 \
    --load "$work/w" --data "$d/new.csv" --window 16x16x16
printf 'image\nimage-10.mhd\nimage-10.mhd\n' >"$d/twice.csv"
refuses 1 "two images are called image-10.mhd" "$infer" $model --load "$work/w" \
    --data "$d/twice.csv" --window 16x16x16 --out "$work/twice"
refuses 2 "give multiples of 2" "$infer" $model --load w --data l --window 15x16x16
refuses 2 "give gaussian or constant" "$infer" $model --load w --data l --blend flat
refuses 2 "give weights with --load" "$infer"
runs "smallest possible" "$infer" $model --window 16x16x16 --plan-only
runs "smallest possible" "$train" $model --patch 16x16x16 --plan-only
finish
