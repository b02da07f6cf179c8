#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Programs write all requested files, or refuse before the run: unwritable names, one file requested
# twice, files for which a run has no data.  Temporary files of a killed run are removed;  FIFOs and
# devices as inputs do not block.
. "${srcdir:-.}/tests/model/programs.sh"
train=${STDIT_TRAIN:-./stdit-train} sample=${STDIT_SAMPLE:-./stdit-sample}
lm=${LM_TRAIN:-./lm-train} vae=${VAE_TRAIN:-./vae-train} encode=${VAE_ENCODE:-./vae-encode} decode=${VAE_DECODE:-./vae-decode}
ckpt=${CKPT_COMMAND:-./ckpt} mlp=${EXAMPLES:-./examples}/mlp
for program in "$train" "$sample" "$lm" "$vae" "$encode" "$decode" "$ckpt" "$mlp"; do
    [ -x "$program" ] || exit 77
done
small="--hidden 24 --heads 2 --depth 1 --caption-channels 8 --text-tokens 4 --latent 2x4x4 --threads 1"
auto="--spatial-widths 4,8 --spatial-layers 1 --temporal-widths 4,4,4 --temporal-layers 1 --groups 2"
auto="$auto --latent 2 --threads 1"
clips="--random 5x16x16 --batch 1"
words="--ema-decay 0.9 --hidden 16 --heads 2 --layers 1 --mlp 16 --length 8 --batch 1 --threads 1 --data random"
mkfifo "$work/fifo" && mkdir "$work/dir" || exit 77

# soon STATUS TEXT COMMAND...: refuses, within 20 seconds: nothing is waited for.
soon() {
    status=$1 text=$2
    shift 2
    refuses "$status" "$text" timeout 20 "$@"
    [ "$(wc -l <"$work/err")" = 1 ] || fail "more than a sentence: $*: $(cat "$work/err")"
}

# ---- names that cannot be written ----------------------------------------------------------------

long=$(printf '%0250d' 7)
for option in save save-ema save-state dump log; do
    soon 1 "is a directory" "$train" $small --$option "$work/dir"
    soon 1 "No such file" "$vae" $auto $clips --$option "$work/none/x"
    soon 1 "nobody reads" "$train" $small --$option "$work/fifo"
    soon 1 "is a directory" "$lm" $words --$option "$work/dir"
    [ $option = log ] || soon 1 "name is too long" "$train" $small --$option "$work/$long"
done
for option in plan-out graph-out machine-out trace-out; do
    soon 1 "is a directory" "$train" $small --$option "$work/dir"
    soon 2 "No such file" "$mlp" --$option "$work/none/x"
    soon 2 "is for programs that train" "$encode" --plan-only --$option "$work/x" a b
    soon 2 "is for programs that train" "$sample" --plan-only --$option "$work/x"
done
soon 2 "is for programs that train" "$sample" --plan-only --state bf16
soon 2 "is for programs that train" "$encode" --plan-only --activations 8bit a b
soon 2 "is for programs that train" "$sample" --plan-only --save-async
soon 2 "is for programs that train" "$encode" --plan-only --sequence 2 a b
soon 1 "not a directory" "$vae" $auto $clips --out /dev/null
soon 1 "--save-hf /dev/null: .*not a directory" "$lm" $words --save-hf /dev/null
soon 1 "is a directory" "$ckpt" machine --out "$work/dir"
soon 1 "is a directory" "$ckpt" plan --graph x --svg "$work/dir" --sweep
soon 1 "is a directory" "$encode" $auto --load x examples/data/bunny.rgb "$work/dir"
soon 1 "No such file" "$decode" $auto --load x "$work/none" "$work/none/a.rgb"

# ---- one file for two ------------------------------------------------------------------------------

cp "$root/README.md" "$work/text"
for option in data val tokenizer; do
    soon 1 "is the same file as --$option" "$lm" ${words% --data random} --$option "$work/text" --save "$work/text"
done
cmp -s "$root/README.md" "$work/text" || fail "a text was written over"
# A pattern of data that matches an output, which may not exist yet.
mkdir "$work/texts" && cp "$root/README.md" "$work/texts/a.txt"
(cd "$work" && ln -s texts others)
for option in data val; do
    for output in "save $work/texts/b.txt" "log $work/others/b.txt" "plan-out $work/texts/../texts/a.txt"; do
        soon 1 "${output%% *} .*: is written where --$option .*/texts/\\*.txt reads" "$lm" \
            ${words% --data random} --$option "$work/texts/*.txt" --$output
    done
    soon 1 "is written where --$option" "$lm" ${words% --data random} --$option "$work/texts/*" --save-hf "$work/texts"
    soon 1 "is written where --$option" "$lm" ${words% --data random} --$option "$work/t*/*" --tensorboard "$work/texts"
done
# The name of a file is no pattern, whatever its characters.
cp "$root/README.md" "$work/texts/s [1]*.txt"
soon 1 "same file as --data" "$lm" ${words% --data random} --data "$work/texts/s [1]*.txt" --save "$work/texts/s [1]*.txt"
runs "memory:" "$lm" ${words% --data random} --data "$work/texts/s [1]*.txt" --steps 1 --save "$work/texts/s 1.txt"
rm "$work/texts/s"*
runs "memory:" "$lm" ${words% --data random} --data "$work/texts/*.txt" --steps 1 --save "$work/texts/b" \
    --log "$work/b.txt"
soon 1 "same file as --save " "$train" $small --save "$work/x" --save-ema "$work/x"
soon 1 "same file as --save" "$vae" $auto $clips --save "$work/x" --save-state "$work/dir/../x"
soon 1 "same file as --save" "$train" $small --save "$work/x" --plan-out "$work/x"
: >"$work/read"
ln "$work/read" "$work/link"
soon 1 "which is read" "$train" $small --load "$work/read" --log "$work/link"
soon 1 "which is read" "$train" --features "$work/read" --save "$work/link"
soon 1 "which is read" "$encode" $auto --load w "$work/read" "$work/link"
soon 1 "which is read" "$ckpt" plan --graph "$work/read" --out "$work/link"

# ---- asked for, and nothing to write -----------------------------------------------------------------

for option in save save-ema save-state log dump plan-out graph-out; do
    soon 2 "nothing would be written: --steps 0" "$train" $small --steps 0 --$option "$work/x"
    soon 2 "nothing would be written: --steps 0" "$vae" $auto $clips --steps 0 --$option "$work/x"
    soon 2 "nothing would be written: --steps 0" "$lm" $words --steps 0 --$option "$work/x"
done
for option in save save-ema save-state log dump machine-out trace-out; do
    soon 2 "nothing would be written: --plan-only" "$train" $small --plan-only --$option "$work/x"
done
soon 2 "nothing would be written" "$lm" $words --plan-only --save-hf "$work/x"
soon 2 "nothing would be written" "$lm" $words --steps 0 --save-hf "$work/x"
soon 2 "no average" "$train" $small --ema-decay 0 --save-ema "$work/x"
soon 2 "needs --save-state" "$train" $small --save-every 2
soon 2 "nothing would be written there" "$vae" $auto $clips --plan-only --out "$work/x"
soon 2 "no step is timed" "$mlp" --plan-only --machine-out "$work/x"
soon 2 "keeps none" "$ckpt" plan --graph x --sweep --out "$work/x"
runs "nothing will be written there" "$train" $small --steps 1 --out "$work/o"
ls "$work/x" "$work/o" 2>/dev/null && fail "a file of a run that was refused"

# Of two ranks the first one writes; the job ends before the first step, both with a sentence.
for program in "$train $small" "$vae $auto $clips"; do
    RANK=1 WORLD_SIZE=2 timeout 60 $program --ranks "file:$work/meet" --save "$work/none/x" \
        --log "$work/ranks.log" >"$work/out" 2>"$work/err1" &
    refuses 1 "save .*none/x: cannot be written" env RANK=0 WORLD_SIZE=2 timeout 60 $program \
        --ranks "file:$work/meet" --save "$work/none/x" --log "$work/ranks.log"
    wait $!
    [ $? = 1 ] && [ -s "$work/err1" ] || fail "rank 1: $? $(cat "$work/err1")"
    [ -e "$work/ranks.log" ] && fail "a step was begun"
done

# A run that is refused, by its budget or its data, leaves no directory behind.
none() {
    [ ! -e "$work/made" ] || fail "left behind: $*"
}
for option in out tensorboard; do
    refuses 1 "needs at least" "$vae" $auto $clips --vram 1K --$option "$work/made"
    none "vae-train --$option"
    refuses 1 "needs at least" "$train" $small --sample-steps 1 --vram 1K --$option "$work/made"
    none "stdit-train --$option"
    soon 1 "No such file" "$vae" $auto --video "$work/none.mp4" --$option "$work/made"
    none "vae-train --$option, no video"
done
refuses 1 "needs at least" "$lm" $words --vram 1K --save-hf "$work/made"
none "lm-train"
soon 1 "No such file" "$sample" --load "$work/none" --vae "$work/none" --out "$work/made"
none "stdit-sample"
soon 1 "No such file" "$decode" $auto --load "$work/none" "$work/none" "$work/made"
none "vae-decode"

# Nor does one that could not write anything in it.
(ulimit -f 8 && refuses 1 "cannot be written" "$lm" $words --steps 1 --save-hf "$work/made"; exit $failures) || failures=1
none "lm-train, a full disk"

# Weights in another format are refused before the first step, too, where they have no room.
mkdir "$work/tmpfs"
# shellcheck disable=SC2016
tiny() {
    unshare -rm sh -c 'mount -t tmpfs -o size=16k tmpfs "$0" && exec "$@"' "$work/tmpfs" "$@"
}
if tiny true 2>/dev/null; then
    refuses 1 "save-hf .*/made: takes .* no room" tiny "$lm" $words --steps 1 --save-hf "$work/tmpfs/made"
    refuses 1 "save-hf .*/tmpfs: takes .* no room" tiny "$lm" $words --steps 1 --save-hf "$work/tmpfs"
fi

# ---- output files -------------------------------------------------------------------------------------

# A run without remaining steps still writes the requested files.
runs "state:" "$train" $small --steps 1 --save "$work/w" --save-state "$work/s"
runs "weights:" "$train" $small --steps 1 --resume "$work/s" --save "$work/w2" --save-state "$work/s2"
(ulimit -f 8 && refuses 1 "cannot be written" "${CKPT_COMMAND:-./ckpt}" convert "$work/s" --out "$work/made"; exit $failures) || failures=1
none "ckpt convert, a limit of bytes of a file"
for left in "$work"/made.*; do
    [ ! -e "$left" ] || fail "left behind: $left"
done
cmp "$work/w" "$work/w2" || fail "other weights"
cmp "$work/s" "$work/s2" || fail "another state"
refuses 1 "there was no step" "$train" $small --steps 1 --resume "$work/s" --dump "$work/d"
for option in machine-out trace-out; do
    refuses 1 "no step .* was timed" "$train" $small --steps 1 --resume "$work/s" --$option "$work/m"
done
# A killed save left these; the second is of a file of another name.
: >"$work/w.tmp-4194000-0"
: >"$work/ww.tmp-4194000-0"
runs "weights:" "$train" $small --steps 1 --save "$work/w"
[ ! -e "$work/w.tmp-4194000-0" ] && [ -e "$work/ww.tmp-4194000-0" ] || fail "what a killed save left"
# Devices are written to, and stay what they are.
runs "weights:" "$train" $small --steps 1 --save /dev/null --log /dev/null
[ -c /dev/null ] || fail "/dev/null is no device any more"
runs '"step": 1' "$train" $small --steps 1 --log /dev/stdout
# What goes through a pipe has no checksums, which are found when all was written; else it is the same.
cat "$work/fifo" >"$work/piped" &
runs "weights:" "$train" $small --steps 1 --save "$work/fifo"
wait
for from in w piped; do
    runs "weights:" "$train" $small --load "$work/$from" --steps 1 --save "$work/from-$from"
done
cmp "$work/from-w" "$work/from-piped" || fail "not the same through a FIFO"
# A lost log is reported at once; the run continues, saves, and reports it in its exit status.
rm -f "$work/w2"
if [ -c /dev/full ]; then
    refuses 1 "log /dev/full: No space left" "$train" $small --steps 3 --log /dev/full --save "$work/w2"
    [ "$(grep -c 'No space left' "$work/err")" = 1 ] || fail "said more than once"
    [ -s "$work/w2" ] || fail "no weights without a log"
    "$train" $small --plan-only >/dev/full 2>"$work/err" && fail "standard output was lost"
    grep -q "standard output: No space left" "$work/err" || fail "$(cat "$work/err")"
    "$ckpt" info >/dev/full 2>"$work/err" && fail "ckpt: standard output was lost"
fi

# A closed standard output: the first file that is opened does not get its number.
"$train" $small --steps 1 --save "$work/w3" >&- 2>"$work/err" || fail "closed: $(cat "$work/err")"
cmp "$work/w" "$work/w3" || fail "what was printed went into the weights"

# ---- inputs that are no files ---------------------------------------------------------------------------

for input in "$work/fifo" /dev/zero "$work/dir"; do
    soon 1 "not a regular file" "$train" $small --plan-in $input
    soon 1 "not a regular file" "$vae" $auto --video $input
    soon 1 "not a regular file" "$encode" $auto --load x $input "$work/x"
    soon 1 "not a regular file" "$ckpt" plan --graph $input
    soon 1 "not a regular file" "$ckpt" plan --place $input
done
soon 1 "not a regular file" "$train" $small --machine /dev/zero
soon 1 "not a regular file" "$train" --vae x --video-dir "$work/fifo"
soon 1 "regular file" "$train" --features "$work/fifo"
soon 1 "regular file" "$train" $small --load "$work/fifo"
soon 1 "regular file" "$train" $small --resume "$work/fifo"

# ---- names with control characters ------------------------------------------------------------------------

name=$(printf 'a\033[2J')
soon 1 'a\\x1b\[2J' "$train" $small --load "$name"
soon 1 'a\\x1b\[2J' "$ckpt" plan --graph "$name"
soon 2 'a\\x1b\[2J' "$encode" "--$name"
runs 'a\\x1b\[2J' "$train" $small --steps 1 --save "$work/$name"
finish
