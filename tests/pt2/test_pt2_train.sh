#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# pt2-train on archives of PyTorch: the same losses under budgets, after a resume and on two ranks;
# what is saved is read again; adapters, codes and groups; and what is refused.
. "${srcdir:-.}/tests/model/programs.sh"
train=${PT2_TRAIN:-./pt2-train} shards=./tests/pt2/shards
models=$root/tests/import/models
[ -x "$train" ] && [ -x "$shards" ] && command -v gzip >/dev/null || exit 77

# model NAME COPIES FILES [npy]: NAME.pt2, and its samples in the folder NAME.
model() {
    gzip -dc "$models/$1.pt2.gz" >"$work/$1.pt2"
    gzip -dc "$models/$1.safetensors.gz" >"$work/reference"
    mkdir -p "$work/$1"
    "$shards" "$work/reference" "$work/$1" "$2" "$3" ${4-} || fail "no samples of $1"
}
losses() {
    sed -n 's/^{"step": \([0-9]*\), "loss": \([^,]*\),.*/\1 \2/p' "$1"
}
# same NAME A B: two logs have the same losses.
same() {
    losses "$2" >"$work/a"
    losses "$3" >"$work/b"
    [ -s "$work/a" ] && cmp -s "$work/a" "$work/b" || fail "$1: $(paste "$work/a" "$work/b" | head -n 3)"
}
# weights FILE: the checksums of its tensors, without what depends on the file's name.
weights() {
    cmp -s "$work/all.safetensors" "$1" || fail "other weights: $1"
}

# ---- a model with its own loss: budgets, resume, ranks, what is saved -----------------------------
model gpt2 6 3
own="--model $work/gpt2.pt2 --threads 1 --lr 1e-3"
gpt2="$own --data $work/gpt2"
runs "12 samples in 3 files, batches of 4" "$train" $gpt2 --batch 4 --steps 6 --log "$work/one" \
    --save "$work/all.safetensors" --save-pt2 "$work/tuned.pt2" --plan-out "$work/plan"
grep -q "batch 4 in 2 micro-steps of 2" "$work/out" || fail "an archive of fixed sizes: $(grep plan "$work/out")"
least=$(possible "$work/out")
runs memory "$train" $gpt2 --batch 4 --steps 6 --log "$work/two" --vram "$least" --save "$work/two.safetensors"
same "the least budget" "$work/one" "$work/two"
weights "$work/two.safetensors"
runs memory "$train" $gpt2 --batch 4 --steps 6 --log "$work/three" --vram "$least" --host 64M
same "a budget with host memory" "$work/one" "$work/three"
runs memory "$train" $gpt2 --batch 4 --steps 3 --log "$work/parts" --save-state "$work/state"
runs memory "$train" $gpt2 --batch 4 --steps 6 --log "$work/parts" --resume "$work/state" --save "$work/two.safetensors"
same "a run in two parts" "$work/one" "$work/parts"
weights "$work/two.safetensors"
refuses 1 "keep-order no, this run has yes" "$train" $gpt2 --batch 4 --steps 6 --resume "$work/state" --keep-order
mkdir "$work/tmpfs"
# shellcheck disable=SC2016
tiny() {
    unshare -rm sh -c 'mount -t tmpfs -o size=16k tmpfs "$0" && exec "$@"' "$work/tmpfs" "$@"
}
! tiny true 2>/dev/null ||
    refuses 1 "save-pt2 .*: takes .* no room" tiny "$train" $gpt2 --batch 4 --steps 6 --save-pt2 "$work/tmpfs/made"

# The archive with the trained weights is the model that goes on; so are the weights as a file.
runs memory "$train" $gpt2 --batch 2 --steps 2 --log "$work/l1" --load "$work/all.safetensors"
runs memory "$train" $own --model "$work/tuned.pt2" --data "$work/gpt2" --batch 2 --steps 2 --log "$work/l2"
same "an archive with trained weights" "$work/l1" "$work/l2"
runs "loss" "$train" $gpt2 --batch 2 --steps 0 --load "$work/all.safetensors" --val "$work/gpt2/part-000.safetensors"
runs "every op is supported" ./ckpt import "$work/tuned.pt2"
[ "$(wc -c <"$work/gpt2.pt2")" = "$(wc -c <"$work/tuned.pt2")" ] || fail "an archive of another size"
runs "step 4: validation loss" "$train" $gpt2 --batch 2 --steps 4 --val "$work/gpt2" --val-every 2 --log "$work/val"
[ "$(grep -c validation_loss "$work/val")" = 2 ] || fail "no two validations"

# Two ranks see the samples of one with twice the batch.
two() {
    RANK=1 WORLD_SIZE=2 timeout 100 "$@" --ranks "file:$work/meet" >"$work/rank.1" 2>&1 &
    RANK=0 WORLD_SIZE=2 timeout 100 "$@" --ranks "file:$work/meet" >"$work/rank.0" 2>&1 ||
        fail "rank 0: $*: $(tail -n 2 "$work/rank.0")"
    wait $! || fail "rank 1: $*: $(tail -n 2 "$work/rank.1")"
}
two "$train" $gpt2 --batch 2 --steps 6 --log "$work/ranks" --zero 1 --save "$work/two.safetensors" --save-pt2 "$work/two.pt2"
losses "$work/one" >"$work/a"
losses "$work/ranks" >"$work/b"
paste "$work/a" "$work/b" | awk '{ d = $2 - $4; if (d < 0) d = -d; if (d > 4e-6 * $2) bad = 1 }
    END { exit bad || NR != 6 }' || fail "two ranks: $(paste "$work/a" "$work/b")"
runs "every op is supported" ./ckpt import "$work/two.pt2"

# ---- adapters, codes, groups -------------------------------------------------------------------
lora="--lora-rank 4 --lora-targets c_attn,mlp.c_fc --batch 2"
mkdir "$work/peft"
runs "trainable" "$train" $gpt2 $lora --steps 4 --log "$work/l1" --save "$work/peft/adapter_model.safetensors" \
    --save-pt2 "$work/merged.pt2" --lora-merge "$work/merged.safetensors"
grep -q '"r": 4' "$work/peft/adapter_config.json" || fail "no adapter_config.json"
grep -q "c_fc" "$work/peft/adapter_config.json" || fail "no c_fc in adapter_config.json"
grep -q "base_model.model.transformer.h.0.attn.c_attn.lora_A.weight" "$work/peft/adapter_model.safetensors" ||
    fail "no name of PEFT"
# A state of adapters leaves out the weights of the archive.
for codes in model nf4; do
    rm -f "$work/parts" "$work/l2"
    runs memory "$train" $gpt2 $lora --frozen $codes --steps 4 --log "$work/l2"
    runs memory "$train" $gpt2 $lora --frozen $codes --steps 2 --log "$work/parts" --save-state "$work/lora.state"
    grep -q '"value/transformer.h.0.attn.c_attn.weight"' "$work/lora.state" && fail "frozen weights in a state"
    runs resumed "$train" $gpt2 $lora --frozen $codes --steps 4 --log "$work/parts" --resume "$work/lora.state"
    same "adapters in two parts, $codes" "$work/l2" "$work/parts"
done
refuses 1 "was trained on other weights: '.*' is not the one that its run read from --model $work/gpt2.pt2" "$train" $own \
    --model "$work/tuned.pt2" --data "$work/gpt2" $lora --frozen nf4 --steps 4 --resume "$work/lora.state" --resume-changed
refuses 1 "was trained on other weights" "$train" $gpt2 $lora --frozen nf4 --steps 4 --resume "$work/lora.state" --load "$work/all.safetensors"
refuses 2 "is another adapter" "$train" $gpt2 $lora --steps 1 --save "$work/peft/second"
refuses 2 "is another adapter, .* that of --save-ema" "$train" $gpt2 $lora --steps 1 --ema-decay 0.9 --save-ema "$work/peft/second"
refuses 1 "adapter_config.json: is the same file as" "$train" $gpt2 $lora --steps 1 --save "$work/y" \
    --lora-merge "$work/adapter_config.json"
# What is merged is the model with its adapters.
loss_of() {
    runs "validation loss" "$@" --steps 0 --val "$work/gpt2" --batch 2
    sed -n 's/.*validation loss //p' "$work/out" >>"$work/merged.txt"
}
loss_of "$train" $gpt2 $lora --load "$work/peft/adapter_model.safetensors"
loss_of "$train" $gpt2 --load "$work/merged.safetensors"
loss_of "$train" $own --data "$work/gpt2" --model "$work/merged.pt2"
awk 'NR == 1 { first = $1 } { d = $1 - first; if (d > 2e-6 || d < -2e-6) bad = 1 } END { exit bad || NR != 3 }' \
    "$work/merged.txt" || fail "merged: $(cat "$work/merged.txt")"
for codes in int8 nf4; do
    runs "in codes" "$train" $gpt2 --lora-rank 2 --lora-targets attn.c_attn --batch 2 --steps 2 --frozen $codes \
        --lora-merge "$work/merged.safetensors" --vram 400K
    [ -s "$work/merged.safetensors" ] || fail "no merged weights of $codes"
done
refuses 1 "embedding: 'transformer.wpe.weight' has an adapter" "$train" $gpt2 --lora-rank 2 --lora-targets c_fc,wpe \
    --batch 2 --steps 1
runs memory "$train" $gpt2 --batch 2 --steps 2 --freeze 'transformer.w?e.*,*.attn.*' --lr-factors '*.ln_*=3' \
    --decay-factors '*bias=1' --save "$work/two.safetensors"
cmp -s "$work/all.safetensors" "$work/two.safetensors" && fail "--freeze does nothing"

# ---- no loss of its own: .npy, what all samples share, a dynamic batch and length ----------------
model dynamic 4 0 npy
dynamic="--model $work/dynamic.pt2 --data $work/dynamic --threads 1 --lr 1e-2 --loss mse:target"
runs "inputs: x fp32 \[batch, 10, 8\], weights fp32 \[batch\], target fp32 \[batch, 5, 8\] (target)" "$train" $dynamic \
    --batch 4 --steps 12 --val "$work/dynamic"
runs "batch 4 in 2 micro-steps of 2" "$train" $dynamic --batch 4 --steps 2 --micro-batch 2
for kind in l1 huber bce; do
    runs memory "$train" $dynamic --loss $kind:div,target --batch 2 --steps 1
done
refuses 1 "takes 2 samples or more: export it with dynamic_shapes of torch.export.Dim(\"batch\", min=1)" "$train" $dynamic --batch 4 --micro-batch 1 --steps 1
for name in weights. weights.0x weights.+0; do
    refuses 1 "no such dynamic dimension" "$train" $dynamic --dim $name=batch --steps 1
done
refuses 1 "x.1=7: .* a size that is 2 times dimension s60 cannot be 7" "$train" $dynamic --dim x.1=7 --steps 1
for size in x.1=12 s60=6; do
    refuses 1 "--dim $size: axis 1 of input 'x' is then 12, and in .*x.npy it is 10" "$train" $dynamic --dim $size --steps 1
done
refuses 1 "--dim weights.0=4: axis 0 of input 'x' is the batch, and --batch is 8" "$train" $dynamic --dim weights.0=4 --batch 8 --steps 1
refuses 1 "--dim s7=4: axis 0 .* --micro-batch is 2" "$train" $dynamic --dim s7=4 --batch 4 --micro-batch 2 --steps 1
runs memory "$train" $dynamic --dim x.1=10,x.0=4 --batch 4 --steps 1
refuses 1 "Dim(\"batch\", min=1)" "$train" $dynamic --batch 4 --micro-batch auto --steps 1
refuses 1 "axis 0 of input 'weights' is the batch, so each sample has values of its own: give it in --data" \
    "$train" $dynamic --shared "$work/dynamic/weights.npy" --steps 1
runs "smallest possible" "$train" --model "$work/dynamic.pt2" --loss mse:target --dim weights.0=batch,x.1=12 --plan-only

for out in "--save-pt2 $work/dynamic/x.npy" "--save $work/dynamic/y.npy" "--save-ema $work/dynamic/y.safetensors --ema-decay 0.9"; do
    refuses 1 "is written where --data" "$train" $dynamic --batch 4 --steps 1 $out
done

# What all samples have in common is given once.
model probe 1 1 npy
mv "$work/probe/weights.npy" "$work/weights.npy"
probe="--model $work/probe.pt2 --data $work/probe --threads 1 --loss mse:target"
runs "weights (shared)" "$train" $probe --shared "$work/weights.npy" --steps 2 --log "$work/s1"
mv "$work/weights.npy" "$work/probe"
runs memory "$train" $probe --steps 2 --log "$work/s2"
same "a shared input" "$work/s1" "$work/s2"
refuses 1 "has no input of the model" "$train" $probe --shared "$work/dynamic/x.npy" --steps 1

# A sample is a call of the model where its inputs have an axis more than the model's.
model volume 4 0 npy
volume="--model $work/volume.pt2 --data $work/volume --threads 1 --batch 2 --keep-order"
runs memory "$train" $volume --steps 3 --log "$work/v1"
for name in volume classes; do
    LC_ALL=C sed "s/: (4,\(.*\),), }  /: (4,1,\1,), }/" "$work/volume/$name.npy" >"$work/$name.npy" &&
        mv "$work/$name.npy" "$work/volume"
done
runs "volume fp32 \[batch, 1, 1, 6, 8, 8\]" "$train" $volume --steps 3 --log "$work/v2"
same "samples as calls" "$work/v1" "$work/v2"

# Targets that are inputs, too; kernels, batch norm, archives without values.
model vit 4 2
vit="--model $work/vit.pt2 --data $work/vit --threads 1"
runs memory "$train" $vit --loss ce:1,labels --steps 2
refuses 1 "'pixel_values' is \[2, 3, 16, 16\], and output 1 of the model \[2, 5\]: both must have the same sizes" \
    "$train" $vit --loss mse:1,pixel_values --steps 1
refuses 1 "'labels' is \[2\], and output 1 of the model \[2, 5\]: both must" "$train" $vit --loss mse:1,labels --steps 1
refuses 1 "reads floats.*whole numbers" "$train" $vit --loss ce:1,pixel_values --steps 1
model norms 2 2
norms="--model $work/norms.pt2 --data $work/norms --threads 1 --lr 1e-2"
runs memory "$train" $norms --steps 8 --save "$work/norms.safetensors" --val "$work/norms"
gzip -dc "$root/tests/import/empty/norms.pt2.gz" >"$work/empty.pt2"
runs memory "$train" $norms --model "$work/empty.pt2" --load "$work/norms.safetensors" --steps 1
refuses 1 "exported without values: give the weights with --load" "$train" $norms --model "$work/empty.pt2" --steps 1
refuses 1 "no values that could\|exported without values" "$train" $norms --model "$work/empty.pt2" \
    --load "$work/norms.safetensors" --steps 1 --save-pt2 "$work/out.pt2"

# ---- the page: its command line, with this model ---------------------------------------------------
mkdir "$work/page" && cp "$work/gpt2.pt2" "$work/page/model.pt2" && cp "$work/gpt2/part-000.safetensors" "$work/page/train.safetensors"
line=$(sed -n 's/^    pt2-train \(--model model.pt2 .*\)/\1/p' "$root/doc/import.md")
command=$(cd "$(dirname "$train")" && pwd)/$(basename "$train")
(cd "$work/page" && $command $line --steps 3 --threads 1) >"$work/out" 2>"$work/err" || fail "the page: $(tail -n 2 "$work/err")"
[ -s "$work/page/tuned.safetensors" ] || fail "the page: no weights"

# ---- signals ------------------------------------------------------------------------------------
"$train" $gpt2 --batch 2 --steps 1000000 --log "$work/long" --save-state "$work/stopped" >"$work/out" 2>&1 &
pid=$!
wait_steps "$work/long" 3
kill -INT $pid
wait $pid || fail "a signal: $(tail -n 2 "$work/out")"
[ -s "$work/stopped" ] || fail "a signal saves no state"

# ---- what is refused ------------------------------------------------------------------------------
wrong() {
    text=$1
    shift
    refuses 1 "$text" "$train" $own --steps 1 "$@"
}
mkdir "$work/w" "$work/none"
wrong "there are no such files" --data "$work/none"
wrong "there are no such files" --data "$work/none/*.safetensors"
# npy NAME: a folder with the samples of gpt2 as .npy.
npy() {
    mkdir -p "$work/w/$1"
    "$shards" "$work/gpt2.reference" "$work/w/$1" 2 0 npy
}
gzip -dc "$models/gpt2.safetensors.gz" >"$work/gpt2.reference"
gzip -dc "$models/whisper.safetensors.gz" >"$work/whisper.reference"
mkdir "$work/other" "$work/more" "$work/floats"
"$shards" "$work/whisper.reference" "$work/other" 2 0 npy
"$shards" "$work/gpt2.reference" "$work/more" 3 0 npy
npy good
runs memory "$train" $own --steps 2 --data "$work/w/good"
npy missing && rm "$work/w/missing/labels.npy"
wrong "'labels' is not in .*input_ids.npy: give it there" --data "$work/w/missing"
npy unequal && cp "$work/more/labels.npy" "$work/w/unequal"
wrong "'input_ids' has 4 samples, and 'labels' 6" --data "$work/w/unequal"
npy shape && cp "$work/other/labels.npy" "$work/w/shape"
wrong "labels.npy: 'labels' has 10 along an axis where input 'labels' of the model has 16" --data "$work/w/shape"
npy axes && cp "$work/norms/part-000.safetensors" "$work/w/axes" && cp "$work/dynamic/weights.npy" "$work/w/axes/labels.npy"
wrong "labels.npy: 'labels' is F32, and the model reads whole numbers" --data "$work/w/axes"
npy cut && head -c 200 "$work/more/labels.npy" >"$work/w/cut/labels.npy"
wrong "labels.npy: is not whole" --data "$work/w/cut"
npy large && printf '\377\377\377\377\377\377\377\177' |
    dd of="$work/w/large/labels.npy" bs=1 seek=128 conv=notrunc 2>/dev/null
wrong "labels.npy: tensor 'labels': element 0 does not fit in 32 bits" --data "$work/w/large" --keep-order
npy turned && LC_ALL=C sed 's/<i8/>i8/' "$work/more/labels.npy" >"$work/w/turned/labels.npy"
wrong "labels.npy: has its bytes in the order of other processors" --data "$work/w/turned"
npy columns && LC_ALL=C sed "s/False, 'shape'/True , 'shape'/" "$work/more/labels.npy" >"$work/w/columns/labels.npy"
wrong "labels.npy: has its columns in turn" --data "$work/w/columns"
npy twice && cp "$work/more/labels.npy" "$work/w/twice/labels-1.npy"
wrong "'input_ids' has 4 samples, and 'labels' 10" --data "$work/w/twice"
npy index && printf '\377' | dd of="$work/w/index/labels.npy" bs=1 seek=136 conv=notrunc 2>/dev/null
wrong "255" --data "$work/w/index" --keep-order
wrong "is not a zip archive" --data "$work/gpt2" --model "$work/all.safetensors"
LC_ALL=C sed 's/\x42/\x43/g' "$work/gpt2.pt2" >"$work/odd.pt2"
printf 'ABCD' | dd of="$work/odd.pt2" bs=1 seek=200 conv=notrunc 2>/dev/null
wrong "odd.pt2" --data "$work/gpt2" --model "$work/odd.pt2"
cp "$work/gpt2.pt2" "$work/odd.pt2" && printf 'ABCD' | dd of="$work/odd.pt2" bs=1 seek=200 conv=notrunc 2>/dev/null
wrong "is damaged: its bytes have the sum" --data "$work/gpt2" --model "$work/odd.pt2"
wrong "give a multiple of 2, or export it with dynamic_shapes" --data "$work/gpt2" --batch 3
wrong "for 2 samples a call: leave it out" --data "$work/gpt2" --batch 4 --micro-batch 1
wrong "has no output 'logit'" --data "$work/gpt2" --loss ce:logit,labels
wrong "give mse, l1, huber, bce or ce" --data "$work/gpt2" --loss mae:0,labels
wrong "a loss has none: give KIND:1,TARGET" --data "$work/gpt2" --loss 1
wrong "is called so; ckpt import .*--report lists them" --data "$work/gpt2" --lora-rank 2 --lora-targets q_proj
wrong "no trained parameter has such a name" --data "$work/gpt2" --freeze 'encoder.*'
wrong "no parameter is left to train" --data "$work/gpt2" --freeze '*'
wrong "--grad-dtype bf16 would change nothing" --data "$work/gpt2" --grad-dtype bf16
wrong "no large matrix is untrained" --data "$work/gpt2" --frozen nf4
wrong "has no parameter of this model" --data "$work/gpt2" --load "$work/norms.safetensors"
wrong "--val .*has 4 samples, and a batch has 8" --data "$work/gpt2" --batch 8 --val "$work/gpt2/part-000.safetensors"
refuses 2 "give the archive with --model" "$train" --data "$work/gpt2"
refuses 2 "give the inputs of the model with --data" "$train" $own
refuses 2 "name the layers with --lora-targets" "$train" $gpt2 --lora-rank 2
refuses 2 "codes cannot hold merged weights" "$train" $gpt2 --lora-rank 2 --lora-targets c_fc --frozen nf4 --save-pt2 "$work/x"
refuses 1 "returns no loss.*--loss mse:target" "$train" --model "$work/dynamic.pt2" --data "$work/dynamic"
finish
