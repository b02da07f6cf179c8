#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# --qat int8 of every trainer: layers are rounded, the ranges are saved, and the weights as codes;
# the trainer's own file of weights starts another run only with the same options.
. "${srcdir:-.}/tests/model/programs.sh"
unset RANK WORLD_SIZE
both="--device cpu --threads 1 --batch 1 --steps 2"
features=$root/tests/cogvideo/2b/step.safetensors
stdit="${STDIT_TRAIN:-./stdit-train} $both --latent 2x4x4 --hidden 16 --heads 2 --depth 1
    --caption-channels 8 --text-tokens 4 --sample-steps 0"
lm="${LM_TRAIN:-./lm-train} $both --hidden 16 --heads 2 --layers 1 --mlp 32 --length 16
    --data $root/doc/tour.md"
vae="${VAE_TRAIN:-./vae-train} $both --random 5x8x8 --spatial-widths 8,8 --temporal-widths 8,8,8"
cogvideo="${COGVIDEO_TRAIN:-./cogvideo-train} $both --model $root/tests/cogvideo/2b --snr-shift 3
    --features $features"
volume="${VOLUME_TRAIN:-./volume-train} $both --data $root/tests/volume/reference.csv --classes 4
    --patch 8x8x8 --levels 2 --width 4"
models=$root/tests/import/models
gzip -dc "$models/gpt2.pt2.gz" >"$work/gpt2.pt2" && gzip -dc "$models/gpt2.safetensors.gz" >"$work/samples" &&
    mkdir "$work/data" && ./tests/pt2/shards "$work/samples" "$work/data" 6 3 || exit 77
pt2="${PT2_TRAIN:-./pt2-train} --device cpu --threads 1 --batch 2 --steps 2 --model $work/gpt2.pt2
    --data $work/data"

# rounds NAME COMMAND...: most weights of the trainer are rounded, and written as codes.
rounds() {
    name=$1
    shift
    runs "rounded  *int8  *[1-9][0-9]* of" "$@" --qat int8 --save "$work/$name" --save-int8 \
        "$work/$name.int8"
    grep -qa 'weight_scale' "$work/$name.int8" || fail "$name: no scales in what --save-int8 wrote"
    grep -qa 'input_range' "$work/$name" || fail "$name: no ranges in the weights"
    refuses 1 "no weight is left to round" "$@" --qat int8 --qat-skip '*'
}

rounds stdit $stdit
rounds gpt $lm --model tiny
rounds bert $lm --model tiny-bert
rounds vae $vae
rounds cogvideo $cogvideo
rounds volume $volume
rounds pt2 $pt2

# Weights with ranges and the options they were trained with.
for other in "" "--qat int8 --qat-ranges learned"; do
    refuses 1 "it was trained with --qat int8" $lm --model tiny --load "$work/gpt" $other
done
runs loss $lm --model tiny --load "$work/gpt" --qat int8
runs loss $lm --model tiny --load "$work/gpt.int8"

# States of other ranges.
runs loss $lm --model tiny --qat int8 --save-state "$work/state"
refuses 1 "give --qat and --qat-ranges as in the saved run" $lm --model tiny --qat int8 \
    --qat-ranges learned --resume "$work/state" --resume-changed --steps 4
refuses 1 "input_range', which this run does not keep: give --qat" $lm --model tiny --resume "$work/state" \
    --resume-changed --steps 4
finish
