#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The commands of doc/recipe-volumes.md and doc/volumes.md, on a CPU with phantoms in place of scans.
. "${srcdir:-.}/tests/recipes/pages.sh"
small="--device cpu --threads 1 --vram 256M --levels 2 --width 4"
program volume-train $small --patch 16x16x16 --steps 3 --warmup 1
program volume-infer $small --window 16x16x16 --classes 3
[ -x examples/volume/phantom ] || exit 77

# What the download brings: six phantoms under the names and in the list of the challenge.
spleen=$work/Task09_Spleen
mkdir -p "$spleen/imagesTs" "$spleen/scans"
examples/volume/phantom "$spleen/scans" 6 20 || fail "no phantoms"
training=
for i in 0 1 2 3 4 5; do
    training="$training${training:+,}{\"image\":\"./scans/image-$i.mhd\",\"label\":\"./scans/label-$i.mhd\"}"
done
printf '{"labels":{"0":"background","1":"sphere","2":"tube"},"training":[%s]}\n' "$training" >"$spleen/dataset.json"
./ckpt info | grep -q "NIfTI *yes" || exit 77
cp "$root/tests/volume/oblique.nii.gz" "$spleen/imagesTs/spleen_1.nii.gz"
tar -C "$work" -cf "$work/Task09_Spleen.tar" Task09_Spleen
stand_in curl <<SH
[ "\${2##*/}" = Task09_Spleen.tar ] && cp "$work/Task09_Spleen.tar" .
SH
run_page doc/recipe-volumes.md 7
[ -s "$work/home/slice.png" ] || fail "no picture"
[ -s "$work/home/labels/spleen_1.nii.gz" ] || fail "no labels: $(ls "$work/home/labels")"
# The page of the programs.
cp "$spleen/dataset.json" "$work/home/Task09_Spleen"
printf 'image,label\nTask09_Spleen/scans/image-0.mhd,Task09_Spleen/scans/label-0.mhd\n' >"$work/home/list.csv"
rm "$work/home"/spleen.*
program volume-train $small --patch 16x16x16 --steps 3 --warmup 1 --classes 3
run_page doc/volumes.md 2
finish
