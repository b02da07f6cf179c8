#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs that end early lose nothing: where the data fail the state of the last step is saved, weights
# of a run without a step replace no file, weights are saved while it trains.  Outputs that could not
# be written in the end are refused before the first step.
. "${srcdir:-.}/tests/model/programs.sh"
lm=${LM_TRAIN:-./lm-train}
shim=$PWD/tests/torture/shim.so
[ -x "$lm" ] || exit 77
words="--hidden 16 --heads 2 --layers 1 --mlp 16 --length 8 --batch 1 --threads 1"
prose="$words --vocabulary 256 --data $work/text"
fill() { yes "the quick brown fox" | head -n 20000 >"$work/text"; }

# faulty ORDER COMMAND...: as its system calls fail.
faulty() {
    order=$1
    shift
    LD_LIBRARY_PATH="./.libs:${LD_LIBRARY_PATH-}" LD_PRELOAD=$shim CKPT_TORTURE=$order \
        "$(dirname "$1")/.libs/$(basename "$1")" $(shift && echo "$@")
}

# ---- data that fail ---------------------------------------------------------------------------------

fill
"$lm" $prose --steps 100000000 --save "$work/w" --save-state "$work/s" --log "$work/log" >"$work/out" 2>"$work/err" &
pid=$!
wait_steps "$work/log" 3
: >"$work/text"
wait $pid
[ $? = 1 ] || fail "data cut under way: not exit 1"
steps=$(grep -c '^{"step"' "$work/log")
grep -q "state: $work/s, after $steps steps, for --resume" "$work/err" || fail "not saved: $(tail -n 3 "$work/err")"
grep -q "weights of the last good step: $work/w" "$work/out" || fail "no weights: $(cat "$work/out")"
fill
runs "after $steps steps" "$lm" $prose --steps "$steps" --resume "$work/s" --save-state "$work/s2"
cmp -s "$work/s" "$work/s2" || fail "the state that was saved is not that of $steps steps"

# ---- weights while it trains, and kept --------------------------------------------------------------

random="$words --data random"
runs "weights" "$lm" $random --steps 3 --save "$work/three"
runs "weights" "$lm" $random --steps 7 --save "$work/kept" --save-every 1 --keep 2 --keep-every 3
cmp -s "$work/three" "$work/kept-00000003" || fail "--save-every 1: not the weights after 3 steps"
[ "$(cd "$work" && echo kept-*)" = "kept-00000003 kept-00000006 kept-00000007" ] ||
    fail "--keep 2 --keep-every 3 of weights: $(ls "$work")"
runs "weights: $work/hf-end" "$lm" $random --steps 7 --save-hf "$work/hf-end"
runs "weights: $work/hf-each" "$lm" $random --steps 7 --save-hf "$work/hf-each" --save-every 2
diff -r "$work/hf-end" "$work/hf-each" >"$work/out" || fail "--save-every with --save-hf: $(cat "$work/out")"
"$lm" $random --steps 100000000 --save-hf "$work/hf-killed" --save-every 1 --log "$work/hf-log" >"$work/out" 2>&1 &
wait_steps "$work/hf-log" 3
kill -9 $!
wait $! 2>/dev/null
rm -f "$work/hf-log.lock"
runs "weights: " "$lm" $random --steps 0 --load "$work/hf-killed" --save-hf "$work/hf-killed"
refuses 2 "keep needs" "$lm" $random --steps 7 --save-hf "$work/hf-each" --keep 2
refuses 1 "is of a later step" "$lm" $random --steps 3 --save "$work/kept" --save-every 1 --keep 2

# ---- outputs that could not be written ----------------------------------------------------------------

runs "nothing is saved at the end" "$lm" $random --steps 1
"$lm" $random --steps 100000000 --log "$work/unsaved-log" >"$work/out" 2>&1 &
wait_steps "$work/unsaved-log" 1
grep -q "nothing is saved at the end" "$work/out" || fail "not said before the first step: $(cat "$work/out")"
kill -9 $!
wait $! 2>/dev/null
rm -f "$work/unsaved-log.lock"
decode=${VAE_DECODE:-./vae-decode}
for ending in xyz wav; do
    refuses 1 "of this ending\|has this ending" "$decode" --model tiny --load "$work/none" "$work/none" "$work/a.$ending"
done
# Where users may mount: a file mounted by itself, and a disk that is too small for the state.
echo one >"$work/one" && echo two >"$work/two" && mkdir "$work/disk"
if unshare -rm mount --bind "$work/one" "$work/two" 2>/dev/null; then
    refuses 1 "mounted by itself" unshare -rm sh -c "mount --bind $work/one $work/two && exec $lm $random --steps 1 --save $work/two"
    for option in --save --save-state; do
        refuses 1 "$option $work/disk/s: takes .* KiB, and its file system has no room" unshare -rm sh -c \
            "mount -t tmpfs -o size=4k none $work/disk && exec $lm $random --steps 1 $option $work/disk/s --log $work/full"
    done
    [ "$(grep -c '^{"step"' "$work/full")" = 0 ] || fail "a step was made before a full disk was named"
fi

if [ -f "$shim" ] && [ -d "$(dirname "$lm")/.libs" ]; then
    echo old >"$work/w"
    refuses 1 "no step was made: no weights are written" faulty pread:1+ "$lm" $prose --steps 5 --save "$work/w"
    [ "$(cat "$work/w")" = old ] || fail "weights that were never trained replaced a file"

    # ---- what could not be written --------------------------------------------------------------------

    for output in --save-state --save; do
        refuses 1 "its file system makes none: Operation not permitted" faulty link:1+ "$lm" $random \
            --steps 4 $output "$work/linked" --save-every 2 --keep 2 --log "$work/none"
    done
    [ -e "$work/none" ] && fail "a step was made although saves could not be kept"
    # ---- a model of several files, whose replacement ends under way -------------------------------------

    parts="$random --shard-size 8K"
    runs weights "$lm" $parts --steps 3 --seed 1 --save-hf "$work/first"
    runs weights "$lm" $parts --steps 3 --seed 2 --save-hf "$work/second"
    completed=0
    for call in 1 4 6 7 8 9 10 11 12; do
        rm -rf "$work/model"
        cp -r "$work/first" "$work/model"
        faulty rename:$call+ "$lm" $parts --steps 3 --seed 2 --save-hf "$work/model" >"$work/out" 2>"$work/err"
        if [ -e "$work/model/.saving" ]; then
            refuses 2 "all are whole, and .* are still NAME.new" "$lm" $random --steps 1 --load "$work/model"
            runs "is completed" "$lm" $parts --steps 0 --load "$work/model" --save-hf "$work/model"
            diff -r "$work/second" "$work/model" >"$work/out" || fail "rename $call: not completed: $(cat "$work/out")"
            completed=$((completed + 1))
        else
            diff -r "$work/first" "$work/model" >"$work/out" || diff -r "$work/second" "$work/model" >/dev/null || fail "rename $call: not as before: $(cat "$work/out")"
        fi
    done
    [ $completed -ge 3 ] || fail "no replacement ended under way"
    cp "$work/second/config.json" "$work/model/config.json.new"
    runs "are removed: not all were whole" "$lm" $parts --steps 0 --load "$work/second" --save-hf "$work/model"
    diff -r "$work/second" "$work/model" >"$work/out" || fail "$(cat "$work/out")"

    # ---- a moment without descriptors or memory ---------------------------------------------------------

    vae=${VAE_TRAIN:-./vae-train} encode=${VIDEO_ENCODE:-./video-encode}
    mkdir "$work/clips"
    for i in 1 2 3 4 5 6; do
        {
            echo "RGBCLIP 16 16 1 8"
            head -c 768 /dev/urandom
        } >"$work/clips/$i.rgb"
    done
    runs weights "$vae" --size 16x16 --lengths 1 --image-share 0 --batch 1 --threads 1 --steps 1 \
        --video "$root/examples/data/bunny.rgb" --save "$work/vae"
    cache="--vae $work/vae --vae-model tiny --data $work/clips --size 16x16 --frames 1 --threads 1 --workers 1"
    runs "is written" "$encode" $cache --output "$work/right"
    rights=0
    for call in 16 20 22 24 26 28; do
        for kind in open malloc; do
            rm -rf "$work/cache"
            if faulty $kind:$call "$encode" $cache --output "$work/cache" >"$work/out" 2>"$work/err"; then
                diff -r "$work/right" "$work/cache" >"$work/out" || fail "$kind $call fails: $(cat "$work/out")"
                rights=$((rights + 1))
            fi
        done
    done
    [ $rights -ge 3 ] || fail "no moment without descriptors was survived"
    runs "its file system has no locks" faulty lock:1+ "$lm" $random --steps 1 --save "$work/unlocked"
fi
left=$(find "$work" -name '*.tmp-*' -o -name '*.lock')
[ -z "$left" ] || fail "left behind: $left"
finish
