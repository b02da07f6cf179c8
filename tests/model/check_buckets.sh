#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# stdit-train --buckets for 5,000 steps in the order of an epoch: Open-Sora 1.2's first stage as far as its small sizes
# go, all ratios, at small width.  The arena stays to the byte, the resident set within 1 % from step 500 on.  Before that
# the seconds of a core that plans of all buckets take: where they fit, where the budget binds, with batches chosen.
set -u

. "${srcdir:-.}/tests/model/programs.sh"

train=${STDIT_TRAIN:-./stdit-train} steps=${1:-5000}

cat >"$work/table.json" <<END
{"144p": {"1": [1.0, 12], "51": [1.0, 2], "102": [[1.0, 0.33], 1], "204": [[1.0, 0.1], 1]},
 "256": {"1": [0.4, 6], "51": [0.5, 1], "102": [[0.5, 0.33], 1]},
 "240p": {"1": [0.3, 6], "51": [0.4, 1], "102": [[0.4, 0.33], 1]},
 "360p": {"1": [0.2, 2], "51": [0.15, 1]}, "512": {"1": [0.1, 2]}, "480p": {"1": [0.1, 1]}}
END
awk 'BEGIN {
    print "num_frames,height,width"
    ratios = split("0.43 0.5 0.56 0.6 0.75 1 1.33 1.5 1.78 2 2.35", ratio)
    lengths = split("1 1 60 120 240", frames)
    for (i = 0; i < 40000; i++)
        printf "%d,%d,%d\n", frames[int(i / 7) % lengths + 1], 720, 720 / ratio[int(i / 3) % ratios + 1]
}' >"$work/clips.csv"

small="--hidden 32 --heads 2 --depth 1 --mask-stage 1 --latent $work/clips.csv --buckets $work/table.json"

# $now: the seconds of all commands so far.  Not in a shell of its own, which would begin with none.
spent() {
    times >"$work/times"
    now=$(awk 'NR == 2 { split($1, own, /[ms]/); split($2, kernel, /[ms]/)
                   print 60 * (own[1] + kernel[1]) + own[2] + kernel[2] }' "$work/times")
}

# plans WORDS ARGUMENT...: what planning takes.
plans() {
    words=$1
    shift
    spent
    before=$now
    runs "buckets in one arena" "$train" $small --plan-only "$@"
    spent
    awk -v words="$words" -v before="$before" -v after="$now" '/buckets in one arena/ {
        printf "planning %d buckets, %s: %.2f s of a core, %.1f ms each\n", $1, words, after - before,
            (after - before) * 1e3 / $1 }' "$work/out"
}
plans "no budget"
plans "batches chosen" --batch auto
plans "--vram 40M" --vram 40M
runs "buckets in one arena" "$train" --hidden 32 --heads 2 --depth 1 --mask-stage 1 --buckets "$work/table.json" \
    --latent "$work/clips.csv" --steps "$steps" --log "$work/log"
cat "$work/out" | tail -4
awk -v steps="$steps" '
    match($0, /"arena_bytes": [0-9]+/) {
        n++
        arena = substr($0, RSTART + 15, RLENGTH - 15)
        match($0, /"rss": [0-9]+/)
        rss = substr($0, RSTART + 7, RLENGTH - 7) + 0
        match($0, /"bucket": "[^"]*"/)
        seen[substr($0, RSTART, RLENGTH)] = 1
        if (n == 1)
            first = arena
        if (arena != first)
            grown++
        if (n == int(steps / 10))
            early = rss
        if (n > steps / 10 && rss > most)
            most = rss
    }
    END {
        for (b in seen)
            buckets++
        printf "%d steps in %d buckets: the arena %d bytes; the resident set %.1f MiB after a tenth, %.1f at most\n",
            n, buckets, first, early / 1048576, most / 1048576
        exit !(n == steps && !grown && buckets > 100 && most <= 1.01 * early)
    }' "$work/log" || fail "memory grows, or steps are missing"
finish
