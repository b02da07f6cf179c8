#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# How long ranks wait for each other, simulated from predicted times: clips in the buckets of stage 1
# of Open-Sora 1.2, with XL/2 in bf16; packed rows of a language model of 3 B parameters.  Runs
# nothing on a GPU; the plans take minutes of a core.
#
# usage: bench-balance.sh [CLIPS]...     numbers of drawn clips (default 1000000 100000)
# VRAM, MACHINE: what the plans are for
set -eu

vram=${VRAM:-78G} machine=${MACHINE:-h100-80}
[ $# -gt 0 ] || set -- 1000000 100000
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/table.json" <<END
{"144p": {"1": [1.0, 475], "51": [1.0, 51], "102": [[1.0, 0.33], 27], "204": [[1.0, 0.1], 13], "408": [[1.0, 0.1], 6]},
 "256": {"1": [0.4, 297], "51": [0.5, 20], "102": [[0.5, 0.33], 10], "204": [[0.5, 0.1], 5], "408": [[0.5, 0.1], 2]},
 "240p": {"1": [0.3, 297], "51": [0.4, 20], "102": [[0.4, 0.33], 10], "204": [[0.4, 0.1], 5], "408": [[0.4, 0.1], 2]},
 "360p": {"1": [0.2, 141], "51": [0.15, 8], "102": [[0.15, 0.33], 4], "204": [[0.15, 0.1], 2], "408": [[0.15, 0.1], 1]},
 "512": {"1": [0.1, 141]}, "480p": {"1": [0.1, 89]}, "720p": {"1": [0.05, 36]}, "1024": {"1": [0.05, 36]},
 "1080p": {"1": [0.1, 5]}, "2048": {"1": [0.1, 5]}}
END
# One ratio of each size and length: the others are priced by their pixels.
awk 'BEGIN {
    print "path,num_frames,height,width"
    split("1 60 110 210 420", frames)
    for (i = 0; i < 3000; i++)
        print "v.mp4," frames[i % 5 + 1] ",1080,1920"
    for (i = 0; i < 600; i++)
        print "p.mp4,1,2048,3640"
}' >"$work/wide.csv"
./stdit-train --model XL/2 --dtype bf16 --buckets "$work/table.json" --latent "$work/wide.csv" \
    --machine "$machine" --ranks 2 --zero 2 --vram "$vram" --plan-only >"$work/plan" 2>/dev/null
for clips; do
    echo "$clips clips:"
    ./tests/bench/bench_balance clips "$work/table.json" "$work/plan" "$clips"
done

# seconds LENGTH BATCH: of a step, as the planner predicts it
seconds() {
    ./lm-train --model llama3.2-3B --dtype bf16 --data random --length "$1" --batch "$2" --machine "$machine" \
        --vram "$vram" --plan-only 2>/dev/null |
        awk '/predicted step/ { print $4 == "ms" ? $3 / 1000 : $3 }'
}
for length in 8192 32768; do
    echo "rows of $length:"
    ./tests/bench/bench_balance rows $length "$(seconds $length 1)" "$(seconds $((length / 2)) 2)" 200000
done
