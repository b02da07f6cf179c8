#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# video-encode and the trainers that read its cache: the bits of encoding during training, with any
# number of ranks and any budget; a kill in the middle, damaged and missing files, another encoder,
# captions.
set -u

. "${srcdir:-.}/tests/model/programs.sh"

train=${STDIT_TRAIN:-./stdit-train} vae=${VAE_TRAIN:-./vae-train} encode=${VIDEO_ENCODE:-./video-encode}
small="--hidden 32 --heads 2 --depth 1"

# clip FILE WIDTH HEIGHT FRAMES
clip() {
    {
        echo "RGBCLIP $2 $3 $4 8"
        head -c $(($2 * $3 * $4 * 3)) /dev/urandom
    } >"$1"
}

"$vae" --size 16x16 --lengths 5 --image-share 0 --video "$root/examples/data/bunny.rgb" --steps 1 \
    --save "$work/vae" >"$work/out" 2>&1 || fail "vae-train: $(cat "$work/out")"
"$vae" --size 16x16 --lengths 5 --image-share 0 --video "$root/examples/data/bunny.rgb" --steps 2 \
    --save "$work/vae2" >"$work/out" 2>&1 || fail "vae-train: $(cat "$work/out")"
coder="--vae $work/vae --vae-model tiny --dtype fp32"

# The included clip fits the defaults.
runs "is written" "$encode" $coder --data "$root/examples/data/bunny.rgb" --output "$work/included"

# ---- one size: the bits of encoding on the way -------------------------------------------------------

mkdir "$work/videos"
for i in 1 2 3; do
    clip "$work/videos/$i.rgb" 20 18 $((10 + i * 5))
done
echo "a hare" >"$work/videos/1.txt"
echo '{"text": "a dog"}' >"$work/videos/2.json"
one="$coder --data $work/videos --size 16x16 --frames 5 --shard 2"
runs "the manifest is written" "$encode" $one --output "$work/one"
[ "$(ls "$work/one" | wc -l)" = 7 ] || fail "not 6 shards and a manifest: $(ls "$work/one")"
data="$small --batch 2 --steps 6 --sample-steps 0"
runs "weights" "$train" $data --size 16x16 --frames 5 --video-dir "$work/videos" --vae "$work/vae" --save "$work/w"
runs "12 of 12 clips" "$train" $data --cache "$work/one" --check-cache --save "$work/w2"
cmp -s "$work/w" "$work/w2" || fail "from the cache: other weights than encoding on the way"
runs "12 of 12 clips" "$train" $data --cache "$work/one" --vae "$work/vae" --sample-steps 2 --out "$work/pictures"
runs "step 6: validation loss" "$train" $data --cache "$work/one" --val "$work/one"
refuses 1 "there is no such cache; make one with video-encode" "$train" $data --cache "$work/nothere"

# The least budget, other threads, and stored as bf16.
refuses 1 "needs at least" "$encode" $one --output "$work/tight" --vram 1K
runs "written" "$encode" $one --output "$work/tight" --vram "$(needed)" --workers 1
for i in 0 1 2 3 4 5; do
    cmp -s "$work/one/latents-0000$i.safetensors" "$work/tight/latents-0000$i.safetensors" ||
        fail "the least budget: shard $i is another"
done
runs "written" "$encode" $one --output "$work/half" --stored bf16
runs "12 of 12 clips" "$train" $data --cache "$work/half"

# Two ranks, and then one that resumes: the same bytes.  An existing shard is not made again.
# two DIR ARGUMENT...
two() {
    rm -f "$work/meet"
    for rank in 0 1; do
        RANK=$rank WORLD_SIZE=2 timeout 100 "$encode" --ranks "file:$work/meet" "$@" >"$work/rank.$rank" 2>&1 &
    done
    wait
}
two $one --output "$work/two"
diff -r "$work/one" "$work/two" >/dev/null || fail "two ranks: other files: $(cat "$work/rank.0" "$work/rank.1")"
rm "$work/two/latents-00001.safetensors" "$work/two/latents-00004.safetensors" "$work/two/manifest.json"
touch -d 2001-01-01 "$work/two/latents-00000.safetensors"
runs "2 shards of latents" "$encode" $one --output "$work/two"
grep -q "^encode: 100% " "$work/err" || fail "progress of a resumed run: $(cat "$work/err")"
diff -r "$work/one" "$work/two" >/dev/null || fail "resumed by one rank: other files"
[ "$work/two/latents-00000.safetensors" -ot "$work/videos" ] || fail "a shard was made again"
rm "$work/two/latents-0000"[1-5]* "$work/two/manifest.json"
two $one --output "$work/two"
diff -r "$work/one" "$work/two" >/dev/null || fail "resumed by two ranks: other files"

# A kill in the middle.
"$encode" $one --shard 1 --output "$work/killed" >"$work/out" 2>&1 &
pid=$!
tries=0
until [ -e "$work/killed/latents-00003.safetensors" ] || [ $tries -gt 600 ]; do
    tries=$((tries + 1))
    sleep 0.02
done
kill -9 $pid
wait $pid 2>/dev/null
rm -f "$work/killed/manifest.json"
refuses 1 "run video-encode again" "$train" $data --cache "$work/killed"
runs "written" "$encode" $one --shard 1 --output "$work/killed"
[ -z "$(ls "$work/killed" | grep tmp)" ] || fail "a killed run left $(ls "$work/killed" | grep tmp)"
runs "weights" "$train" $data --cache "$work/killed" --save "$work/w2"
cmp -s "$work/w" "$work/w2" || fail "killed and resumed: other weights"

# ---- damage ------------------------------------------------------------------------------------------

refuses 1 "manifest.json: other than in this run: seed" "$encode" $one --output "$work/one" --seed 5
grep -q "other settings.*; give another directory" "$work/err" || fail "no cure: $(cat "$work/err")"
refuses 1 "other settings" "$encode" $one --output "$work/one" --vae "$work/vae2"
refuses 1 "another autoencoder" "$train" $data --cache "$work/one" --vae "$work/vae2"
cp -r "$work/one" "$work/bad"
size=$(wc -c <"$work/bad/latents-00002.safetensors")
printf 'X' | dd of="$work/bad/latents-00002.safetensors" bs=1 seek=$((size - 40)) conv=notrunc 2>/dev/null
refuses 1 "latents-00002.safetensors: clip 5 (2.rgb) is damaged" "$encode" --check --output "$work/bad"
refuses 1 "clip 5 (2.rgb) is damaged" "$train" $data --cache "$work/bad" --check-cache
printf 'X' | dd of="$work/bad/latents-00001.safetensors" bs=1 seek=60 conv=notrunc 2>/dev/null
refuses 1 "latents-00001.safetensors" "$train" $data --cache "$work/bad"
cp "$work/one/latents-00001.safetensors" "$work/bad"
head -c $((size - 8)) "$work/one/latents-00002.safetensors" >"$work/bad/latents-00002.safetensors"
refuses 1 "latents-00002.safetensors: has .* bytes" "$train" $data --cache "$work/bad"
rm "$work/bad/latents-00002.safetensors"
refuses 1 "latents-00002.safetensors: No such file" "$train" $data --cache "$work/bad"
runs "all checksums match" "$encode" --check --output "$work/one"
# ---- sources and manifests -------------------------------------------------------------------------

runs "12 clips are made from the frames" "$encode" $one --check --output "$work/one"
refuses 1 "other settings.*: seed" "$encode" $one --seed 5 --check --output "$work/one"
cp -r "$work/videos" "$work/was"
clip "$work/videos/2.rgb" 20 18 20
refuses 1 "clip 3 (2.rgb) was made from other frames" "$encode" $one --check --output "$work/one"
cp "$work/was/2.rgb" "$work/videos"
runs "are made from the frames" "$encode" $one --check --output "$work/one"

# another NAME PATTERN REPLACEMENT TEXT: a manifest that was changed is refused.
another() {
    rm -rf "$work/bad"
    cp -r "$work/one" "$work/bad"
    sed "s|$1|$2|" "$work/one/manifest.json" >"$work/bad/manifest.json"
    cmp -s "$work/one/manifest.json" "$work/bad/manifest.json" && fail "no $1 in the manifest"
    refuses 1 "$3" "$train" $data --cache "$work/bad"
}
another '"rows": 12' '"rows": 13' "checksum is another\|differs from its setup"
another '^ "rows": 12' ' "rows": 4611686018427387904' "differs from its setup"
another '"stride": 1' '"stride": 2' "\"setup\" was changed"
another 'latents-00001' 'latents-00000' "lists latents-00000.safetensors twice"
another 'latents-00001' '../one/latents-00001' "not the name of one of its shards"
another 'latents-00001' 'latents-99999' "not the name of one of its shards"
another 'latents-00001' 'text-00001' "text-00001.safetensors: No such file"
another '"file": "latents-00001.safetensors"' '"file": 7' "without \"file\""
another '"stride": 1' '"stride": 1, "crop": 2' '"setup.crop" is 2: this setting is not known'
another '"format": "ckpt-cache"' '"format": "ckpt-cache", "turned": true' '"turned" is true'
another '^ "rows": 12' ' "rows": 12, "rows": 12' "duplicate"
another '"header_sum"' '"dtype": "F8", "header_sum"' '"shards[[]0].dtype" is "F8"'
rm -rf "$work/bad"
cp -r "$work/one" "$work/bad"
LC_ALL=C sed 's/fps/cut/' "$work/one/latents-00001.safetensors" >"$work/bad/latents-00001.safetensors"
refuses 1 'cache.clips.cut' "$train" $data --cache "$work/bad"
cp "$work/one/latents-00001.safetensors" "$work/bad"
mv "$work/bad/latents-00001.safetensors" "$work/swap"
mv "$work/bad/latents-00002.safetensors" "$work/bad/latents-00001.safetensors"
mv "$work/swap" "$work/bad/latents-00002.safetensors"
refuses 1 "latents-00001" "$train" $data --cache "$work/bad"
refuses 1 "lists clip 4 where clip 2 belongs" "$encode" $one --output "$work/bad"
rm -rf "$work/bad"

# A cache of an older version.
runs "older version, which did not record" "$train" $data --cache "$root/tests/model/cache_0.2" --steps 1
runs "all checksums match" "$encode" --check --output "$root/tests/model/cache_0.2"

# ---- a cache that changes under the reader --------------------------------------------------------

# while_read ACTION TEXT: a trainer whose cache is changed after some steps ends with a sentence.
while_read() {
    rm -rf "$work/live" "$work/log"
    cp -r "$work/one" "$work/live"
    "$train" $data --steps 1000000 --cache "$work/live" --log "$work/log" >"$work/out" 2>"$work/err" &
    pid=$!
    wait_steps "$work/log" 5
    for shard in "$work/live"/latents*; do
        eval "$1"
    done
    wait $pid
    rc=$?
    [ $rc = 1 ] || fail "exit $rc after: $1: $(tail -n 2 "$work/err")"
    grep -q "$2" "$work/err" || fail "no \"$2\" after: $1: $(tail -n 2 "$work/err")"
}
while_read ': >"$shard"' "became shorter since it was opened"
while_read 'head -c 2000 /dev/zero | tr "\\0" "\\377" | dd of="$shard" bs=1 seek=$(($(wc -c <"$shard") - 2000)) conv=notrunc 2>/dev/null' \
    "is damaged: its checksum does not match"

# No clip can be read: no cache, and no success.
mkdir "$work/broken"
echo "RGBCLIP 20 18" >"$work/broken/a.rgb"
printf '%s\n' path,num_frames,height,width gone.rgb,15,18,20 >"$work/gone.csv"
refuses 1 "none of the 1 clips could be read" "$encode" $coder --data "$work/gone.csv" --size 16x16 --frames 5 \
    --output "$work/gone"
[ -e "$work/gone/manifest.json" ] && fail "a cache without a clip has a manifest"

mkdir "$work/empty"
refuses 1 "no video" "$encode" $one --data "$work/empty" --output "$work/none"
refuses 2 "the cache has them" "$train" $data --cache "$work/one" --frames 5
refuses 2 "exclude each other" "$train" $data --cache "$work/one" --video-dir "$work/videos"
refuses 2 "needs --vae" "$train" $data --cache "$work/one" --sample-steps 2

# One clip; one that cannot be read is named, and the next takes its place.
printf '%s\n' path,num_frames,height,width,text videos/1.rgb,15,18,20,one gone.rgb,9,18,20,two \
    videos/3.rgb,25,18,20,three >"$work/list.csv"
first="--batch 3 --steps 1" # the first epoch: later ones draw anew on the way
list="$coder --data $work/list.csv --size 16x16 --frames 5"
runs "1 clips could not be read" "$encode" $list --output "$work/list"
grep -q gone.rgb "$work/list/manifest.json" || fail "gone.rgb is not in the manifest"
runs "2 of 3 clips, 1 could not" "$train" $data $first --cache "$work/list" --save "$work/w2"
runs "next clip" "$train" $data $first --video-dir "$work/list.csv" --size 16x16 --frames 5 --vae "$work/vae" --save "$work/w"
cmp -s "$work/w" "$work/w2" || fail "a bad clip: other weights than encoding on the way"
refuses 1 "more than --max-bad 0" "$encode" $list --max-bad 0 --output "$work/list0"
runs "written" "$encode" $one --clips 1 --data "$work/videos/1.rgb" --output "$work/single"
runs "1 of 1 clips" "$train" $data --cache "$work/single"

# A file that is no video is counted, too.
mkdir "$work/junk"
cp "$work/videos/1.rgb" "$work/junk"
echo junk >"$work/junk/2.rgb"
runs "1 clips could not be read" "$encode" $coder --data "$work/junk" --size 16x16 --frames 5 --output "$work/left"
grep -q "left: could not be read and are skipped: " "$work/err" || fail "no names: $(cat "$work/err")"
grep -q '"name": ".*junk/2.rgb"' "$work/left/manifest.json" || fail "2.rgb: $(cat "$work/left/manifest.json")"
runs "all checksums match" "$encode" --check --output "$work/left"

# ---- buckets -----------------------------------------------------------------------------------------

echo '{"144p": {"1": [1.0, 2], "17": [1.0, 1]}}' >"$work/table.json"
mkdir "$work/sizes"
clip "$work/sizes/a.rgb" 256 144 19
clip "$work/sizes/b.rgb" 200 200 18
clip "$work/sizes/d.rgb" 256 144 1
clip "$work/sizes/e.rgb" 260 146 1
buckets="--buckets $work/table.json"
runs "written" "$encode" $coder $buckets --data "$work/sizes" --output "$work/buckets"
runs "weights" "$train" $small $buckets --vae "$work/vae" --video-dir "$work/sizes" --steps 3 --save "$work/w"
runs "4 of 4 clips" "$train" $small $buckets --cache "$work/buckets" --steps 3 --save "$work/w2"
cmp -s "$work/w" "$work/w2" || fail "buckets: other weights than encoding on the way"
refuses 1 "buckets to train on several sizes" "$train" $data --cache "$work/buckets"
echo '{"240p": {"1": [1.0, 2], "17": [1.0, 1]}, "144p": {"1": [1.0, 2]}}' >"$work/table.json"
refuses 1 "another table" "$train" $small $buckets --cache "$work/buckets" --steps 3

# ---- text, where libsentencepiece is there -----------------------------------------------------------

here=$root/tests/text
captions="--text-encoder $here/t5 --tokenizer $here/tokenizer --text-tokens 12"
# As many as text-encode takes in a pass: the last bits of fp32 follow from how many these are.
for i in 1 2 3 4 5 6 7 8; do
    printf '1.rgb\n2.rgb\n' >>"$work/videos/videos.txt"
    printf 'a hare\nthe old fisherman %d\n' $i >>"$work/videos/prompts.txt"
done
if "$encode" $one $captions --shard 16 --output "$work/text" --threads 1 >"$work/out" 2>"$work/err"; then
    text_encode=${TEXT_ENCODE:-./text-encode}
    "$text_encode" --model "$here/t5" --tokenizer "$here/tokenizer" --family opensora --dtype fp32 --length 12 \
        --threads 1 --prompts "$work/videos/prompts.txt" --output "$work/y" >"$work/out" 2>&1 ||
        fail "text-encode: $(cat "$work/out")"
    runs "weights" "$train" $data --steps 8 --size 16x16 --frames 5 --video-dir "$work/videos" --vae "$work/vae" \
        --text "$work/y" --save "$work/w"
    runs "16 of 16 clips" "$train" $data --steps 8 --cache "$work/text" --check-cache --save "$work/w2"
    cmp -s "$work/w" "$work/w2" || fail "text: other weights than encoding on the way"
    runs "weights" "$train" $data --steps 8 --cache "$work/text" --text "$work/y" --save "$work/w2"
    cmp -s "$work/w" "$work/w2" || fail "latents alone: other weights than encoding on the way"
    rm "$work/videos/videos.txt"
    # Captions in a tar file, before and after a video, equal captions in separate files.
    mkdir "$work/members"
    cp "$root/examples/data/bunny.mp4" "$work/members/a.mp4"
    cp "$root/examples/data/bunny.mp4" "$work/members/b.mp4"
    echo '{"caption": "a hare"}' >"$work/members/a.json"
    echo " a dog " >"$work/members/b.txt"
    (cd "$work/members" && tar cf "$work/m.tar" a.json a.mp4 b.mp4 b.txt)
    if "$encode" $one $captions --data "$work/m.tar" --output "$work/tar" >"$work/out" 2>"$work/err"; then
        grep -q "no caption" "$work/err" && fail "captions in a tar file: $(cat "$work/err")"
        runs "written" "$encode" $one $captions --data "$work/members" --output "$work/files"
        for i in 0 1 2; do # but for the sums of the settings, the names are other ones
            tail -c 600 "$work/tar/text-0000$i.safetensors" >"$work/a"
            tail -c 600 "$work/files/text-0000$i.safetensors" | cmp -s - "$work/a" ||
                fail "captions in a tar file: other features in shard $i"
        done
    else
        grep -qE "without (FFmpeg|libarchive)" "$work/err" || fail "tar: $(cat "$work/err")"
    fi
    refuses 1 "1 of 3 clips have no caption: 3.rgb; .*--empty-captions" "$encode" $one $captions --clips 1 --output "$work/without"
    [ ! -e "$work/without/manifest.json" ] || fail "a refused run wrote a cache"
    runs "1 of 3 clips have no caption and get an empty one: 3.rgb" "$encode" $one $captions --clips 1 --empty-captions \
        --output "$work/without"
    refuses 2 "empty-captions is for --text-encoder" "$encode" $one --empty-captions --output "$work/none"
    mkdir "$work/silent" && cp "$root/examples/data/bunny.rgb" "$work/silent/a.rgb"
    refuses 1 "3 of 3 clips have no caption: a.rgb; write that of NAME.mp4 into NAME.txt" "$encode" $one $captions --data "$work/silent" \
        --output "$work/none"
    : >"$work/silent/a.txt"
    runs "3 of 3 clips have no caption and get an empty one: a.rgb" "$encode" $one $captions --data "$work/silent" --output "$work/none"

    # CogVideoX: the same weights as with the files of cogvideo-encode and text-encode.
    mkdir "$work/cog" "$work/cog/vae" "$work/dit" "$work/lines"
    if tests/cogvideo/test_vae model "$work/cog/vae" >/dev/null 2>&1; then
        mv "$work/videos/prompts.txt" "$work/lines"
        for i in 1 2 3 4 5 6 7 8; do
            printf '../videos/1.rgb\n../videos/2.rgb\n' >>"$work/lines/videos.txt"
        done
        printf '1.rgb\n2.rgb\n' >"$work/videos/list"
        sed 's/"text_embed_dim": 12/"text_embed_dim": 24/; s/"max_text_seq_length": 5/"max_text_seq_length": 12/' \
            "$root/tests/cogvideo/2b/config.json" >"$work/dit/config.json"
        cog="--model $work/cog --dtype fp32"
        runs "written" "$encode" $cog $captions --data "$work/lines" --size 32x16 --frames 9 --shard 16 \
            --threads 1 --output "$work/cogcache"
        runs "2 of 9 frames" "${COGVIDEO_ENCODE:-./cogvideo-encode}" $cog --list "$work/videos/list" --frames 9 \
            --height 16 --width 32 --output "$work/coglatents"
        runs "16 prompts" "$text_encode" --model "$here/t5" --tokenizer "$here/tokenizer" --family cogvideox \
            --dtype fp32 --length 12 --threads 1 --prompts "$work/lines/prompts.txt" --output "$work/cogtext"
        cogtrain="${COGVIDEO_TRAIN:-./cogvideo-train} --device cpu --model $work/dit --random --batch 2 --steps 9 --warmup 0"
        runs "memory:" $cogtrain --data "$work/lines" --latents "$work/coglatents" --text "$work/cogtext" --save "$work/w"
        runs "16 of 16 clips" $cogtrain --cache "$work/cogcache" --check-cache --save "$work/w2"
        cmp -s "$work/w" "$work/w2" || fail "CogVideoX: other weights than from files of its trainers"
        runs "step 9: validation loss" $cogtrain --cache "$work/cogcache" --val "$work/cogcache"
        runs "they repeat within a step" $cogtrain --cache "$work/cogcache" --batch 17 --steps 1
        runs "latents of 1 frames of 16 x 32" $cogtrain --data random --frames 1 --size 32x16 --steps 1
        # the text encoder of the model
        ln -s "$here/t5" "$work/cog/text_encoder"
        ln -s "$here/tokenizer" "$work/cog/tokenizer"
        runs "written" "$encode" $cog --text-tokens 12 --data "$work/lines" --size 32x16 --frames 9 --shard 16 \
            --threads 1 --output "$work/cogown"
        runs "16 of 16 clips" $cogtrain --cache "$work/cogown" --save "$work/w2"
        cmp -s "$work/w" "$work/w2" || fail "CogVideoX: other weights with the text encoder of the model"
        # clips of first frames beside them, which a model without a condition leaves; of a still they are the same
        first="$cog --data $work/lines --size 32x16 --threads 1 --text-tokens 12 --first-frame"
        runs "written" "$encode" $first --frames 9 --shard 16 --output "$work/cogfirst"
        runs "16 of 16 clips" $cogtrain --cache "$work/cogfirst" --save "$work/w2"
        cmp -s "$work/w" "$work/w2" || fail "CogVideoX: other weights with clips of first frames"
        runs "written" "$encode" $first --frames 1 --shard 1 --output "$work/still"
        still=$work/still/latents-00000.safetensors
        half=$((($(wc -c <"$still") - 8 - $(od -An -tu8 -N8 "$still")) / 2))
        tail -c $half "$still" >"$work/a"
        tail -c $((2 * half)) "$still" | head -c $half >"$work/b"
        [ -s "$work/a" ] && cmp -s "$work/a" "$work/b" || fail "the clip of a still is another one"
        refuses 1 "other settings" "$encode" $cog --data "$work/lines" --size 32x16 --threads 1 --text-tokens 12 --frames 1 \
            --shard 1 --output "$work/still"
        refuses 2 "--fps are for --model DIR" "$encode" $one --output "$work/x" --first-frame
        refuses 1 "autoencoder of Open-Sora" "$train" $data --cache "$work/cogcache"
        refuses 1 "autoencoder of CogVideoX" $cogtrain --cache "$work/text"
        refuses 2 "a video is one clip" "$encode" $cog --data "$work/lines" --output "$work/x" --vae "$work/vae"
        refuses 2 "leave out --data" $cogtrain --cache "$work/cogcache" --data random
    fi
else
    grep -q "built without libsentencepiece" "$work/err" || fail "text: $(cat "$work/err")"
fi

finish
