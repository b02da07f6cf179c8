#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# volume-train: one step against PyTorch and MONAI in float64 (make_volume_reference.py); the same
# bits under budgets, with tiers, and after a resume; ranks; refusals.
. "${srcdir:-.}/tests/model/programs.sh"
train=${VOLUME_TRAIN:-./volume-train} phantom=./examples/volume/phantom
compare=./tests/model/compare
[ -x "$train" ] && [ -x "$phantom" ] && [ -x "$compare" ] || exit 77
here=$root/tests/volume

# reference NAME TOLERANCE FLOOR OPTION...
reference() {
    name=$1 tolerance=$2 floor=$3
    shift 3
    runs step "$train" --data "$here/reference.csv" --classes 4 --patch 8x8x8 --levels 2 \
        --width 4 --no-flips --load "$here/reference_weights.safetensors" --batch 1 --steps 1 \
        --warmup 0 --lr 0 --dump "$work/$name" "$@"
    "$compare" "$here/reference.safetensors" "$work/$name" "$tolerance" "$floor" ||
        fail "reference: $name"
}
reference fp32 2e-5 1e-3
# PyTorch's gradients in bf16 are as far away: 0.11 of all, 0.25 of the worst tensor.
reference bf16 0.25 0.1 --dtype bf16

mkdir "$work/d" && "$phantom" "$work/d" 3 20 || fail "no phantoms"
small="--data $work/d/list.csv --classes 3 --levels 3 --width 4 --patch 16x8x16 --batch 2"
small="$small --threads 1 --lr 1e-2 --warmup 0"

# The same weights whatever the budget and the tiers, and of a run in two parts.
runs "z-score of the voxels" "$train" $small --steps 6 --save "$work/all" --plan-out "$work/plan"
least=$(possible "$work/out")
same() {
    cmp -s "$work/all" "$work/other" || fail "other bits: $*"
}
runs step "$train" $small --steps 6 --save "$work/other" --vram "$least"
same --vram
runs step "$train" $small --steps 6 --save "$work/other" --vram "$least" --host 64M
same --host
runs step "$train" $small --steps 6 --save "$work/other" --vram "$least" --nvme "$work:64M"
same --nvme
runs step "$train" $small --steps 3 --save-state "$work/state"
runs step "$train" $small --steps 6 --resume "$work/state" --save "$work/other"
same --resume
# Where patches are drawn, and how wide the levels become: 4, 8 and 16 channels.
runs step "$train" $small --steps 6 --save "$work/other" --max-width 16
same --max-width
runs step "$train" $small --steps 1 --save "$work/narrow" --max-width 8
[ "$(wc -c <"$work/narrow")" -lt "$(wc -c <"$work/all")" ] || fail "--max-width 8 is as wide as 16"
runs step "$train" $small --steps 6 --save "$work/other" --foreground 1
cmp -s "$work/all" "$work/other" && fail "--foreground 1 draws the same patches"

# A patch that is larger than the volume; a volume of one voxel; one patch of a level.
runs step "$train" $small --patch 24x24x24 --batch 1 --steps 1
printf 'DimSize = 1 1 1\nElementType = MET_UCHAR\nElementDataFile = 1.raw\n' >"$work/1.mhd"
printf '\001' >"$work/1.raw"
printf 'image,label\n1.mhd,1.mhd\n' >"$work/1.csv"
runs step "$train" $small --data "$work/1.csv" --levels 1 --patch 2x1x1 --steps 2
runs "0 to 1, clipped" "$train" $small --intensity ct:900,1500 --steps 1

# The list of the Medical Segmentation Decathlon, whose labels say how many classes there are.
cat >"$work/d/dataset.json" <<'JSON'
{"labels": {"0": "background", "1": "sphere", "2": "tube"},
 "training": [{"image": "./image-0.mhd", "label": "./label-0.mhd"}]}
JSON
runs "1 volumes" "$train" $small --data "$work/d/dataset.json" --steps 1
# Names before numbers, and not each number; what would change the list is refused by name.
list='"training": [{"image": "image-0.mhd", "label": "label-0.mhd"'
printf '{"labels": {"background": 0, "tube": 2}, %s}]}' "$list" >"$work/d/named.json"
runs "3 classes" "$train" ${small% --classes 3*} --levels 3 --width 4 --patch 16x8x16 --data "$work/d/named.json" --steps 1
printf '{"labels": {"background": 0, "all": [1, 2]}, %s}]}' "$list" >"$work/d/regions.json"
refuses 1 "\"labels\" has \"all\"" "$train" $small --data "$work/d/regions.json" --steps 1
printf '{"labels": {"0": ""}, %s, "fold": 0}]}' "$list" >"$work/d/fold.json"
refuses 1 "fold" "$train" $small --data "$work/d/fold.json" --steps 1

# What is refused, before the first step.
wrong() {
    text=$1 rows=$2
    printf 'image,label\n%b' "$rows" >"$work/d/wrong.csv"
    refuses 1 "$text" "$train" $small --data "$work/d/wrong.csv" --steps 1
}
wrong "names no volume" ""
wrong "image-0.mhd has no label" "image-0.mhd\n"
wrong "image-0.mhd has no label" "image-0.mhd,\n"
printf 'label,image\nlabel-0.mhd\n' >"$work/d/short.csv"
refuses 1 "short.csv, line 2: has no image" "$train" $small --data "$work/d/short.csv" --steps 1
{
    printf '{"training": [{"image": "image-0.mhd", "label": "label-0.mhd"}], "labels": {"0": ""'
    i=1
    while [ $i -le 300 ]; do
        printf ', "%d": ""' $i
        i=$((i + 1))
    done
    printf '}}'
} >"$work/d/many.json"
refuses 1 "has 301 classes; there can be 255" "$train" --data "$work/d/many.json" --steps 1
wrong "label-9.mhd" "image-0.mhd,label-9.mhd\n"
wrong "has 8 x 8 x 8 voxels, its image" "image-0.mhd,$(cd "$here" && pwd)/reference_label.mhd\n"
sed 's/^Offset = 10/Offset = 13/' "$work/d/label-0.mhd" >"$work/d/moved.mhd"
wrong "a corner is 3 mm off" "image-0.mhd,moved.mhd\n"
wrong "labels must be whole numbers, within 0.001, from 0 to 2" "image-0.mhd,image-0.mhd\n"
refuses 1 "from 0 to 1 (see --classes)" "$train" $small --classes 2 --steps 1
refuses 1 "has no columns" "$train" $small --data "$root/tests/volume/plain.mhd" --steps 1
refuses 2 "give the volumes with --data" "$train"
packed=$(cd "$here" && pwd)/oblique.nii.gz
printf 'image,label\n%s,%s\n' "$packed" "$packed" >"$work/packed.csv"
refuses 1 "--unpack $work/nowhere: No such" "$train" $small --data "$work/packed.csv" --unpack "$work/nowhere" --steps 1
refuses 1 "label 3 at column" "$train" $small --data "$work/packed.csv" --unpack "$work/d" --steps 1
refuses 2 "give multiples of 4" "$train" $small --patch 18x16x16
refuses 2 "give mr, or ct:LOW,HIGH" "$train" $small --intensity ct:5,3
refuses 1 "is not of this model" "$train" $small --load "$here/reference_weights.safetensors" \
    --steps 1 --classes 4
finish
