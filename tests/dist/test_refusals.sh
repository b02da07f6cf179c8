#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One rank of several ends: for an option, a file, a budget, before the ranks meet or after.  The
# others would wait for it; all end at once, and say which rank it was and why.
. "${srcdir:-.}/tests/model/programs.sh"
lm="$PWD/lm-train --device cpu --threads 1 --model tiny --layers 1 --hidden 16 --heads 2 --mlp 16
    --length 16 --batch 2 --steps 2 --comm-deadline 60 --data text"
ranks_run 2 first ./lm-train --device cpu --model tiny --layers 1 --hidden 16 --heads 2 --mlp 16 \
    --length 16 --batch 2 --steps 1 --data "$root/doc/tour.md" --save "$work/weights" \
    --save-state "$work/state"
echo '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}' \
    >"$work/talks.jsonl"
echo "{% for m in messages %}{{ m.content }}{% endfor %}" >"$work/template"

# A rank that waits does so for 60 s, too long for any row.
most=30

# Each rank has its own directory, as on its own host, with these files.
directory() {
    mkdir -p "$work/at$1"
    cp "$root/doc/tour.md" "$work/at$1/text"
    cp "$work/weights" "$work"/state* "$work/at$1"
    cp "$root/doc/tour.md" "$work/at$1/more"
    cp "$work/talks.jsonl" "$work/template" "$work/at$1"
}

# ends N RANK WORDS DIFFERENT COMMAND...: RANK of N does DIFFERENT: has options more than the others,
# or commands, which end with a semicolon, before it in its directory.  All end; it says WORDS, and
# the others its number, too.
ends() {
    n=$1 who=$2 words=$3 different=$4
    shift 4
    jobs=
    for r in $(seq 0 $((n - 1))); do
        extra=
        directory "$r"
        case $r:$different in
        $who:*\;) (cd "$work/at$r" && eval "$different") ;;
        $who:*) extra=$different ;;
        esac
        (cd "$work/at$r" && RANK=$r WORLD_SIZE=$n exec timeout $most "$@" $extra \
            --ranks "file:$work/meet") >"$work/$r" 2>&1 &
        jobs="$jobs $!"
    done
    r=0
    for j in $jobs; do
        wait "$j"
        status=$?
        named="rank $who"
        [ "$r" = "$who" ] && named=
        [ $status = 1 ] || [ $status = 2 ] ||
            fail "$different on rank $who of $n: rank $r: exit $status: $(tail -n 2 "$work/$r")"
        tr '\n' ' ' <"$work/$r" | grep -q -e "$named.*$words\|$words.*$named" ||
            fail "$different on rank $who of $n: rank $r: no \"$words\": $(tail -n 3 "$work/$r")"
        r=$((r + 1))
    done
    rm -rf "$work/meet" "$work"/at*
}

# each WORDS DIFFERENT COMMAND...: on the first of two ranks, and on the last
each() {
    ends 2 0 "$@"
    ends 2 1 "$@"
}

# ---- options, before the ranks meet --------------------------------------------------------------

# A process that nobody joins ends, too, after the seconds for which it would tell others.
for r in 0 1; do
    RANK=$r WORLD_SIZE=2 timeout $most $lm --hiden 8 --ranks "file:$work/alone.$r" >"$work/alone$r" 2>&1 &
    eval "alone$r=$!"
done

each "unknown option '--hiden'" "--hiden 8" $lm
ends 4 0 "unknown option '--hiden'" "--hiden 8" $lm
ends 4 2 "unknown option '--hiden'" "--hiden 8" $lm
each "'much' is not a number" "--lr much" $lm
each "save-async needs --save-state" "--save-async" $lm
each "there are 'auto', 'cpu' and 'cuda'" "--device gpu" $lm
each "machine file none: there is none" "--machine none" $lm
each "none: cannot be read" "--load none" $lm
each "text" "rm text;" $lm
ends 2 1 "unknown option '--hiden'" "--hiden 8" "$PWD/stdit-train" --latent 2x4x4 --comm-deadline 60
ends 2 0 "option --batch: 0 is out of range" "--batch 0" "$PWD/vae-train" --random 5x8x8 \
    --comm-deadline 60
each "dtype fp17: give fp32 or bf16" "--dtype fp17" "$PWD/video-encode" --data . --output cache \
    --vae weights --comm-deadline 60

# An elastic job that has not formed ends as others do.
for r in 0 1 3; do
    ends 4 $r "unknown option '--hiden'" "--hiden 8" $lm --elastic 1
done
ends 4 2 "save-async needs --save-state" "--save-async" $lm --elastic 1
ends 2 0 "machine file none: there is none" "--machine none" $lm --elastic 1
ends 2 1 "machine file none: there is none" "--machine none" $lm --elastic 1

# --sequence auto: rank 0 plans before it meets the others
ends 2 0 "no number of ranks that split sequences or layers has a plan" "--vram 1K" $lm --sequence auto
ends 2 0 "unknown option '--hiden'" "--hiden 8" $lm --sequence auto
ends 2 0 "split sequences or layers has a plan" "--vram 1K" $lm --tensor auto
ends 2 1 "unknown option '--hiden'" "--hiden 8" $lm --sequence auto

# ---- devices, files, plans: after they met -------------------------------------------------------

ends 2 1 "all ranks compute on GPUs or all on CPUs" "--device cuda" $lm
ends 2 0 "all ranks compute on GPUs or all on CPUs" "--device auto" $lm
each "state: " "rm state;" $lm --resume state
each "state.part.*00002" "rm state.part*2-of-00002*;" $lm --resume state
each "state.part.*00001" "truncate -s 500 state.part*1-of-00002*;" $lm --resume state
each "state: " "truncate -s 5000 state;" $lm --resume state
each "weights: " "truncate -s 500 weights;" $lm --load weights
each "text" ": >text;" $lm
each "more" "rm more;" $lm --val more --val-every 1
each "more" "rm more;" $lm --load weights --val more --steps 0
each "template" "rm template;" $lm --data talks.jsonl --chat-template template
each "number of tokens" "echo more >>text;" $lm
ends 2 0 "a folder that all of them share" "" $lm --save-state new # when it is saved
ends 2 0 "full: cannot be written" "" $lm --save /dev/full
ends 2 0 "tensorboard /dev/full" "" $lm --tensorboard /dev/full
each "no plan fits 1.00 KiB" "--vram 1K" $lm
ends 4 3 "no plan fits 1.00 KiB" "--vram 1K" $lm
ends 2 0 "plan file none cannot be opened" "--plan-in none" $lm

for r in 0 1; do
    eval "wait \$alone$r"
    status=$?
    [ $status = 2 ] || fail "rank $r, alone: exit $status: $(cat "$work/alone$r")"
    grep -q "unknown option '--hiden'" "$work/alone$r" || fail "rank $r, alone: $(cat "$work/alone$r")"
done
finish
