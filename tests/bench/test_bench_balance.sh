#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What --balance promises for Open-Sora 1.2's buckets over 256 ranks, and for packed rows, in the
# simulation of bench-balance.sh, whose predicted times are written here: the slowest rank is at most
# 3 % above the mean, and throughput is 1.2 times that of equal tokens.
set -u

bench=./tests/bench/bench_balance
[ -x "$bench" ] || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
fail() {
    echo "FAIL: $*"
    failed=1
}

# The table of the script, and size, frames, pixels and ms of XL/2 in bf16 under 78 GiB of an H100.
sed -n '/table.json" <<END/,/^END/p' "${srcdir:-.}/tests/bench/bench-balance.sh" | sed '1d;$d' >"$work/table.json"
awk '{ print $1, $2, "0.56", $3, 1, 1, 1, "1 GiB", $4, "ms" }' >"$work/plan" <<END
1024 1 1344x768 2220.2
512 1 672x384 1994.6
480p 1 854x480 1998.5
720p 1 1280x720 1945.6
360p 1 640x360 1816.8
240p 204 426x240 1580.1
240p 102 426x240 1583.4
240p 51 426x240 1589.7
240p 1 426x240 1763.9
144p 102 256x144 1528.4
144p 204 256x144 1461.5
144p 51 256x144 1455.8
360p 408 640x360 1458.9
360p 204 640x360 1459.2
360p 102 640x360 1460.9
360p 51 640x360 1463.2
144p 408 256x144 1340.0
240p 408 426x240 1250.0
2048 1 2688x1536 1757.8
256 204 336x192 959.9
256 102 336x192 963.2
256 51 336x192 969.2
256 1 336x192 1154.3
144p 1 256x144 1191.3
256 408 336x192 753.7
1080p 1 1920x1080 673.6
END
"$bench" clips "$work/table.json" "$work/plan" 250000 >"$work/clips" || fail "clips: $?"
awk -F '|' '$2 + 0 == 256 {
    above[++n] = $6 + 0
    share[n] = $7 + 0
    used[n] = $5 + 0
}
END {
    # Open-Sora, equal tokens, none, tokens, time, time predicted within 3 %
    exit !(n == 6 && above[5] <= 3 && above[6] <= 3 && share[5] >= 1.2 * share[1] &&
        share[5] >= 1.2 * share[2] && share[5] >= share[4] && used[5] > 1.2 * used[3] && used[5] > 95)
}' "$work/clips" || fail "$(cat "$work/clips")"

"$bench" rows 32768 1.809 1.396 100000 >"$work/rows" || fail "rows: $?"
awk -F '|' '$2 + 0 == 256 && $3 + 0 >= 4 {
    n++
    bad += $5 + 0 > 3 || $4 + 0 < $5 + 10
}
END { exit !(n == 3 && !bad) }' "$work/rows" || fail "$(cat "$work/rows")"
"$bench" clips "$work/table.json" 2>/dev/null && fail "too few arguments are no error"
exit $failed
