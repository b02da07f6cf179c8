#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Directories of adapters that lm-train cannot use: each gets one sentence with what is wrong, before
# the first step.  The settings are those of PEFT's LoraConfig: all of its fields are in a table, as
# what is honoured, what changes nothing, and what is refused.
set -u

. "${srcdir:-.}/tests/model/programs.sh"

train=${LM_TRAIN:-./lm-train}
lm=$root/tests/model/lm
here=$lm/gpt2
run="$train --device cpu --threads 1 --model $here --load $here --data $here/tokens.bin --in-order --batch 2 --length 12 --steps 0 --val $here/tokens.bin"
dir=$work/adapter
mkdir "$dir" "$work/again"

# ---- settings --------------------------------------------------------------------------------------

# with KEY VALUE: settings of the committed adapter, with another value of one field.
with() {
    {
        [ "$1" = peft_type ] || echo '"peft_type": "LORA",'
        [ "$1" = r ] || echo '"r": 2,'
        [ "$1" = lora_alpha ] || echo '"lora_alpha": 6,'
        printf '"%s": %s\n' "$1" "$2"
    } | sed '1s/^/{/; $s/$/}/' >"$dir/adapter_config.json"
}

cp "$here/adapter/adapter_model.safetensors" "$dir"
fields=$work/fields
cat >"$fields" <<'END'
alora_invocation_tokens|[1, 2]|only null is
alpha_pattern|[1]|not an object of layers and numbers
alpha_pattern|{"c_attn": "x"}|is not a number
alpha_pattern|{"(": 3}|pattern .* is not supported
alpha_pattern|{"c_attn": 6}|ok
arrow_config|{"router": 1}|only null is
auto_mapping|{"a": 1}|ok
base_model_name_or_path|"elsewhere"|ok
bias|"all"|supported: none
bias|"lora_only"|supported: none
bias|"none"|ok
corda_config|{"cache": 1}|only null is
ensure_weight_tying|true|ok
eva_config|{"rho": 2}|only null is
exclude_modules|["lm_head"]|ok
exclude_modules|"lm_head"|ok
fan_in_fan_out|true|ok
inference_mode|false|ok
init_lora_weights|"pissa"|supported: true.false.gaussian.orthogonal
init_lora_weights|"pissa_niter_4"|init_lora_weights
init_lora_weights|"olora"|init_lora_weights
init_lora_weights|"loftq"|init_lora_weights
init_lora_weights|"eva"|init_lora_weights
init_lora_weights|"corda"|init_lora_weights
init_lora_weights|"lora_ga"|init_lora_weights
init_lora_weights|"gaussian"|ok
init_lora_weights|false|ok
kasa_config|{"beta": 1}|only null is
layer_replication|[[0, 2], [1, 2]]|only null is
layers_pattern|"h"|ok
layers_to_transform|[0, 1]|ok
loftq_config|{"loftq_bits": 4}|only null is
lora_alpha|"6"|is not a number
lora_alpha|6.0|ok
lora_bias|true|supported: false
lora_dropout|0.25|ok
lora_dropout|1.5|no probability below 1
lora_dropout|-0.1|no probability below 1
lora_dropout|"x"|no probability below 1
lora_ga_config|{"a": 1}|only null is
megatron_config|{"a": 1}|only null is
megatron_core|"megatron.core"|ok
modules_to_save|["wte"]|none of their tensors is there
modules_to_save|[]|ok
modules_to_save|"wte"|not a list of names
modules_to_save|[1]|not a list of names
monteclora_config|{"a": 1}|only null is
peft_type|"LOHA"|supported: LORA
peft_type|"LOKR"|supported: LORA
peft_type|"IA3"|supported: LORA
peft_type|"LORA"|ok
peft_version|"9.9"|ok
qalora_group_size|32|ok
r|3|gives .* the rank 3, but its tensors have rank 2
r|"two"|is not a number
r|2.5|gives .* the rank 2.5
rank_pattern|{"c_fc": 3}|gives .* the rank 3
rank_pattern|3|not an object of layers and numbers
rank_pattern|{"c_fc": 2}|ok
revision|"main"|ok
runtime_config|{"ephemeral_gpu_offload": false}|ok
target_modules|"all-linear"|ok
target_parameters|["mlp.experts.gate_up_proj"]|only null is
task_type|"CAUSAL_LM"|ok
trainable_token_indices|[0, 1]|only null is
use_bdlora|{"a": 1}|only null is
use_dora|true|is true, and its tensors have no
use_dora|"no"|neither true nor false
use_qalora|true|supported: false
use_rslora|true|ok
use_rslora|1|neither true nor false
velora_config|{"a": 1}|only null is
a_new_setting|true|not known here
END
tried=0
while IFS='|' read -r key value text; do
    with "$key" "$value"
    tried=$((tried + 1))
    # shellcheck disable=SC2086
    if [ "$text" = ok ]; then
        runs "validation loss" $run --adapter "$dir"
    else
        refuses 2 "adapter_config.json.*$key\|$text" $run --adapter "$dir"
        grep -q -- "$text" "$work/err" || fail "$key $value: no \"$text\": $(cat "$work/err")"
        [ "$(grep -c . "$work/err")" = 1 ] || fail "$key $value: more than a sentence: $(cat "$work/err")"
    fi
done <"$fields"
[ $tried = "$(grep -c . "$fields")" ] || fail "$tried settings were tried"

# No field of LoraConfig is left out: what PEFT writes is in the committed directories.
sed -n 's/^  "\([a-z_A-Z0-9]*\)":.*/\1/p' "$lm"/*/adapter/adapter_config.json "$lm"/*/dora/adapter_config.json | sort -u |
    while read -r key; do
        grep -q "^$key|" "$fields" || echo "$key"
    done >"$work/left"
[ -s "$work/left" ] && fail "fields without a row: $(cat "$work/left")"

# ---- tensors ---------------------------------------------------------------------------------------

# tensors NAME ROWS[,COLUMNS]...: a file of zeros as adapter_model.safetensors.
tensors() {
    at=0 header='{'
    while [ $# -gt 0 ]; do
        n=$(($(echo "$2" | tr ',' '*') * 4))
        header="$header${at:+}$([ "$header" = '{' ] || echo ,)\"$1\":{\"dtype\":\"F32\",\"shape\":[$2],\"data_offsets\":[$at,$((at + n))]}"
        at=$((at + n))
        shift 2
    done
    header="$header}"
    size=${#header}
    # shellcheck disable=SC2059
    printf "$(printf '\\%03o\\%03o\\0\\0\\0\\0\\0\\0' $((size % 256)) $((size / 256)))" >"$dir/adapter_model.safetensors"
    printf '%s' "$header" >>"$dir/adapter_model.safetensors"
    head -c "$at" /dev/zero >>"$dir/adapter_model.safetensors"
}

printf '{"peft_type": "LORA", "r": 2, "lora_alpha": 4}\n' >"$dir/adapter_config.json"
p=base_model.model.transformer.h.0
a="$p.attn.c_attn.lora_A.weight 2,24" b="$p.attn.c_attn.lora_B.weight 72,2"

# bad STATUS TEXT NAME SHAPE...
bad() {
    status=$1 text=$2
    shift 2
    tensors "$@"
    # shellcheck disable=SC2086
    refuses "$status" "$text" $run --adapter "$dir"
}

# shellcheck disable=SC2086
{
    tensors $a $b
    runs "validation loss" $run --adapter "$dir"
    bad 2 "has no B" $a
    bad 2 "has no A" $b
    bad 2 "has rank 3, and its other factor 2" $a $p.attn.c_attn.lora_B.weight 72,3
    bad 2 "is not a matrix" $p.attn.c_attn.lora_A.weight 2,24,1 $b
    bad 2 "is not a matrix" $p.attn.c_attn.lora_A.weight 0,24 $b
    bad 1 "is for a layer from 24 to 71 values" $a $p.attn.c_attn.lora_B.weight 71,2
    bad 1 "is for a layer from 23 to 72 values" $p.attn.c_attn.lora_A.weight 2,23 $b
    bad 1 "is no layer of GPT-2" $p.attn.qkv.lora_A.weight 2,24 $p.attn.qkv.lora_B.weight 72,2
    bad 1 "is no layer of GPT-2" base_model.model.transformer.h.2.attn.c_attn.lora_A.weight 2,24 \
        base_model.model.transformer.h.2.attn.c_attn.lora_B.weight 72,2
    bad 2 "two adapters of one layer" $a $b $p.attn.c_attn.lora_A.default.weight 2,24
    bad 2 "has 24 values, and its layer 72 rows" $a $b $p.attn.c_attn.lora_magnitude_vector 24
    bad 2 "has no lora_magnitude_vector, which others have" $a $b $p.attn.c_attn.lora_magnitude_vector 72 \
        $p.mlp.c_fc.lora_A.weight 2,24 $p.mlp.c_fc.lora_B.weight 40,2
    bad 2 "two adapters of one layer" $a $b $p.attn.c_attn.lora_magnitude_vector 72 \
        $p.attn.c_attn.lora_magnitude_vector.default.weight 72
    bad 2 "LyCORIS" $a $b $p.attn.c_attn.dora_scale 72,1
    bad 2 "LoHa" $a $b $p.attn.c_attn.hada_w1_a 2,2
    bad 2 "LoKr" $a $b $p.attn.c_attn.lokr_w1 2,2
    bad 2 "OFT" $a $b $p.attn.c_attn.oft_r 2,2
    bad 2 "VeRA" $a $b $p.attn.c_attn.vera_lambda_b 2
    bad 2 "an adapter of an embedding" $a $b base_model.model.transformer.wte.lora_embedding_A 2,48
    bad 2 "lora_bias" $a $b $p.attn.c_attn.lora_B.bias 72
    bad 2 "a trained bias" $a $b $p.attn.c_attn.base_layer.bias 72
    bad 2 "no part of a LoRA adapter" $a $b base_model.model.transformer.wte.weight 48,24
    bad 2 "a difference of weights" $a $b $p.attn.c_attn.diff 72,24
    bad 2 "no part of a LoRA adapter" $a $b $p.attn.c_attn.token_adapter.trainable_tokens_delta 2,24
    bad 2 "no LoRA adapters in it" $p.attn.c_attn.weight 24,72
    bad 2 "gives h.0.attn.c_attn the rank 2, but its tensors have rank 3" $p.attn.c_attn.lora_A.weight 3,24 \
        $p.attn.c_attn.lora_B.weight 72,3
    printf '{"peft_type": "LORA", "r": 2, "lora_alpha": 4, "modules_to_save": ["wte", "ln_f", "score"]}\n' >"$dir/adapter_config.json"
    bad 1 "is the head of GPT-2, too" $a $b base_model.model.transformer.wte.weight 48,24
    bad 1 "is no parameter of GPT-2" $a $b base_model.model.score.weight 2,24
    bad 1 "ln_f" $a $b base_model.model.transformer.ln_f.weight 23
    tensors $a $b base_model.model.transformer.ln_f.weight 24
    runs "validation loss" $run --adapter "$dir"
    # A name of modules_to_save is the end of a layer's name, not a part of it: PEFT's norm is also input_layernorm.
    printf '{"peft_type": "LORA", "r": 2, "lora_alpha": 4, "modules_to_save": ["n_1"]}\n' >"$dir/adapter_config.json"
    tensors $a $b $p.ln_1.weight 24 $p.ln_1.bias 24
    runs "validation loss" $run --steps 1 --adapter "$dir" --save "$work/again/adapter_model.safetensors"
    grep -q '"modules_to_save": \["h.0.ln_1"\]' "$work/again/adapter_config.json" || fail "saved: $(cat "$work/again/adapter_config.json")"
    bad 2 "no part of a LoRA adapter" $a $b $p.ln_2.weight 24
    tensors $a $b $p.attn.c_attn.lora_magnitude_vector 72
    printf '{"peft_type": "LORA", "r": 2, "lora_alpha": 4, "use_dora": false}\n' >"$dir/adapter_config.json"
    refuses 2 "is false, and its tensors have a lora_magnitude_vector" $run --adapter "$dir"
    tensors $a $b
    for text in '{"r": 2, "r": 2}' '{"r": 2' '[]' '"LORA"' ''; do
        printf '%s\n' "$text" >"$dir/adapter_config.json"
        refuses 2 "adapter_config.json" $run --adapter "$dir"
    done
    rm "$dir/adapter_config.json"
    printf 'no tensors' >"$dir/adapter_model.safetensors"
    refuses 2 "adapter_model.safetensors" $run --adapter "$dir"
    rm "$dir/adapter_model.safetensors"
    refuses 2 "adapter" $run --adapter "$dir"
    refuses 2 "no such file" $run --adapter "$work/none"
}
# ---- files that end early ----------------------------------------------------------------------------

# cut FILE PARTS: the file without its end, at so many places; each is refused with one sentence.
cut() {
    rm -rf "$dir" && cp -r "$here/dora" "$dir"
    bytes=$(wc -c <"$dir/$1")
    part=1
    while [ $part -lt "$2" ]; do
        head -c $((bytes * part / $2)) "$here/dora/$1" >"$dir/$1"
        # shellcheck disable=SC2086
        $run --adapter "$dir" >"$work/out" 2>"$work/err"
        rc=$?
        [ $rc = 2 ] && [ "$(grep -c "^lm-train: .*$1" "$work/err")" = 1 ] && [ "$(wc -l <"$work/err")" = 1 ] ||
            fail "$1, part $part of $2: $rc, $(cat "$work/err")"
        part=$((part + 1))
    done
}

cut adapter_config.json 50
cut adapter_model.safetensors 50
finish
