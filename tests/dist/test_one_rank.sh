#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# --ranks with one rank: it trains with the bits of a run without --ranks; and the variables of the
# environment about ranks are used together or refused, by every program.
. "${srcdir:-.}/tests/model/programs.sh"
unset RANK WORLD_SIZE SLURM_PROCID SLURM_NTASKS PMI_RANK PMI_SIZE
both="--device cpu --threads 1"
small="--latent 2x4x4 --hidden 16 --heads 2 --depth 1 --caption-channels 8 --text-tokens 4"
stdit="${STDIT_TRAIN:-./stdit-train} $both $small --sample-steps 0 --steps 2 --batch 2"
widths="--spatial-widths 8,8 --temporal-widths 8,8,8"
vae="${VAE_TRAIN:-./vae-train} $both --random 5x8x8 $widths"
tcp=tcp:127.0.0.1:0

# alike NAME OPTION...: a run as one of one rank, with no launcher and with one, saves the weights
# of the run without --ranks.
alike() {
    name=$1
    shift
    runs "memory:" $stdit --save "$work/alone" "$@"
    runs "no other process was started" $stdit --save "$work/of1" --ranks "file:$work/meet" "$@"
    cmp -s "$work/alone" "$work/of1" || fail "$name: one rank alone trained other weights"
    runs "memory:" env RANK=0 WORLD_SIZE=1 $stdit --save "$work/of1" --ranks "file:$work/meet" "$@"
    cmp -s "$work/alone" "$work/of1" || fail "$name: rank 0 of 1 trained other weights"
}

for zero in 0 1 2 3 auto; do
    alike "--zero $zero" --zero $zero
done
alike bf16 --dtype bf16 --micro-batch 1
alike "--shard-over host" --shard-over host
alike budget --vram 1M
alike tiers --vram 1M --host 16M --nvme "$work:16M"
runs "memory:" $stdit --save-state "$work/state" --ranks "file:$work/meet"
alike resume --resume "$work/state" --steps 4
runs "memory:" $stdit --ranks 1

runs "memory:" $vae --steps 1 --save "$work/vae" --ranks "file:$work/meet"
{
    echo "RGBCLIP 8 8 5 25"
    head -c $((5 * 8 * 8 * 3)) /dev/zero
} >"$work/clip.rgb"
encode="${VAE_ENCODE:-./vae-encode} $both $widths --load $work/vae"
decode="${VAE_DECODE:-./vae-decode} $both $widths --load $work/vae"
runs "5 frames" $encode "$work/clip.rgb" "$work/latents" --ranks "file:$work/meet"
runs "5 frames" $decode "$work/latents" "$work/back.rgb" --ranks "file:$work/meet"
runs "step 200" ./examples/mlp --device cpu --threads 1 --ranks "file:$work/meet"

runs "no other process was started" ${STDIT_SAMPLE:-./stdit-sample} $both --plan-only --ranks "file:$work/meet"

# wrong ranks, in every program; nothing is trained or written
refuses 1 "neither RANK and WORLD_SIZE nor a launcher's variables" $stdit --ranks $tcp
for program in "$stdit" "$vae" "${STDIT_SAMPLE:-./stdit-sample} $both --plan-only" \
    "$encode $work/clip.rgb $work/o" "$decode $work/latents $work/o" "./examples/mlp $both"; do
    status=1
    case $program in *mlp*) status=2 ;; esac
    refuses $status "RANK=5 of WORLD_SIZE=2" env RANK=5 WORLD_SIZE=2 $program --ranks $tcp
done
refuses 1 "RANK=one in the environment" env RANK=one WORLD_SIZE=2 $stdit --ranks $tcp
refuses 1 "RANK=-1 in the environment" env RANK=-1 WORLD_SIZE=2 $stdit --ranks $tcp
refuses 1 "RANK=0x1 in the environment" env RANK=0x1 WORLD_SIZE=2 $stdit --ranks $tcp
refuses 1 "WORLD_SIZE=0 in the environment" env RANK=0 WORLD_SIZE=0 $stdit --ranks $tcp
refuses 1 "WORLD_SIZE=99999999999999999999 in" env RANK=0 WORLD_SIZE=99999999999999999999 $stdit \
    --ranks $tcp
refuses 1 "RANK is set in the environment and WORLD_SIZE is not" env RANK=0 $stdit --ranks $tcp
refuses 1 "WORLD_SIZE is set in the environment and RANK is not" env WORLD_SIZE=2 $stdit \
    --ranks $tcp
refuses 1 "SLURM_PROCID=7 of SLURM_NTASKS=4" env SLURM_PROCID=7 SLURM_NTASKS=4 $stdit --ranks $tcp
refuses 1 "OMPI_COMM_WORLD_RANK is set" env OMPI_COMM_WORLD_RANK=0 $stdit --ranks $tcp
# an allocation of several tasks with nothing started in it; a variable that is empty is none
runs "memory:" env SLURM_NTASKS=4 $stdit --ranks "file:$work/meet"
runs "memory:" env RANK= WORLD_SIZE= $stdit --ranks "file:$work/meet"

# one of several processes, and no --ranks: each would train alone
for launched in "RANK=1 WORLD_SIZE=2" "PMI_RANK=0 PMI_SIZE=2" "SLURM_PROCID=1 SLURM_NTASKS=2" \
    "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2"; do
    for program in "$stdit" "$vae --steps 1"; do
        refuses 1 "or run alone with --ranks none" env $launched $program --save "$work/none"
    done
    runs "memory:" env $launched $stdit --ranks none
    runs "predicted" env $launched $stdit --plan-only
done
refuses 1 "(or run alone with --ranks none)" env RANK=0 $stdit
runs "memory:" env RANK=0 WORLD_SIZE=1 $stdit
[ ! -e "$work/none" ] || fail "a refused process wrote weights"

if [ -f .libs/ckpt_mpi.so ]; then
    CKPT_PLUGIN_DIR=$PWD/.libs
    export CKPT_PLUGIN_DIR
    runs "memory:" $stdit --save "$work/alone"
    runs "memory:" $stdit --save "$work/of1" --ranks mpi --zero 3
    cmp -s "$work/alone" "$work/of1" || fail "without mpirun one rank of MPI trained other weights"
fi
finish
