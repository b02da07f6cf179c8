#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ckpt import --c-out: what it writes compiles without a warning, records the tape that the importer
# records, and its losses have the same bits.  Arguments: other archives than those of the tests; of
# these the storages may differ, where a join that no call left out reads is made in place.
set -eu
. "${srcdir:-.}/tests/first_failure.sh"
models=$srcdir/tests/import/models
command -v gzip >/dev/null || exit 77

# Numbers of tensors and storages in the order in which they stand, and no source lines; what is
# fetched is labelled by calls that are left out.
plain() {
    awk '!/^tape after/ {
        sub(/^ *[0-9]+ /, ""); if (/ fetch\(/) sub(/ in .*/, ""); gsub(/ \([^ ()]*:[0-9]+(-[0-9]+)?\)/, "")
        line = ""
        while (match($0, /[%@][0-9]+/)) {
            id = substr($0, RSTART, RLENGTH)
            if (!(id in seen)) seen[id] = ++n[substr(id, 1, 1)]
            line = line substr($0, 1, RSTART) seen[id]
            $0 = substr($0, RSTART + RLENGTH)
        }
        print line $0
    }' "$1"
}

cc=$(value CC)
flags="$(value CFLAGS) $(value SANITIZER_FLAGS)"

check() {
    name=$(basename "$1" .pt2)
    ./ckpt import "$1" --c-out "$work/$name.c" >"$work/said" 2>&1 || fail "$name: $(tail -1 "$work/said")"
    printf '#include "%s"\n#include "source_driver.h"\n' "$work/$name.c" >"$work/driver.c"
    # shellcheck disable=SC2086
    $cc -std=gnu11 $flags -O0 -Wall -Wextra -Werror "-I$srcdir/runtime" \
        "-I$srcdir/tests/import" "$work/driver.c" -o "$work/driver" -L.libs "-Wl,-rpath,$PWD/.libs" \
        -lckpt -lm || fail "$name.c does not compile"
    for from in archive recorder; do
        "$work/driver" $from "$1" "$work/$name.safetensors" >"$work/$from" ||
            fail "$name: no step of the $from"
        plain "$work/$from" >"$work/$from.plain"
    done
    for from in archive recorder; do
        sed "$2" "$work/$from.plain" >"$work/$from.compared"
    done
    diff "$work/archive.compared" "$work/recorder.compared" >"$work/diff" ||
        fail "$name: another tape: $(head -20 "$work/diff")"
    echo "ok: $name: $(wc -l <"$work/$name.c") lines, $(grep -c = "$work/recorder") ops," \
        "$(tail -1 "$work/recorder")"
}

# A call that is not noted would be missing in the source.
noted=$(sed -n 's/^#define \(ckpt_[a-z0-9_]*\).*/\1/p' "$srcdir/runtime/import/calls.h")
for call in $(grep -ohE 'ckpt_[a-z0-9_]+\(' "$srcdir"/runtime/import/ops*.c | sed 's/(.*//' | sort -u); do
    case " ckpt_desc_of $(echo $noted) " in *" $call "*) ;; *) fail "calls.h has no $call" ;; esac
done

for archive; do
    check "$archive" 's/ @[0-9]*//g'
done
[ $# -eq 0 ] || exit 0
./ckpt import "$srcdir/tests/fuzz/corpus/archive/small.pt2" --c-out "$work/small.c" >"$work/said"
grep -q '{batch, 2}' "$work/small.c" || fail "small.c has no batch"
# packed STORAGES NAME...
packed() {
    storages=$1
    shift
    for name; do
        gzip -dc "$models/$name.pt2.gz" >"$work/$name.pt2"
        check "$work/$name.pt2" "$storages"
    done
}
packed '' probe dynamic settings gpt2 llama cogvideo norms islands_bf16
# CKPT_TEST_ALL: the others, but those that are refused, have no batch in common, or a number beside other outputs.
[ -z "${CKPT_TEST_ALL-}" ] || packed 's/ @[0-9]*//g' $(ls "$models" | sed -n 's/\.pt2\.gz$//p' |
    grep -v -x -e 'probe\|dynamic\|settings\|gpt2\|llama\|cogvideo\|norms\|islands_bf16' -e 'whole\|written\|sums\|slots\|aliases\|distances\|ends\|special\|teacher.*\|unkept_.*')
grep -q 'for (int child' "$work/gpt2.c" || fail "gpt2.c has no loop over its layers"
