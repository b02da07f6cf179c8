# SPDX-License-Identifier: Apache-2.0
# What the shell tests share that end at the first failure; read by them.  $work is a folder of
# their own.
srcdir=$(cd "${srcdir:-.}" && pwd) || exit 1 # tests change directories
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

fail() {
    echo "FAIL: $*"
    exit 1
}

# run STATUS COMMAND...: the output is in $work/out, what went to standard error in $work/err.
run() {
    expected=$1
    shift
    status=0
    "$@" >"$work/out" 2>"$work/err" || status=$?
    [ "$status" = "$expected" ] || fail "$*: status $status, not $expected: $(cat "$work/err")"
}

# refuse STATUS PATTERN COMMAND...: one sentence that fits the pattern, and nothing else; where no
# plan fits there are three lines: the needed memory, a suggestion, and an alternative.
refuse() {
    expected=$1
    pattern=$2
    shift 2
    run "$expected" "$@"
    grep -q "$pattern" "$work/err" || fail "$*: said '$(cat "$work/err")', not '$pattern'"
    # on a busy machine the search says that it goes on
    lines=$(grep -vc '^planning: ' "$work/err" || true)
    grep -q "no plan fits" "$work/err" && [ "$lines" = 3 ] && return
    [ "$lines" = 1 ] || fail "$*: not one line: $(cat "$work/err")"
}

# value NAME: what the build takes for a directory or a flag.
value() {
    printf 'print-value: ; @echo "$(%s)"\n' "$1" >"$work/value.mk"
    MAKEFLAGS= make -s -f Makefile -f "$work/value.mk" print-value
}

# Sets browser; without one the test is skipped.
find_browser() {
    for name in chromium chromium-browser google-chrome; do
        browser=$(command -v $name) && return
    done
    exit 77
}
