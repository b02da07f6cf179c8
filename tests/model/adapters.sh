# SPDX-License-Identifier: Apache-2.0
# What the tests of adapters of lm-train share; read by them.  $adapter and $expected are the adapter
# of PEFT and its numbers, below the folder of a model.
. "${srcdir:-.}/tests/model/programs.sh"

train=${LM_TRAIN:-./lm-train} sample=${LM_SAMPLE:-./lm-sample} compare=${COMPARE:-./tests/model/compare}
lm=$root/tests/model/lm
device="--device ${CKPT_DEVICE:-cpu} --threads 1"

# against NAME MODEL TYPE TOLERANCE FLOOR [OPTION]...
against() {
    name=$1 here=$lm/$2 dtype=$3 tolerance=$4 floor=$5
    shift 5
    # shellcheck disable=SC2086
    CKPT_VERIFY=1 "$train" $device --dtype "$dtype" --model "$here" --load "$here" --adapter "$here/$adapter" \
        --data "$here/tokens.bin" --in-order --batch 2 --length 12 --steps 1 --lr 0 \
        --dump "$work/$name.safetensors" "$@" >"$work/$name.log" 2>&1 || fail "$name: $(tail -n 1 "$work/$name.log")"
    grep "missing\|unexpected" "$work/$name.log" && fail "$name: names"
    "$compare" "$here/$expected" "$work/$name.safetensors" "$tolerance" "$floor" || fail "$name differs"
}
