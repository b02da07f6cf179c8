#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# text-encode as a user or a script runs it: budgets, batches and files change no number, existing
# files are kept, and wrong input gets one sentence and a non-zero exit.
set -u

. "${srcdir:-.}/tests/model/programs.sh"

encode=${TEXT_ENCODE:-./text-encode}
here=$root/tests/text
model="--model $here/t5 --tokenizer $here/tokenizer --device cpu --threads 1"

"$encode" --version | grep -q libckpt || fail "--version"
printf 'A rabbit walks across a green meadow.\n\nthe old fisherman\r\nThe sea at night</s>\na dog\n' \
    >"$work/prompts"
cat >"$work/table.csv" <<'CSV'
path,text,fps
a.mp4,A rabbit walks across a green meadow.,24
b.mp4,"",24

c.mp4,the old fisherman,24
"d ""x"".mp4","The sea at night</s>",24
e.mp4,a dog,"24"
CSV

# Without libsentencepiece prompts are refused, and there is nothing more to try.
if ! "$encode" $model --family cogvideox --prompts "$work/prompts" --output "$work/free" \
    --length 12 >"$work/out" 2>"$work/err"; then
    grep -q "built without libsentencepiece" "$work/err" || fail "$(cat "$work/err")"
    [ "$failures" = 0 ] && exit 77
    exit 1
fi
grep -q "5 prompts of 12 tokens to features of 24, bf16" "$work/out" || fail "no summary"

# run NAME FAMILY OPTION...
run() {
    name=$1 family=$2
    shift 2
    "$encode" $model --family "$family" --length 12 --output "$work/$name" "$@" >"$work/out" \
        2>"$work/err" || fail "$name: $(cat "$work/err")"
}

# ---- nothing but the prompts makes a number ---------------------------------------------------------

run csv cogvideox --csv "$work/table.csv"
cmp -s "$work/free" "$work/csv" || fail "a column of a table gives other features"
run tight cogvideox --prompts "$work/prompts" --vram "$(
    run plan cogvideox --prompts "$work/prompts"
    possible "$work/out"
)"
cmp -s "$work/free" "$work/tight" || fail "the smallest budget gives other features"
run batch cogvideox --prompts "$work/prompts" --batch 2 --dtype fp32
run one cogvideox --prompts "$work/prompts" --batch 5 --dtype fp32
[ "$(wc -c <"$work/batch")" = "$(wc -c <"$work/one")" ] || fail "batches of two: another size"
run mask opensora --prompts "$work/prompts"
grep -q '"y"' "$work/mask" && grep -q '"mask"' "$work/mask" || fail "opensora: no y and mask"
grep -q '"prompt_embedding"' "$work/free" || fail "cogvideox: no prompt_embedding"
grep -q '"mask"' "$work/free" && fail "cogvideox has a mask"

# ---- UMT5 ---------------------------------------------------------------------------------------------

# values FILE SKIP N: N of the first tensor, behind a header whose length is its first number.
values() {
    od -An -v -tf4 -w4 -j $((8 + $(od -An -tu8 -N8 "$1") + 4 * $2)) -N $((4 * $3)) "$1"
}

# umt5 NAME LENGTH OPTION...: a prompt, and an empty one, of which only </s> has features.
umt5() {
    name=$1 length=$2
    shift 2
    runs "2 prompts of $length tokens to features of 24" "$encode" --model "$root/tests/text/umt5" \
        --tokenizer "$root/tests/tokenizer/umt5.json" --device cpu --threads 1 --family wan \
        --dtype fp32 --length "$length" --output "$work/$name" "$@"
}
printf 'A rabbit walks &amp; sees.\n\n' >"$work/wan"
printf ' A  rabbit\twalks &amp;amp; sees. \n\n' >"$work/escaped"
"$encode" --model "$root/tests/text/umt5" --tokenizer "$root/tests/tokenizer/umt5.json" --device cpu \
    --family wan --prompts "$work/wan" --output "$work/probe" >"$work/out" 2>"$work/err" ||
    grep -q "built without" "$work/err" || fail "$(cat "$work/err")"
if [ -e "$work/probe" ]; then
    umt5 long 64 --prompts "$work/wan"
    umt5 short 32 --prompts "$work/wan" # padding is not read
    values "$work/long" 0 $((32 * 24)) >"$work/a"
    values "$work/short" 0 $((32 * 24)) >"$work/b"
    # Products of half the rows have the same bits on some processors only.
    paste "$work/a" "$work/b" | awk '{ d = $1 - $2; if (!(d < 1e-4 && d > -1e-4)) bad = 1 } END { exit bad || NR < 100 }' ||
        fail "wan: padding changes features"
    values "$work/long" $((65 * 24)) $((63 * 24)) | grep -qv '^ *0$' && fail "wan: padding is not zero"
    values "$work/long" $((64 * 24)) 24 | grep -q '^ *0$' && fail "wan: an empty prompt has no </s>"
    umt5 same 64 --prompts "$work/escaped"
    cmp -s "$work/long" "$work/same" || fail "wan: not cleaned"
    umt5 tight 64 --prompts "$work/wan" --vram "$(
        umt5 plan 64 --prompts "$work/wan"
        possible "$work/out"
    )"
    cmp -s "$work/long" "$work/tight" || fail "wan: a budget changes features"
fi

# ---- several files, and resuming ----------------------------------------------------------------------

run part.safetensors cogvideox --prompts "$work/prompts" --shard 2 --batch 2
for i in 1 2 3; do
    [ -s "$work/part-0000$i-of-00003.safetensors" ] || fail "no file $i of 3"
done
cp "$work/part-00001-of-00003.safetensors" "$work/first"
cp "$work/part-00003-of-00003.safetensors" "$work/third"
rm "$work/part-00003-of-00003.safetensors"
head -c 500 "$work/part-00002-of-00003.safetensors" >"$work/cut"
cp "$work/cut" "$work/part-00002-of-00003.safetensors"
touch -d 2020-01-01 "$work/part-00001-of-00003.safetensors"
run part.safetensors cogvideox --prompts "$work/prompts" --shard 2 --batch 2 --resume
grep -q "kept: 2 prompts" "$work/out" || fail "--resume: $(cat "$work/out")"
cmp -s "$work/third" "$work/part-00003-of-00003.safetensors" || fail "--resume: another third file"
[ "$work/part-00001-of-00003.safetensors" -ot "$work/first" ] || fail "--resume wrote a whole file"
[ "$(wc -c <"$work/part-00002-of-00003.safetensors")" -gt 500 ] || fail "--resume kept a cut file"
sed 's/rabbit/dog/' "$work/prompts" >"$work/other"
run part.safetensors cogvideox --prompts "$work/other" --shard 2 --batch 2 --resume
grep -q "kept: 3 prompts" "$work/out" || fail "--resume kept features of another prompt"
run part.safetensors cogvideox --prompts "$work/other" --shard 2 --batch 2 --resume --dtype fp32
grep -q "kept" "$work/out" && fail "--resume kept features of another type"

# ---- messages -------------------------------------------------------------------------------------------

runs "1 prompt is longer than 12 tokens and cut: line 1" "$encode" $model --family cogvideox \
    --length 12 --prompts "$work/prompts" --output "$work/short"
printf 'a caf&eacute; by the sea\n' >"$work/entity"
runs "1 prompt has parts that were not cleaned: line 1: an entity of HTML" "$encode" $model \
    --family opensora --prompts "$work/entity" --output "$work/entity.out"
runs "profile: op" "$encode" $model --family opensora --prompts "$work/entity" \
    --output "$work/profile.out" --profile

# ---- wrong input ----------------------------------------------------------------------------------------

# wrong TEXT OPTION...
wrong() {
    text=$1
    shift
    rm -f "$work/never"
    refuses 1 "$text" "$encode" --device cpu --family cogvideox --output "$work/never" "$@"
    [ "$(wc -l <"$work/err")" = 1 ] || fail "more than a sentence: $(cat "$work/err")"
    [ ! -e "$work/never" ] || fail "wrote features: $text"
}
mend="--tokenizer $here/tokenizer --prompts $work/prompts"
cp -R "$here/t5" "$work/t5"
rm "$work/t5/model-00002-of-00002.safetensors"
wrong "model-00002-of-00002.safetensors" --model "$work/t5" $mend
head -c 40000 "$here/t5/model-00002-of-00002.safetensors" >"$work/t5/model-00002-of-00002.safetensors"
wrong "model-00002-of-00002.safetensors" --model "$work/t5" $mend
cp "$here/t5/model-00002-of-00002.safetensors" "$work/t5"
sed 's/"d_ff": 40/"d_ff": 41/' "$here/t5/config.json" >"$work/t5/config.json"
wrong "shape" --model "$work/t5" $mend
sed 's/"gated-gelu"/"relu"/' "$here/t5/config.json" >"$work/t5/config.json"
wrong "feed_forward_proj.* is \"relu\".*supported: gated-gelu" --model "$work/t5" $mend
sed 's/448/100/' "$here/t5/config.json" >"$work/t5/config.json"
wrong "shape" --model "$work/t5" $mend
sed 's/"num_layers": 2/"num_layers": 1/' "$here/t5/config.json" >"$work/t5/config.json"
wrong "the model has no place for encoder.block.1" --model "$work/t5" $mend
wrong "model_type.* is \"gpt2\"; the text encoder is t5" --model "$root/tests/model/lm/gpt2" $mend
wrong "no-such-place" --model "$work/no-such-place" $mend
wrong "spiece.model" --model "$here/t5" --prompts "$work/prompts"
wrong "not a model of SentencePiece" --model "$here/t5" --tokenizer "$work/prompts" --prompts "$work/prompts"
mend="--model $here/t5 --tokenizer $here/tokenizer"
: >"$work/empty"
wrong "is empty; one prompt per line" $mend --prompts "$work/empty"
wrong "is empty; a row with names" $mend --csv "$work/empty"
wrong "has no column \"caption\"; the first is \"path\"" $mend --csv "$work/table.csv" --column caption
printf 'path,text\n' >"$work/head.csv"
wrong "no row below" $mend --csv "$work/head.csv"
printf 'path,text\na.mp4\n' >"$work/ragged.csv"
wrong "line 2: has 1 columns" $mend --csv "$work/ragged.csv"
printf 'path,text\na.mp4,"open\n' >"$work/open.csv"
wrong "line 2: a quote is not closed" $mend --csv "$work/open.csv"
printf 'a\0b\n' >"$work/zero"
wrong "line 1: has a zero byte" $mend --prompts "$work/zero"
wrong "no-such-file" $mend --prompts "$work/no-such-file"
refuses 2 "give one of --prompts FILE and --csv FILE" "$encode" $model --family opensora --output "$work/x"
refuses 2 "give opensora, cogvideox or wan" "$encode" $model --family mochi --prompts "$work/prompts" \
    --output "$work/x"
refuses 2 "is for --csv" "$encode" $model --family opensora --prompts "$work/prompts" \
    --column text --output "$work/x"
refuses 1 "needs at least" "$encode" $model --family opensora --prompts "$work/prompts" --vram 8K \
    --output "$work/x"

finish
