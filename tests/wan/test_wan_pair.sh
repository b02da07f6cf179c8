#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# wan-train --expert both: each step is the one that a run of its expert alone makes; the same bits under a budget, with the weights of
# both on the host or in files, and after a resume; two ranks; clips between steps are those of wan-sample; wrong input.
set -u

. "${srcdir:-.}/tests/model/programs.sh"

train=${WAN_TRAIN:-./wan-train} sample=${WAN_SAMPLE:-./wan-sample}
models=$root/tests/wan
device="--device ${CKPT_DEVICE:-cpu} --threads 1"

losses() {
    sed -n 's/^{"step": \([0-9]*\), "loss": \([^,]*\), "grad_norm": \([^,]*\),.*/\1 \2 \3/p' "$1"
}

# pair DIR HEADS FFN: two models of heads of 128.
pair() {
    for part in transformer transformer_2; do
        mkdir -p "$work/$1/$part"
        cat >"$work/$1/$part/config.json" <<END
{"_class_name": "WanTransformer3DModel", "patch_size": [1, 2, 2], "num_attention_heads": $2, "attention_head_dim": 128,
 "in_channels": 4, "out_channels": 4, "text_dim": 24, "freq_dim": 16, "ffn_dim": $3, "num_layers": 2}
END
    done
    echo '{"boundary_ratio": 0.875}' >"$work/$1/model_index.json"
}
pair pair 1 64
clip="$device --frames 5 --height 32 --width 32 --batch 2 --warmup 0"
seed=3
for part in transformer transformer_2; do
    runs "memory" "$train" $clip --dtype fp32 --model "$work/pair/$part" --random --seed $seed --steps 1 --lr 1e-3 \
        --save "$work/pair/$part/diffusion_pytorch_model.safetensors"
    seed=5
done

# ---- the steps are those of each expert alone ------------------------------------------------------

run="$clip --model $work/pair"
runs "both experts, 884,768 parameters" "$train" $run --dtype fp32 --expert both --steps 6 --lr 0 --log "$work/both.log"
for expert in high low; do
    runs "memory" "$train" $run --dtype fp32 --expert $expert --steps 6 --lr 0 --log "$work/$expert.log"
    grep "\"expert\": \"$expert\"" "$work/both.log" >"$work/its.log"
    losses "$work/its.log" >"$work/a"
    losses "$work/$expert.log" >"$work/b"
    [ -s "$work/a" ] || fail "no step of $expert"
    [ -z "$(grep -v -x -F -f "$work/b" "$work/a")" ] || fail "$expert: other steps than alone: $(cat "$work/a" "$work/b")"
done

# ---- no number depends on memory -------------------------------------------------------------------

# both NAME OPTION...
both() {
    name=$1
    shift
    rm -f "$work/$name.log"
    runs "memory" "$train" $run --expert both --lr 1e-3 --log "$work/$name.log" --save "$work/$name.high" \
        --save-low "$work/$name.low" "$@"
}
# same NAME: losses and both files are those of the run without a budget.
same() {
    losses "$work/free.log" >"$work/a"
    losses "$work/$1.log" >"$work/b"
    cmp -s "$work/a" "$work/b" || fail "$1: other losses: $(cat "$work/a" "$work/b")"
    cmp -s "$work/free.high" "$work/$1.high" || fail "$1: another high model"
    cmp -s "$work/free.low" "$work/$1.low" || fail "$1: another low model"
}
for kind in "--dtype fp32" "--dtype bf16 --lora-rank 2 --frozen nf4"; do
    both free --steps 5 $kind
    cmp -s "$work/free.high" "$work/free.low" && fail "the models are the same"
    refuses 1 "needs at least" "$train" $run --expert both --steps 5 $kind --vram 16K
    both tight --steps 5 $kind --vram "$(needed)"
    same tight
    both part --steps 2 $kind --save-state "$work/state"
    both rest --steps 5 $kind --resume "$work/state"
    grep -v '"step": [12],' "$work/free.log" >"$work/a" && mv "$work/a" "$work/free.log"
    same rest
done
refuses 1 "are adapters of another model" "$train" $run --dtype bf16 --expert high --steps 5 --resume "$work/state"

# Weights of 1 MiB and more are stored below the device: both models alone take more than the budget.
pair wide 4 1024
run="$clip --model $work/wide --random --dtype fp32 --lora-rank 2 --steps 3"
both free
both host --vram 24M --host 96M
grep -q "40 weights of both experts are stored" "$work/out" || fail "no weights below the device: $(cat "$work/out")"
same host
mkdir "$work/files"
both files --vram 24M --host 24M --nvme "$work/files:96M"
grep -q "40 weights of both experts are stored" "$work/out" || fail "no weights below the device: $(cat "$work/out")"
same files

# ---- ranks ------------------------------------------------------------------------------------------

run="$clip --model $work/pair --dtype fp32"
# two OPTION...: two ranks have the losses of one.
two() {
    both free --steps 4 "$@"
    rm -f "$work/two.log" "$work/meet"
    for rank in 1 0; do
        RANK=$rank WORLD_SIZE=2 timeout 100 "$train" $run --expert both --lr 1e-3 --steps 4 "$@" --batch 1 --log "$work/two.log" \
            --ranks "file:$work/meet" >"$work/rank.$rank" 2>&1 &
        [ $rank = 1 ] && other=$!
    done
    wait $! || fail "rank 0: $(tail -n 2 "$work/rank.0")"
    wait $other || fail "rank 1: $(tail -n 2 "$work/rank.1")"
    losses "$work/free.log" | cut -d' ' -f2 >"$work/a"
    losses "$work/two.log" | cut -d' ' -f2 >"$work/b"
    paste "$work/a" "$work/b" | awk '{ d = $1 - $2; if (!(d < 1e-5 * $1 && d > -1e-5 * $1)) bad = 1 } END { exit bad || NR != 4 }' ||
        fail "two ranks: other losses: $(paste "$work/a" "$work/b")"
}
two --lora-rank 2
two # all weights, also those outside of the blocks
two --optimizer muon --zero 1

# ---- clips and validation between steps --------------------------------------------------------------

# file PATH HEADER BYTES: a file of zeros.
file() {
    n=${#2}
    { printf "\\$(printf %o $((n % 256)))\\$(printf %o $((n / 256)))\0\0\0\0\0\0%s" "$2" && head -c "$3" /dev/zero; } >"$1"
}
file "$work/text" '{"prompt_embedding":{"dtype":"F32","shape":[1,512,24],"data_offsets":[0,49152]}}' 49152
z='{"z":{"dtype":"F32","shape":[2,4,2,4,4],"data_offsets":[0,1024]},'
file "$work/val" $z'"y":{"dtype":"F32","shape":[2,512,24],"data_offsets":[1024,99328]}}' 99328
draw="--sample-text $work/text --negative $work/text --sample-steps 5 --sample-every 2 --output $work/clips"
runs "sampled" "$train" $run --expert both --lr 1e-2 --steps 3 --lora-rank 2 $draw --save "$work/s.high" --save-low "$work/s.low"
[ -f "$work/clips/step-00000002.safetensors" ] || fail "no clip between steps: $(ls "$work/clips")"
runs "latents" "$sample" $device --dtype fp32 --model "$work/pair" --frames 5 --height 32 --width 32 --steps 5 --text "$work/text" \
    --negative "$work/text" --load "$work/s.high" --load-low "$work/s.low" --out "$work/sampled"
grep -aq '"transformer.target_modules\\": \[\\"blocks.0.attn1.to_q\\"' "$work/s.low" || fail "PEFT's settings have other layers"
cmp -s "$work/clips/step-00000003.safetensors" "$work/sampled/latents-1.safetensors" || fail "another clip than wan-sample"
cmp -s "$work/clips/step-00000002.safetensors" "$work/sampled/latents-1.safetensors" && fail "the clip does not change"

# Validation takes each level to its model: with the first one twice, only levels below the boundary have other losses.
levels() {
    runs "val" "$train" $clip --dtype fp32 --model "$1" --expert both --lr 0 --steps 1 --val "$work/val"
    sed -n 's/^  *\([0-9]*\)\.[0-9]  \([0-9.]*\)$/\1 \2/p' "$work/out"
}
cp -R "$work/pair" "$work/twice"
cp "$work/pair/transformer/diffusion_pytorch_model.safetensors" "$work/twice/transformer_2"
levels "$work/pair" >"$work/a"
levels "$work/twice" >"$work/b"
paste "$work/a" "$work/b" | awk '
    { bad += $1 != $3 || ($2 == $4) != ($1 >= 875); $1 >= 875 ? high++ : low++ }
    END { exit bad || !high || !low }' || fail "validation: other levels: $(paste "$work/a" "$work/b")"

# Adapters of an expert are not idle where the first steps are the other one's.
runs "memory" "$train" $run --expert both --lr 1e-3 --steps 2 --lora-rank 2 --seed 1
! grep -q "learn nothing" "$work/err" || fail "$(grep "learn nothing" "$work/err")"

# ---- wrong input --------------------------------------------------------------------------------------

new="$run --expert both --steps 1 --lora-rank 2"
refuses 2 "two models: give --save FILE and --save-low FILE" "$train" $new --save "$work/x"
refuses 2 "two models: give --save FILE and --save-low FILE" "$train" $new --save-low "$work/x"
refuses 1 "same file" "$train" $new --save-low "$work/x" --save "$work/x"
refuses 2 "load: not with --expert both" "$train" $new --load "$work/s.high"
refuses 2 "save-ema: not with --expert both" "$train" $new --save-ema "$work/x" --ema-decay 0.9
refuses 2 "save-int8: not with --expert both" "$train" $run --expert both --steps 1 --qat int8 --save-int8 "$work/x"
refuses 2 "lora-merge: not with --expert both" "$train" $new --lora-merge "$work/x"
refuses 2 "lora-format peft: not with --expert both" "$train" $new --lora-format peft --save "$work/x" --save-low "$work/y"
refuses 2 "save-low is for --expert both" "$train" $run --expert low --steps 1 --save-low "$work/x"
refuses 2 "expert both is for a directory with a pair" "$train" $clip --model "$work/pair/transformer" --expert both --steps 1
refuses 2 "give --expert high, low or both" "$train" $run --steps 1

finish
