#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Two hosts of two ranks with a slow link between: steps of lm-train with one copy of the model over
# all ranks and with one on each host.  The hosts are network namespaces of this machine, so it
# needs root.  RATE: of the link, each way.  Prints the mean step of each way, in milliseconds.
lm=${LM_TRAIN:-./lm-train}
rate=${RATE:-1gbit}
work=$(mktemp -d) || exit 1
a=ckpt-a$$ b=ckpt-b$$
trap 'ip netns del $a 2>/dev/null; ip netns del $b 2>/dev/null; rm -rf "$work"' EXIT
ip netns add $a && ip netns add $b || exit 77
ip link add va$$ netns $a type veth peer name vb$$ netns $b || exit 77
for host in a b; do
    eval "name=\$$host"
    [ $host = a ] && own=10.77.0.1 || own=10.77.0.2
    ip -n "$name" addr add $own/24 dev v$host$$
    ip -n "$name" link set v$host$$ up
    ip -n "$name" link set lo up
    ip netns exec "$name" tc qdisc add dev v$host$$ root tbf rate "$rate" burst 256kb latency 50ms || exit 77
done

# step NAME OPTION...: the mean step of four ranks.
step() {
    name=$1
    shift
    rm -f "$work/log"
    for rank in 0 1 2 3; do
        [ $rank -lt 2 ] && host=$a || host=$b
        RANK=$rank WORLD_SIZE=4 CKPT_HOST_NAME=$host ip netns exec $host nice "$lm" --device cpu --threads 1 \
            --model tiny-llama --hidden 256 --mlp 1024 --layers 4 --length 32 --batch 1 --steps 12 \
            --data "${srcdir:-.}/doc/tour.md" --ranks tcp:10.77.0.1:29555 --log "$work/log" "$@" >"$work/out.$rank" 2>&1 &
    done
    wait
    sed -n 's/^{"step".*"time": \([0-9.]*\)}$/\1/p' "$work/log" | tail -n 9 | awk -v name="$name" '
        NR == 1 { from = $1 } { to = $1 }
        END { if (NR < 9) exit 1; printf "%-28s %8.1f\n", name, 1e3 * (to - from) / (NR - 1) }' ||
        { tail -n 2 "$work"/out.*; exit 1; }
}
echo "link of $rate; mean step, ms"
for turn in 1 2; do
    step "zero 0" --zero 0
    step "zero 2, over all" --zero 2 --shard-over all
    step "zero 2, in hosts" --zero 2 --shard-over host
    step "zero 1, in hosts" --zero 1 --shard-over host
    step "zero auto, over auto"
done
