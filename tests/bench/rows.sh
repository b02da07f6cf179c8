# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What bench-*.sh share that time trainers beside PyTorch: each run has a time limit and adds a row to
# a file as soon as it ends, so that a call that is cut keeps its rows.
#
# PYTHON is the interpreter of the peers, LIMIT the seconds of a run, STEPS its steps, DEVICE the
# device, FLAGS more options of the trainer, OUT the folder of the results.

python=${PYTHON:-python3}
limit=${LIMIT:-240}
device=${DEVICE:-cuda}
here=$(dirname "${BASH_SOURCE[0]}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# rows_to NAME STEPS: the file of the results, and the steps where STEPS is not set
rows_to() {
    results=${OUT:-/tmp}/$1.txt
    steps=${STEPS:-$2}
    base='' base_name=''
}

# note NAME TEXT
note() {
    printf '%-48s %s\n' "$1" "$2" | tee -a "$results"
}

# Rows are followed by their ratio to the next one that has a time.
compare_with_next() {
    base='' base_name=''
}

# log_row: the median step of the log there without the first three, the prediction, and what the
# process takes; tokens without padding where the rows of conversations are filled in part.
log_row() {
    "$python" - "$work/log" "$base" "$base_name" <<'PY'
import json, os, re, statistics, sys
path, base, name = sys.argv[1:]
lines = [json.loads(line) for line in open(path) if line.endswith("}\n")] if os.path.exists(path) else []
rows = [line for line in lines if "step" in line and "ms" in line]
if rows:
    last, kept = rows[-1], rows[min(3, len(rows) - 1):]
    ms = statistics.median(r["ms"] for r in kept)
    text = "%.2f ms, predicted %.2f, arena %.2f GiB, process %.2f GiB, loss %.3f" % (
        ms, last["predicted_ms"], last["arena_bytes"] / 2**30, last["process_bytes"] / 2**30, last["loss"])
    share = re.search(r"([0-9.]+) % of the rows filled", lines[0].get("config", {}).get("data", ""))
    if share:
        text += ", %.0f tokens/s in %s %% of the places" % (
            statistics.median(r["tokens_per_second"] for r in kept) * float(share[1]) / 100, share[1])
    print(text + (", %.3f of %s" % (ms / float(base), name) if base else ""))
PY
}

# ours NAME COMMAND...: a trainer of this tree
ours() {
    local name=$1 rc=0 text why
    shift
    rm -f "$work/log"
    # shellcheck disable=SC2086
    timeout "$limit" "$@" --device "$device" --steps "$steps" --log "$work/log" ${FLAGS-} >"$work/out" 2>&1 || rc=$?
    text=$(log_row)
    if [ "$rc" = 0 ]; then
        [ -n "$base" ] || { base=${text%% ms*} && base_name=$name; }
    else
        why=$(grep -a 'train: [^ 0-9]' "$work/out" | head -n 2 | tr '\n' ' ')
        text="failed ($rc)${why:+: $why}${text:+; until then $text}"
    fi
    note "$name" "$text"
}

# peer NAME SCRIPT OPTION...: a program of this folder
peer() {
    local name=$1 script=$here/$2 rc=0 last why
    shift 2
    timeout "$limit" "$python" "$script" --device "$device" --steps "$steps" "$@" >"$work/peer" 2>"$work/error" || rc=$?
    last=$(tail -n 1 "$work/peer")
    why=$(grep -a Error "$work/error" | tail -n 1)
    [ "$rc" = 0 ] || last="failed ($rc)${why:+: $why}${last:+; until then $last}"
    note "$name" "$last"
}
