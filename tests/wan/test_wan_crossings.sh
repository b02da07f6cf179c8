#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# wan-train where features meet: weights in files, ranks that share state in bf16, a signal, data of one clip and of none, states and
# weights of other programs and models.
set -u

. "${srcdir:-.}/tests/model/programs.sh"

train=${WAN_TRAIN:-./wan-train} other=${COGVIDEO_TRAIN:-./cogvideo-train}
device="--device ${CKPT_DEVICE:-cpu} --threads 1"
mkdir "$work/wide" "$work/tiny" "$work/files"

# config DIR HEADS FFN TEXT: heads of 128.
config() {
    cat >"$work/$1/config.json" <<END
{"_class_name": "WanTransformer3DModel", "patch_size": [1, 2, 2], "num_attention_heads": $2, "attention_head_dim": 128,
 "in_channels": 4, "out_channels": 4, "text_dim": $4, "freq_dim": 16, "ffn_dim": $3, "num_layers": 2}
END
}
config wide 4 1024 24
config tiny 1 64 24
clip="--frames 5 --height 32 --width 32 --warmup 0 --lr 1e-3"
same() { cmp -s "$work/free" "$work/$1" || fail "$1: other weights"; }

# ---- weights of 1 MiB and more on the host and in files ------------------------------------------------

run="$train $device $clip --model $work/wide --random --batch 2 --steps 3"
runs "memory" $run --dtype fp32 --steps 1 --save "$work/base"
for kind in "--dtype bf16 --grad-dtype bf16" "--dtype fp32 --lora-rank 2" "--dtype bf16 --lora-rank 2 --load $work/base"; do
    tiers="--host 6M --nvme $work/files:256M"
    runs "memory" $run $kind --save "$work/free"
    refuses 1 "needs at least" $run $kind --vram 1M $tiers
    tiers="--vram $(needed) $tiers"
    runs "offloaded to NVMe" $run $kind $tiers --save "$work/nvme"
    same nvme
    runs "memory" $run $kind $tiers --steps 1 --save-state "$work/state"
    runs "resumed" $run $kind --resume "$work/state" --save "$work/rest"
    same rest
done
# The last state has what is trained; the others had all weights.
[ "$(wc -c <"$work/state")" -lt $(($(wc -c <"$work/base") / 10)) ] || fail "frozen weights in a state"

# ---- ranks that share gradients, state and weights -------------------------------------------------------

run="$train $device $clip --model $work/tiny --random --dtype bf16 --state bf16 --batch 2 --steps 3"
for zero in 0 1 2 3; do
    rm -f "$work/meet"
    for rank in 1 0; do
        RANK=$rank WORLD_SIZE=2 timeout 100 $run --zero $zero --ranks "file:$work/meet" --save "$work/zero.$zero" \
            >"$work/rank.$rank" 2>&1 &
        [ $rank = 1 ] && peer=$!
    done
    wait $! || fail "zero $zero: $(tail -n 2 "$work/rank.0")"
    wait $peer || fail "zero $zero: $(tail -n 2 "$work/rank.1")"
    cmp -s "$work/zero.0" "$work/zero.$zero" || fail "other weights with --zero $zero"
done

# ---- a signal ----------------------------------------------------------------------------------------------

run="$train $device $clip --model $work/tiny --random --dtype fp32 --batch 2 --ema-decay 0.9 --steps"
runs "memory" $run 1 --save "$work/base"
for kind in "" "--lora-rank 2 --load $work/base"; do
    rm -f "$work/log" "$work/state"
    runs "memory" $run 120 $kind --save "$work/free"
    $run 120 $kind --save-state "$work/state" --log "$work/log" >"$work/out" 2>"$work/err" &
    pid=$!
    for i in $(seq 100); do
        [ "$(grep -c '"step":' "$work/log" 2>/dev/null)" -ge 5 ] 2>/dev/null && break
        sleep 0.1
    done
    kill -TERM $pid
    wait $pid
    [ -f "$work/state" ] || fail "no state after a signal: $(tail -n 3 "$work/err")"
    grep -q "stopped after" "$work/out" || fail "it was not stopped: $(tail -n 3 "$work/out")"
    runs "resumed" $run 120 $kind --resume "$work/state" --save "$work/rest"
    same rest
done

# ---- little data -----------------------------------------------------------------------------------------------

# file PATH HEADER BYTES: a file of zeros.
file() {
    n=${#2}
    { printf "\\$(printf %o $((n % 256)))\\$(printf %o $((n / 256)))\0\0\0\0\0\0%s" "$2" && head -c "$3" /dev/zero; } >"$1"
}
z='{"z":{"dtype":"F32","shape":[1,4,1,2,2],"data_offsets":[0,64]},'
file "$work/one" $z'"y":{"dtype":"F32","shape":[1,512,24],"data_offsets":[64,49216]}}' 49216
file "$work/none" '{"z":{"dtype":"F32","shape":[0,4,1,2,2],"data_offsets":[0,0]},"y":{"dtype":"F32","shape":[0,512,24],"data_offsets":[0,0]}}' 0
run="$train $device --warmup 0 --model $work/tiny --random --dtype fp32 --lora-rank 1"
runs "513 tokens" $run --features "$work/one" --steps 2
runs "repeat within a step" $run --features "$work/one" --steps 2 --batch 3
refuses 1 "none: " $run --features "$work/none" --steps 1

# ---- files of others -----------------------------------------------------------------------------------------------

run="$train $device $clip --dtype fp32 --steps 2"
runs "state" "$other" $device --dtype fp32 --model "$root/tests/cogvideo/2b" --random --steps 1 --save-state "$work/theirs" --save "$work/weights"
refuses 1 "theirs" $run --model "$work/tiny" --random --resume "$work/theirs"
refuses 1 "has shape" $run --model "$work/tiny" --load "$work/weights"
refuses 1 "state: " $run --model "$work/wide" --random --resume "$work/state"
runs "state" $run --model "$work/tiny" --random --lora-rank 2 --save-state "$work/adapters" --save "$work/lora"
refuses 2 "leave --lora-rank out" $run --model "$work/tiny" --random --lora-rank 3 --load "$work/lora"
refuses 1 "of another model" $run --model "$work/wide" --random --load "$work/lora"
refuses 1 "lora: " $run --model "$work/tiny" --random --resume "$work/lora"

finish
