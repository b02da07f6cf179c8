#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ranks on GPUs, one each: every stage gives the same bits, close to those of one GPU on the whole
# batch, in the memory that was promised; a rank that is missing is named.  Skipped with fewer than
# two GPUs.
. "${srcdir:-.}/tests/gpu/gpus.sh"
output=$(mktemp) || exit 1
trap 'rm -f "$output" "$output".*' EXIT
limit=120
port=$((20000 + $$ % 20000))
failed=0

fail() {
    echo "FAIL: $*"
    sed 's/^/    /' "$output" "$output".* 2>/dev/null
    failed=1
}

# job N ARGUMENT...: N ranks, $per_host to a host; what rank 0 prints goes to $output, all sentences
# to $output.errors.
per_host=8
job() {
    size=$1
    shift
    port=$((port + 1))
    : >"$output.errors"
    rank=$size
    pids=
    while [ "$rank" -gt 0 ]; do
        rank=$((rank - 1))
        CKPT_HOST_NAME=$((rank / per_host)) RANK=$rank WORLD_SIZE=$size timeout "$limit" ./tests/dist/train_ranks --device cuda \
            --ranks "tcp:127.0.0.1:$port" --vram 4G "$@" \
            >"$output.$rank" 2>>"$output.errors" &
        pids="$pids $!"
    done
    status=0
    for pid in $pids; do
        wait "$pid" || status=1
    done
    cp "$output.0" "$output"
    return $status
}

# The losses of two outputs differ by no more than this share.
near() {
    cat "$1" "$2" | awk -v most="$3" '
        /^losses:/ { for (i = 2; i <= NF; i++) loss[n + 0, i] = $i; n++; fields = NF }
        END {
            for (i = 2; i <= fields; i++) {
                d = loss[0, i] - loss[1, i]
                if (d < 0) d = -d
                if (d > most * loss[0, i]) bad = 1
            }
            exit n != 2 || fields < 2 || bad
        }'
}

# check_stages N TOLERANCE WORD...
check_stages() {
    ranks=$1
    tolerance=$2
    shift 2
    RANK=0 WORLD_SIZE=1 timeout 120 ./tests/dist/train_ranks --device cuda "$@" \
        >"$output.alone" 2>"$output.errors" || fail "one GPU, $*"
    job "$ranks" --zero 0 "$@" || fail "$ranks GPUs, stage 0, $*"
    cp "$output" "$output.first"
    cat "$output.errors"
    near "$output.alone" "$output.first" "$tolerance" ||
        fail "$ranks GPUs are not near one: $(cat "$output.alone")"
    for zero in 1 2 3 auto; do
        job "$ranks" --zero $zero "$@" || fail "$ranks GPUs, stage $zero, $*"
        cmp -s "$output" "$output.first" ||
            fail "$ranks GPUs, $*: stage $zero gives other bits: $(cat "$output.first")"
    done
}

check_stages 2 1e-3
check_stages 2 2e-2 bf16
# not recorded: command by command
job 2 --zero 3 bf16 --profile && cmp -s "$output" "$output.first" || fail "command by command"
# one rank times its ops and the other replays its steps; then both save
job 2 --zero 3 bf16 save --machine-out "$output.machine" && cmp -s "$output" "$output.first" ||
    fail "times of ops"
# copies of all ranks are timed first
job 2 --zero 3 bf16 --host 1G && cmp -s "$output" "$output.first" || fail "with a host tier"
if [ "$gpus" -ge 4 ]; then
    check_stages 4 2e-2 bf16
    # two hosts with a copy each: their own sums, so other bits, but not far, and one of all stages
    cp "$output.first" "$output.all"
    per_host=2
    job 4 --zero 3 --shard-over host bf16 || fail "two hosts, stage 3"
    cat "$output.errors"
    near "$output.all" "$output" 2e-2 || fail "two hosts are not near one: $(cat "$output.all")"
    cp "$output" "$output.first"
    for zero in 1 2; do
        job 4 --zero $zero --shard-over host bf16 || fail "two hosts, stage $zero"
        cmp -s "$output" "$output.first" || fail "two hosts, stage $zero: $(cat "$output.first")"
    done
    job 4 bf16 || fail "two hosts, what is faster"
    per_host=8
fi

# what goes wrong is said by all, in time
said() {
    words=$1
    shift
    begin=$(date +%s)
    job 2 --comm-deadline 5 "$@" && fail "$*: the job did not fail"
    [ $(($(date +%s) - begin)) -le 60 ] || fail "$*: it took longer than 60 s"
    grep -q "$words" "$output.errors" || fail "$*: nobody says \"$words\""
}
said 'step 5.*rank 1 is gone' kill
# timeout ends the one that stopped
limit=50
said 'rank 1 did not reach' stop
CUDA_VISIBLE_DEVICES=$(echo "${CUDA_VISIBLE_DEVICES:-0}" | cut -d, -f1)
export CUDA_VISIBLE_DEVICES
said 'ranks 0 and 1 would share the GPU at' one GPU
exit $failed
