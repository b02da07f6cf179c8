#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The trainers on two ranks: they see the samples of one rank with twice the batch, so the losses
# are equal; only rank 0 prints; a resumed run gives the same bits.
. "${srcdir:-.}/tests/model/programs.sh"
both="--device cpu --threads 1 --warmup 2"
stdit="${STDIT_TRAIN:-./stdit-train} $both --latent 3x4x6 --hidden 16 --heads 2 --depth 1
    --caption-channels 8 --text-tokens 4 --mask-stage 1"
lm="${LM_TRAIN:-./lm-train} $both --hidden 16 --heads 2 --layers 2 --mlp 32 --length 16
    --data ${srcdir:-.}/doc/tour.md --model tiny-qwen"
vae="${VAE_TRAIN:-./vae-train} $both --random 5x8x8 --spatial-widths 8,8 --temporal-widths 8,8,8"

# two NAME COMMAND...: a process for each of two ranks; what they say goes to NAME.0 and NAME.1.
two() {
    name=$work/$1
    shift
    RANK=1 WORLD_SIZE=2 timeout 100 "$@" --ranks "file:$work/meet" >"$name.1" 2>&1 &
    RANK=0 WORLD_SIZE=2 timeout 100 "$@" --ranks "file:$work/meet" >"$name.0" 2>&1 ||
        fail "rank 0: $*: $(tail -n 2 "$name.0")"
    wait $! || fail "rank 1: $*: $(tail -n 2 "$name.1")"
}

losses() {
    sed -n 's/^{"step": \([0-9]*\), "loss": \([^,]*\),.*/\1 \2/p' "$1"
}

# near NAME A B: the losses of two logs, of N steps each, differ by no more than 4e-6 of them.
near() {
    losses "$2" >"$work/a"
    losses "$3" >"$work/b"
    paste "$work/a" "$work/b" | awk -v n="$4" '
        { d = $2 - $4; if (d < 0) d = -d; if ($1 != $3 || d > 4e-6 * $2) bad = 1 }
        END { exit bad || NR != n }' || fail "$1: other losses: $(paste "$work/a" "$work/b")"
}

runs "memory:" $stdit --sample-steps 0 --steps 4 --batch 2 --log "$work/one"
two stdit $stdit --sample-steps 2 --out "$work" --steps 4 --batch 1 --log "$work/two" --zero 1
near stdit-train "$work/one" "$work/two" 4
near "the log of rank 1" "$work/two" "$work/two.1" 4
grep -q '"rank_ms": \[[0-9.]*, [0-9.]*\], ' "$work/two" || fail "the log has no times of ranks: $(tail -n 1 "$work/two")"
grep -q rank_ms "$work/two.1" "$work/one" && fail "times of ranks in another log"
grep -q "^weights\|^model" "$work/stdit.1" && fail "rank 1 speaks: $(head -n 1 "$work/stdit.1")"
grep -q "^model" "$work/stdit.0" || fail "rank 0 is silent"

two first $stdit --sample-steps 0 --steps 2 --batch 1 --log "$work/parts" --save-state "$work/state"
two rest $stdit --sample-steps 0 --steps 4 --batch 1 --log "$work/parts" --resume "$work/state"
losses "$work/two" >"$work/a"
losses "$work/parts" >"$work/b"
cmp -s "$work/a" "$work/b" || fail "a run in two parts: $(paste "$work/a" "$work/b")"

runs "memory:" $lm --steps 4 --batch 2 --log "$work/lm"
two lm $lm --steps 4 --batch 1 --log "$work/lm2" --val "${srcdir:-.}/doc/lm.md" --save-hf "$work/hf" --shard-size 20K
near lm-train "$work/lm" "$work/lm2" 4
[ -s "$work/hf/model.safetensors.index.json" ] || fail "no weights of lm-train from two ranks"
[ "$(grep -h validation_loss "$work/lm2" "$work/lm2.1" | sed 's/, "time".*//' | sort -u | wc -l)" = 1 ] || fail "two validation losses"
two lm $lm --steps 2 --batch 1 --log "$work/lm3" --save-state "$work/lm.state"
two lm $lm --steps 4 --batch 1 --log "$work/lm3" --resume "$work/lm.state"
losses "$work/lm2" >"$work/a"
losses "$work/lm3" >"$work/b"
cmp -s "$work/a" "$work/b" || fail "lm-train in two parts: $(paste "$work/a" "$work/b")"
two chunk $lm --steps 2 --batch 1 --log "$work/lm4" --loss-chunk auto
near "a chunk of the loss that both ranks chose" "$work/lm4" "$work/lm4.1" 2
grep -q '^loss: at most' "$work/chunk.0" || fail "no chunk: $(cat "$work/chunk.0")"

runs "memory:" $vae --steps 3 --batch 2 --log "$work/vae"
two vae $vae --steps 3 --batch 1 --log "$work/vae2" --save "$work/weights"
near vae-train "$work/vae" "$work/vae2" 3

mkdir "$work/d" && ./examples/volume/phantom "$work/d" 2 12 || fail "no phantoms"
volume="${VOLUME_TRAIN:-./volume-train} $both --data $work/d/list.csv --classes 3 --levels 2 --width 4
    --patch 8x8x8"
runs "memory:" $volume --steps 4 --batch 2 --log "$work/volume"
two volume $volume --steps 4 --batch 1 --log "$work/volume2" --save "$work/weights"
near volume-train "$work/volume" "$work/volume2" 4
two volume $volume --steps 2 --batch 1 --log "$work/volume3" --save-state "$work/volume.state"
two volume $volume --steps 4 --batch 1 --log "$work/volume3" --resume "$work/volume.state"
losses "$work/volume2" >"$work/a"
losses "$work/volume3" >"$work/b"
cmp -s "$work/a" "$work/b" || fail "volume-train in two parts: $(paste "$work/a" "$work/b")"
[ -s "$work/weights" ] || fail "no weights from two ranks"

# one rank is interrupted: both stop after the same step and save, and resume from there
long="$stdit --sample-steps 0 --steps 100000 --batch 1 --save-state $work/stopped --ranks file:$work/meet"
RANK=1 WORLD_SIZE=2 $long --log "$work/long" >"$work/long.1.out" 2>&1 &
interrupted=$!
RANK=0 WORLD_SIZE=2 timeout 100 $long --log "$work/long" >"$work/long.0.out" 2>&1 &
other=$!
begin=$(date +%s)
while [ "$(losses "$work/long" 2>/dev/null | grep -c .)" -lt 3 ] &&
    [ $(($(date +%s) - begin)) -lt 60 ]; do
    sleep 0.2
done
kill -INT $interrupted
wait $other || fail "rank 0 after rank 1 was interrupted: $(tail -n 2 "$work/long.0.out")"
wait $interrupted || fail "rank 1, interrupted: $(tail -n 2 "$work/long.1.out")"
grep -q "^stopped after [0-9]* of 100000 steps" "$work/long.0.out" ||
    fail "nobody says that it stopped: $(cat "$work/long.0.out")"
losses "$work/long" >"$work/a"
losses "$work/long.1" >"$work/b"
cmp -s "$work/a" "$work/b" || fail "the ranks stopped behind other steps"
ran=$(grep -c . "$work/a")
two rest $stdit --sample-steps 0 --steps $((ran + 2)) --batch 1 --log "$work/gone" \
    --resume "$work/stopped"
[ "$(losses "$work/gone" | grep -c .)" = 2 ] || fail "after $ran steps: $(cat "$work/gone")"

# The data of one rank fail: the state of the last whole step is saved by all, and is that of a run
# without the failure.
programs=$(cd "$(dirname "${LM_TRAIN:-./lm-train}")" && pwd)
words="$programs/lm-train $both --hidden 16 --heads 2 --layers 1 --mlp 16 --length 8 --vocabulary 256 --batch 1
    --data text --save-state $work/failed"
mkdir "$work/r0" "$work/r1"
yes "the quick brown fox" | head -n 20000 | tee "$work/r0/text" >"$work/r1/text"
(cd "$work/r1" && RANK=1 WORLD_SIZE=2 exec $words --ranks "file:$work/meet" --steps 100000000 --log "$work/fails" >"$work/fails.1.out" 2>&1) &
fails=$!
(cd "$work/r0" && RANK=0 WORLD_SIZE=2 exec $words --ranks "file:$work/meet" --steps 100000000 --log "$work/fails" >"$work/fails.0.out" 2>&1) &
other=$!
wait_steps "$work/fails" 3
: >"$work/r1/text"
wait $fails
[ $? = 1 ] || fail "rank 1, whose data fail: not exit 1: $(tail -n 3 "$work/fails.1.out")"
wait $other
[ $? = 1 ] || fail "rank 0 beside it: not exit 1: $(tail -n 3 "$work/fails.0.out")"
ran=$(losses "$work/fails" | grep -c .)
grep -q "rank 1: .*text" "$work/fails.1.out" || fail "no sentence: $(tail -n 3 "$work/fails.1.out")"
grep -q "step $((ran + 1)): a rank had no data" "$work/fails.0.out" || fail "not said: $(tail -n 3 "$work/fails.0.out")"
grep -q "state: .*failed, after $ran steps" "$work/fails.0.out" || fail "no state: $(tail -n 3 "$work/fails.0.out")"
cp "$work/r0/text" "$work/r1/text"
"$programs/ckpt" convert "$work/failed" --out "$work/left" >/dev/null || fail "no state to read"
(cd "$work/r0" && two whole $words --steps "$ran"; exit $failures) || failures=1
"$programs/ckpt" convert "$work/failed" --out "$work/whole" >/dev/null || fail "no state to read"
cmp -s "$work/whole" "$work/left" || fail "the state that was saved is not that of $ran steps"

# options for one rank only are refused by all
RANK=1 WORLD_SIZE=2 timeout 100 $vae --quantizer vq --ranks "file:$work/meet" 2>"$work/vq.1" &
refuses 1 "rank 0: --quantizer vq is for one rank alone" env RANK=0 WORLD_SIZE=2 $vae \
    --quantizer vq --ranks "file:$work/meet"
wait
grep -q "rank 1: --quantizer vq" "$work/vq.1" || fail "rank 1 does not refuse --quantizer vq"
finish
