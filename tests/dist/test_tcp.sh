#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ranks as processes that connect themselves: results and faults.
. "${srcdir:-.}/tests/dist/ranks.sh"

launch() {
    size=$1
    shift
    timeout 100 $ranks tcp "$size" "file:$errors.meet" "$@"
}

for n in 1 2 3 4; do
    check_digest $n
done
# files left by an ended job are not accepted
printf 'libckpt rendezvous 1\naddress 127.0.0.1 9\njob another\nsecret none\n' >"$errors.meet"
chmod 600 "$errors.meet"
check_digest 2
# with a token of the user, where this libckpt can prove one
if grep -q '^#define HAVE_SODIUM 1' config.h; then
    CKPT_JOB_TOKEN=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
    export CKPT_JOB_TOKEN
    check_digest 3
    unset CKPT_JOB_TOKEN
fi
here='of step 16'
check_fault drop 3 "a message of rank 1 to rank 0 in .*$here.* was lost"
check_fault damage 3 "data from rank 1 to rank 0 in .*$here arrived damaged"
check_fault late 3 "rank 1 did not reach .*$here within 3 s"
last='its last complete call is [0-9]*, barrier "before the fault" of step 0 with 0 bytes'
check_fault stop 2 "rank 1 did not reach .*of step 0 within 3 s.* in call [0-9]*, all_gather .*$last"
check_fault kill 2 "rank 1 is gone at .*of step 0.*$last"
check_fault plan 3 'rank 1 started with another plan than rank 0'
check_fault absent 2 'rank 1 of 3 did not reach file:.* within 3 s'
# a rank that connects after rank 0 has left does not learn the reason
late='rank [12] did not find rank 0'
check_fault size 2 "rank 1 (.*) was started as one of 4, rank 0 as one of 3\\|$late"
check_fault twice 2 "two processes are started as rank 2: .* and \\|$late"

train() {
    for r in 3 2 1 0; do
        CKPT_HOST_NAME=host$((r / 2)) RANK=$r WORLD_SIZE=4 timeout 200 ./tests/dist/train_ranks \
            --ranks "file:$errors.meet" --shard-over host &
    done
    wait
}
check_training 4 3 2
exit $failed
