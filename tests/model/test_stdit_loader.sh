#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The loader of stdit-train: the same bits with any number of threads, any memory, several ranks,
# and a signal and a state in the middle; unreadable videos are named and counted.
set -u

. "${srcdir:-.}/tests/model/programs.sh"

train=${STDIT_TRAIN:-./stdit-train} vae=${VAE_TRAIN:-./vae-train}
small="--hidden 32 --heads 2 --depth 1"

# clip FILE WIDTH HEIGHT FRAMES ANNOUNCED
clip() {
    {
        echo "RGBCLIP $2 $3 $5 8"
        head -c $(($2 * $3 * $4 * 3)) /dev/urandom
    } >"$1"
}

"$vae" --size 16x16 --lengths 5 --image-share 0 --video "$root/examples/data/bunny.rgb" --steps 1 \
    --save "$work/vae" >"$work/out" 2>&1 || fail "vae-train: $(cat "$work/out")"

# ---- any threads, any memory ----------------------------------------------------------------------

mkdir "$work/videos"
for i in 1 2 3; do
    clip "$work/videos/$i.rgb" 20 18 $((10 + i * 5)) $((10 + i * 5))
done
cp "$root/examples/data/bunny.mp4" "$work/videos/bunny.mp4"
data="$small --size 16x16 --video-dir $work/videos --vae $work/vae --frames 5 --batch 2 --sample-steps 0"
runs "loader: at most .*, 2 decoders" "$train" $data --steps 8 --log "$work/log" --save "$work/w"
grep -q "data: steps waited" "$work/out" || fail "no share of waiting: $(cat "$work/out")"
[ "$(grep -c '"data_ms": [0-9]' "$work/log")" = 8 ] || fail "no data_ms in the log"
for choice in "--workers 1" "--workers 5" "--workers 1 --loader-memory 4820K"; do
    runs "weights" "$train" $data --steps 8 $choice --save "$work/w2"
    cmp -s "$work/w" "$work/w2" || fail "$choice: other weights"
done
refuses 1 "the largest clip take" "$train" $data --steps 8 --loader-memory 1M
refuses 1 "the largest clip take" "$train" $data --steps 8 --loader-memory 1M --plan-only
refuses 2 "a size is expected" "$train" $data --loader-memory 50%
refuses 2 "--workers: 0 is out of range" "$train" $data --workers 0
mkdir "$work/one"
cp "$work/videos/1.rgb" "$work/one"
runs "weights" "$train" $data --clips 1 --video-dir "$work/one" --steps 3 --workers 4 --save "$work/w2"

# A signal in the middle ends the run behind a step; the state goes on with the next clip.
"$train" $data --steps 4000 --log "$work/first" --save-state "$work/state" >"$work/out" 2>"$work/err" &
pid=$!
wait_steps "$work/first" 3
kill -USR2 $pid
wait $pid
done=$(grep -c '^{"step"' "$work/first")
runs "weights" "$train" $data --steps $((done + 3)) --save "$work/whole"
runs "after $done steps" "$train" $data --steps $((done + 3)) --resume "$work/state" --save "$work/w2"
cmp -s "$work/whole" "$work/w2" || fail "resumed behind a signal, $done steps: other weights"

# ---- ranks, in buckets ------------------------------------------------------------------------------

cat >"$work/table.json" <<END
{"144p": {"1": [1.0, 1], "17": [1.0, 1]}}
END
mkdir "$work/sizes"
for i in 1 2 3 4; do
    clip "$work/sizes/$i.rgb" 256 144 $((17 + i)) $((17 + i))
    clip "$work/sizes/p$i.rgb" 256 144 1 1
done
buckets="$small --buckets $work/table.json --vae $work/vae --video-dir $work/sizes"
# two ARGUMENT...: by two ranks.
two() {
    rm -f "$work/meet"
    for rank in 0 1; do
        RANK=$rank WORLD_SIZE=2 timeout 100 "$train" $buckets --ranks "file:$work/meet" "$@" \
            >"$work/rank.$rank" 2>&1 &
    done
    wait
    grep -q memory: "$work/rank.0" || fail "two ranks, $*: $(tail -n 3 "$work/rank.0" "$work/rank.1")"
}
two --steps 4 --save "$work/b"
two --steps 2 --save-state "$work/bstate" --workers 1
two --steps 4 --resume "$work/bstate" --save "$work/b2" --workers 3
cmp -s "$work/b" "$work/b2" || fail "two ranks, resumed with other threads: other weights"
runs "after 2 steps" "$train" $buckets --steps 3 --resume "$work/bstate"

# ---- videos that cannot be read -----------------------------------------------------------------------

{
    echo "path,num_frames,height,width"
    for i in 1 2 3 4; do
        echo "sizes/$i.rgb,$((17 + i)),144,256"
        echo "gone$i.rgb,19,144,256"
    done
    echo "sizes/1.rgb,40,144,256"
    echo "sizes/p1.rgb,1,144,200"
} >"$work/list.csv"
bad="$small --buckets $work/table.json --vae $work/vae --video-dir $work/list.csv"
runs "the next clip takes its place" "$train" $bad --steps 9 --save "$work/l"
grep "^stdit-train" "$work/err" >"$work/said"
[ "$(grep -c 'gone1.rgb: cannot be read' "$work/err")" = 1 ] || fail "gone1.rgb: $(cat "$work/err")"
runs "weights" "$train" $bad --steps 9 --workers 4 --save "$work/l2"
cmp -s "$work/l" "$work/l2" || fail "bad clips, other threads: other weights"
grep "^stdit-train" "$work/err" | cmp -s - "$work/said" || fail "other threads say something else: $(cat "$work/err")"
refuses 1 "clips cannot be read, more than --max-bad 1" "$train" $bad --steps 9 --max-bad 1
refuses 1 "more than --max-bad 0" "$train" $bad --steps 9 --max-bad 0

# The count goes on where a run does, behind two of them.
runs "the next clip takes its place" "$train" $bad --steps 4 --save-state "$work/bad.state"
[ "$(grep -c gone4.rgb "$work/err")" = 1 ] || fail "gone4.rgb: $(cat "$work/err")"
runs "after 4 steps" "$train" $bad --steps 9 --resume "$work/bad.state" --save "$work/l2"
cmp -s "$work/l" "$work/l2" || fail "resumed among bad clips: other weights"
[ "$(grep -c "gone[1234].rgb: cannot be read" "$work/err")" = 3 ] || fail "named again: $(cat "$work/err")"
refuses 1 "3 clips cannot be read, more than --max-bad 2" "$train" $bad --steps 9 \
    --resume "$work/bad.state" --max-bad 2

# Ranks meet bad clips of their own; a state has those of all, whatever the number of ranks behind it.
buckets=$bad
two --steps 4 --save-state "$work/two.state"
met() {
    grep -ho "gone[1-4].rgb: cannot be read" "$@" | sort -u
}
met "$work/rank.0" >"$work/met.0"
met "$work/rank.1" >"$work/met.1"
sort -u "$work/met.0" "$work/met.1" >"$work/met"
known=$(wc -l <"$work/met")
[ "$known" -gt "$(wc -l <"$work/met.0")" ] || fail "the second rank met nothing of its own: $(cat "$work/met")"
two --steps 9 --resume "$work/two.state"
met "$work/rank.0" "$work/rank.1" | grep -F -f "$work/met" && fail "two ranks name them again"
runs "after 4 steps" "$train" $bad --steps 9 --resume "$work/two.state"
met "$work/err" | grep -F -f "$work/met" && fail "one rank names them again"
refuses 1 "clips cannot be read, more than --max-bad $((known - 1))" "$train" $bad --steps 9 \
    --resume "$work/two.state" --max-bad $((known - 1))
echo "path,num_frames,height,width
sizes/2.rgb,19,100,300
sizes/3.rgb,20,150,200" >"$work/list.csv"
refuses 1 "larger than announced" "$train" $bad --steps 2

# ---- tar files, where libarchive and FFmpeg are there -------------------------------------------------

long=$(printf 'x%.0s' $(seq 120))
mkdir -p "$work/plain" "$work/parts/$long"
cp "$root/examples/data/bunny.mp4" "$work/plain/1.mp4"
cp "$root/examples/data/bunny.mp4" "$work/plain/2.mp4"
cp "$work/plain/1.mp4" "$work/parts/$long/1.mp4"
cp "$work/plain/2.mp4" "$work/parts/2.mp4"
echo '{"text": "a hare"}' >"$work/parts/2.json"
head -c 500 "$work/plain/1.mp4" >"$work/parts/broken.mp4"
mkdir "$work/tars"
(cd "$work/parts" && tar cf "$work/tars/a.tar" broken.mp4 "$long/1.mp4" && tar cf "$work/tars/b.tar" 2.json 2.mp4)
data="$small --size 16x16 --vae $work/vae --frames 5 --batch 2 --sample-steps 0 --steps 4 --video-dir"
if ! "$train" $data "$work/tars" --save "$work/t" >"$work/out" 2>"$work/err"; then
    grep -qE "without (FFmpeg|libarchive)" "$work/err" || fail "tar files: $(cat "$work/err")"
else
    grep -q "a.tar/broken.mp4 is left out" "$work/err" || fail "broken.mp4 in a tar: $(cat "$work/err")"
    runs "6 x 5 frames" "$train" $data "$work/plain" --save "$work/t2"
    cmp -s "$work/t" "$work/t2" || fail "tar files: other weights than the files in them"
    runs "3 x 5 frames" "$train" $data "$work/tars/b.tar"
    head -c 6000 "$work/tars/a.tar" >"$work/tars/c.tar"
    refuses 1 "c.tar: is truncated after 1 members" "$train" $data "$work/tars/c.tar"
    gzip -c "$work/tars/b.tar" >"$work/z.tar"
    refuses 1 "z.tar: not a tar file" "$train" $data "$work/z.tar"
    : >"$work/none.tar"
    refuses 1 "none.tar: is empty" "$train" $data "$work/none.tar"
    refuses 1 "gone.tar: No such file" "$train" $data "$work/gone.tar"
    mkfifo "$work/pipe.tar"
    refuses 1 "pipe.tar: cannot be read: it is a FIFO" timeout 60 "$train" $data "$work/pipe.tar"
fi

finish
