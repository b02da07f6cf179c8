#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The commands of doc/recipe-conversations.md, on a CPU with a tiny model of random weights.
. "${srcdir:-.}/tests/recipes/pages.sh"
small="--device cpu --threads 1 --vram 1G --host 64M --length 96"
home=$work/home
program lm-train $small --steps 3 --batch 1
program lm-sample $small --sample-tokens 8

# What the download brings: a tokenizer and a template of Qwen's kind.
mkdir "$work/tokenizer"
cp "$root/tests/tokenizer/qwen2.json" "$work/tokenizer/tokenizer.json"
cp "$root/tests/model/chat/chatml.jinja" "$work/tokenizer/chat_template.jinja"
for i in 1 2 3 4 5 6; do
    printf '{"messages": [{"role": "user", "content": "say %d"}, {"role": "assistant", "content": "cat %d"}]}\n' $i $i
done >"$home/train.jsonl"
cp "$home/train.jsonl" "$home/held-out.jsonl"
echo '{"prompt": "say 1", "answer": "cat 1"}' >"$home/questions.jsonl"
if ! ./lm-train --model tiny-qwen3 --hidden 64 --heads 2 --kv-heads 1 --layers 1 --mlp 64 --vocabulary 490 --length 96 --device cpu \
    --threads 1 --tokenizer "$work/tokenizer" --data "$home/train.jsonl" --batch 1 --steps 1 --save-hf "$work/tiny" >"$work/out" 2>&1; then
    grep -q "built without" "$work/out" && exit 77
    fail "$(cat "$work/out")"
fi
stand_in hf <<SH
for to; do :; done
[ "\$1" = download ] && mkdir -p "\$to" && cp -r "$work/tiny/." "\$to"
SH
run_page doc/recipe-conversations.md 5
[ -s "$home/adapter/adapter_config.json" ] || fail "no directory of PEFT"
[ -s "$home/merged/model.safetensors" ] || fail "no merged weights"
grep -q exact_answers "$home/train.log" || fail "no exact answers in the log"
finish
