#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# stdit-train --buckets: clips of several sizes and lengths in one run, random ones and videos;
# budgets, tiers, ranks, states; wrong input gets one sentence each.
set -u

. "${srcdir:-.}/tests/model/programs.sh"

train=${STDIT_TRAIN:-./stdit-train} vae=${VAE_TRAIN:-./vae-train}
model="--hidden 32 --heads 2 --depth 1 --mask-stage 1"

# "step bucket loss" of a log.
steps() {
    sed -n 's/.*"step": \([0-9]*\), "loss": \([^,]*\),.*"bucket": "\([^"]*\)".*/\1 \3 \2/p' "$1"
}

# The bytes of the arena after each step of a log.
arenas() {
    sed -n 's/.*"step": .*"arena_bytes": \([0-9]*\),.*/\1/p' "$1" | sort -u
}

cat >"$work/table.json" <<END
{"144p": {"1": [1.0, 4], "17": [1.0, 2], "34": [[1.0, 0.33], 1]}, "256": {"1": [0.5, 2], "17": [0.5, 1]}}
END
# 96 clips: pictures, of 18 frames, of 40; wide, high, square and large.
awk 'BEGIN {
    print "path,text,num_frames,height,width"
    split("144 256 256 144 192 192 256 256 360 640", side)
    split("1 18 40 18", frames)
    for (i = 0; i < 96; i++)
        printf "c%d.rgb,\"one, two\",%d,%d,%d\n", i, frames[i % 4 + 1], side[int(i / 4) % 5 * 2 + 1],
            side[int(i / 4) % 5 * 2 + 2]
}' >"$work/clips.csv"

# ---- random latents -----------------------------------------------------------------------------------

data="$model --buckets $work/table.json --latent $work/clips.csv"
runs "buckets in one arena" "$train" $data --steps 24 --log "$work/log" --save "$work/w" --save-ema "$work/e"
[ "$(steps "$work/log" | wc -l)" = 24 ] || fail "24 steps: $(steps "$work/log")"
[ "$(steps "$work/log" | cut -d' ' -f2-4 | sort -u | wc -l)" -gt 5 ] || fail "few buckets: $(steps "$work/log")"
[ "$(arenas "$work/log" | wc -l)" = 1 ] || fail "the arena grows: $(arenas "$work/log")"

# Clips that no step takes are named: in buckets with less than a batch, after the last batch, in no
# bucket.
cat >"$work/few.json" <<END
{"144p": {"1": [1.0, 8], "17": [1.0, 2]}}
END
awk 'BEGIN {
    print "path,text,num_frames,height,width"
    for (i = 0; i < 9; i++)
        printf "c%d.rgb,x,%d,%d,256\n", i, i < 3 ? 1 : 18, i < 8 ? 144 : 16
}' >"$work/few.csv"
few="$model --sample-steps 0 --buckets $work/few.json --latent $work/few.csv"
runs "random latents: .*, 5 in 1 buckets" "$train" $few --steps 2
runs "5 of 9 clips are in no step of the first epoch:" "$train" $few --steps 2
runs "  3 in buckets with less than a batch for each rank: 144p 1 0.56 (3 of a batch of 8)" \
    "$train" $few --steps 2
runs "  1 that fill no batch for each rank" "$train" $few --steps 2
runs "  1 in no bucket of the table" "$train" $few --plan-only

# The same bits under the least budget, with tiers, and from a state in the middle.
# (The refusal is for the bucket that needs the most.)
refuses 1 "bucket .*needs at least" "$train" $data --steps 1 --vram 1M
least=$(needed)
runs "weights" "$train" $data --steps 24 --vram "$least" --log "$work/tight" --save "$work/w2" --save-ema "$work/e2"
refuses 1 "needs at least $least bytes" "$train" $data --steps 1 --vram $((least - 1))
cmp -s "$work/w" "$work/w2" && cmp -s "$work/e" "$work/e2" || fail "--vram $least: other weights"
[ "$(arenas "$work/tight")" -le "$least" ] || fail "--vram $least: $(arenas "$work/tight")"
runs "weights" "$train" $data --steps 24 --vram "$least" --host 8M --save "$work/w2"
cmp -s "$work/w" "$work/w2" || fail "--host: other weights"
mkdir "$work/nvme"
runs "weights" "$train" $data --steps 24 --vram "$least" --nvme "$work/nvme:8M" --save "$work/w2"
cmp -s "$work/w" "$work/w2" || fail "--nvme: other weights"
runs "state" "$train" $data --steps 11 --save-state "$work/state"
runs "after 11 steps" "$train" $data --steps 24 --resume "$work/state" --log "$work/rest" --save "$work/w2" \
    --save-ema "$work/e2"
cmp -s "$work/w" "$work/w2" && cmp -s "$work/e" "$work/e2" || fail "resumed: other weights"
[ "$(steps "$work/log" | tail -n 13)" = "$(steps "$work/rest")" ] || fail "resumed: other steps"

# All ranks take the same bucket; a state resumes with another number of ranks.
# two ARGUMENT...: by two ranks, which log to two and two.1.
two() {
    rm -f "$work/two" "$work/two.1" "$work/meet"
    for rank in 0 1; do
        RANK=$rank WORLD_SIZE=2 timeout 100 "$train" $data --ranks "file:$work/meet" --log "$work/two" "$@" \
            >"$work/rank.$rank" 2>&1 &
    done
    wait
    grep -q memory: "$work/rank.0" || fail "two ranks, $*: $(tail -n 3 "$work/rank.0" "$work/rank.1")"
}
two --steps 8 --save "$work/w2"
[ "$(steps "$work/two" | cut -d' ' -f1-4 | wc -l)" = 8 ] || fail "two ranks: $(steps "$work/two")"
[ "$(steps "$work/two" | cut -d' ' -f1-4)" = "$(steps "$work/two.1" | cut -d' ' -f1-4)" ] ||
    fail "ranks take other buckets: $(steps "$work/two"): $(steps "$work/two.1")"
two --steps 4 --save-state "$work/state2"
two --steps 8 --resume "$work/state2" --save "$work/w3"
cmp -s "$work/w2" "$work/w3" || fail "resumed by two ranks: other weights"
runs "after 4 steps" "$train" $data --steps 8 --resume "$work/state2"
two --steps 13 --resume "$work/state"

# ---- videos -------------------------------------------------------------------------------------------

# clip FILE WIDTH HEIGHT FRAMES
clip() {
    {
        echo "RGBCLIP $2 $3 $4 8"
        head -c $(($2 * $3 * $4 * 3)) /dev/urandom
    } >"$1"
}

"$vae" --size 16x16 --lengths 5 --image-share 0 --video "$root/examples/data/bunny.rgb" --steps 1 \
    --save "$work/vae" >"$work/out" 2>&1 || fail "vae-train: $(cat "$work/out")"
mkdir "$work/videos"
clip "$work/videos/a.rgb" 256 144 19
clip "$work/videos/b.rgb" 200 200 18
clip "$work/videos/c.rgb" 144 256 20
clip "$work/videos/d.rgb" 256 144 1
clip "$work/videos/e.rgb" 260 146 1
cat >"$work/few.json" <<END
{"144p": {"1": [1.0, 2], "17": [1.0, 1]}}
END
videos="$model --mask-stage none --buckets $work/few.json --vae $work/vae --video-dir"
runs "5 in 4 buckets" "$train" $videos "$work/videos" --steps 5 --log "$work/vlog" --save "$work/v"
[ "$(steps "$work/vlog" | cut -d' ' -f2-4 | sort -u | wc -l)" = 4 ] || fail "buckets: $(steps "$work/vlog")"
[ "$(arenas "$work/vlog" | wc -l)" = 1 ] || fail "the arena grows: $(arenas "$work/vlog")"
runs "state" "$train" $videos "$work/videos" --steps 2 --save-state "$work/vstate"
runs "after 2 steps" "$train" $videos "$work/videos" --steps 5 --resume "$work/vstate" --save "$work/v2"
cmp -s "$work/v" "$work/v2" || fail "videos, resumed: other weights"
# A clip that cannot be read ends the run: the next one begins with the bucket whose step failed.
buckets() { steps "$1" | cut -d' ' -f1-4; }
echo "path,num_frames,height,width" >"$work/all.csv"
printf 'videos/%s\n' a.rgb,19,144,256 b.rgb,18,200,200 c.rgb,20,256,144 d.rgb,1,144,256 e.rgb,1,146,260 >>"$work/all.csv"
whole=0
for name in a b c d; do
    rm -f "$work/fails" "$work/failed" "$work/again"
    mv "$work/videos/$name.rgb" "$work/away"
    refuses 1 "more than --max-bad 0" "$train" $videos "$work/all.csv" --max-bad 0 --steps 5 --save-state "$work/fails" --log "$work/failed"
    mv "$work/away" "$work/videos/$name.rgb"
    [ -e "$work/fails" ] || continue
    runs "resumed" "$train" $videos "$work/all.csv" --steps 5 --resume "$work/fails" --log "$work/again"
    {
        buckets "$work/failed"
        buckets "$work/again"
    } >"$work/out"
    buckets "$work/vlog" | cmp -s - "$work/out" || fail "without $name.rgb for a while: other buckets: $(cat "$work/out")"
    whole=$((whole + 1))
done
[ $whole -ge 2 ] || fail "of runs whose data fail $whole saved a state"
# A list of them, one of which is not there: named, and another takes its place.
{
    echo "path,num_frames,height,width,text"
    for line in a.rgb,19,144,256 gone.rgb,19,144,256 b.rgb,18,200,200 c.rgb,20.0,256,144 \
        d.rgb,1,144,256 e.rgb,1,146,260; do
        echo "videos/$line,\"a \"\"text\"\"\""
    done
} >"$work/list.csv"
runs "gone.rgb: cannot be read" "$train" $videos "$work/list.csv" --steps 6

# ---- bad input ----------------------------------------------------------------------------------------

refuses 2 "needs clips" "$train" $model --buckets "$work/table.json"
refuses 2 "the table of --buckets has" "$train" $data --batch 2
refuses 2 "--size: leave it out" "$train" $videos "$work/videos" --size 16x16
refuses 2 "stdit-sample" "$train" $data --sample-steps 3
refuses 1 "No such file" "$train" $model --buckets "$work/table.json" --latent "$work/table.csv"
echo "num_frames,width" >"$work/table.csv"
refuses 1 "no column \"height\"" "$train" $model --buckets "$work/table.json" --latent "$work/table.csv"
printf 'num_frames,height,width\n3,x,4\n' >"$work/table.csv"
refuses 1 "line 2: num_frames, height and width" "$train" $model --buckets "$work/table.json" --latent "$work/table.csv"
printf 'num_frames,height,width\n' >"$work/table.csv"
refuses 1 "lists no clip" "$train" $model --buckets "$work/table.json" --latent "$work/table.csv"
printf 'num_frames,height,width\n1,9,9\n' >"$work/table.csv"
refuses 1 "too few for a batch in any bucket" "$train" $model --buckets "$work/table.json" --latent "$work/table.csv"
echo '{"99p": {"1": [1, 1]}}' >"$work/bad.json"
refuses 1 "99p" "$train" $model --buckets "$work/bad.json" --latent "$work/clips.csv"
echo '{}' >"$work/bad.json"
refuses 1 "at least one" "$train" $model --buckets "$work/bad.json" --latent "$work/clips.csv"
sed 's/"17": \[1.0, 2\]/"17": [1.0, 1]/' "$work/table.json" >"$work/other.json"
refuses 1 "digest of buckets" "$train" $model --buckets "$work/other.json" --latent "$work/clips.csv" \
    --steps 24 --resume "$work/state"
finish
