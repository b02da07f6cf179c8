#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# --tensorboard of the trainers: an independent reader finds the numbers of --log, each step once,
# also after a resume from an older state, and the pictures.
. "${srcdir:-.}/tests/model/programs.sh"
stdit=${STDIT_TRAIN:-./stdit-train} lm=${LM_TRAIN:-./lm-train} vae=${VAE_TRAIN:-./vae-train}
read_events=./tests/model/read_events
for program in "$stdit" "$lm" "$vae" "$read_events"; do
    [ -x "$program" ] || exit 77
done
small="--hidden 24 --heads 2 --depth 1 --caption-channels 8 --text-tokens 4 --latent 2x4x4 --threads 1"
auto="--spatial-widths 4,8 --spatial-layers 1 --temporal-widths 4,4,4 --temporal-layers 1 --groups 2"
auto="$auto --latent 2 --threads 1 --random 5x16x16 --batch 1"
words="--ema-decay 0.9 --hidden 16 --heads 2 --layers 1 --mlp 16 --length 8 --batch 1 --threads 1"
words="$words --data $root/doc/tour.md --val $root/doc/lm.md --val-every 2"

# events DIRECTORY LOG TEXT...: the reader says each TEXT.
events() {
    "$read_events" "$1" "$2" >"$work/said" || fail "$1: $(cat "$work/said")"
    shift 2
    for text; do
        grep -q -x -- "$text" "$work/said" || fail "no \"$text\" in: $(cat "$work/said")"
    done
}

# The directory is made.  A line of a step has ten numbers, two lines are of the validation.
runs "step" "$lm" $words --steps 4 --tensorboard "$work/tb" --log "$work/log" --save-state "$work/s"
events "$work/tb" "$work/log" "numbers 42" "files 1"
# The log is JSON also where the path is not UTF-8.
odd=$work/$(printf 'd\351')
mkdir "$odd"
cp "$root/doc/tour.md" "$odd/text"
runs "step" "$lm" $words --data "$odd/text" --steps 4 --tensorboard "$work/odd" --log "$work/odd.log"
events "$work/odd" "$work/odd.log" "files 1"
# A run that went further and was lost: those that went on say what became of its steps.
runs "step" "$lm" $words --steps 8 --tensorboard "$work/tb" --log "$work/lost" --resume "$work/s"
runs "step" "$lm" $words --steps 6 --tensorboard "$work/tb" --log "$work/log" --resume "$work/s"
events "$work/tb" "$work/log" "numbers 63" "files 3"
[ "$(cat "$work/tb/"* | strings -n 10 | grep -c 'brain.Event:2')" = 3 ] || fail "no version"

# Without a log; both tell the same where there is one, with terms of the loss and a NaN.
runs "step" "$vae" $auto --steps 2 --tensorboard "$work/vae" --out "$work/o" --log "$work/vlog"
events "$work/vae" "$work/vlog" "picture clip 2 [0-9]*x[0-9]*" \
    "picture reconstruction 2 [0-9]*x[0-9]*"
runs "step" "$vae" $auto --steps 2 --tensorboard "$work/vae2" --save "$work/w"
[ "$(cat "$work/vae2/"* | wc -c)" -gt 500 ] || fail "nothing without --log"

# Two ranks: the first writes.
for rank in 1 0; do
    RANK=$rank WORLD_SIZE=2 "$stdit" $small --steps 2 --ranks "file:$work/meet" \
        --tensorboard "$work/ranks" --log "$work/rlog" >/dev/null 2>"$work/err.$rank" &
done
wait
events "$work/ranks" "$work/rlog" "files 1"
grep -q '"step": 2' "$work/rlog" || fail "ranks: $(cat "$work/err.0")"

# Asked for where it cannot be.
refuses 1 "ot a directory" "$stdit" $small --tensorboard /dev/null
refuses 2 "nothing would be written: --plan-only" "$lm" $words --plan-only --tensorboard "$work/x"
refuses 2 "nothing would be written: --steps 0" "$lm" $words --steps 0 --tensorboard "$work/x"
[ ! -e "$work/x" ] || fail "a directory of a run that was refused"

# A byte that is wrong does not pass.
file=$(ls "$work/ranks/"*)
printf x | dd of="$file" bs=1 seek=100 conv=notrunc 2>/dev/null
"$read_events" "$work/ranks" "$work/rlog" >/dev/null && fail "a broken file passed"
finish
