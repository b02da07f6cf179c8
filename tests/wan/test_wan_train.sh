#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# wan-train as a user or a script runs it: a whole step as float64 has it, adapters of other programs
# with it (make_wan_reference.py), and each way of writing them; differences of weights beside adapters;
# names of the original code and of ComfyUI; the budget changes no number; the experts of a pair; given
# first frames; a run resumes; two ranks; wrong input.
set -u

. "${srcdir:-.}/tests/model/programs.sh"

train=${WAN_TRAIN:-./wan-train}
models=$root/tests/wan
device="--device ${CKPT_DEVICE:-cpu} --threads 1"

losses() {
    sed -n 's/^{"step": \([0-9]*\), "loss": \([^,]*\), "grad_norm": \([^,]*\),.*/\1 \2 \3/p' "$1"
}

# ---- a step, and adapters of other programs --------------------------------------------------------

step="$device --dtype fp32 --model $models/t2v --features $models/features.safetensors --batch 2 --keep-order --steps 1"

# loss_is LOSS OPTION...
loss_is() {
    loss=$1
    shift
    rm -f "$work/log"
    "$train" $step --lr 0 --log "$work/log" "$@" >"$work/out" 2>"$work/err" || fail "$*: $(tail -n 2 "$work/err")"
    sed -n 's/.*"loss": \([^,]*\), "grad.*/\1/p' "$work/log" | awk -v loss="$loss" '
        { d = ($1 - loss) / loss } END { if (!(NR == 1 && d < 2e-6 && d > -2e-6)) { print $1; exit 1 } }' \
        >"$work/a" || fail "$*: loss $(cat "$work/a") instead of $loss"
}

while read -r name loss; do
    case $name in
    plain) loss_is "$loss" ;;
    bell) loss_is "$loss" --loss-weights bell --snr-shift 3 ;;
    differences) # merged into the weights first
        runs "9 differences of weights" "$train" $step --steps 0 --load "$models/$name.safetensors" --lora-merge "$work/merged"
        loss_is "$loss" --load "$work/merged"
        refuses 1 "merge them into the weights first.*patch_embedding.diff\\|self_attn.q.diff_b" "$train" $step \
            --load "$models/$name.safetensors"
        refuses 2 "nothing would be written" "$train" $step --steps 0 --load "$models/$name.safetensors" --save "$work/x"
        refuses 2 "nothing would be written" "$train" $step --steps 0 --load "$models/$name.safetensors" --save-state "$work/x"
        refuses 1 "not added to codes" "$train" $step --steps 0 --load "$models/$name.safetensors" \
            --frozen int8 --lora-merge "$work/x"
        sed 's/blocks.1.self_attn.v/blocks.1.self_attn.z/g' "$models/$name.safetensors" >"$work/other"
        refuses 1 "z.diff' is of no parameter" "$train" $step --steps 0 --load "$work/other" --lora-merge "$work/x"
        sed 's/blocks.1.norm3.diff/blocks.1.ffn.2.diff/' "$models/$name.safetensors" >"$work/other"
        refuses 1 "ffn.2.diff' has another shape" "$train" $step --steps 0 --load "$work/other" --lora-merge "$work/x"
        sed 's/lora_/none_/g' "$models/$name.safetensors" >"$work/other"
        refuses 2 "no adapter beside them" "$train" $step --load "$work/other"
        draw="${WAN_SAMPLE:-./wan-sample} $device --dtype fp32 --text $models/features.safetensors --frames 9 --height 32
            --width 32 --steps 2 --guidance 1"
        runs "9 differences of weights" $draw --model "$models/t2v" --load "$models/$name.safetensors" --out "$work/drawn"
        runs "latents" $draw --model "$models/t2v" --load "$work/merged" --out "$work/merged.out"
        runs "latents" $draw --model "$models/t2v" --load "$models/comfyui.safetensors" --out "$work/without"
        # The merged weights draw the same clip; the adapters alone another one.
        last() {
            tail -c 2048 "$work/$1/latents-1.safetensors" | od -An -v -tf4 -w4
        }
        last drawn >"$work/a"
        for other in merged.out without; do
            last $other | paste "$work/a" - | awk '{ d = $1 - $2; if (d > most) most = d; if (-d > most) most = -d }
                END { print (most > 1e-4) }' >"$work/b"
            [ "$(cat "$work/b")" = "$([ $other = without ] && echo 1 || echo 0)" ] || fail "$other: differences of weights"
        done
        ;;
    dropped) loss_is "$loss" --text-drop 1 --null-text "$models/features.safetensors" ;;
    *)
        loss_is "$loss" --load "$models/$name.safetensors"
        for format in diffusers peft original kohya; do
            loss_is "$loss" --load "$models/$name.safetensors" --lora-format $format --save "$work/$format.safetensors"
            loss_is "$loss" --load "$work/$format.safetensors"
        done
        ;;
    esac
done <"$models/losses.txt"
grep -aq '"lora_unet_blocks_0_self_attn_q.lora_down.weight"' "$work/kohya.safetensors" || fail "no names of kohya"
grep -aq '"lora_unet_blocks_1_ffn_2.alpha"' "$work/kohya.safetensors" || fail "no alpha of kohya"
grep -aq lora_adapter_metadata "$work/kohya.safetensors" "$work/original.safetensors" && fail "settings of PEFT beside alphas"
grep -aq '"diffusion_model.blocks.0.cross_attn.k.lora_up.weight"' "$work/original.safetensors" || fail "no names of ComfyUI"
refuses 1 "has no name there" "$train" $step --lora-rank 2 --lora-dora --lora-format kohya --save "$work/x"

# ---- names of whole weights -------------------------------------------------------------------------

# config DIR CHANNELS HEADS: heads of 128, as the published models have.
config() {
    mkdir -p "$work/$1"
    cat >"$work/$1/config.json" <<END
{"_class_name": "WanTransformer3DModel", "patch_size": [1, 2, 2], "num_attention_heads": $3, "attention_head_dim": 128,
 "in_channels": $2, "out_channels": 4, "text_dim": 24, "freq_dim": 16, "ffn_dim": 64, "num_layers": 2}
END
}
config t2v 4 1
size="--frames 5 --height 32 --width 32"
run="$device --dtype fp32 $size --batch 2 --warmup 0"
for names in diffusers original comfyui; do
    runs "memory" "$train" $run --model "$work/t2v" --random --steps 2 --lr 1e-3 --names $names --save "$work/$names.safetensors"
    rm -f "$work/log"
    runs "Wan T2V, 442,384 parameters" "$train" $run --model "$work/$names.safetensors" --steps 1 --lr 0 --log "$work/log"
    losses "$work/log" >"$work/losses.$names"
    cmp -s "$work/losses.diffusers" "$work/losses.$names" || fail "$names: other losses"
done
grep -aq '"blocks.0.norm3.weight"' "$work/original.safetensors" || fail "no names of the original"
grep -aq '"model.diffusion_model.head.modulation"' "$work/comfyui.safetensors" || fail "no names of ComfyUI"

# I2V of 2.1, which reads features of a picture: random ones here.
config sight 12 1
sed 's/"num_layers": 2/"num_layers": 2, "image_dim": 12, "added_kv_proj_dim": 128/' "$work/sight/config.json" >"$work/a" &&
    mv "$work/a" "$work/sight/config.json"
for names in diffusers original; do
    runs "memory" "$train" $run --model "$work/sight" --random --steps 2 --lr 1e-3 --names $names --save "$work/sight.$names.safetensors"
    rm -f "$work/log"
    runs "Wan 2.1 I2V, 514,884 parameters" "$train" $run --model "$work/sight.$names.safetensors" --steps 1 --lr 0 --log "$work/log"
    losses "$work/log" >"$work/losses.$names"
done
cmp -s "$work/losses.diffusers" "$work/losses.original" || fail "I2V of 2.1: other losses"
grep -aq '"blocks.0.cross_attn.norm_k_img.weight"' "$work/sight.original.safetensors" || fail "no names of the original"
rm -f "$work"/*.log
adapted="$train $run --model $work/sight.original.safetensors --lr 1e-2 --steps 2 --lora-rank 2
    --lora-targets add_k_proj,add_v_proj,condition_embedder.image_embedder.ff.net.2"
runs "memory" $adapted --save "$work/sight.lora" --lora-format kohya --log "$work/adapted.log"
grep -aq '"lora_unet_blocks_0_cross_attn_k_img.lora_up.weight"' "$work/sight.lora" || fail "no adapter of a picture's keys"
grep -aq '"lora_unet_img_emb_proj_3.lora_up.weight"' "$work/sight.lora" || fail "no adapter of a picture's embedder"
runs "memory" $adapted --lora-format original --save "$work/sight.lora2"
for file in sight.lora sight.lora2; do
    rm -f "$work/log"
    runs "memory" "$train" $run --model "$work/sight.diffusers.safetensors" --load "$work/$file" --steps 1 --lr 0 --log "$work/log"
    losses "$work/log" >"$work/losses.$file"
done
cmp -s "$work/losses.sight.lora" "$work/losses.sight.lora2" || fail "adapters of a picture: other losses"
cmp -s "$work/losses.sight.lora" "$work/losses.diffusers" && fail "adapters of a picture change nothing"

# ---- the budget changes no number --------------------------------------------------------------------

# same NAME: the losses and weights of that run are those of the one without a budget.
same() {
    losses "$work/free.log" >"$work/a"
    losses "$work/$1.log" >"$work/b"
    [ -s "$work/a" ] || fail "$1: no losses"
    cmp -s "$work/a" "$work/b" || fail "$1: other losses: $(cat "$work/a" "$work/b")"
    cmp -s "$work/free" "$work/$1" || fail "$1: other weights"
}

small="$device $size --model $work/diffusers.safetensors --batch 2 --steps 3 --warmup 0 --lr 1e-3"
# same_under_budgets OPTION...: the least memory, and with a tier below it.
same_under_budgets() {
    rm -f "$work"/*.log "$work/free"
    runs "memory" "$train" $small "$@" --log "$work/free.log" --save "$work/free"
    refuses 1 "needs at least" "$train" $small "$@" --vram 16K
    runs "memory" "$train" $small "$@" --vram "$(needed)" --log "$work/tight.log" --save "$work/tight"
    same tight
    refuses 1 "needs at least" "$train" $small "$@" --vram 16K --host 32M
    runs "memory" "$train" $small "$@" --vram "$(needed)" --host 32M --log "$work/host.log" --save "$work/host"
    same host
}
same_under_budgets --dtype fp32
same_under_budgets --dtype bf16 --grad-dtype bf16 --ema-decay 0.9 --state bf16
same_under_budgets --dtype bf16 --lora-rank 3 --frozen nf4 --times logit-normal --loss-weights bell

# ---- given first frames ------------------------------------------------------------------------------

config ti2v 4 1
echo '{"expand_timesteps": true}' >"$work/ti2v/model_index.json"
clip="$device --dtype fp32 --frames 9 --height 32 --width 32 --model $work/ti2v --random --batch 4 --warmup 0 --lr 1e-3"
runs "Wan TI2V" "$train" $clip --steps 4 --first-frame 0.5 --log "$work/whole.log" --save "$work/whole"
runs "memory" "$train" $clip --steps 4 --first-frame 0.5 --micro-batch 1 --log "$work/micro.log"
runs "memory" "$train" $clip --steps 2 --first-frame 0.5 --save-state "$work/state"
runs "resumed" "$train" $clip --steps 4 --first-frame 0.5 --resume "$work/state" --save "$work/rest"
cmp -s "$work/whole" "$work/rest" || fail "a run that resumes gives other weights"
runs "resumed" "$train" $clip --steps 3 --first-frame 0.5 --resume "$work/state" --names original --save "$work/named"
rm -f "$work/two.log"
for rank in 1 0; do
    RANK=$rank WORLD_SIZE=2 timeout 100 "$train" $clip --steps 4 --first-frame 0.5 --batch 2 --log "$work/two.log" \
        --ranks "file:$work/meet" >"$work/rank.$rank" 2>&1 &
    [ $rank = 1 ] && other=$!
done
wait $! || fail "rank 0: $(tail -n 2 "$work/rank.0")"
wait $other || fail "rank 1: $(tail -n 2 "$work/rank.1")"
losses "$work/whole.log" | cut -d' ' -f2 >"$work/a"
# same_losses WHAT: four losses in $work/a and $work/b
same_losses() {
    paste "$work/a" "$work/b" | awk '{ d = $1 - $2; if (!(d < 1e-5 * $1 && d > -1e-5 * $1)) bad = 1 } END { exit bad || NR != 4 }' ||
        fail "$1: other losses: $(paste "$work/a" "$work/b")"
}
for log in micro two; do
    losses "$work/$log.log" | cut -d' ' -f2 >"$work/b"
    same_losses "$log"
done
# A single frame is not given: the runs are the same, but for products of another number of rows.
still="$device --dtype fp32 --frames 1 --height 32 --width 32 --model $work/ti2v --random --batch 2 --warmup 0 --lr 1e-3 --steps 4"
runs "memory" "$train" $still --log "$work/none.log"
runs "memory" "$train" $still --first-frame 1 --log "$work/still.log"
losses "$work/none.log" | cut -d' ' -f2 >"$work/a"
losses "$work/still.log" | cut -d' ' -f2 >"$work/b"
same_losses "a single frame was given"
refuses 2 "first-frame is for TI2V models" "$train" $run --model "$work/t2v" --random --steps 1 --first-frame 1

# ---- two experts -------------------------------------------------------------------------------------

config pair/transformer 4 1
config pair/transformer_2 4 1
echo '{"boundary_ratio": 0.875}' >"$work/pair/model_index.json"
cp "$work/diffusers.safetensors" "$work/pair/transformer/diffusion_pytorch_model.safetensors"
runs "memory" "$train" $run --model "$work/pair/transformer" --expert low --steps 1 --lr 1e-3 \
    --save "$work/pair/transformer_2/diffusion_pytorch_model.safetensors"
refuses 2 "give --expert high, low or both" "$train" $run --model "$work/pair" --steps 1
for expert in high low; do
    rm -f "$work/log"
    runs "memory" "$train" $run --model "$work/pair" --expert $expert --steps 1 --lr 0 --log "$work/log"
    losses "$work/log" >"$work/losses.$expert"
done
runs "988.6" "$train" $step --lr 0 --expert high --val "$models/features.safetensors"
cmp -s "$work/losses.high" "$work/losses.low" && fail "the experts are the same"
rm -r "$work/pair/transformer_2"
refuses 2 "neither transformer_2 nor low_noise_model: this is no pair" "$train" $run --model "$work/pair" --expert low

# ---- pictures ----------------------------------------------------------------------------------------

config i2v 12 1
runs "Wan I2V" "$train" $run --model "$work/i2v" --random --steps 2
runs "Wan I2V" "$train" $run --model "$work/i2v" --random --steps 2 --dtype bf16 --lora-rank 2 --expert low

# ---- wrong input -------------------------------------------------------------------------------------

refuses 2 "give uniform or logit-normal" "$train" $run --model "$work/t2v" --random --times cosine
refuses 2 "give equal or bell" "$train" $run --model "$work/t2v" --random --loss-weights min-snr
refuses 2 "give high, low or both" "$train" $run --model "$work/t2v" --random --expert best
refuses 2 "give diffusers, original or comfyui" "$train" $run --model "$work/t2v" --random --names kohya
refuses 2 "names original is for --save FILE" "$train" $run --model "$work/t2v" --random --names original
refuses 2 "expert is for a pair of models" "$train" $run --model "$work/ti2v" --random --expert low
refuses 2 "names is for whole weights" "$train" $run --model "$work/t2v" --random --names original --lora-rank 2
refuses 2 "give --null-text FILE" "$train" $run --model "$work/t2v" --random --text-drop 0.1
refuses 1 "there is no prompt_embedding of one prompt, 512 x 24" "$train" $run --model "$work/t2v" --random \
    --text-drop 0.1 --steps 1 --null-text "$models/diffusers.safetensors"
refuses 2 "image-drop is not for Wan I2V" "$train" $run --model "$work/i2v" --random --image-drop 0.1
refuses 1 "must be even" "$train" $run --model "$work/t2v" --random --height 24
refuses 2 "the shapes in this file are not those of a Wan transformer" "$train" $run --model "$models/features.safetensors"
# weights LAYER: a file of these names and shapes, as another program may write it.
weights() {
    h='{"patch_embedding.weight":{"dtype":"F32","shape":[128,4,1,2,2],"data_offsets":[0,8192]},'
    h=$h'"head.head.weight":{"dtype":"F32","shape":[16,128],"data_offsets":[8192,16384]},'
    h=$h'"blocks.0.ffn.0.weight":{"dtype":"F32","shape":[8,128],"data_offsets":[16384,20480]},'
    h=$h'"time_embedding.0.weight":{"dtype":"F32","shape":[128,16],"data_offsets":[20480,28672]},'
    h=$h'"text_embedding.0.weight":{"dtype":"F32","shape":[128,24],"data_offsets":[28672,40960]},'
    h=$h'"blocks.'$1'.x":{"dtype":"F32","shape":[1],"data_offsets":[40960,40964]}}'
    n=${#h}
    { printf "\\$(printf %o $((n % 256)))\\$(printf %o $((n / 256)))\0\0\0\0\0\0%s" "$h" && head -c 40964 /dev/zero; } \
        >"$work/weights.safetensors"
}
weights 1
runs "predicted step" "$train" $run --model "$work/weights.safetensors" --plan-only
for layer in 5000 99999999999 9223372036854775807; do
    weights $layer
    refuses 2 "the shapes in this file are not those of a Wan transformer" "$train" $run --model "$work/weights.safetensors" --plan-only
done
config bad 5 1
refuses 2 'is neither "out_channels" nor' "$train" $run --model "$work/bad" --random

finish
