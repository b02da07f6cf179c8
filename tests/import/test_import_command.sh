#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ckpt import and ckpt plan --pt2: what they say of whole archives, of one with an op that does not
# exist, and of one without weights.
set -eu
. "${srcdir:-.}/tests/first_failure.sh"
models=$srcdir/tests/import/models
dynamic=$srcdir/tests/fuzz/corpus/archive/small.pt2
command -v gzip >/dev/null || exit 77
mkdir "$work/tmp"
TMPDIR=$work/tmp
export TMPDIR

# run STATUS COMMAND...: it ends with that status; says has what it printed.
run() {
    want=$1
    shift
    status=0
    "$@" >"$work/said" 2>&1 || status=$?
    [ "$status" -eq "$want" ] || fail "$* ended with $status: $(cat "$work/said")"
}
says() {
    grep -q -- "$1" "$work/said" || fail "no '$1' in: $(cat "$work/said")"
}

gzip -dc "$models/probe.pt2.gz" >"$work/probe.pt2"
run 0 ./ckpt import "$work/probe.pt2" --report
says '^  ids  *int64 \[2, 6\]$'
says '^parameters  *8 tensors, 1239 values, 4.84 KiB; 1 share the memory of another$'
says '^  tied.weight  *float32 \[40, 12\], tied$'
says '^  average  *float32 \[12\], not trained$'
says '^ops  *21 calls of 15 ops; 2 read constants alone'
says '^  aten.linear.default  *3 calls$'
says '^every op is supported$'

# An op that nobody has, in the place of one of the same length.
LC_ALL=C sed 's/aten\.gelu\.default/aten.glue.default/' "$work/probe.pt2" >"$work/odd.pt2"
run 1 ./ckpt import "$work/odd.pt2"
says 'models/model.json: is damaged: its bytes have the sum'
# Without its checksum, 30 bytes before its name in the list of members.
at=$(LC_ALL=C grep -abo 'probe/models/model.json' "$work/odd.pt2" | tail -n 1 | cut -d : -f 1)
printf '\000\000\000\000' | dd of="$work/odd.pt2" bs=1 seek=$((at - 30)) conv=notrunc 2>/dev/null
run 1 ./ckpt import "$work/odd.pt2" --graph-out "$work/odd.graph"
says '^  aten.glue.default  *1 calls, the first in mlp.1 at activation.py:[0-9]*: return F.gelu'
says 'cannot be trained: 1 ops are not supported'
[ ! -e "$work/odd.graph" ] || fail "a graph of a model with a missing op"
run 1 ./ckpt plan --pt2 "$work/odd.pt2"
says 'aten.glue.default.*mlp.1'

# A step from the archive and from its graph is one plan.
run 0 ./ckpt import "$work/probe.pt2" --graph-out "$work/probe.graph" --machine rtx4090
run 0 ./ckpt plan --graph "$work/probe.graph" --machine rtx4090 --vram 2G
grep -v '^plan of' "$work/said" >"$work/graph.txt"
run 0 ./ckpt plan --pt2 "$work/probe.pt2" --machine rtx4090 --vram 2G
says "^plan of $work/probe.pt2: [0-9]* ops"
grep -v '^plan of' "$work/said" | cmp - "$work/graph.txt" || fail "two plans of one step"

# Angles of a rotary embedding are constants, also where they are a product of matrices.
gzip -dc "$models/angles.pt2.gz" >"$work/angles.pt2"
run 0 ./ckpt import "$work/angles.pt2" --graph-out "$work/angles.graph"
grep -q "# rope" "$work/angles.graph" && ! grep -q "# matmul\|# cos" "$work/angles.graph" ||
    fail "no rotary embedding in: $(cat "$work/angles.graph")"

# A block in bf16 with norms, modulations and gates in fp32, and pairs that are turned.
gzip -dc "$models/islands_bf16.pt2.gz" >"$work/islands.pt2"
run 0 ./ckpt import "$work/islands.pt2" --graph-out "$work/islands.graph"
[ "$(grep -c '^op forward.*# rope' "$work/islands.graph")" = 2 ] || fail "no two rotary embeddings of pairs"
# Activations of 2 x 6 x 16: of fp32 is none, and of bf16 the residuals are.
grep '^storage activation' "$work/islands.graph" | grep -q 'layer_norm_modulate' || fail "no modulated norm"
! grep -q '^storage activation 1024  # \(cast$\|layer_norm\|gated\)' "$work/islands.graph" || fail "activations in fp32"

# Pairs of a batch of another size than at the export; those of another dtype or shape than the result are no such op.
gzip -dc "$models/pairs.pt2.gz" >"$work/pairs.pt2"
run 0 ./ckpt import "$work/pairs.pt2" --dim x.0=3 --graph-out "$work/pairs.graph"
[ "$(grep -c '^op forward.*# rope' "$work/pairs.graph")" = 1 ] || fail "not one rotary embedding of pairs"

# The gradients of q, k and v are written side by side, and sums for biases with the norm's gradient.
gzip -dc "$models/gpt2.pt2.gz" >"$work/gpt2.pt2"
run 0 ./ckpt import "$work/gpt2.pt2" --graph-out "$work/gpt2.graph"
grep -q '# attention_dx in transformer.h.0' "$work/gpt2.graph" || fail "no attention in GPT-2"
! grep -q '# concat in transformer.h' "$work/gpt2.graph" || fail "gradients of q, k and v are joined by a copy"
[ "$(grep -c '^op backward.*# column_sum in transformer.h.0' "$work/gpt2.graph")" = 1 ] ||
    fail "sums over rows of their own: $(grep '# column_sum' "$work/gpt2.graph")"

# Dynamic dimensions.
run 0 ./ckpt import "$dynamic"
says '^  x  *float32 \[4 (s77), 2\]$'
says '^  s77  *4, 2 to 8$'
run 0 ./ckpt import "$dynamic" --dim x.0=6
says '^  x  *float32 \[6 (s77), 2\]$'
run 0 ./ckpt plan --pt2 "$dynamic" --dim s77=8
run 1 ./ckpt plan --pt2 "$dynamic" --dim s77=9
says '^ckpt: --dim s77=9: .* from 2 to 8'
run 1 ./ckpt import "$dynamic" --dim x.1=9
says 'a size that was fixed by the export is 2 and not 9'
run 1 ./ckpt import "$dynamic" --dim y.0=4
run 1 ./ckpt import "$dynamic" --dim 4
says 'is not NAME=N'

# A model without weights is planned as the one with.
gzip -dc "$models/norms.pt2.gz" >"$work/norms.pt2"
gzip -dc "$srcdir/tests/import/empty/norms.pt2.gz" >"$work/meta.pt2"
run 0 ./ckpt import "$work/meta.pt2"
says '^parameters .*exported without values: load them from a file of weights$'
gzip -dc "$srcdir/tests/import/empty/bert.pt2.gz" >"$work/empty.pt2"
run 0 ./ckpt import "$work/empty.pt2"
says '^parameters .* tensors, 8467 values, .*; 1 that no call reads, tied or unused, not counted; exported without'
for name in norms meta; do
    run 0 ./ckpt plan --pt2 "$work/$name.pt2" --machine rtx4090
    grep -v '^plan of' "$work/said" >"$work/$name.txt"
done
cmp "$work/norms.txt" "$work/meta.txt" || fail "two plans of one model"

# A loss in bf16.
gzip -dc "$srcdir/tests/import/crossed/loss.pt2.gz" >"$work/loss.pt2"
run 0 ./ckpt plan --pt2 "$work/loss.pt2" --machine rtx4090

# The script of the table in doc/import.md.
mkdir "$work/table" && cp "$work/meta.pt2" "$work/table/a model.pt2"
run 0 env CKPT=./ckpt sh "$srcdir/tests/pt2/plan_models.sh" "$work/table" rtx4090 h100-80
cell='[0-9.]* [mu]*s |'
says "^| a model | [0-9]* | [0-9.]* MiB | $cell $cell\$"

# Ranks: the step is recorded as that of one of them.
run 0 ./ckpt plan --pt2 "$work/meta.pt2" --machine rtx4090 --world 4
says "^$work/meta.pt2: a rank's step on"
says '^best for 4 ranks: zero'
run 1 ./ckpt plan --pt2 "$work/probe.pt2" --machine rtx4090 --world 4
says "'unused' takes no part in the loss"

run 2 ./ckpt import
run 2 ./ckpt import "$work/probe.pt2" --machine rtx4090
run 2 ./ckpt plan --pt2 "$work/probe.pt2" --graph "$work/probe.graph"
run 2 ./ckpt plan --graph "$work/probe.graph" --dim x.0=4
run 1 ./ckpt import "$work/said"
says 'is not a zip archive'
gzip -dc "$models/mixed_bf16.pt2.gz" >"$work/mixed.pt2"
run 0 ./ckpt import "$work/mixed.pt2" --c-out "$work/mixed.c"
[ "$(grep -c 'norm(t, cast_.*, m->norm_weight\|norm_silu(t, cast_.*, m->norm_weight' "$work/mixed.c")" = 4 ] ||
    fail "weights of norms in fp32 are rounded: $(grep norm_weight "$work/mixed.c")"
for out in c-out graph-out; do
    run 1 ./ckpt import "$work/norms.pt2" --$out "$work/norms.pt2"
    says "is the same file as the archive"
done
gzip -dc "$models/gpt2.pt2.gz" | head -c 150000 >"$work/half.pt2"
run 1 ./ckpt import "$work/half.pt2"
says 'is a zip archive that was cut off'
[ -z "$(ls "$work/tmp")" ] || fail "a graph was left behind"
