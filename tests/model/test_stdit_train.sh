#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# stdit-train as a user or a script runs it: the budget changes no number, saved weights are read
# back, interrupted and failing runs lose nothing, and wrong input gets one sentence and a non-zero
# exit.
set -u

. "${srcdir:-.}/tests/model/programs.sh"

train=${STDIT_TRAIN:-./stdit-train}
features=$root/tests/model/stdit_features.safetensors
weights=$root/tests/model/stdit_weights.safetensors
clip=$root/examples/data/bunny.rgb

small="--hidden 16 --heads 2 --depth 1 --frames 4 --size 8x8 --batch 2 --steps 4 --sample-steps 0"

# on_clip OPTION...: a short run on the raw clip.
on_clip() {
    "$train" $small --video "$clip" "$@" >"$work/out" 2>"$work/err"
}

# losses LOG: what the steps computed, without times and memory.
losses() {
    sed -n 's/^{"step": \([0-9]*\), "loss": \([^,]*\), "grad_norm": \([^,]*\),.*/\1 \2 \3/p' "$1"
}

# ---- the budget changes no number -----------------------------------------------------------------

on_clip --mask-stage adapt --log "$work/free.log" --save "$work/free" || fail "no budget: $(cat "$work/err")"
[ "$(losses "$work/free.log" | wc -l)" = 4 ] || fail "the log has not one line a step"
refuses 1 "needs at least" "$train" $small --video "$clip" --mask-stage adapt --vram 64K
smallest=$(needed)
refuses 1 "needs at least" "$train" $small --video "$clip" --mask-stage adapt --vram $((smallest - 1))
on_clip --mask-stage adapt --vram "$smallest" --log "$work/tight.log" --save "$work/tight" ||
    fail "smallest budget: $(cat "$work/err")"
[ "$(losses "$work/free.log")" = "$(losses "$work/tight.log")" ] || fail "the budget changed the losses"
cmp -s "$work/free" "$work/tight" || fail "the budget changed the weights"
peak=$(sed -n '$s/.*"planned_peak": \([0-9]*\), "arena_bytes": \([0-9]*\),.*/\1 \2/p' "$work/tight.log")
[ "$peak" = "$smallest $smallest" ] || fail "planned peak and arena are $peak, not twice $smallest"

on_clip --mask-stage adapt --vram "$smallest" --plan-out "$work/plan" || fail "--plan-out"
on_clip --mask-stage adapt --plan-in "$work/plan" --sample-steps 1 --out "$work/planned" \
    --log "$work/planned.log" || fail "--plan-in: $(cat "$work/err")"
[ "$(losses "$work/free.log")" = "$(losses "$work/planned.log")" ] || fail "a plan file changed the losses"
refuses 1 "plan" "$train" $small --video "$clip" --plan-in "$work/plan"

# Weights that are not trained are not counted.
trainable() {
    on_clip --steps 1 "$@" || fail "$*: $(cat "$work/err")"
    sed -n 's/^model: .* \([0-9,]*\) trainable parameters.*/\1/p' "$work/out" | tr -d ,
}
[ "$(trainable --freeze-caption)" -lt "$(trainable)" ] || fail "--freeze-caption trains all"

# ---- weights --------------------------------------------------------------------------------------

on_clip --load "$work/free" --steps 1 --lr 0 --save "$work/again" || fail "load: $(cat "$work/err")"
cmp -s "$work/free" "$work/again" || fail "weights that were loaded and saved differ"
refuses 1 "has no parameter of this model: '.*' and others" "$train" $small --video "$clip" --load "$features"
grep -q "unexpected: .*, .*, .* and [0-9]* more$" "$work/err" || fail "unexpected names are not reported"
grep -q "missing: .*, .*, .* and [0-9]* more$" "$work/err" || fail "missing names are not reported"
[ "$(wc -l <"$work/err")" = 3 ] || fail "not a sentence for each kind of names: $(cat "$work/err")"
# a header of 94 bytes, with a name that would clear the terminal
printf '\136\0\0\0\0\0\0\0{"\\u001b[2Jx":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}%31s' '' >"$work/odd"
refuses 1 "has no parameter of this model: '\\\\x1b\[2Jx'" "$train" $small --video "$clip" --load "$work/odd"
grep -q 'unexpected: \\x1b\[2Jx$' "$work/err" || fail "a name is not escaped: $(cat "$work/err")"
printf 'PK\3\4\0\0\10\10\0\0\0\0' >"$work/model.pt"
refuses 1 "python3 -c" "$train" $small --video "$clip" --load "$work/model.pt"
refuses 1 "has no parameter of this model" "$train" $small --video "$clip" --load "$features" --partial

# Captions that are dropped see the null caption: without one in the file they would see noise.
bare="--hidden 24 --heads 2 --depth 2 --caption-channels 20 --text-tokens 10 --latent 3x4x4 --steps 1 --mlp-ratio 4"
LC_ALL=C sed 's/y_embedder\.y_embedding/Y_embedder.y_embedding/' "$weights" >"$work/no-null"
refuses 1 "1 parameter is missing" "$train" $bare --load "$work/no-null"
grep -q "missing: y_embedder.y_embedding" "$work/err" || fail "the null caption is not named: $(cat "$work/err")"
runs "step" "$train" $bare --load "$work/no-null" --partial
# A null caption of 10 rows for a text of 14, and of 4.
runs "has 10 rows; a text of 14" "$train" $bare --text-tokens 14 --load "$weights"
runs "step" "$train" $bare --text-tokens 4 --load "$weights" --save-state "$work/4.state"
runs "step" "$train" $bare --text-tokens 4 --resume "$work/4.state" --steps 2

refuses 1 "hidden\|shape\|\[" "$train" $small --video "$clip" --hidden 32 --load "$work/free"

# NaN: the run stops, and the weights of the last good step are saved.
refuses 1 "step" "$train" $small --video "$clip" --lr 1e25 --clip-norm 0 --warmup 0 --save "$work/nan"
[ -s "$work/nan" ] || fail "no weights after NaN"
on_clip --load "$work/nan" --steps 0 || fail "weights after NaN do not load: $(cat "$work/err")"

# Interrupted: it stops after a step and saves.
"$train" $small --video "$clip" --steps 1000000 --save "$work/stopped" --log "$work/stopped.log" \
    >"$work/out" 2>"$work/err" &
pid=$!
wait_steps "$work/stopped.log" 2
kill -INT $pid
wait $pid || fail "an interrupted run failed: $(cat "$work/err")"
grep -q "stopped after" "$work/out" || fail "an interrupted run does not say so"
on_clip --load "$work/stopped" --steps 0 || fail "weights of an interrupted run do not load"

# ---- resumed runs ---------------------------------------------------------------------------------

# resumed LOG FIRST LAST: as the same steps of the run that was never interrupted.
resumed() {
    losses "$work/whole.log" | sed -n "$2,$3p" >"$work/a"
    losses "$1" >"$work/b"
    cmp -s "$work/a" "$work/b" || fail "resumed: $(cat "$work/a" "$work/b")"
}

on_clip --clips 3 --mask-stage adapt --steps 8 --log "$work/whole.log" --save "$work/whole" \
    --save-state "$work/whole.state" || fail "--save-state: $(cat "$work/err")"
on_clip --clips 3 --mask-stage adapt --steps 5 --save-state "$work/state" --save-every 2 ||
    fail "--save-every: $(cat "$work/err")"
grep -q "^state: $work/state" "$work/out" || fail "the state is not named"
on_clip --clips 3 --mask-stage adapt --steps 8 --resume "$work/state" --vram "$smallest" --host 16M \
    --log "$work/rest.log" --save "$work/rest" --save-state "$work/rest.state" ||
    fail "--resume: $(cat "$work/err")"
grep -q "^resumed: .* after 5 steps" "$work/out" || fail "nothing is said of what was resumed"
resumed "$work/rest.log" 6 8
cmp -s "$work/whole" "$work/rest" || fail "the weights of a resumed run differ"
cmp -s "$work/whole.state" "$work/rest.state" || fail "the state of a resumed run differs"

# A step that fails leaves the state that was written before it.
refuses 1 "step" "$train" $small --video "$clip" --lr 1e25 --clip-norm 0 --warmup 0 --steps 50 \
    --save-state "$work/nan.state" --save-every 1
[ -s "$work/nan.state" ] || fail "no state of the steps before NaN"
on_clip --resume "$work/nan.state" --steps 0 || fail "the state before NaN: $(cat "$work/err")"

# Killed in the middle: what was saved last is whole.
"$train" $small --video "$clip" --steps 1000000 --save-state "$work/killed" --save-every 1 \
    --log "$work/killed.log" >"$work/out" 2>"$work/err" &
pid=$!
wait_steps "$work/killed.log" 9
kill -KILL $pid
wait $pid 2>/dev/null
on_clip --resume "$work/killed" --steps 0 || fail "a killed run: $(cat "$work/err")"

# Interrupted: the state is of the step after which it stopped.
"$train" $small --video "$clip" --steps 1000000 --save-state "$work/stopped.state" \
    --log "$work/on.log" >"$work/out" 2>"$work/err" &
pid=$!
wait_steps "$work/on.log" 2
kill -INT $pid
wait $pid || fail "an interrupted run with a state failed: $(cat "$work/err")"
steps=$(losses "$work/on.log" | wc -l)
on_clip --resume "$work/stopped.state" --steps $((steps + 1)) --log "$work/one.log" ||
    fail "--resume after an interrupt: $(cat "$work/err")"
losses "$work/one.log" | grep -q "^$((steps + 1)) " || fail "an interrupted run does not go on at $steps"

refuses 1 "--seed 42" "$train" $small --video "$clip" --seed 7 --resume "$work/state"
refuses 1 "trained on 2 samples" "$train" $small --video "$clip" --batch 1 --resume "$work/state"
refuses 1 "made with mask-stage adapt, this run has 1" "$train" $small --video "$clip" --clips 3 \
    --mask-stage 1 --resume "$work/state"
grep -q "; --resume-changed continues" "$work/err" || fail "a refusal without the way on"
refuses 1 "exact-timestep no, this run has yes" "$train" $small --video "$clip" --clips 3 \
    --mask-stage adapt --exact-timestep --resume "$work/state"
on_clip --clips 3 --mask-stage 1 --steps 6 --resume "$work/state" --resume-changed --lr 0.5 ||
    fail "--resume-changed: $(cat "$work/err")"
for what in "lr was 0.002, is 0.5" "mask-stage was adapt, is 1"; do
    grep -q "^changed: $what$" "$work/out" || fail "'$what' is not said"
done
cp "$work/state" "$work/damaged"
printf '\377' | dd of="$work/damaged" bs=1 seek=$(($(wc -c <"$work/damaged") - 1)) conv=notrunc 2>/dev/null
refuses 1 "damaged: tensor '.*' does not match its checksum" "$train" $small --video "$clip" --clips 3 \
    --mask-stage adapt --resume "$work/damaged"
refuses 1 "not a state of training" "$train" $small --video "$clip" --resume "$work/free"
refuses 1 "is a state of training, .* not weights" "$train" $small --video "$clip" --load "$work/state"
[ "$(wc -l <"$work/err")" = 1 ] || fail "a state as weights: $(cat "$work/err")"
refuses 1 "nothing-here" "$train" $small --video "$clip" --resume "$work/nothing-here"
refuses 1 "/nonexistent" "$train" $small --video "$clip" --save-state /nonexistent/state
refuses 2 "exclude each other" "$train" $small --resume "$work/state" --load "$work/free"
refuses 2 "--save-state FILE" "$train" $small --save-every 3

# ---- sampling -------------------------------------------------------------------------------------

for guidance in 1 3; do
    on_clip --sample-steps 2 --guidance $guidance --out "$work/frames$guidance" ||
        fail "sampling: $(cat "$work/err")"
    [ -s "$work/frames$guidance/sample.png" ] && [ -s "$work/frames$guidance/clip.png" ] &&
        [ -s "$work/frames$guidance/frame-003.png" ] || fail "frames are missing"
done

# ---- bad input ------------------------------------------------------------------------------------

refuses 2 "did you mean --vram" "$train" --vrm 2G
refuses 2 "not a size" "$train" --vram 12Q
refuses 2 "as 40x24" "$train" --size 40by24
refuses 2 "as 15x45x80" "$train" --latent 15x45
refuses 2 "exclude each other" "$train" --latent 4x8x8 --video "$clip"
refuses 2 "fp32 or bf16" "$train" --dtype fp16
refuses 2 "no such preset" "$train" --model big
refuses 2 "even whole width" "$train" --hidden 36 --heads 12
refuses 2 "does not divide" "$train" --batch 4 --micro-batch 3
refuses 2 "mask-stage" "$train" --mask-stage 7
refuses 2 "unexpected argument" "$train" clip.mp4
refuses 1 "is 5, the data has 4" "$train" --in-channels 5 --features "$features"
refuses 1 "raise --text-tokens" "$train" --text-tokens 5 --features "$features"
refuses 1 "has 16 frames" "$train" $small --video "$clip" --frames 40
refuses 1 "/nonexistent" "$train" $small --video "$clip" --save /nonexistent/weights
refuses 1 "/nonexistent" "$train" $small --video "$clip" --dump /nonexistent/dump
refuses 1 "/nonexistent" "$train" $small --video "$clip" --log /nonexistent/log
refuses 1 "/nonexistent" "$train" $small --video "$clip" --sample-steps 2 --out /nonexistent/frames
refuses 1 "nothing-here" "$train" $small --video "$work/nothing-here"
refuses 1 "nothing-here" "$train" --features "$work/nothing-here"
refuses 1 'no tensor "z"' "$train" --features "$weights"
head -c 50000 "$clip" >"$work/short.rgb"
refuses 1 "16 announced frames" "$train" $small --frames 16 --video "$work/short.rgb"
head -c 5000 "$features" >"$work/noise.mp4"
refuses 1 "noise.mp4" "$train" $small --video "$work/noise.mp4"
head -c 3000 "$features" >"$work/cut.safetensors"
refuses 1 "cut.safetensors" "$train" --features "$work/cut.safetensors"
{ printf '\377\377\377\377\377\377\377\177' && tail -c +9 "$features"; } >"$work/lie.safetensors"
refuses 1 "lie.safetensors" "$train" --features "$work/lie.safetensors"

finish
