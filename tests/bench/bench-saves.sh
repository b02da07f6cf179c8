#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a state that is saved while training costs steps (--save-async): lm-train with random weights
# of 1.2 billion parameters, whose state is saved once in the middle and once at the end.  Prints a
# step without a save, what the step after the save took more, the steps while the thread wrote, and
# the rate to the file beside a plain file of as many bytes by dd.  On an H200 about a minute.
#
# usage: bench-saves.sh [OPTION...]: options of lm-train, such as --model tiny --device cpu.
# STEPS before the save and after it (40); DIR is on the disk (.); HOST memory for the copy (24G);
# SYNC=yes: the save is not in a thread.
set -eu

steps=${STEPS:-40}
work=$(mktemp -d "${DIR:-.}/saves.XXXXXX")
trap 'rm -rf "$work"' EXIT
async="--save-async --host ${HOST:-24G}"
[ -z "${SYNC:-}" ] || async=
# shellcheck disable=SC2086
./lm-train --model llama3.2-1B --dtype bf16 --data random --length 2048 --batch 4 --warmup 0 \
    --steps $((2 * steps)) --save-state "$work/state" --save-every "$steps" --keep 2 $async \
    --log "$work/log" "$@" >"$work/out" 2>&1 || { tail -n 3 "$work/out"; exit 1; }

saved=$(printf '%s/state-%08d' "$work" "$steps")
bytes=$(stat -c %s "$saved")
ended=$(stat -c %.3Y "$saved") # the last byte was written
rm -f "$work"/state*
begun=$(date +%s.%N)
dd if=/dev/zero of="$work/plain" bs=16M count=$(((bytes >> 24) + 1)) oflag=direct conv=fsync 2>/dev/null ||
    dd if=/dev/zero of="$work/plain" bs=16M count=$(((bytes >> 24) + 1)) conv=fsync 2>/dev/null
plain=$(date +%s.%N)

# step 0 starts clocks and caches; `time` is when a step had ended
sed -n 's/^{"step": \([0-9]*\),.*"time": \([0-9.]*\)}$/\1 \2/p' "$work/log" | sort -n |
    awk -v save="$steps" -v ended="$ended" -v bytes="$bytes" -v begun="$begun" -v plain="$plain" '
        { at[$1] = $2; lap[$1] = $2 - before; before = $2 }
        function median(from, to,   n, i, k, x, v) {
            for (i = from; i <= to; i++) {
                x = lap[i]
                for (k = n++; k > 0 && v[k - 1] > x; k--)
                    v[k] = v[k - 1]
                v[k] = x
            }
            return v[int(n / 2)]
        }
        END {
            if (save < 4 || NR < 2 * save - 2) {
                print "STEPS is at least 4, and the log has " NR " steps" >"/dev/stderr"
                exit 1
            }
            for (first = 2; !(first in at); first++)
                continue
            last = save in at ? save - 1 : save # of the steps before the save
            step = median(first + 1, last)
            for (i = last + 1; i in at && at[i] <= ended + step; i++)
                beside++
            printf "a step without a save %8.1f ms, %d of them\n", 1e3 * step, last - first
            printf "the step of the save  %8.1f ms more, %.0f %% of a step\n", \
                1e3 * (lap[last + 1] - step), 100 * (lap[last + 1] / step - 1)
            if (beside > 1) {
                during = (at[last + beside] - at[last + 1]) / (beside - 1)
                printf "steps beside it       %8.1f ms, %.1f %% more, %d of them\n", 1e3 * during, \
                    100 * (during / step - 1), beside - 1
            }
            seconds = ended - at[last]
            rate = bytes / seconds / 1e9
            other = (int(bytes / 16777216) + 1) * 16777216 / (plain - begun) / 1e9
            printf "the file of %.2f GB    %8.2f s, %.2f GB/s, %.0f %% of the %.2f GB/s of dd\n", \
                bytes / 1e9, seconds, rate, 100 * rate / other, other
        }'
