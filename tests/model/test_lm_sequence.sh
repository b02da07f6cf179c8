#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lm-train with ranks that split the tokens of their samples (--sequence): the losses of one rank,
# for GPT-2 and Llama, with packed rows, with several groups, resumed by another split; and what it
# refuses.
. "${srcdir:-.}/tests/model/programs.sh"
lm="${LM_TRAIN:-./lm-train} --device cpu --threads 1 --warmup 2 --hidden 32 --heads 4 --layers 2
    --mlp 32 --length 64"

i=0
while [ $i -lt 48 ]; do
    echo '{"messages": [{"role": "user", "content": "hi '$i'"},
        {"role": "assistant", "content": "yes '$((i * i))'"}]}' | tr -d '\n'
    echo
    i=$((i + 1))
done >"$work/talks.jsonl"
echo "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}\
{% endgeneration %}{% else %}<{{ m.content }}>{% endif %}{% endfor %}" >"$work/template"
prose="--data ${srcdir:-.}/doc/tour.md"
talks="--data $work/talks.jsonl --chat-template $work/template --pack"

for model in tiny tiny-llama; do
    rm -f "$work/one" "$work/two" "$work/four" "$work/packed" "$work/split"
    runs "memory:" $lm --model $model $prose --steps 4 --batch 4 --log "$work/one"
    ranks_run 2 two $lm --model $model $prose --steps 4 --batch 4 --sequence 2 --log "$work/two"
    same_steps one two 2e-6
    ranks_run 4 four $lm --model $model $prose --steps 4 --batch 2 --sequence 2 --log "$work/four" \
        --micro-batch 1 --loss-chunk 16 --zero 3
    same_steps one four 2e-6
    runs "memory:" $lm --model $model $talks --steps 4 --batch 4 --log "$work/packed"
    ranks_run 4 split $lm --model $model $talks --steps 4 --batch 4 --sequence 4 --log "$work/split" \
        --val "$work/talks.jsonl"
    same_steps packed split 2e-6
done
grep -q "sequence  *4  ranks split the tokens" "$work/split.0" || fail "the plan table: $(cat "$work/split.0")"

rm -f "$work/one" "$work/three"
six="--model tiny --heads 6 --hidden 48 --length 48 $prose --steps 4 --batch 3"
runs "memory:" $lm $six --log "$work/one"
ranks_run 3 three $lm $six --sequence 3 --zero 2 --log "$work/three"
same_steps one three 2e-6

# heads that do not divide: a rank has the keys of all
odd="--model tiny-llama --heads 4 --kv-heads 2 --length 48 $talks --steps 4 --batch 3"
runs "memory:" $lm $odd --log "$work/odd"
ranks_run 3 thirds $lm $odd --sequence 3 --log "$work/thirds"
same_steps odd thirds 2e-6

# another split continues
runs "memory:" $lm --model tiny-llama $prose --steps 4 --batch 4 --log "$work/whole"
ranks_run 4 first $lm --model tiny-llama $prose --steps 2 --batch 2 --sequence 2 --log "$work/parts" \
    --save-state "$work/state"
ranks_run 2 rest $lm --model tiny-llama $prose --steps 4 --batch 4 --sequence 2 --log "$work/parts" \
    --resume "$work/state"
same_steps whole parts 2e-6

# plans of jobs that do not exist
plan="--plan-only --ranks 4 --sequence 2 --batch 2 --model tiny-llama $prose"
runs "plan" $lm $plan --zero 3 --graph-out "$work/graph"
grep -q "all_to_all 2 " "$work/graph" || fail "no exchange in the graph"
./ckpt plan --graph "$work/graph" --machine h200-141 --world 8 >"$work/world" || fail "ckpt plan --world 8: $(cat "$work/world")"
grep -q "each 2 ranks split the tokens" "$work/world" || fail "$(cat "$work/world")"
./ckpt plan --graph "$work/graph" --machine h200-141 --world 7 2>"$work/world" && fail "7 ranks are groups of 2"
grep -q "do not divide into groups of 2" "$work/world" || fail "$(cat "$work/world")"

# the number that fits and is the fastest for each sample; a state has it
auto="--model tiny --hidden 48 --length 48 $prose --batch 2"
ranks_run 3 free $lm $auto --steps 3 --sequence auto
grep -q "^--sequence 1: of what fits" "$work/free.0" || fail "not one: $(cat "$work/free.0")"
grep -q "^--sequence" "$work/free.1" && fail "rank 1 chooses, too: $(cat "$work/free.1")"
for n in 1 3; do
    size=$($lm $auto --plan-only --ranks 3 --sequence $n --vram 1K 2>&1 |
        sed -n 's/.*needs at least \([0-9]*\) bytes.*/\1/p')
    eval "least$n=$size"
done
ranks_run 3 chosen $lm $auto --steps 3 --sequence auto --vram $(((least1 + least3) / 2)) --save-state "$work/three.state"
grep -q "sequence 1: does not fit, needs at least" "$work/chosen.0" || fail "one fits: $(cat "$work/chosen.0")"
grep -q "^--sequence 3: of what fits" "$work/chosen.0" || fail "not three: $(cat "$work/chosen.0")"
ranks_run 3 kept $lm $auto --steps 5 --sequence auto --resume "$work/three.state"
grep -q "^--sequence 3: as in the resumed run" "$work/kept.0" || fail "not kept: $(cat "$work/kept.0")"
grep -q "changed: sequence" "$work/kept.0" && fail "three is a change: $(cat "$work/kept.0")"
refuses 1 "does not divide into 3 equal parts" $lm $auto --steps 5 --length 64 --plan-only --ranks 3 \
    --sequence auto --resume "$work/three.state" --resume-changed
runs "changed: sequence was 3, is 1" $lm $auto --steps 5 --resume "$work/three.state"
runs "^--sequence 1: of what fits" $lm $auto --plan-only --ranks 4 --sequence auto --graph-out "$work/split"
./ckpt plan --graph "$work/split" --machine h200-141 --world 4 --sequence auto >"$work/world" || fail "$(cat "$work/world")"
[ "$(grep -c "^[a-z]* [s124][a-z]*  *4  *1  zero" "$work/world")" = 12 ] || fail "not 3 x 4 ways: $(cat "$work/world")"
grep -q "^best: no split, zero 0: of what fits" "$work/world" || fail "$(cat "$work/world")"
grep -q "^  sequence 4, .*more time for each sample" "$work/world" || fail "$(cat "$work/world")"
./ckpt plan --graph "$work/split" --machine h200-141 --world 4 --sequence auto --vram 64K >"$work/world" || fail "$(cat "$work/world")"
grep -q "no way fits" "$work/world" || fail "$(cat "$work/world")"
refuses 1 "there is no such graph" ./ckpt plan --graph "$work/graph" --machine h200-141 --world 4 --sequence auto
refuses 2 "a graph is of one number" ./ckpt plan --graph "$work/graph" --machine h200-141 --world 4 --sequence 2
refuses 2 "are for --world" ./ckpt plan --graph "$work/graph" --machine h200-141 --sequence auto
refuses 1 "no number of ranks" $lm $auto --plan-only --ranks 3 --sequence auto --vram 1K

ranks_differ --sequence $lm --model tiny $prose --steps 1

# refused NAME WORDS ARGUMENTS...: by 4 ranks, each with the words
refused() {
    refusal=$1
    words=$2
    shift 2
    ranks 4 "$refusal" $lm "$@" && fail "$* is not refused"
    for r in 0 1 2 3; do
        grep -q -e "$words" "$work/$refusal.$r" || fail "$*: rank $r: $(tail -n 1 "$work/$refusal.$r")"
    done
}
refused groups "4 ranks do not divide into groups of 3" --model tiny --length 63 $prose --steps 1 --sequence 3
refused length "length 10 does not divide into 4 equal parts; 8 and 12 do" --model tiny --length 10 $prose \
    --steps 1 --sequence 4
refused experts "a layer of experts orders all tokens" --model tiny-qwen3-moe $prose --steps 1 \
    --sequence 4
refused masked "BERT fills in masked tokens" --model tiny-bert $prose --steps 1 --sequence 4
refused fp8 "to_fp8: the ranks split" --model tiny --hidden 256 --mlp 512 --length 128 $prose \
    --steps 1 --batch 4 --sequence 4 --dtype bf16 --matmul fp8
refused dropout "random numbers are drawn for whole samples" --model tiny $prose --steps 1 \
    --sequence 4 --lora-rank 2 --lora-dropout .1
finish
