#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# In a control group of the kernel, where one can be made: --host is clipped to its memory and the run
# ends well within it, and a quota of cores limits the threads.
set -eu
ckpt=${CKPT_COMMAND:-./ckpt}
lm=${LM_TRAIN:-./lm-train}
. "${srcdir:-.}/tests/first_failure.sh"
groups=
trap 'for g in $groups; do rmdir "$g" 2>/dev/null || true; done; rm -rf "$work"' EXIT

# A group below that of this process, of one controller: "2" names the version.
group() {
    at=$(sed -n "s/^[0-9]*:\([a-z,]*,\)\?$1\(,[a-z,]*\)\?://p" /proc/self/cgroup | head -n 1)
    root=/sys/fs/cgroup/$1
    if [ -z "$at" ]; then
        at=$(sed -n 's/^0:://p' /proc/self/cgroup)
        root=/sys/fs/cgroup
    fi
    [ -d "$root$at" ] || at= # a container sees its own group as the root
    made=$root${at%/}/ckpt-test-$$-$1
    mkdir "$made" 2>/dev/null || exit 77
    groups="$groups $made"
}

# limit FILE VALUE [FILE VALUE]: the first file that the group has.
limit() {
    while [ $# -ge 2 ]; do
        if [ -e "$made/$1" ]; then
            echo "$2" 2>/dev/null >"$made/$1" || exit 77
            return
        fi
        shift 2
    done
    exit 77
}

# inside COMMAND...: in the group that was made last; its output is in $work/out.
inside() {
    status=0
    # shellcheck disable=SC2016
    sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$made" "$@" >"$work/out" 2>&1 || status=$?
    [ $status = 0 ] || fail "$*: status $status: $(tail -n 3 "$work/out")"
}

# ---- memory --------------------------------------------------------------------------------------
seq 1 20000 >"$work/text"
group memory
limit memory.max 400M memory.limit_in_bytes 400M
inside "$ckpt" info
grep -q '^  host .* left: control group limit ' "$work/out" || fail "info: $(cat "$work/out")"
inside "$lm" --data "$work/text" --tokenizer bytes --layers 2 --hidden 256 --heads 4 --mlp 1024 \
    --length 128 --batch 4 --steps 2 --threads 2 --vram 32M --host 64G
grep -q 'host tier .* of --host are used: control group limit .*/ckpt-test-' "$work/out" ||
    fail "no row names the limit: $(cat "$work/out")"
grep -q 'offloaded to the host' "$work/out" || fail "nothing was offloaded: $(cat "$work/out")"
# On the CPU --vram is of the same memory, and without it an arena that has no room is refused.
small="--data $work/text --tokenizer bytes --layers 1 --heads 4 --length 64 --batch 1 --steps 1 --threads 1"
inside "$lm" $small --hidden 64 --mlp 128 --vram 2G
grep -q '2.00 GiB  requested; the device has less' "$work/out" || fail "--vram is not clipped: $(cat "$work/out")"
# shellcheck disable=SC2016
sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$made" "$lm" $small --hidden 2048 --mlp 8192 >"$work/out" 2>&1 &&
    fail "an arena above the limit was used"
grep -q 'arena of --device cpu: control group limit .* short; lower --vram or free memory' "$work/out" || fail "arena: $(cat "$work/out")"

# ---- cores ---------------------------------------------------------------------------------------
[ "$(nproc)" -gt 1 ] || exit 0
group cpu
limit cpu.max "50000 100000" cpu.cfs_quota_us 50000
inside "$ckpt" info
grep -q 'of which this process may use 1$' "$work/out" || fail "cores: $(head -n 2 "$work/out")"
