#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The bench of single ops from outside: which kernels there are, times and shares of the roofline,
# and one sentence for wrong input.
set -eu
. "${srcdir:-.}/tests/first_failure.sh"

bench=$PWD/tests/bench/bench_ops
[ -x "$bench" ] || exit 77
unset CKPT_MACHINE_DIR # those that come with the library
here=$(cd "${srcdir:-.}/machines" && pwd)/cpu.json
cd "$work"

run 0 "$bench" --mode support
grep -q "^linear_dw  *yes  *yes  *[yn]" out || fail "support says of linear_dw: $(cat out)"
grep -q "^permute  *view" out || fail "support: permute is a view: $(cat out)"
grep -q "every op has a kernel on cpu" out || fail "support: an op has no kernel: $(cat out)"
grep -q "kernel on cuda" out || fail "support has no line for cuda: $(cat out)"
run 0 "$bench" --only gelu --ms 1 --size small --device cpu --machine "$here"
[ "$(grep -c '^gelu' out)" = 4 ] || fail "not gelu and gelu_dx in two dtypes: $(cat out)"
# Time and rate give the bytes: 128 x 4608 values read and written.
awk '/^gelu .*fp32/ { bytes = 1e6 * $4 * $6 / (2 * 4 * 128 * 4608)
                      if (bytes < 0.9 || bytes > 1.1) exit 1 }' out || fail "bytes of gelu: $(cat out)"
# The share follows from the rates.
awk -v rate="$(sed -n 's/.*"bandwidth": *\([0-9.e+]*\).*/\1/p' "$here")" \
    -v flops="$(sed -n 's/.*"flops": *\([0-9.e+]*\).*/\1/p' "$here")" '
    /^gelu/ { share = 100e9 * $6 / rate; other = 100e9 * $5 / flops
              if (other > share) share = other
              if ($7 < 0.9 * share - 0.2 || $7 > 1.1 * share + 0.2 || $4 <= 0) exit 1 }' out ||
    fail "shares of the roofline do not follow from the rates: $(cat out "$here")"
run 0 "$bench" --only GELU --dtype bf16 --ms 1 --size small --device cpu --machine cpu
[ "$(grep -c '^gelu.*bf16' out)" = 2 ] && ! grep -q fp32 out || fail "--dtype bf16: $(cat out)"
for mode in test grad; do
    run 77 "$bench" --mode $mode --device cpu
    grep -q "nothing to compare" out || fail "--mode $mode: $(cat out)"
done
refuse 2 "mode speed: there are" "$bench" --mode speed
refuse 2 "no family has this name" "$bench" --only gello
refuse 2 "dtype fp16: there are" "$bench" --dtype fp16
refuse 2 "size tiny: there are" "$bench" --size tiny
refuse 2 "device tpu: there are" "$bench" --device tpu
refuse 2 "give 1 to 60000" "$bench" --ms 0
refuse 2 "unknown option '--mod'; did you mean --mode" "$bench" --mod perf
refuse 1 "none of this name" "$bench" --device cpu --machine h300
run 0 "$bench" --help
grep -q -- "--only" out || fail "--help: $(cat out)"
echo ok
