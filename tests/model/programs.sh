# SPDX-License-Identifier: Apache-2.0
# What the tests of the programs share; read by them.  $work is a folder of their own.
root=$(cd "${srcdir:-.}" && pwd) || exit 1 # tests change directories
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failures=0

fail() {
    echo "FAIL: $*"
    failures=$((failures + 1))
}

# runs TEXT COMMAND...: it must succeed and say TEXT.
runs() {
    text=$1
    shift
    "$@" >"$work/out" 2>"$work/err" || fail "$*: $(tail -n 2 "$work/err")"
    cat "$work/out" "$work/err" | grep -q -- "$text" || fail "no \"$text\" from: $*"
}

# refuses STATUS TEXT COMMAND...: it must fail with that status and a sentence with TEXT, and never
# die of a signal.
refuses() {
    status=$1 text=$2
    shift 2
    "$@" >"$work/out" 2>"$work/err"
    got=$?
    [ "$got" = "$status" ] || fail "exit $got instead of $status: $*: $(tail -n 2 "$work/err")"
    grep -q -- "$text" "$work/err" || fail "no \"$text\" from: $*: $(tail -n 2 "$work/err")"
}

# The bytes that the program before was refused for, as it says.
needed() {
    sed -n 's/.*needs at least \([0-9]*\) bytes.*/\1/p' "$work/err"
}

# possible OUTPUT: the least budget that the plan printed there names, as a value of --vram; of a
# run whose plan goes to a file, too, for others do not search for it.
possible() {
    awk '{
        for (i = 1; i < NF; i++)
            if ($i == "possible")
                print $(i + 1) + 0.01 substr($(i + 2), 1, 1)
    }' "$1"
}

# wait_steps LOG N: until the log has more than N steps, a minute at the most.
wait_steps() {
    tries=0
    until [ "$(cat "$1" 2>/dev/null | grep -c '^{"step"')" -gt "$2" ] || [ $tries -gt 600 ]; do
        tries=$((tries + 1))
        sleep 0.1
    done
}

# The last word of a test.
finish() {
    [ "$failures" = 0 ] && echo "ok" && exit 0
    exit 1
}

# ranks N NAME COMMAND...: a process for each of N ranks; what rank R says goes to NAME.R.
ranks() {
    n=$1
    name=$work/$2
    shift 2
    jobs=
    for r in $(seq 1 $((n - 1))); do
        RANK=$r WORLD_SIZE=$n timeout 100 "$@" --ranks "file:$work/meet" >"$name.$r" 2>&1 &
        jobs="$jobs $!"
    done
    ended=0
    RANK=0 WORLD_SIZE=$n timeout 100 "$@" --ranks "file:$work/meet" >"$name.0" 2>&1 || ended=1
    for j in $jobs; do
        wait "$j" || ended=1
    done
    rm -f "$work/meet"
    return $ended
}

# ranks_run N NAME COMMAND...: fails with what rank 0 said last.
ranks_run() {
    ranks "$@" || fail "$*: $(tail -n 2 "$work/$2.0")"
}

# steps_of LOG: step, loss and gradient norm of each line
steps_of() {
    sed -n 's/^{"step": \([0-9]*\), "loss": \([^,]*\), "grad_norm": \([^,]*\),.*/\1 \2 \3/p' "$work/$1"
}

# same_steps A B SHARE: the losses and norms of two logs differ by no more than SHARE of them.
same_steps() {
    steps_of "$1" >"$work/a"
    steps_of "$2" >"$work/b"
    paste "$work/a" "$work/b" | awk -v share="$3" '
        function far(x, y) { return x - y > share * y || y - x > share * y }
        { if ($1 != $4 || far($2, $5) || far($3, $6)) bad = 1 }
        END { exit bad || NR < 4 }' || fail "$2: $(paste "$work/a" "$work/b")"
}

# ranks_differ OPTION COMMAND...: rank 0 has the option with 2, rank 1 has not, and both say so.
ranks_differ() {
    option=$1
    shift
    RANK=1 WORLD_SIZE=2 timeout 100 "$@" --ranks "file:$work/meet" >"$work/differ.1" 2>&1 &
    RANK=0 WORLD_SIZE=2 timeout 100 "$@" "$option" 2 --ranks "file:$work/meet" >"$work/differ.0" 2>&1 &&
        fail "ranks that split differently train"
    wait $!
    rm -f "$work/meet"
    for r in 0 1; do
        grep -q "rank 1 started with another $option than rank 0" "$work/differ.$r" ||
            fail "rank $r: $(tail -n 1 "$work/differ.$r")"
    done
}
