#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lm-train with ranks that split wide layers (--tensor): the losses of one rank, for GPT-2, Llama
# and their kin, with several groups and packed rows, resumed by another number of ranks; plans of
# jobs that do not exist; and what it refuses.
. "${srcdir:-.}/tests/model/programs.sh"
lm="${LM_TRAIN:-./lm-train} --device cpu --threads 1 --warmup 2 --hidden 32 --heads 4 --layers 2
    --mlp 48 --length 64"

prose="--data ${srcdir:-.}/doc/tour.md --steps 5"

for model in tiny tiny-llama tiny-qwen tiny-qwen3 tiny-phi; do
    rm -f "$work/one" "$work/two" "$work/four"
    runs "memory:" $lm --model $model $prose --batch 4 --log "$work/one"
    ranks_run 2 two $lm --model $model $prose --batch 4 --tensor 2 --log "$work/two"
    same_steps one two 1e-6
    ranks_run 4 four $lm --model $model $prose --batch 2 --tensor 2 --log "$work/four" --micro-batch 1 --zero 3
    same_steps one four 1e-6
done
rm -f "$work/one" "$work/four"
runs "memory:" $lm --model tiny $prose --batch 2 --log "$work/one"
ranks_run 4 four $lm --model tiny $prose --batch 2 --tensor 4 --log "$work/four" # a head for each
same_steps one four 1e-6
grep -q "tensor  *2  ranks split the layers" "$work/two.0" || fail "the plan table: $(cat "$work/two.0")"

i=0
while [ $i -lt 48 ]; do
    echo '{"messages": [{"role": "user", "content": "hi '$i'"},
        {"role": "assistant", "content": "yes '$((i * i))'"}]}' | tr -d '\n'
    echo
    i=$((i + 1))
done >"$work/talks.jsonl"
echo "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}\
{% endgeneration %}{% else %}<{{ m.content }}>{% endif %}{% endfor %}" >"$work/template"
talks="--data $work/talks.jsonl --chat-template $work/template --pack --steps 5"
rm -f "$work/one" "$work/two"
runs "memory:" $lm --model tiny-llama $talks --batch 4 --log "$work/one"
ranks_run 2 two $lm --model tiny-llama $talks --batch 4 --tensor 2 --log "$work/two" --val "$work/talks.jsonl"
same_steps one two 1e-6

# another number of ranks continues, on every stage; a model is saved whole
rm -f "$work/whole" "$work/parts" "$work/back"
runs "memory:" $lm --model tiny $prose --batch 4 --log "$work/whole" --save "$work/whole.safetensors"
ranks_run 4 first $lm --model tiny $prose --steps 2 --batch 2 --tensor 2 --log "$work/parts" --zero 3 \
    --save-state "$work/state"
cp "$work/parts" "$work/back"
ranks_run 2 rest $lm --model tiny $prose --batch 4 --tensor 2 --log "$work/parts" --zero 0 --resume "$work/state" \
    --save "$work/split.safetensors"
same_steps whole parts 1e-6
runs "memory:" $lm --model tiny $prose --batch 4 --log "$work/back" --resume "$work/state"
grep "changed: sequence" "$work/out" "$work/err" && fail "parts of layers are parts of tokens"
same_steps whole back 1e-6
for of in whole split; do # what is saved is whole
    rm -f "$work/$of"
    runs "memory:" $lm --model tiny --load "$work/$of.safetensors" $prose --batch 4 --log "$work/$of"
done
same_steps whole split 1e-6

# state in a host tier: the bits of memory without end
wide="--model tiny --hidden 256 --mlp 512 --layers 4 $prose --steps 3 --batch 2 --tensor 2 --zero 2"
ranks_run 2 free $lm $wide --log "$work/free"
ranks_run 2 tier $lm $wide --log "$work/tier" --vram 18M --host 1G
steps_of "free" >"$work/a"
steps_of "tier" >"$work/b"
cmp -s "$work/a" "$work/b" || fail "a host tier: $(paste "$work/a" "$work/b")"
grep -q "offloaded to the host" "$work/tier.0" || fail "nothing is in the host tier: $(cat "$work/tier.0")"

# plans of jobs that do not exist
plan="--plan-only --tensor 2 --batch 2 --model tiny-llama $prose"
runs "plan" $lm $plan --ranks 4 --zero 3 --graph-out "$work/graph"
grep -q "all_reduce 2 layer" "$work/graph" || fail "no sum in the graph"
grep -q "reduce_scatter 2 stride 2" "$work/graph" || fail "no shares of parts in the graph"
./ckpt plan --graph "$work/graph" --machine h200-141 --world 8 >"$work/world" || fail "ckpt plan --world 8: $(cat "$work/world")"
grep -q "each 2 ranks split the layers" "$work/world" || fail "$(cat "$work/world")"
./ckpt plan --graph "$work/graph" --machine h200-141 --world 7 2>"$work/world" && fail "7 ranks are groups of 2"
grep -q "do not divide into groups of 2" "$work/world" || fail "$(cat "$work/world")"
runs "plan" $lm $plan --ranks 2 --zero 3 --graph-out "$work/graph"
./ckpt plan --graph "$work/graph" --machine h200-141 --world 8 2>"$work/world" && fail "one group says how several share"
grep -q -e "record it with --ranks 4 --tensor 2" "$work/world" || fail "$(cat "$work/world")"

# the number that fits and is the fastest for each sample; steps are those of that number
auto="--model tiny $prose --batch 2"
for n in 1 2; do
    size=$($lm $auto --plan-only --ranks 4 --tensor $n --vram 1K 2>&1 |
        sed -n 's/.*needs at least \([0-9]*\) bytes.*/\1/p')
    eval "least$n=$size"
done
between=$(((least1 + least2) / 2))
rm -f "$work/chosen" "$work/given"
ranks_run 4 chosen $lm $auto --tensor auto --vram $between --log "$work/chosen" --save-state "$work/chosen.state"
grep -q "tensor 1: does not fit, needs at least" "$work/chosen.0" || fail "one fits: $(cat "$work/chosen.0")"
grep -q "^--tensor 2: of what fits.*without, a step does not fit" "$work/chosen.0" || fail "not two: $(cat "$work/chosen.0")"
grep -q "^--tensor" "$work/chosen.1" && fail "rank 1 chooses, too: $(cat "$work/chosen.1")"
ranks_run 4 given $lm $auto --tensor 2 --vram $between --log "$work/given"
same_steps chosen given 0
ranks_run 4 kept $lm $auto --steps 7 --tensor auto --resume "$work/chosen.state"
grep -q "^--tensor 2: as in the resumed run" "$work/kept.0" || fail "not kept: $(cat "$work/kept.0")"
runs "changed: tensor was 2, is 1" $lm $auto --batch 4 --steps 7 --resume "$work/chosen.state"
ranks_run 2 free $lm $auto --tensor auto --sequence auto
grep -q "^--sequence 1 --tensor 1: of what fits" "$work/free.0" || fail "not alone: $(cat "$work/free.0")"
auto="$auto --plan-only --ranks 4 --machine h100-80"
runs "^--tensor 1: of what fits" $lm $auto --tensor auto
runs "^--sequence 1 --tensor 1: of what fits" $lm $auto --sequence auto --tensor auto --graph-out "$work/split"
grep -q "^  sequence 1, tensor 4: .* a step of 2 samples" "$work/out" || fail "$(cat "$work/out")"
for of in 1 2 4 tensor.2 tensor.4; do
    [ -s "$work/split.$of" ] || fail "no graph $of"
done
both="--sequence auto --tensor auto --machine h100-80"
for hosts in 1 2; do # over NVLink; over the network
    runs "^best: no split, zero . *in hosts: of what fits\|^best: no split, zero .: of what fits" \
        ./ckpt plan --graph "$work/split" --world 4 --hosts $hosts $both
    [ "$(grep -c "^[a-z]* [st124][a-z]*  *4  *$hosts  zero" "$work/out")" -ge 20 ] || fail "not 5 x 4 ways: $(cat "$work/out")"
    grep -q "^  tensor 4, .*more time for each sample" "$work/out" || fail "$(cat "$work/out")"
done
runs "no way fits" ./ckpt plan --graph "$work/split" --world 4 --vram 1M $both
refuses 1 "split.tensor.4: the graph is of one group" ./ckpt plan --graph "$work/split" --world 8 $both
refuses 2 "a graph is of one number" ./ckpt plan --graph "$work/split" --world 4 --tensor 2 --machine h100-80
runs "tensor 2: .*does not go together with --shard-over host" $lm $auto --tensor auto --shard-over host

ranks_differ --tensor $lm --model tiny $prose

# refused WORDS ARGUMENTS...
refused() {
    words=$1
    shift
    runs_not "$words" $lm --plan-only --ranks 4 --tensor 4 --model tiny $prose "$@"
}
runs_not() {
    words=$1
    shift
    "$@" >"$work/out" 2>"$work/err" && fail "$* is not refused"
    grep -q -e "$words" "$work/err" || fail "$*: $(tail -n 1 "$work/err")"
}
refused "4 ranks do not divide into groups of 3" --tensor 3
refused "6 heads do not divide into 4 equal parts" --heads 6 --hidden 48
refused "50 columns of an MLP do not divide into 4 equal parts" --mlp 50
refused "2 heads of keys do not divide" --model tiny-llama
refused "does not go together with --sequence" --sequence 2
refused "leave out --sequence or --tensor" --sequence auto
refused "leave out --tensor or --sequence" --tensor auto --sequence 2
refused "leave out --tensor or --stages" --tensor auto --stages 4
refused "no number of ranks that split sequences or layers has a plan" --tensor auto --vram 1K
refused "a stage has whole layers" --stages 4
refused "does not go together with --shard-over host" --shard-over host
refused "does not go together with --state" --dtype bf16 --state bf16
refused "layers of experts are not split" --model tiny-qwen3-moe
refused "freezes the weights" --lora-rank 2
refused "needs whole matrices" --optimizer muon
refused "continued by whole models" --sample-every 1
refused "continued by whole models" --eval "$work/talks.jsonl"
refused "deals rows to single ranks" --data "$work/talks.jsonl" --chat-template "$work/template" --pack --balance time
refused "random numbers are drawn\|--tensor" --qat int8
finish
