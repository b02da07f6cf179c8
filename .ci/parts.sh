# SPDX-License-Identifier: Apache-2.0
# What .ci/run and .ci/everything share; read by them.  Parts run one after the other, whatever
# failed before; a part that runs out of its minutes has failed.
cd "$(dirname "$0")/.." || exit 1
mkdir -p "${BUILDDIR:-build}" && build=$(cd "${BUILDDIR:-build}" && pwd) || exit 1
make="make -C $build --no-print-directory -j $(nproc 2>/dev/null || echo 2)"
passed=0 failed=0 table=
output=$build/part.output failures=$build/part.failures
: >"$failures"

# Passed and failed tests of a log of automake's; a hard error or an unexpected pass has failed.
count() {
    awk '
        /^# PASS:/ || /^# XFAIL:/ { passed += $3 }
        /^# FAIL:/ || /^# XPASS:/ || /^# ERROR:/ { failed += $3 }
        END { print passed + 0, failed + 0 }' "$1"
}

# The end of each of the first three failed tests of such a log, then the names of all of them.  A
# section of it begins with "FAIL: NAME" above a line of "=".  What make said with VERBOSE=1 has it.
failed_tests() {
    awk -v tests=3 -v lines=40 '
        function close_section(    i) {
            if (name !~ /^(FAIL|XPASS|ERROR): /)
                return
            names = names "\n" name
            if (++count > tests)
                return
            print "\n---- " name
            for (i = n > lines ? n - lines : 0; i < n; i++)
                print text[i]
        }
        /^=+$/ && before ~ /^[A-Z]+: / {
            n--
            close_section()
            name = before
            before = ""
            n = 0
            next
        }
        { before = text[n++] = $0 }
        /^Testsuite summary/ { close_section(); name = "" }
        END { close_section(); print names }' "$1"
}

# What failed of a part, for the closing lines; where no test is named, the end of what it said.
keep_failures() {
    [ -f "$log" ] || log=$output
    said=$(failed_tests "$log")
    printf '\n== %s\n%s\n' "$name" "${said:-$(tail -n 40 "$output")}"
}

# part NAME MINUTES LOG COMMAND...: LOG lists its tests; without one, "-", the part counts as a
# test.  A part that exits 77 lacks something on this machine, and counts as nothing; make would
# turn that into 2, so such parts are no targets of make.
part() {
    name=$1 limit=$2 log=$3
    shift 3
    printf '\n==== %s: %s\n' "$name" "$*"
    rm -f "$log"
    begin=$(date +%s)
    : >"$output" # shown by another process: one that outlives its part holds no pipe of ours
    tail -n +1 -f "$output" &
    shown=$!
    timeout -k 10 "${limit}m" "$@" </dev/null >"$output" 2>&1
    status=$?
    sleep 2 && kill $shown && wait $shown 2>/dev/null
    minutes=$(awk "BEGIN { printf \"%.1f\", ($(date +%s) - $begin) / 60 }")
    case $status in
    0) set -- 1 0 ;;
    77) set -- 0 0 ;;
    *) set -- 0 1 ;;
    esac
    # shellcheck disable=SC2046
    [ ! -f "$log" ] || set -- $(count "$log")
    [ $status = 0 ] || [ $status = 77 ] || [ "$2" -gt 0 ] || set -- "$1" 1
    passed=$((passed + $1)) failed=$((failed + $2))
    [ "$2" = 0 ] || keep_failures >>"$failures"
    word=
    [ $status != 77 ] || word=', skipped'
    [ $status != 124 ] || word=", stopped after $limit minutes"
    table="$table$(printf '%8s  %s: %d passed, %d failed%s' "$minutes" "$name" "$1" "$2" "$word")
"
}

# The minutes of all parts, what failed, and the closing line: the end of a log tells it all.
close_parts() {
    printf '\n minutes  part\n%s' "$table"
    cat "$failures"
    rm -f "$output" "$output.status" "$failures"
    printf '\n%d passed, %d failed\n' "$passed" "$failed"
    [ $failed = 0 ]
}
