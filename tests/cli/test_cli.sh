#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The ckpt command from outside: a recorded graph is planned, swept, explained and drawn; plans have
# the same bytes every time; wrong input gets one sentence and the right exit status.
set -eu
. "${srcdir:-.}/tests/first_failure.sh"

ckpt=${CKPT_COMMAND:-./ckpt}
mlp=${EXAMPLES:-./examples}/mlp
case $ckpt in /*) ;; *) ckpt=$PWD/$ckpt ;; esac
case $mlp in /*) ;; *) mlp=$PWD/$mlp ;; esac
[ -x "$ckpt" ] && [ -x "$mlp" ] || exit 77
unset CKPT_MACHINE_DIR # those that come with the library
machines=$(cd "${srcdir:-.}/machines" && pwd)
cd "$work"
mkdir tmp # no directory of another run is in it
export TMPDIR="$work/tmp"

# ---- help and info ---------------------------------------------------------------------------------
run 0 "$ckpt" --help
grep -q "plan the step" out || fail "--help: $(cat out)"
run 0 "$ckpt" plan --help
grep -q -- "--sweep" out || fail "plan --help: $(cat out)"
run 0 "$ckpt" plan -h
for word in -V --version; do
    run 0 "$ckpt" $word
    grep -q "^ckpt (libckpt) [0-9.]*$" out || fail "$word: $(cat out)"
done
CKPT_VRAN=1G run 0 "$ckpt" info
grep -q "CKPT_VRAN; did you mean CKPT_VRAM" err || fail "no warning of CKPT_VRAN: $(cat err)"
run 0 "$ckpt" info
for part in OpenBLAS CUDA MPI liburing FFmpeg; do
    grep -q "^  $part  *[yn]" out || fail "info does not list $part: $(cat out)"
done
grep -q "rtx4090 .*estimate" out || fail "info: $(cat out)"
grep "h200-141 " out | grep -vq estimate || fail "info calls a measured machine an estimate: $(cat out)"
run 0 "$ckpt" advise --list-cards
for card in rtx3090 rtx4090 rtx5080 rtx5090 a6000 l40s pro6000 a100-40 a100-80 h100-80 h200-141 b200; do
    grep -q "^  $card " out || fail "--list-cards: no $card: $(cat out)"
done
grep -q "capability 8.0" out || fail "--list-cards does not say which cards work: $(cat out)"
fake=$(dirname "$ckpt")/tests/torture/fake_cuda.so
if [ -f "$fake" ] && [ -z "${LD_PRELOAD-}" ]; then # built with CUDA
    run 0 env LD_PRELOAD="$fake" FAKE_CUDA_CAPABILITY=75 "$ckpt" info
    grep -q "cuda  *no: .*capability 7.5, and libckpt needs 8.0" out || fail "a card of 7.5: $(cat out)"
fi
run 2 "$ckpt"
refuse 2 "no command 'plane'" "$ckpt" plane

# ---- a graph, planned for another machine ----------------------------------------------------------
"$mlp" --plan-only --graph-out mlp.graph >/dev/null 2>err || fail "mlp --graph-out: $(cat err)"
"$mlp" --plan-only --machine h200-141 --graph-out again.graph >/dev/null || fail "mlp --machine"
run 0 "$ckpt" plan --graph again.graph --machine h200-141 --out free.plan
for words in "H200" "predicted step" "cost of the budget" "smallest feasible budget" \
    "peak of live bytes" "with one GiB more"; do
    grep -q "$words" out || fail "the table has no '$words': $(cat out)"
done
smallest=$(sed -n 's/^min_budget //p' free.plan)
[ "$smallest" -gt 0 ] || fail "no smallest budget in $(head -20 free.plan)"

run 0 "$ckpt" plan --graph again.graph --machine h200-141 --vram "$smallest" --out a.plan
run 0 "$ckpt" plan --graph again.graph --machine h200-141 --vram "$smallest" --out b.plan
cmp a.plan b.plan || fail "the same inputs gave two plans"
run 0 "$ckpt" plan --graph again.graph --machine h200-141 --plan-in a.plan
grep -q "predicted step" out || fail "--plan-in: $(cat out)"
refuse 1 "needs at least $smallest bytes" "$ckpt" plan --graph again.graph --machine h200-141 \
    --vram $((smallest - 1))

# Without a budget, and under --vram auto, where the card holds that: the same plan, byte for byte.
run 0 "$ckpt" plan --graph again.graph --machine h200-141 --vram none --out none.plan
cmp free.plan none.plan || fail "--vram auto and none plan differently"
run 0 "$ckpt" plan --graph again.graph --machine h200-141 --vram auto
grep -q "left for another process" out || fail "no margin in the table: $(cat out)"

# What the program itself plans for that machine is the same plan.
"$mlp" --plan-only --machine h200-141 --vram "$smallest" --plan-out c.plan >/dev/null 2>err ||
    fail "mlp --plan-out: $(cat err)"
cmp a.plan c.plan || fail "program and command plan differently"

# ---- sweep, picture, explanation, page ---------------------------------------------------------------
run 0 "$ckpt" plan --graph mlp.graph --machine rtx4090 --sweep --points 9 --svg sweep.svg
[ "$(wc -l <out)" = 10 ] || fail "--points 9: $(cat out)"
awk 'NR > 1 { if (last && $5 > last) exit 1; last = $5 }' out || fail "a larger budget is slower: $(cat out)"
grep -q "</svg>" sweep.svg || fail "the drawing is not complete"
! grep -qi "nan\|inf[^o]" sweep.svg || fail "a number of the drawing is not finite"
grep -q "Step time of mlp" sweep.svg && grep -q "prefers-color-scheme:dark" sweep.svg ||
    fail "the drawing names no graph, or has one palette"
# A card that does not hold the free plan ends the sweep, which says so.
sed 's/"process": [0-9]*/"process": 2000000/; s/"memory": [0-9]*/"memory": 5600000/' \
    "$machines/rtx4090.json" >card.json
run 0 "$ckpt" plan --graph mlp.graph --machine ./card.json --vram none --sweep --points 5
! grep -q "does not fit" out || fail "--vram none and a sweep: $(cat out)"
# A refusal names no budget above the card's memory; the suggestion has the predicted time.
sed 's/"memory": [0-9]*/"memory": 4500000/' card.json >small-card.json
refuse 1 "no --vram is enough: RTX 4090" "$ckpt" plan --graph mlp.graph --machine ./small-card.json --vram 2500000
! grep -q -- "--vram [0-9]" err || fail "a budget that the card has not: $(cat err)"
run 0 "$ckpt" plan --graph mlp.graph --machine ./card.json --vram 24G --host 1G
grep -q -- "--vram .*24.00 GiB .*more than the machine has" out || fail "--vram 24G: $(cat out)"
big=${machines%/machines}/tests/data/planner/big-tied-3.graph
refuse 1 "^  or keep this budget and add --host" "$ckpt" plan --graph "$big" --vram 760000000
added=$(sed -n 's/.*add --host \([0-9]*[KMG]\): a step then takes \(.*\)$/\1 \2/p' err)
run 0 "$ckpt" plan --graph "$big" --vram 760000000 --host "${added%% *}"
grep -q "predicted step  *${added#* }\$" out || fail "--host is said to take $added: $(cat out)"
run 0 "$ckpt" plan --graph mlp.graph --machine ./card.json --sweep --points 5
grep -q "does not fit RTX 4090" out || fail "a sweep beyond the card: $(cat out)"
run 0 "$ckpt" plan --graph mlp.graph --machine rtx4090 --explain fc1.weight
grep -q "persistent: it may be offloaded, never dropped" out || fail "--explain fc1.weight: $(cat out)"
run 0 "$ckpt" plan --graph mlp.graph --machine rtx4090 --explain '#1'
grep -q "storage #1:" out || fail "--explain #1: $(cat out)"
refuse 1 "no storage has this name" "$ckpt" plan --graph mlp.graph --explain nobody
run 0 "$ckpt" plan --graph mlp.graph --machine rtx4090 --timeline page.html
grep -q "</html>" page.html || fail "the page is not complete"
! grep -q "https*://\|src=" page.html || fail "the page needs something outside of it"

# ---- many ranks, none of them there --------------------------------------------------------------------
"$mlp" --ranks 2 --plan-only --graph-out ranks.graph >/dev/null 2>err || fail "mlp --ranks 2: $(cat err)"
run 0 "$ckpt" plan --graph ranks.graph --machine h200-141 --world 48 --hosts 6 --svg world.svg
grep -q "^ *48 *6  zero 2 in hosts" out || fail "--world 48: $(cat out)"
[ "$(grep -c '^ *[0-9]* *1  ' out)" = 4 ] || fail "not 1, 2, 4 and 8 ranks on one host: $(cat out)"
grep -q "^ *48 *6  zero 1  " out || fail "no stage 1: $(cat out)"
grep -q "best for 48 ranks" out || fail "no best way: $(cat out)"
grep -q "</svg>" world.svg || fail "the curve is not complete"
! grep -qi "nan\|inf[^o]" world.svg || fail "a number of the curve is not finite"
refuse 1 "record it with" "$ckpt" plan --graph mlp.graph --machine h200-141 --world 8
refuse 2 "add --plan-only" "$mlp" --ranks 2

# ---- advice ------------------------------------------------------------------------------------------
run 0 "$ckpt" advise --graph mlp.graph
[ "$(grep -c -- '--vram [0-9]*[KM]$' out)" -ge 2 ] || fail "advise --graph: $(cat out)"
sed -n 's/^    ckpt //p' out >typed
while read -r line; do
    # shellcheck disable=SC2086
    run 0 "$ckpt" $line
done <typed
run 0 "$ckpt" advise --machine rtx4090 --host 1M -- "$mlp" --threads 1
grep -q "mlp --threads 1 --vram [0-9]*[KM] --host 1M$" out || fail "advise -- mlp: $(cat out)"
# Options of the command line count as those before it, which win; none is printed twice.
numbers() { grep "device .*host" out; }
numbers >own
run 0 "$ckpt" advise -- "$mlp" --threads 1 --host 1M --machine=rtx4090
grep -q "mlp --threads 1 --host 1M --machine=rtx4090 --vram [0-9]*[KM]$" out || fail "advise, --host behind --: $(cat out)"
numbers | cmp -s - own || fail "advise, --host behind -- counts otherwise: $(cat out own)"
run 0 "$ckpt" advise --machine rtx4090 --host 1M -- "$mlp" --threads 1 --host 2M
grep -q "mlp --threads 1 --host 2M --vram [0-9]*[KM] --host 1M$" out || fail "advise, --host twice: $(cat out)"
numbers | cmp -s - own || fail "advise, --host before -- does not win: $(cat out own)"
refuse 2 "in bytes" "$ckpt" advise -- "$mlp" --host 50%
refuse 2 "mlp: option --host: " "$ckpt" advise -- "$mlp" --host many
run 0 "$ckpt" advise --machine rtx4090 -- sh -c 'sleep 3; exec "$0" "$@"' "$mlp"
grep -q "^running sh for the graph of its step: 2 s$" err || fail "advise, 3 s without a word: $(cat err)"
run 0 "$ckpt" advise --graph mlp.graph --machine ./card.json
grep -q "^too large" out && grep -q "^all of it" out || fail "advise beyond the card: $(cat out)"
refuse 1 'graph file no\\x0ape cannot be opened' "$ckpt" advise --graph "no
pe"
refuse 2 "behind -- is empty" "$ckpt" advise -- ""
refuse 2 "give --graph FILE" "$ckpt" advise
refuse 2 "give --graph FILE" "$ckpt" advise --
refuse 2 "give one of them" "$ckpt" advise --graph mlp.graph -- "$mlp"
refuse 2 "cannot be run" "$ckpt" advise -- ./nobody
refuse 1 "wrote no graph" "$ckpt" advise -- true
refuse 1 "wrote no graph.*it said" "$ckpt" advise -- ls
refuse 2 "comes after --" "$ckpt" advise --machine rtx4090 "$mlp" --threads 1
refuse 1 "no such cache.*--data random" "$ckpt" advise -- sh -c "echo c: there is no such cache; exit 1"
run 0 "$ckpt" advise --machine rtx4090 -- sh -c 'case "$*" in *save* | *log*) exit 1 ;; esac; exec "$0" "$@"' "$mlp" \
    --save file --log=file --save-every 10 --threads 1
grep -q -- "--save file --log=file --save-every 10 --threads 1 --vram" out || fail "advise, files of a run: $(cat out)"
refuse 1 "No such file .*config.json is enough" "$ckpt" advise -- sh -c "echo ./model: No such file or directory; exit 1"
sed 's/"memory": [0-9]*/"memory": 3000000/' card.json >tiny.json
refuse 1 "no plan fits" "$ckpt" advise --graph mlp.graph --machine ./tiny.json
[ -z "$(ls -d tmp/ckpt-advise-* 2>/dev/null)" ] || fail "advise left a directory behind"
"$ckpt" advise -- sh -c 'touch started && exec sleep 60' >/dev/null 2>&1 &
advising=$!
for _ in $(seq 600); do [ -e started ] || sleep .1; done
kill $advising 2>/dev/null
status=0
wait $advising || status=$?
[ $status = 143 ] || fail "advise, stopped by a signal: status $status"
[ -z "$(ls -d tmp/ckpt-advise-* 2>/dev/null)" ] || fail "advise, stopped, left a directory behind"

# ---- mistakes on the command line ---------------------------------------------------------------------
refuse 2 "graph FILE is missing" "$ckpt" plan
refuse 2 "unknown option '--grahp'; did you mean --graph" "$ckpt" plan --grahp mlp.graph
refuse 2 "option --vram: no step runs in 0 bytes; give a size such as 24G" "$ckpt" plan --graph mlp.graph --vram 0
refuse 2 "too large" "$ckpt" plan --graph mlp.graph --vram 9223372036854775808
refuse 2 "too large" "$ckpt" plan --graph mlp.graph --vram 8388608T
refuse 2 "too large" "$ckpt" plan --graph mlp.graph --host 99999999999999999999
refuse 2 "not a size" "$ckpt" plan --graph mlp.graph --vram -1
refuse 2 "names no size" "$ckpt" plan --graph mlp.graph --nvme much
refuse 2 "a share needs --machine" "$ckpt" plan --graph mlp.graph --vram 80%
refuse 2 "give it in bytes" "$ckpt" plan --graph mlp.graph --host 80%
refuse 2 "give 2 to 1000" "$ckpt" plan --graph mlp.graph --sweep --points 1
refuse 2 "add --sweep" "$ckpt" plan --graph mlp.graph --svg x.svg
refuse 2 "needs --machine" "$ckpt" plan --graph mlp.graph --world 8
refuse 2 "give 1 to" "$ckpt" plan --graph mlp.graph --machine cpu --world 0
refuse 2 "give 1 to" "$ckpt" plan --graph mlp.graph --machine cpu --world -1
refuse 2 "ranks fill 1 to 8" "$ckpt" plan --graph mlp.graph --machine cpu --world 8 --hosts 9
refuse 2 "are for --world" "$ckpt" plan --graph mlp.graph --machine cpu --hosts 2
refuse 2 "excludes --graph" "$ckpt" plan --graph mlp.graph --place x.csv
refuse 2 "are for --place" "$ckpt" plan --graph mlp.graph --capacity 1K
printf 'id,lower,upper,size\na,0,2,1024\nb,1,3,512\nc,2,4,1024\n' >boxes.csv
run 0 "$ckpt" plan --place boxes.csv --capacity 2K
grep -q "^peak 1536$" out || fail "--place: $(cat out)"
refuse 1 "does not fit 1024 bytes: 1536 bytes are alive" "$ckpt" plan --place boxes.csv --capacity 1K

# ---- files that are wrong -----------------------------------------------------------------------------
refuse 1 "cannot be opened" "$ckpt" plan --graph nothing.graph
refuse 1 "none of this name" "$ckpt" plan --graph mlp.graph --machine h300
refuse 1 "is not JSON" "$ckpt" plan --graph mlp.graph --machine ./mlp.graph
refuse 1 "this is no graph file" "$ckpt" plan --graph free.plan
refuse 1 "a plan file begins" "$ckpt" plan --graph mlp.graph --plan-in mlp.graph
sed '/^storage activation/s/ [0-9][0-9]*/ 9223372036854775808/' mlp.graph >huge.graph
refuse 1 "line [0-9]*: expected the bytes of a storage" "$ckpt" plan --graph huge.graph
sed '/^storage activation/s/ [0-9][0-9]*/ -512/' mlp.graph >negative.graph
refuse 1 "line [0-9]*: expected the bytes of a storage" "$ckpt" plan --graph negative.graph
awk '/^op forward/ && !moved { held = $0; moved = 1; next } { print }
     held && /^op forward/ { print held; held = "" }' mlp.graph >cycle.graph
refuse 1 "out of order or form a cycle" "$ckpt" plan --graph cycle.graph
sed 's/^micro 1$/micro 2/' again.graph >other.graph
refuse 1 "another program" "$ckpt" plan --graph other.graph --plan-in a.plan
sed '$d' a.plan >short.plan
refuse 1 "ends too early" "$ckpt" plan --graph again.graph --plan-in short.plan
refuse 1 "cannot be written" "$ckpt" plan --graph mlp.graph --out no/such/file
refuse 1 "cannot be written" "$ckpt" plan --graph mlp.graph --timeline no/such/file
refuse 2 "io-deadline: -1 is out of range" "$mlp" --io-deadline -1
refuse 2 "comm-deadline: -1 is out of range" "$mlp" --comm-deadline -1
refuse 2 "no/such/directory" "$mlp" --nvme no/such/directory:1G

# ---- this computer ---------------------------------------------------------------------------------------
run 0 "$ckpt" machine --out here.json --name here --dir .
run 0 "$ckpt" plan --graph mlp.graph --machine ./here.json
! grep -q "estimate" out || fail "a measured machine is called an estimate"
[ "$(find . -name 'ckpt-machine.tmp*')" = "" ] || fail "a temporary file is left"
"$mlp" --machine ./here.json --machine-out timed.json >/dev/null 2>err || fail "--machine-out: $(cat err)"
[ "$(grep -c '^    "[0-9a-f]*": ' timed.json)" -gt 5 ] || fail "no times of ops: $(cat timed.json)"
run 0 "$ckpt" plan --graph mlp.graph --machine ./here.json --out rates.plan
run 0 "$ckpt" plan --graph mlp.graph --machine ./timed.json --out timed.plan
! cmp -s rates.plan timed.plan || fail "measured times change nothing"
refuse 1 "no/such/dir: cannot make a file there" "$ckpt" machine --out here.json --dir no/such/dir

echo ok
