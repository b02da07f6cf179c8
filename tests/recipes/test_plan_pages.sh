#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The commands of the pages about plans and budgets, on a CPU.  Those of doc/plan.md and
# doc/out-of-memory.md plan the model of the page, and those of doc/plan.md print what it says.
. "${srcdir:-.}/tests/recipes/pages.sh"
small="--device cpu --threads 1"
tiny="$small --hidden 16 --heads 2 --depth 1 --caption-channels 8 --latent 3x4x6 --sample-steps 0"
[ -x examples/mlp ] && [ -x examples/custom_op ] || exit 77
home=$work/home
program ckpt
program stdit-train
stand_in_mpirun

fresh_home
run_page doc/plan.md 7 says
grep -q '"planned"' "$home/step.json" || fail "plan.md: no trace"

fresh_home
program vae-decode $small
program stdit-sample $small --hidden 16 --heads 2 --depth 1 --caption-channels 8 --frames 5 --steps 1
runs memory ./vae-train $small --size 16x16 --lengths 5 --image-share 0 --video "$root/examples/data/bunny.rgb" --steps 1 \
    --output "$work/v" --save "$home/vae.safetensors"
runs memory ./stdit-train $tiny --latent 2x2x2 --in-channels 4 --steps 1 --save "$home/stdit.safetensors"
runs . ./vae-encode $small --load "$home/vae.safetensors" "$root/examples/data/bunny.rgb" "$home/latents.safetensors"
run_page doc/out-of-memory.md 5

fresh_home
program stdit-train $tiny --steps 2
run_page doc/budget.md 4

fresh_home
ln -s "$work/bin/stdit-train" "$home/stdit-train"
runs plan: ./stdit-train $tiny --plan-only --graph-out "$home/xl.graph"
run_page doc/machines.md 4

fresh_home
page_shell=bash
command -v bash >/dev/null || page_shell=sh
run_page doc/tutorial.md 6
cat "$work/blocks"/*.out >"$work/out"
grep -q "^same" "$work/out" || fail "tutorial.md: other losses"
for number in "peak 3.06 MiB" "smallest possible 2.55 MiB"; do
    tr -s ' ' <"$work/out" | grep -q "$number" || fail "tutorial.md: no $number"
done
fresh_home
run_page doc/numerics.md 1
finish
