#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Elastic jobs: ranks are killed again and again; the others go on from the state in memory, with
# those that are started in their place.  No step is missing, and losses are those of a run that
# nobody disturbed: the same bits while the number of ranks is the same, last bits otherwise.
# ELASTIC_SECONDS: how long ranks are killed, ELASTIC_EVERY: one after so many seconds.
. "${srcdir:-.}/tests/model/programs.sh"
unset RANK WORLD_SIZE
lm="${LM_TRAIN:-./lm-train} --device cpu --threads 1 --data $root/doc/tour.md --model tiny-qwen --hidden 16
    --heads 2 --layers 2 --mlp 32 --length 16 --batch 3 --lr 1e-4 --comm-deadline 20"
meet=file:$work/meet

# seat N COMMAND...: the process of seat N of 4; its number goes to pid.N, what it says to out.N.
seat() {
    seat=$1
    shift
    RANK=$seat WORLD_SIZE=4 "$@" >>"$work/out.$seat" 2>&1 &
    echo $! >"$work/pid.$seat"
}

# As a launcher does: starts the process of a seat again until it ends well.
keep() {
    seat=$1
    shift
    tries=0
    until seat "$seat" "$@" && wait $!; do
        tries=$((tries + 1))
        [ $tries -lt 200 ] || return 1
        [ ! -e "$work/ended" ] || return 1
    done
}

end() {
    : >"$work/ended"
    for seat in 0 1 2 3; do
        kill -9 "$(cat "$work/pid.$seat" 2>/dev/null)" 2>/dev/null
    done
    wait
    rm -f "$work/ended" "$work"/pid.* "$work"/out.?
}

steps() {
    cat "$1" 2>/dev/null | grep -c '^{"step"'
}

# The last loss of each step, in order.
losses() {
    sed -n 's/^{"step": \([0-9]*\), "loss": \([^,]*\),.*/\1 \2/p' "$1" |
        awk '{ loss[$1] = $2; n = $1 > n ? $1 : n } END { for (i = 1; i <= n; i++) print i, loss[i] }'
}

# near LOG STEPS: as the undisturbed run, within a part of 1e-3, and no step is missing.
near() {
    losses "$1" | head -n "$2" >"$work/a"
    losses "$work/whole" | head -n "$2" | paste "$work/a" - | awk -v n="$2" '
        { d = $2 - $4; if (d < 0) d = -d; if (NF != 4 || $1 != $3 || !(d <= 1e-3 * $4)) bad = $0 }
        END { if (bad != "" || NR != n) { print NR, bad; exit 1 } }' >"$work/near" ||
        fail "$1: other losses: $(cat "$work/near")"
}

wait_ended() {
    tries=0
    until [ -e "$1" ] || [ $tries -gt 1200 ]; do
        tries=$((tries + 1))
        sleep 0.1
    done
}

# ---- undisturbed ---------------------------------------------------------------------------------

n=600
for rank in 0 1 2 3; do
    RANK=$rank WORLD_SIZE=4 $lm --steps $n --ranks "$meet" --log "$work/whole" >"$work/whole.$rank.out" 2>&1 &
done
wait
[ "$(steps "$work/whole")" = $n ] || fail "no undisturbed run: $(tail -n 2 "$work/whole.0.out")"

# ---- killed again and again ----------------------------------------------------------------------

kills=0
for seat in 0 1 2 3; do
    keep $seat $lm --steps 1000000 --ranks "$meet" --elastic 1 --host 64M --log "$work/again" &
done
begin=$(date +%s)
before=0
while [ $kills -lt 3 ] || [ $(($(date +%s) - begin)) -lt "${ELASTIC_SECONDS:-10}" ]; do
    [ $(($(date +%s) - begin)) -lt $((${ELASTIC_SECONDS:-10} + 120)) ] || break
    # not before the job that formed again has made steps: until it has states of its own, a part of
    # the last one is in one process alone, which is the next to be killed
    wait_steps "$work/again" $((before + 5))
    sleep "${ELASTIC_EVERY:-2}"
    kill -9 "$(cat "$work/pid.$((kills % 4))")" && kills=$((kills + 1))
    before=$(steps "$work/again")
done
wait_steps "$work/again" $((before + 20))
cp "$work/again" "$work/killed"
cat "$work"/out.? >"$work/said"
end
last=$(losses "$work/killed" | awk 'END { print $1 }')
echo "$kills ranks were killed in $last steps; ranks: $(sed -n 's/.*"ranks": \([0-9]*\).*/\1/p' "$work/killed" | tr '\n' ' ')"
[ $kills -ge 3 ] || fail "only $kills ranks were killed"
[ "$last" -lt $n ] || last=$n
near "$work/killed" $last
# A step that was under way is made again, and no other.
again=$(sed -n 's/^{"step": \([0-9]*\),.*/\1/p' "$work/killed" | awk '{ if ($1 <= last - 1) bad++; last = $1 > last ? $1 : last } END { print bad + 0 }')
[ "$again" = 0 ] || fail "$again steps were made again that a state in memory had"
[ "$(grep -c "resumed: memory of the ranks" "$work/said")" -ge 1 ] ||
    fail "nothing was resumed from memory: $(tail -n 3 "$work/said")"

# ---- a replacement that comes at once: the same bits ---------------------------------------------

for seat in 0 1 2 3; do
    keep $seat $lm --steps 300 --ranks "$meet" --elastic 1 --host 64M --log "$work/same" &
done
wait_steps "$work/same" 40
kill -9 "$(cat "$work/pid.2")"
wait
near "$work/same" 300
if [ "$(sed -n 's/.*"ranks": \([0-9]*\).*/\1/p' "$work/same" | sort -u)" = 4 ]; then
    losses "$work/same" >"$work/a"
    losses "$work/whole" | head -n 300 | cmp -s - "$work/a" || fail "four ranks again: other bits"
else
    echo "the replacement came too late to compare bits"
fi
cat "$work"/out.? | grep -q "is gone" || fail "nobody names the lost rank: $(tail -n 3 "$work/out.1")"
end

# ---- nobody comes: three ranks, then two neighbours at once: the disk ----------------------------

for seat in 0 1 2 3; do
    seat $seat $lm --steps 400 --ranks "$meet" --elastic 1 --host 64M --log "$work/disk" \
        --save-state "$work/state" --save-every 30
done
wait_steps "$work/disk" 40
kill -9 "$(cat "$work/pid.3")"
wait_steps "$work/disk" 70
kill -9 "$(cat "$work/pid.1")" "$(cat "$work/pid.2")"
wait
near "$work/disk" 400
[ "$(sed -n 's/.*"ranks": \([0-9]*\).*/\1/p' "$work/disk" | tr '\n' ' ')" = "4 3 1 " ] ||
    fail "other ranks than 4, 3 and 1: $(grep config "$work/disk" | cut -c 1-300)"
cat "$work"/out.? >"$work/said"
grep -q "resumed: memory of the ranks, after" "$work/said" || fail "not from memory: $(tail -n 3 "$work/said")"
grep -q "no state in memory is complete: the job goes on from its last save" "$work/said" ||
    fail "nobody says that the state is lost: $(tail -n 3 "$work/said")"
grep -q "resumed: .*state, after [0-9]*0 steps" "$work/said" || fail "not from the disk: $(tail -n 3 "$work/said")"
end

# ---- the job ends while a rank too many waits: that does not begin it again -----------------------

for seat in 0 1 2 3; do
    seat $seat $lm --batch 1 --steps 1500 --ranks "$meet" --elastic 1 --host 64M --log "$work/spare" --comm-deadline 5
done
wait_steps "$work/spare" 20
kill -9 "$(cat "$work/pid.1")"
wait
[ "$(sed -n 's/.*"ranks": \([0-9]*\).*/\1/p' "$work/spare" | tr '\n' ' ')" = "4 2 " ] ||
    fail "other ranks than 4 and 2: $(grep config "$work/spare" | cut -c 1-300)"
end

# ---- refused -------------------------------------------------------------------------------------

for rank in 1 2 3; do
    RANK=$rank WORLD_SIZE=4 $lm --steps 2 --ranks "$meet" --elastic 1 --host 16K >"$work/small.$rank" 2>&1 &
done
refuses 1 "elastic keeps the last states of this rank and of the one before it in host memory, .*give --host at least" \
    env RANK=0 WORLD_SIZE=4 $lm --steps 2 --ranks "$meet" --elastic 1 --host 16K
wait
# What they take is no longer there for the plan: less than 1 MiB of it is left.
refuses 1 "no plan fits .* with [0-9.]* KiB of host memory" \
    env RANK=0 WORLD_SIZE=1 $lm --steps 2 --ranks "$meet" --elastic 1 --vram 150K --host 1M
refuses 1 "elastic needs ranks" $lm --steps 2 --elastic 1
refuses 1 "give --ranks tcp:HOST:PORT or file:PATH, not mpi" $lm --steps 2 --elastic 1 --ranks mpi
refuses 1 "cannot lose a rank" $lm --steps 2 --elastic 1 --ranks "$meet" --sequence 2
refuses 1 "0 of 4 ranks\|found no job\|1 of 4 ranks" env RANK=0 WORLD_SIZE=4 $lm --steps 2 --ranks "$meet" --elastic 1 --comm-deadline 1
finish
