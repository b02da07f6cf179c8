#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ranks started by mpirun: results and faults.  Skipped if MPI is missing or cannot start a process.
. "${srcdir:-.}/tests/dist/ranks.sh"

CKPT_PLUGIN_DIR=$PWD/.libs
# In containers: as root, more ranks than cores, and no core spent on waiting.
OMPI_ALLOW_RUN_AS_ROOT=1
OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
OMPI_MCA_rmaps_base_oversubscribe=1
OMPI_MCA_mpi_yield_when_idle=1
PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
export CKPT_PLUGIN_DIR OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM \
    OMPI_MCA_rmaps_base_oversubscribe OMPI_MCA_mpi_yield_when_idle \
    PRTE_MCA_rmaps_default_mapping_policy

launch() {
    size=$1
    shift
    timeout 100 "$MPIRUN" -np "$size" $ranks mpi "$@"
}

if [ ! -f "$CKPT_PLUGIN_DIR/ckpt_mpi.so" ] || [ -z "${MPIRUN-}" ]; then
    echo "skipped: built without MPI, or there is no mpirun"
    exit 77
fi
if ! timeout 60 "$MPIRUN" -np 2 true 2>"$errors"; then
    echo "skipped: $MPIRUN does not start processes here"
    cat "$errors"
    exit 77
fi
for n in 1 2 3 4; do
    check_digest $n
done
# mpirun may end the last ranks before they speak
here='of step 16'
check_fault drop 1 "a message of rank 1 to rank 0 in .*$here.* was lost"
check_fault damage 1 "data from rank 1 to rank 0 in .*$here arrived damaged"
check_fault late 1 "rank 1 did not reach .*$here within 3 s"
check_fault stop 1 'rank 1 did not reach .*of step 0 within 3 s'
check_fault plan 1 'rank 1 started with another plan than rank 0'
# here it is mpirun that sees it and says so
check_fault kill 0 'rank 1'
grep -qi 'rank 1.*signal\|killed\|KILLED' "$errors" || fail "kill: mpirun does not name rank 1"

# Two hosts of two.  What tells a process its rank has another name in Open MPI than in MPICH.
train() {
    timeout 200 "$MPIRUN" -np 4 sh -c '
        CKPT_HOST_NAME=host$((${OMPI_COMM_WORLD_RANK:-$PMI_RANK} / 2)) \
            exec ./tests/dist/train_ranks --ranks mpi --shard-over host'
}
check_training 4 3 2
# faults of the plugin are reported
CKPT_PLUGIN_DIR=/nowhere $ranks mpi 2>"$errors"
[ $? = 77 ] && grep -q 'no ranks over MPI: /nowhere/ckpt_mpi.so' "$errors" ||
    fail "a plugin that is not there"
exit $failed
