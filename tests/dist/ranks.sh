# SPDX-License-Identifier: Apache-2.0
# What the tests of ranks share; read by them.  launch N ARGUMENT... runs N ranks.
ranks=./tests/dist/comm_ranks
errors=$(mktemp) || exit 1
trap 'rm -f "$errors" "$errors.meet"' EXIT
failed=0

fail() {
    echo "FAIL: $*"
    sed 's/^/    /' "$errors"
    failed=1
}

# N ranks give the results of N threads, bit for bit.
check_digest() {
    expected=$($ranks threads "$1")
    got=$(launch "$1" 2>"$errors")
    if [ -z "$expected" ] || [ "$expected" != "$got" ]; then
        fail "$1 ranks: \"$got\", threads say \"$expected\""
    fi
}

# check_fault FAULT N WORDS: with this fault in rank 1 of 3 the job ends in time and fails, and at
# least N ranks say a sentence with these words, and no rank another.
check_fault() {
    begin=$(date +%s)
    if CKPT_TEST_DEADLINE=3 launch 3 "$1" 1 >/dev/null 2>"$errors"; then
        fail "$1: the job did not fail"
    fi
    if [ $(($(date +%s) - begin)) -gt 30 ]; then
        fail "$1: the job took longer than 30 s"
    fi
    said=$(grep -c '^\[rank' "$errors")
    right=$(grep '^\[rank' "$errors" | grep -c "$3")
    if [ "$right" -lt "$2" ] || [ "$said" != "$right" ]; then
        fail "$1: $right of $said ranks say \"$3\", expected at least $2"
    fi
}

# check_training N STAGE PER_HOST: steps of N ranks of a kind are those of as many threads, bit for
# bit.
check_training() {
    expected=$(./tests/dist/train_ranks threads "$@")
    got=$(train 2>"$errors")
    if [ -z "$expected" ] || [ "$expected" != "$got" ]; then
        fail "training: \"$got\", threads say \"$expected\""
    fi
}
