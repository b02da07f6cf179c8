#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints a table in Markdown of the archives of a folder: smallest budget and predicted step on five cards.
#
# usage: tests/pt2/plan_models.sh FOLDER [CARD...]      machine files, by default the cards of the library
#
# A cell has the step with all memory of the card; "+ N GiB": the card is too small without that much host memory.  The
# smallest budget is without host memory, on the last card that needs none.  CKPT names the command, "ckpt" by default.
folder=${1:?usage: plan_models.sh FOLDER [CARD...]}
shift
[ $# -gt 0 ] || set -- rtx4090 a100-40 a100-80 h100-80 h200-141
ckpt=${CKPT:-ckpt}
plan=$(mktemp) || exit 1
trap 'rm -f "$plan"' EXIT

# Plans the archive on a card; the plan is in $plan.  Fails where no plan fits.
plan_on() {
    card=$1
    shift
    "$ckpt" plan --pt2 "$archive" --machine "$card" "$@" >"$plan" 2>&1
}
# entry NAME: the number of a line of the plan, with its unit.
entry() {
    sed -n "s/^ *$1  *\([0-9.]* [A-Za-z]*\).*/\1/p" "$plan" | head -n 1
}

printf '| model | parameters | smallest budget |'
printf ' %s |' "$@"
printf '\n|---|---|---|'
for card in "$@"; do printf -- '---|'; done
printf '\n'
status=0
for archive in "$folder"/*.pt2; do
    name=$(basename "$archive" .pt2)
    values=$("$ckpt" import "$archive" | sed -n 's/^parameters .* tensors, \([0-9]*\) values.*/\1/p')
    cells= least=
    for card in "$@"; do
        for host in 0 32G 64G 128G 256G 512G; do
            plan_on "$card" --vram auto --host "$host" && break
        done
        step=$(entry 'predicted step')
        if [ -z "$step" ]; then
            echo "plan_models.sh: $archive on $card: $(tail -n 1 "$plan")" >&2
            cells="$cells - |" status=1
            continue
        fi
        if [ "$host" = 0 ]; then
            least=$(entry 'smallest feasible budget')
        else
            step="$step + ${host%G} GiB"
        fi
        cells="$cells $step |"
    done
    printf '| %s | %s | %s |%s\n' "$name" "$values" "$least" "$cells"
done
exit $status
