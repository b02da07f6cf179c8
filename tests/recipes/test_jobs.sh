#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The commands of doc/jobs.md, on CPUs: two ranks on two hosts that are this one.
. "${srcdir:-.}/tests/recipes/pages.sh"
program lm-train --device cpu --threads 1 --dtype fp32 --hidden 16 --heads 2 --kv-heads 1 --layers 1 --mlp 32 \
    --vocabulary 256 --length 32 --batch 1 --steps 4 --vram 2G
program ckpt

# Slurm with one task on each host: a script is run at once.
stand_in sbatch <<'SH'
for file; do :; done
nodes=$(sed -n 's/^#SBATCH --nodes \([0-9]*\)$/\1/p' "$file")
SLURM_JOB_ID=1 SLURM_NTASKS=$nodes SLURM_JOB_NODELIST="host[1-$nodes]" exec sh -e "$file"
SH
stand_in scontrol <<'SH'
printf 'localhost\nlocalhost\n'
SH
stand_in srun <<'SH'
while [ "${1#--}" != "$1" ]; do shift; done
ranks=
for rank in $(seq 1 $((SLURM_NTASKS - 1))); do
    CKPT_HOST_NAME=host$rank SLURM_PROCID=$rank "$@" &
    ranks="$ranks $!"
done
CKPT_HOST_NAME=host0 SLURM_PROCID=0 "$@" || exit
for rank in $ranks; do wait $rank || exit; done
SH
stand_in_mpirun
mkdir "$work/home/data"
cp "$root/doc/tour.md" "$work/home/data/text.txt"
run_page doc/jobs.md 7
[ -s "$work/home/run.state" ] || fail "the job of Slurm saved nothing"
finish
