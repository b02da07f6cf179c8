#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Signals: training ends after a step with its state saved, on all ranks, or saves and continues;
# signals of failed writes become a sentence.
. "${srcdir:-.}/tests/model/programs.sh"
unset RANK WORLD_SIZE
both="--device cpu --threads 1"
stdit="${STDIT_TRAIN:-./stdit-train} $both --latent 2x4x4 --hidden 16 --heads 2 --depth 1
    --caption-channels 8 --text-tokens 4 --sample-steps 0 --batch 1"
long="$stdit --steps 100000"
# Who was started by nohup ignores SIGHUP, and so do the programs it starts.
HUP=HUP
case $(sed -n 's/^SigIgn:[[:space:]]*//p' /proc/self/status) in
*[13579bdf]) HUP=USR2 ;;
esac

# begin NAME COMMAND...: in the background, with a log; waits until it has made some steps.
begin() {
    name=$1
    shift
    rm -f "$work/$name.log" # of a signal that is sent twice
    "$@" --log "$work/$name.log" >"$work/$name.out" 2>"$work/$name.err" &
    pid=$!
    wait_steps "$work/$name.log" 2
}

# ends STATUS NAME PID WORDS: it ends so, and has said that.
ends() {
    wait "$3"
    got=$?
    [ "$got" = "$1" ] || fail "$2: exit $got instead of $1: $(tail -n 2 "$work/$2.err")"
    [ -z "$4" ] || cat "$work/$2.out" "$work/$2.err" | grep -q -- "$4" || fail "$2: no \"$4\""
}

steps_of() {
    grep -c '^{"step"' "$work/$1.log"
}

# wait_for FILE: until it is there, a minute at the most.
wait_for() {
    tries=0
    until [ -s "$1" ] || [ $tries -gt 600 ]; do
        tries=$((tries + 1))
        sleep 0.1
    done
    [ -s "$1" ] || fail "no $1"
}

# ---- one rank ------------------------------------------------------------------------------------

for signal in INT TERM $HUP USR2; do
    begin $signal $long --save-state "$work/$signal.state"
    kill -$signal $pid
    ends 0 $signal $pid "^stopped after [0-9]* of 100000 steps"
    ran=$(steps_of $signal)
    grep -q "^stopped after $ran of" "$work/$signal.out" || fail "$signal: it ran $ran steps"
    runs "after $ran steps" $stdit --steps $((ran + 1)) --resume "$work/$signal.state"
done

# saved, and on: twice; and with nowhere to save
begin save $long --save-state "$work/save.state"
kill -USR1 $pid
wait_for "$work/save.state"
mv "$work/save.state" "$work/first.state"
kill -USR1 $pid
wait_for "$work/save.state"
wait_steps "$work/save.log" $(($(steps_of save) + 2))
kill -TERM $pid
ends 0 save $pid "^state: .*save.state, after [0-9]* steps"
runs "resumed: " $stdit --steps 0 --resume "$work/first.state"
begin nowhere $long
kill -USR1 $pid
wait_steps "$work/nowhere.log" $(($(steps_of nowhere) + 3))
kill -TERM $pid
ends 0 nowhere $pid "SIGUSR1: nothing is saved"

# whoever ignores hang-ups, as nohup does, lives on
begin nohup sh -c "trap '' HUP; exec $(echo $long) \"\$@\"" nohup
kill -HUP $pid
wait_steps "$work/nohup.log" $(($(steps_of nohup) + 3))
kill -TERM $pid
ends 0 nohup $pid "^stopped after"

# nothing is sampled after a stop
begin sampled $long --sample-steps 3 --out "$work/pictures"
kill -TERM $pid
ends 0 sampled $pid "^stopped after"
[ ! -e "$work/pictures" ] || fail "it sampled after it was stopped"

# ---- while planning, while saving ----------------------------------------------------------------

# before the first step it ends the program, and what was there stays
cp "$work/TERM.state" "$work/planned.state"
"${VAE_TRAIN:-./vae-train}" $both --video "$root/examples/data/bunny.rgb" --size 32x16 --steps 2 \
    --save-state "$work/planned.state" --log "$work/planned.log" --plan-out "$work/plan" >"$work/planned.out" \
    2>"$work/planned.err" &
pid=$!
sleep 0.1
kill -TERM $pid
ends 143 planned $pid ""
grep -q '^{"step"' "$work/planned.log" 2>/dev/null && fail "the signal did not come while it planned"
cmp -s "$work/TERM.state" "$work/planned.state" || fail "a signal while planning cost the state"

# resumed STATE: after how many steps it was saved.
resumed() {
    runs "resumed: " $stdit --steps 0 --resume "$1"
    sed -n 's/^resumed: .*, after \([0-9]*\) steps.*/\1/p' "$work/out"
}

# the second of these signals comes while the first is obeyed: the state is the old or the new one
cp "$work/TERM.state" "$work/saved.state"
for pause in 0 0.01 0.03; do
    old=$(resumed "$work/saved.state")
    begin saving$pause $long --resume "$work/saved.state" --save-state "$work/saved.state"
    kill -TERM $pid
    sleep $pause
    kill -TERM $pid 2>/dev/null
    wait $pid
    got=$? new=$(resumed "$work/saved.state") ran=$(steps_of saving$pause)
    [ $got = 0 ] || [ $got = 143 ] || fail "killed while it saves: exit $got"
    [ "$new" = $((old + ran)) ] || { [ $got = 143 ] && [ "$new" = "$old" ]; } ||
        fail "killed while it saves: exit $got, after $new steps, $ran of them behind $old"
done

# ---- two ranks -----------------------------------------------------------------------------------

# pair NAME OPTION...: two ranks; sets zero and one to their processes.
pair() {
    name=$1
    shift
    RANK=1 WORLD_SIZE=2 $long --ranks "file:$work/meet" --log "$work/$name.log" "$@" \
        >"$work/$name.1.out" 2>"$work/$name.1.err" &
    one=$!
    RANK=0 WORLD_SIZE=2 begin $name $long --ranks "file:$work/meet" "$@"
    zero=$pid
}

pair signalled --save-state "$work/two.state" --zero 3
kill -USR1 $one
wait_for "$work/two.state"
kill -$HUP $one
ends 0 signalled $zero "^stopped after"
ends 0 signalled.1 $one ""
[ "$(steps_of signalled)" = "$(grep -c '^{"step"' "$work/signalled.log.1")" ] ||
    fail "the ranks stopped behind other steps"
runs "after $(steps_of signalled) steps" $stdit --batch 2 --steps 0 --resume "$work/two.state"

pair at_once --save-state "$work/both.state"
kill -INT $one $zero
ends 0 at_once $zero "^stopped after"
ends 0 at_once.1 $one ""
runs "after $(steps_of at_once) steps" $stdit --batch 2 --steps 0 --resume "$work/both.state"

# the second one ends it at once: here rank 0 waits for a rank that does not move
pair twice --comm-deadline 100
kill -STOP $one
sleep 0.3
kill -TERM $zero
sleep 1
begin=$(date +%s)
kill -TERM $zero
ends 143 twice $zero ""
[ $(($(date +%s) - begin)) -lt 30 ] || fail "a second signal did not end it at once"
kill -KILL $one
wait $one

# ---- writes --------------------------------------------------------------------------------------

(
    $stdit --steps 2 --save-state "$work/pipe.state" 2>"$work/pipe.err"
    echo $? >"$work/pipe.status"
) | true
grep -qx 1 "$work/pipe.status" && grep -q "standard output: " "$work/pipe.err" ||
    fail "a pipe that closed: $(cat "$work/pipe.status" "$work/pipe.err")"
[ -s "$work/pipe.state" ] || fail "a pipe that closed cost the state"

# 4 KiB, or as many blocks of another size; the log fits
(
    failures=0
    ulimit -f 8
    refuses 1 "big.state: cannot be written: File too large" $stdit --steps 1 --save-state \
        "$work/big.state"
    [ $failures = 0 ]
) || fail "a file that is too large"
for file in "$work"/big.state*; do
    [ -e "$file" ] && fail "$file was left behind"
done

# ---- mpirun --------------------------------------------------------------------------------------

# It forwards SIGUSR1 and SIGUSR2; after SIGINT and SIGTERM it kills once its patience is over, and
# waits as long for each rank even if all have ended.
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
CKPT_PLUGIN_DIR=$PWD/.libs
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM OMPI_MCA_rmaps_base_oversubscribe \
    OMPI_MCA_mpi_yield_when_idle CKPT_PLUGIN_DIR
if [ ! -f .libs/ckpt_mpi.so ] || ! "${MPIRUN:-mpirun}" --version 2>/dev/null | grep -q "Open MPI" ||
    ! timeout 60 "${MPIRUN:-mpirun}" -np 2 true 2>/dev/null; then
    echo "skipped: mpirun"
    finish
fi
mpi="${MPIRUN:-mpirun} --mca odls_base_sigkill_timeout 20 -np 2 $long --ranks mpi"
begin mpi $mpi --save-state "$work/mpi.state"
kill -USR1 $pid
wait_for "$work/mpi.state"
mv "$work/mpi.state" "$work/first.state"
kill -USR2 $pid
ends 0 mpi $pid "^stopped after"
runs "after $(steps_of mpi) steps" $stdit --batch 2 --steps 0 --resume "$work/mpi.state"
begin ctrl_c $mpi --save-state "$work/ctrl_c.state"
kill -INT $pid
wait $pid
runs "after $(steps_of ctrl_c) steps" $stdit --batch 2 --steps 0 --resume "$work/ctrl_c.state"
finish
