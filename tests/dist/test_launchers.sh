#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# --ranks env: ranks under the variables of torchrun, Slurm, Open MPI and PMIx, without these.  Two
# ranks meet where the variables say, and train what two ranks of a file do.
. "${srcdir:-.}/tests/model/programs.sh"
unset RANK WORLD_SIZE MASTER_ADDR MASTER_PORT SLURM_PROCID SLURM_NTASKS PMI_RANK PMI_SIZE PMIX_RANK
lm="${LM_TRAIN:-./lm-train} --device cpu --threads 1 --data random --layers 1 --heads 2 --length 8 --hidden 16
    --mlp 16 --batch 2 --steps 2 --comm-deadline 60"
# Of this job alone on the machine, and its port below.
job=$(($$ % 10000))
port=$((20000 + job))

# pair NAME WHERE VARIABLES-OF-RANK-0... -- VARIABLES-OF-RANK-1...: both with the state NAME.
pair() {
    name=$1 where=$2 first=
    shift 2
    while [ "$1" != -- ]; do
        first="$first $1"
        shift
    done
    shift
    env "$@" timeout 100 $lm --ranks "$where" --save "$work/$name" >"$work/$name.1" 2>&1 &
    env $first timeout 100 $lm --ranks "$where" --save "$work/$name" >"$work/$name.0" 2>&1 ||
        fail "$name, rank 0: $(tail -n 2 "$work/$name.0")"
    wait $! || fail "$name, rank 1: $(tail -n 2 "$work/$name.1")"
    grep -q "^ *ranks  *2 " "$work/$name.0" || fail "$name: not two ranks"
    cmp -s "$work/plain" "$work/$name" || fail "$name: other weights"
}

RANK=1 WORLD_SIZE=2 $lm --ranks "file:$work/meet" --save "$work/plain" >/dev/null 2>&1 &
runs "memory:" env RANK=0 WORLD_SIZE=2 $lm --ranks "file:$work/meet" --save "$work/plain"
wait

slurm="SLURM_JOB_ID=$job SLURM_NTASKS=2 SLURM_JOB_NODELIST=localhost"
pair slurm env $slurm SLURM_PROCID=0 SLURM_LOCALID=0 -- $slurm SLURM_PROCID=1 SLURM_LOCALID=1
# A step on another part of the job's hosts; the ranks of one task each.
pair step env $slurm SLURM_JOB_NODELIST=gone SLURM_STEP_NODELIST=localhost SLURM_PROCID=0 -- \
    $slurm SLURM_JOB_NODELIST=gone SLURM_STEP_NODELIST=localhost SLURM_PROCID=1
torch="MASTER_ADDR=localhost MASTER_PORT=$port WORLD_SIZE=2"
pair torch env $torch RANK=0 -- $torch RANK=1
pair torchrun env $torch TORCHELASTIC_USE_AGENT_STORE=True RANK=0 -- $torch \
    TORCHELASTIC_USE_AGENT_STORE=True RANK=1
pair openmpi "tcp:localhost:$port" OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 PMIX_RANK=0 -- \
    OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 PMIX_RANK=1
pair pmix "tcp:localhost:$port" PMIX_RANK=0 WORLD_SIZE=2 -- PMIX_RANK=1 WORLD_SIZE=2
# Slurm with PMIx has the variables of both.
pair srun env $slurm SLURM_PROCID=0 PMIX_RANK=0 -- $slurm SLURM_PROCID=1 PMIX_RANK=1

# The first host of lists, as the sentence of a rank that finds nobody has it.
for list in "node[07-09,12],gpu1 node07" "a1,b2 a1" "n[3,5-6] n3" "rack2-n[001-128] rack2-n001" \
    "r[1-2]n[3-4,9]-ib,x r1n3-ib" "open[4 open4"; do
    refuses 1 "rank 0 at tcp:${list#* }:20001" env SLURM_JOB_ID=1 SLURM_NTASKS=2 SLURM_PROCID=1 \
        SLURM_JOB_NODELIST="${list% *}" $lm --ranks env --comm-deadline 0.2
done
refuses 1 "rank 0 at tcp:\[::1\]:$port" env MASTER_ADDR=::1 MASTER_PORT=$port WORLD_SIZE=2 RANK=1 \
    $lm --ranks env --comm-deadline 0.2
refuses 1 "neither MASTER_ADDR and MASTER_PORT nor Slurm's" env RANK=0 WORLD_SIZE=2 $lm --ranks env
refuses 1 "MASTER_PORT=high in the environment" env MASTER_ADDR=localhost MASTER_PORT=high RANK=0 WORLD_SIZE=2 \
    $lm --ranks env
refuses 1 "PMIX_RANK is set in the environment and WORLD_SIZE is not" env PMIX_RANK=0 $lm --ranks "tcp:localhost:$port"
refuses 1 "or run alone with --ranks none" env PMIX_RANK=0 $lm
finish
