#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Adapters of other programs (make_adapter_reference.py): the losses that PEFT has with them, with no
# option that says what the file says; each way of writing them is read again; options that
# contradict the file, and settings that are not computed, are refused by name.
set -u

. "${srcdir:-.}/tests/model/programs.sh"

train=${COGVIDEO_TRAIN:-./cogvideo-train}
sample=${COGVIDEO_SAMPLE:-./cogvideo-sample}
models=$root/tests/cogvideo
given=$models/adapters
device="--device ${CKPT_DEVICE:-cpu} --threads 1"
step="$device --dtype fp32 --model $models/5b --snr-shift 1 --features $models/5b/step.safetensors --batch 2 --keep-order --steps 1"

# loss_is LOSS OPTION...: of one step from a file of adapters.
loss_is() {
    loss=$1
    shift
    rm -f "$work/log"
    "$train" $step --lr 0 --log "$work/log" "$@" >"$work/out" 2>"$work/err" || fail "$*: $(tail -n 2 "$work/err")"
    sed -n 's/.*"loss": \([^,]*\), "grad.*/\1/p' "$work/log" | awk -v loss="$loss" '
        { d = ($1 - loss) / loss } END { if (!(NR == 1 && d < 1e-6 && d > -1e-6)) { print $1; exit 1 } }' \
        >"$work/a" || fail "$*: loss $(cat "$work/a") instead of $loss"
}

# ---- files of others ------------------------------------------------------------------------------

plain=$(sed -n 's/^plain //p' "$given/losses.txt")
while read -r name loss; do
    file=$given/$name alpha=
    [ -d "$file" ] || file=$file.safetensors
    [ "$name" = original ] && alpha="--lora-alpha 1"
    loss_is "$loss" --load "$file" $alpha
    # ---- and as this program writes them, in every way that has names for them
    for format in diffusers peft original kohya; do
        mkdir -p "$work/$format"
        to=$work/$format/adapter_model.safetensors
        case "$name $format" in
        "patterns original" | "dora original" | "dora kohya")
            refuses 1 "has no name there" "$train" $step --load "$file" --lora-format $format --save "$to"
            continue
            ;;
        esac
        loss_is "$loss" --load "$file" $alpha --lora-format $format --save "$to"
        loss_is "$loss" --load "$to"
        [ $format = peft ] && loss_is "$loss" --load "$work/peft"
    done
done <"$given/losses.txt"
[ -e "$work/diffusers/adapter_config.json" ] && fail "adapter_config.json beside diffusers' names"

# PEFT's own names, and what it must know of them.
names() {
    head -c $((8 + $(od -An -tu8 -N8 "$1"))) "$1" | tail -c +9 | tr ',{' '\n\n' | sed -n 's/^"\([a-z][^"]*\)":$/\1/p' | sort
}
loss_is "$(sed -n 's/^patterns //p' "$given/losses.txt")" --load "$given/patterns" --lora-format peft \
    --save "$work/peft/adapter_model.safetensors"
names "$given/patterns/adapter_model.safetensors" >"$work/a"
names "$work/peft/adapter_model.safetensors" >"$work/b"
[ "$(wc -l <"$work/a")" = 28 ] || fail "$(cat "$work/a")"
cmp -s "$work/a" "$work/b" || fail "other names: $(diff "$work/a" "$work/b")"
grep -q '"peft_type": "LORA"' "$work/peft/adapter_config.json" || fail "no adapter_config.json"
refuses 2 "is another adapter" "$train" $step --load "$given/peft" --lora-format peft --save "$work/peft/second.safetensors"

# ---- sampling and resuming need no other options --------------------------------------------------

draw="$device --dtype fp32 --model $models/5b --snr-shift 1 --text $models/5b/clip.safetensors --frames 5 --height 48 --width 80
    --steps 2"
# draws NAME OPTION...: latents in a directory of that name.
draws() {
    to=$work/$1
    shift
    "$sample" $draw --out "$to" "$@" >"$work/out" 2>"$work/err" || fail "$*: $(tail -n 2 "$work/err")"
}
draws none
draws file --load "$given/peft"
draws told --load "$given/peft" --lora-rank 2 --lora-alpha 1 --lora-targets to_q,to_k,to_v,to_out.0
cmp -s "$work/file/latents-1.safetensors" "$work/told/latents-1.safetensors" || fail "options of the file change the clip"
cmp -s "$work/file/latents-1.safetensors" "$work/none/latents-1.safetensors" && fail "adapters change nothing"
sed 's/"lora_alpha": 1/"lora_alpha": 0/' "$given/peft/adapter_config.json" >"$work/config"
mkdir "$work/zero"
cp "$given/peft/adapter_model.safetensors" "$work/zero"
cp "$work/config" "$work/zero/adapter_config.json"
draws nothing --load "$work/zero"
cmp -s "$work/none/latents-1.safetensors" "$work/nothing/latents-1.safetensors" || fail "alpha 0 adds something"
refuses 1 "has alpha 0: such adapters add nothing" "$train" $step --load "$work/zero"

long="$device --dtype fp32 --model $models/5b --snr-shift 1 --features $models/5b/step.safetensors --batch 2 --lr 1e-3 --warmup 0"
runs "rank 2, alpha 4.24264, others for some" "$train" $long --steps 4 --load "$given/patterns" --save "$work/whole"
runs "memory" "$train" $long --steps 2 --load "$given/patterns" --save-state "$work/state"
runs "resumed" "$train" $long --steps 4 --resume "$work/state" --save "$work/rest"
cmp -s "$work/whole" "$work/rest" || fail "a run that resumes adapters of a file gives others"
runs "resumed" "$train" $long --steps 4 --resume auto --save-state "$work/state" --save "$work/rest"
cmp -s "$work/whole" "$work/rest" || fail "--resume auto gives other adapters"
alpha=$(grep -ao 'ckpt.run.lora-alpha":"[0-9.]*' "$work/state" | sed 's/.*"//')
runs "resumed" "$train" $long --steps 4 --resume "$work/state" --lora-alpha "$alpha" --save "$work/rest"
cmp -s "$work/whole" "$work/rest" || fail "--lora-alpha as it was gives other adapters"
rm "$work/state"
runs "starting at step 0" "$train" $long --steps 4 --resume auto --load "$given/patterns" --save-state "$work/state" --save "$work/rest"
cmp -s "$work/whole" "$work/rest" || fail "--resume auto does not begin with --load"
refuses 1 "made with lora-alpha 4.24.*this run has 7" "$train" $long --steps 4 --resume "$work/state" --lora-alpha 7
refuses 1 "have rank 2, and --lora-rank is 3: leave it out to resume that run; for a new run give another --save-state" \
    "$train" $long --steps 4 --resume "$work/state" --lora-rank 3 --resume-changed
refuses 1 "these are adapters of another model; for a new run give another --save-state" "$train" $device \
    --model "$models/15" --random --frames 5 --height 32 --width 32 --data random --lora-rank 3 --resume "$work/state"
refuses 2 "is a state of training: --resume it" "$train" $long --load "$work/state"
runs "weights with adapters" "$train" $long --load "$given/patterns" --steps 0 --lora-merge "$work/merged"
loss_is "$(sed -n 's/^patterns //p' "$given/losses.txt")" --load "$work/merged"
runs "memory" "$train" $long --steps 1 --lora-rank 40 --save "$work/wide" # wider than the layers
runs "layers, rank 40, alpha 40" "$train" $step --load "$work/wide"

# ---- refused by name ------------------------------------------------------------------------------

refuses 2 "have rank 2 .*and --lora-rank is 3" "$train" $step --load "$given/peft" --lora-rank 3
refuses 2 "has alpha 1, a scale of 0.5, and --lora-alpha is 4" "$train" $step --load "$given/peft" --lora-alpha 4
refuses 1 "to_out.0 is not in --lora-targets to_k,to_v" "$train" $step --load "$given/peft" --lora-targets to_k,to_v
refuses 1 "none is of --lora-targets ff.net.2" "$train" $step --load "$given/plain.safetensors" \
    --lora-targets to_q,to_v,ff.net.2
refuses 2 "give diffusers, peft, original or kohya" "$train" $step --lora-rank 2 --lora-format loha --save "$work/x"
refuses 2 "is for --save" "$train" $step --lora-rank 2 --lora-format peft
refuses 2 "load is given twice" "$train" $step --load "$given/peft" --load "$given/plain.safetensors"
refuses 2 "load is given twice" "$sample" $draw --load "$given/peft" --load="$given/plain.safetensors"
refuses 2 "add nothing and learn nothing" "$train" $step --lora-rank 2 --lora-alpha 0
refuses 2 "give --lora-alpha X, 1 where" "$train" $step --load "$given/original.safetensors"
refuses 1 "these are adapters of another model" "$train" $device --model "$models/15" --random --frames 5 --height 32 \
    --width 32 --data random --load "$given/patterns"

refuses 1 "is the same file as --load" "$train" $step --load "$work/peft" --lora-merge "$work/peft/adapter_model.safetensors"
mkdir "$work/changed"
cp "$given/peft/adapter_model.safetensors" "$work/changed"
# PEFT leaves this out for layers whose weights are not stored turned.
sed 's/"fan_in_fan_out": false/"fan_in_fan_out": true/' "$given/peft/adapter_config.json" >"$work/changed/adapter_config.json"
loss_is "$(sed -n 's/^peft //p' "$given/losses.txt")" --load "$work/changed"
# config SED TEXT: PEFT's adapter_config.json changed so is refused with that text.
config() {
    sed "$1" "$given/peft/adapter_config.json" >"$work/changed/adapter_config.json"
    cmp -s "$given/peft/adapter_config.json" "$work/changed/adapter_config.json" && fail "$1 changes nothing"
    "$train" $step --load "$work/changed" >"$work/out" 2>"$work/err" && fail "$1: not refused"
    grep -q -- "$2" "$work/err" || fail "$1: $(tail -n 1 "$work/err")"
}
config 's/"use_dora": false/"use_dora": true/' '"use_dora" is true, and its tensors have no'
config 's/"bias": "none"/"bias": "all"/' '"bias" is "all"'
config 's/"modules_to_save": null/"modules_to_save": ["proj_out"]/' '"modules_to_save" names layers'
config 's/"init_lora_weights": true/"init_lora_weights": "pissa_niter_4"/' '"init_lora_weights" is "pissa_niter_4"'
config 's/"peft_type": "LORA"/"peft_type": "LOHA"/' '"peft_type" is "LOHA"'
config 's/"r": 2/"r": 4/' '"r" gives .* the rank 4, but its tensors have rank 2'
config 's/"r": 2/"strength": 2, "r": 2/' '"strength" is 2'
config 's/"alpha_pattern": {}/"alpha_pattern": {"to_\\\\d": 2}/' 'the pattern "to_.d" is not supported'
config 's/"alpha_pattern": {}/"alpha_pattern": 2/' '"alpha_pattern" is not an object'
config 's/"lora_alpha": 1/"lora_alpha": "1"/' '"lora_alpha" is not a number'

finish
