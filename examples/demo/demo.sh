#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The demo: a video autoencoder trains on the bundled clip, in about half of the memory it needs
# without a budget; a diffusion model trains on its latents.  The first steps of the autoencoder run
# a second time without a budget, and the results are compared byte by byte.  An HTML page shows the
# results; the last line of output is its path.
#
# usage: demo.sh DIRECTORY          in the source tree, where the clip is
#
# PROGRAMS is the directory of the programs.  DEMO_COMPARED steps are run twice.  DEMO_STEPS and
# DEMO_DRAWING are the numbers of training steps of the autoencoder and of the diffusion model.
set -eu

programs=${PROGRAMS:-.}
out=${1:?"a directory to write to"}
here=$(dirname "$0")
compared=${DEMO_COMPARED:-150}
steps=${DEMO_STEPS:-850}
drawing=${DEMO_DRAWING:-600}
budget=10M
coder="--clips 3 --image-share 0"

say() {
    printf '\n== %s\n' "$*"
}

mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$out/work
rm -rf "$work"
mkdir -p "$work"

say "the clip that the model learns"
# shellcheck disable=SC2086
"$programs/vae-train" $coder --vram "$budget" --steps 0 --output "$out/vae" >"$work/first"
echo "$out/vae/clip.png"

say "1 of 4: the autoencoder, $compared steps without a budget, with its operations timed"
# shellcheck disable=SC2086
"$programs/vae-train" $coder --vram none --steps "$compared" --log "$work/free.jsonl" \
    --save "$work/free.safetensors" --machine-out "$work/machine.json"

coder="$coder --vram $budget --machine $work/machine.json --log $work/budget.jsonl"
say "2 of 4: the same $compared steps in $budget, planned with these times"
# shellcheck disable=SC2086
"$programs/vae-train" $coder --steps "$compared" --save "$work/budget.safetensors" \
    --save-state "$work/state" --graph-out "$work/autoencoder.graph" --plan-out "$work/plan"

say "3 of 4: on to $steps steps in $budget"
# shellcheck disable=SC2086
"$programs/vae-train" $coder --steps "$steps" --schedule wsd --resume "$work/state" \
    --save "$out/vae.safetensors" --output "$out/vae"

say "4 of 4: the diffusion model, $drawing steps, and a clip drawn from noise"
clip=examples/data/bunny.mp4
"$programs/ckpt" info | grep -q '^  FFmpeg *yes' || clip=examples/data/bunny.rgb
"$programs/stdit-train" --video-dir "$clip" --vae "$out/vae.safetensors" \
    --stride 1 --frames 13 --clips 1 --steps "$drawing" --schedule wsd --sample-steps 0 \
    --save-ema "$out/stdit.safetensors"
"$programs/stdit-sample" --load "$out/stdit.safetensors" --vae "$out/vae.safetensors" --frames 13 \
    --fps 8 --output "$out"

"$programs/ckpt" plan --graph "$work/autoencoder.graph" --machine "$work/machine.json" \
    --plan-in "$work/plan" --timeline "$out/timeline.html" >/dev/null
"$programs/ckpt" plan --graph "$work/autoencoder.graph" --machine "$work/machine.json" \
    --vram none --timeline "$out/free.html" >/dev/null
"$programs/ckpt" plan --graph "$work/autoencoder.graph" --machine "$work/machine.json" \
    --vram "$budget" --sweep --points 16 --svg "$out/sweep.svg" >/dev/null

# ---- results -----------------------------------------------------------------------------------

# "step loss grad_norm ms bytes vram" of every step, as printed in the log.
numbers() {
    awk -F'[,:]' '
        function field(name,   i) {
            for (i = 1; i < NF; i++)
                if ($i ~ "\"" name "\"")
                    return $(i + 1) + 0 == 0 && $(i + 1) !~ /^ *0/ ? "-" : substr($(i + 1), 2)
            return "-"
        }
        /^\{"step"/ { print field("step"), field("loss"), field("grad_norm"), field("ms"),
                            field("arena_bytes") }' "$1"
}

numbers "$work/budget.jsonl" >"$work/budget.txt"
numbers "$work/free.jsonl" >"$work/free.txt"
same_numbers=no
same_weights=no
head -n "$compared" "$work/budget.txt" | cut -d' ' -f1-3 >"$work/budget.bits"
cut -d' ' -f1-3 "$work/free.txt" >"$work/free.bits"
[ -s "$work/free.bits" ] && cmp -s "$work/budget.bits" "$work/free.bits" && same_numbers=yes
cmp -s "$work/budget.safetensors" "$work/free.safetensors" && same_weights=yes
same=no
[ $same_numbers$same_weights = yesyes ] && same=yes

# Milliseconds of a step without disturbance by other processes: the 10th percentile of the compared
# steps.
undisturbed() {
    head -n "$compared" "$1" | cut -d' ' -f4 | sort -g |
        awk '{ v[NR] = $1 } END { print v[int(NR / 10) + 1] }'
}

ms_budget=$(undisturbed "$work/budget.txt")
ms_free=$(undisturbed "$work/free.txt")
bytes_budget=$(awk '{ if ($5 > m) m = $5 } END { print m }' "$work/budget.txt")
bytes_free=$(awk '{ if ($5 > m) m = $5 } END { print m }' "$work/free.txt")

awk -v compared="$compared" -v same="$same" -v weights="$same_weights" -v numbers="$same_numbers" \
    -v a="$ms_budget" -v b="$ms_free" -v x="$bytes_budget" -v y="$bytes_free" \
    -v wall=$((${budget%M} * 1048576)) -v svg="$work" -f "$here/charts.awk" \
    "$work/budget.txt" "$work/free.txt"

# Prints pictures as a list of base64 strings for the page's script.
pictures() {
    for picture; do
        printf '"%s",\n' "$(base64 "$picture" | tr -d '\n')"
    done
}

pictures "$out/vae/clip.png" "$out/vae/clip-1.png" "$out/vae/clip-2.png" >"$work/clip.data"
pictures "$out"/sample/frame-*.png >"$work/sample.data"
sed -e 's/&/\&amp;/g' -e 's/"/\&quot;/g' "$out/timeline.html" >"$work/timeline.escaped"
sed -n '/<svg/,$p' "$out/sweep.svg" >"$work/sweep.inline"

# Writes the page: replaces each mark @NAME@ by the contents of a file.
awk -v work="$work" '
    function put(path,   line, n) {
        while ((getline line <path) > 0)
            printf "%s%s", n++ ? "\n" : "", line
        close(path)
    }
    {
        while (match($0, /@[a-z.]+@/)) {
            printf "%s", substr($0, 1, RSTART - 1)
            name = substr($0, RSTART + 1, RLENGTH - 2)
            $0 = substr($0, RSTART + RLENGTH)
            put(work "/" name)
        }
        print
    }' "$here/page.html" >"$work/page.html"
mv "$work/page.html" "$out/demo.html"

say "same bits: $same"
echo "$compared losses and gradient norms: $same_numbers; all weights: $same_weights"
awk -v a="$ms_budget" -v b="$ms_free" -v x="$bytes_budget" -v y="$bytes_free" 'BEGIN {
    printf "memory: %.1f MiB in the budget, %.1f MiB without: %.0f %%\n", x / 1048576, y / 1048576,
        100 * x / y
    printf "a step: %.0f ms in the budget, %.0f ms without\n", a, b }'
rm -rf "$work"
[ $same = yes ] || exit 1
echo "$out/demo.html"
