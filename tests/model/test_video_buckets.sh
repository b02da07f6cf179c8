#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# cogvideo-train and wan-train with --buckets, on a cache that video-encode made: a program for each shape, in one
# budget; the numbers of one size alone; states in the middle of an epoch, validation, micro-batches, two ranks, balance;
# shapes that a model does not have.
set -u

. "${srcdir:-.}/tests/model/programs.sh"

cogvideo=${COGVIDEO_TRAIN:-./cogvideo-train} wan=${WAN_TRAIN:-./wan-train} encode=${VIDEO_ENCODE:-./video-encode}
device="--device cpu --threads 1 --dtype fp32"

# clip FILE WIDTH HEIGHT FRAMES
clip() {
    {
        echo "RGBCLIP $2 $3 $4 8"
        head -c $(($2 * $3 * $4 * 3)) /dev/urandom
    } >"$1"
}

mkdir "$work/clips"
n=0
for shape in "256 144 1" "256 144 1" "256 144 1" "256 144 6" "256 144 6" "144 256 6" "144 256 6" "256 144 10" "256 144 10"; do
    n=$((n + 1))
    clip "$work/clips/$n.rgb" $shape
    echo "a hare $n" >"$work/clips/$n.txt"
done
echo '{"144p": {"1": [1.0, 2], "5": [1.0, 2], "9": [1.0, 1]}}' >"$work/table.json"
echo '{"144p": {"1": [1.0, 2], "5": [1.0, 2]}}' >"$work/other.json"

buckets() { sed -n 's/.*"step": \([0-9]*\),.*"bucket": "\([^"]*\)".*/\1 \2/p' "$1"; }
losses() { sed -n 's/^{"step": \([0-9]*\), "loss": \([^,]*\),.*/\1 \2/p' "$1"; }

# encodes NAME AUTOENCODER...: a directory with an autoencoder, which the rest makes, and the tiny T5; then the caches.
encodes() {
    name=$1
    shift
    dir=$work/$name
    mkdir -p "$dir/vae" "$dir/text_encoder" "$dir/tokenizer"
    "$@" "$dir/vae" || fail "no autoencoder"
    cp "$root"/tests/text/t5/* "$dir/text_encoder" && cp "$root"/tests/text/tokenizer/* "$dir/tokenizer" || fail "no T5"
    from="--model $dir --text-tokens 40 $device"
    "$encode" $from --data "$work/clips" --buckets "$work/table.json" --output "$dir/cache" >"$work/out" 2>"$work/err" || {
        grep -q libsentencepiece "$work/err" && exit 77
        fail "$name: $(tail -n 2 "$work/err")"
    }
    grep -q "9 in 4 buckets" "$work/out" || fail "$name: $(cat "$work/out")"
    # The last clip alone.
    mkdir "$dir/last"
    cp "$work/clips/9".* "$dir/last"
    runs "in 1 buckets" "$encode" $from --data "$dir/last" --buckets "$work/table.json" --output "$dir/bucket"
    runs "written" "$encode" $from --data "$dir/last" --size 256x144 --frames 9 --output "$dir/size"
}

# on N OPTION...: by N ranks, which log to log and log.1.
on() {
    n=$1
    shift
    rm -f "$work"/log* "$work"/rank.* "$work/meet"
    rank=0
    while [ $rank -lt "$n" ]; do
        RANK=$rank WORLD_SIZE=$n timeout 100 $run --ranks "file:$work/meet" --log "$work/log" "$@" >"$work/rank.$rank" 2>&1 &
        rank=$((rank + 1))
    done
    wait
    grep -q memory: "$work/rank.0" || fail "$*: $(tail -n 2 "$work/rank.0" "$work/rank.1")"
}

# trains PROGRAM NAME OPTION...
trains() {
    program=$1 dir=$work/$2
    shift 2
    one="$program $device --random --warmup 0 --lr 1e-3 $*"
    run="$one --cache $dir/cache --buckets $work/table.json"

    # The steps of one bucket are those of a run of this size.
    runs "memory:" $one --cache "$dir/bucket" --buckets "$work/table.json" --steps 3 --save "$work/a"
    runs "memory:" $one --cache "$dir/size" --steps 3 --save "$work/b"
    cmp -s "$work/a" "$work/b" || fail "$program: other weights than with one size"
    refuses 1 "buckets trains on several sizes" $one --cache "$dir/cache" --steps 1
    refuses 1 "made without --buckets" $one --cache "$dir/size" --buckets "$work/table.json" --steps 1
    refuses 1 "another table" $one --cache "$dir/cache" --buckets "$work/other.json" --steps 1
    refuses 2 "leave it out, the table" $run --batch 2
    refuses 2 "is for --buckets" $one --cache "$dir/size" --balance time
    refuses 2 "needs --cache" $one --buckets "$work/table.json"
    refuses 2 "not with --buckets" $run --keep-order

    # Two epochs of five steps; states in the middle of one.
    rm -f "$work/free.log"
    runs "4 buckets in one arena" $run --steps 10 --log "$work/free.log" --save "$work/free"
    [ "$(buckets "$work/free.log" | cut -d' ' -f2- | sort -u | wc -l)" = 4 ] || fail "$program: not 4 buckets"
    runs "4 buckets in one arena" $run --plan-only
    refuses 1 "bucket 144p .* needs at least" $run --steps 10 --vram 64K
    least=$(sed -n 's/.*needs at least \([0-9]*\) bytes.*/\1/p' "$work/err" | sort -n | tail -n 1)
    runs "memory:" $run --steps 10 --vram "$least" --save "$work/tight"
    cmp -s "$work/free" "$work/tight" || fail "$program: a budget changes the weights"
    runs "memory:" $run --steps 3 --save-state "$work/state"
    runs "resumed" $run --steps 10 --resume "$work/state" --save "$work/rest"
    cmp -s "$work/free" "$work/rest" || fail "$program: a run that resumes has other weights"
    runs "memory:" $run --steps 3 --micro-batch 1 --save "$work/micro"
    runs "batches: chosen by plans" $run --steps 3 --batch auto
    runs "val" $run --steps 4 --val "$dir/size" --val-every 2 --lora-rank 2 --text-drop 0

    on 2 --steps 3
    [ -s "$work/log.1" ] && [ "$(losses "$work/log")" = "$(losses "$work/log.1")" ] || fail "$program: ranks have other losses"
    [ "$(buckets "$work/log")" = "$(buckets "$work/log.1")" ] || fail "$program: ranks have other buckets"
    on 2 --steps 4 --balance tokens --save "$work/even"
    [ "$(buckets "$work/log")" != "$(buckets "$work/log.1")" ] || fail "$program: all ranks have one bucket"
    on 2 --steps 2 --balance tokens --save-state "$work/half"
    on 2 --steps 4 --balance tokens --resume "$work/half" --save "$work/other"
    cmp -s "$work/even" "$work/other" || fail "$program: balanced ranks that resume have other weights"
    on 2 --steps 4 --balance tokens --zero 1 --save "$work/other"
    cmp -s "$work/even" "$work/other" || fail "$program: balanced ranks have other weights with --zero 1"
    for ranks in 2 3; do # by predicted times, adapters in bf16
        lora="--steps 4 --balance time --dtype bf16 --lora-rank 2"
        on $ranks $lora --save "$work/even"
        [ "$(buckets "$work/log")" != "$(buckets "$work/log.1")" ] || fail "$program: all of $ranks ranks have one bucket"
        on $ranks $lora --steps 2 --save-state "$work/half"
        on $ranks $lora --resume "$work/half" --zero 2 --save "$work/other"
        cmp -s "$work/even" "$work/other" || fail "$program: $ranks ranks that resume have other weights"
    done
}

# transformer DIR KIND: of the tests of CogVideoX, for texts of the tiny T5.
transformer() {
    mkdir "$work/$1"
    sed 's/"text_embed_dim": 12/"text_embed_dim": 24/; s/"max_text_seq_length": 5/"max_text_seq_length": 40/; '"${3-}" \
        "$root/tests/cogvideo/$2/config.json" >"$work/$1/config.json"
}

encodes cogvideo tests/cogvideo/test_vae model
transformer 5b 5b
trains "$cogvideo" cogvideo --model "$work/5b" --snr-shift 1
# One program has 1, 2 or 3 latent frames, of which the first stands twice where patches have two; positions of 1.5 and
# learned ones end at a size.
transformer 15 15
refuses 1 "1.5 cannot be trained with bucket 144p 9 0.56" $run --model "$work/15"
transformer 15w 15 's/"sample_\(height\|width\)": 20/"sample_\1": 40/'
runs "4 buckets in one arena" $run --model "$work/15w" --steps 5
transformer 15i 15-i2v 's/"sample_\(height\|width\)": 20/"sample_\1": 40/'
runs "4 buckets in one arena" $run --model "$work/15i" --steps 5
transformer 2b 2b
runs "4 buckets in one arena" $run --model "$work/2b" --steps 5
transformer learned 5b-i2v
refuses 1 "I2V cannot be trained with bucket 144p 1 0.56" $run --model "$work/learned"

encodes wan tests/wan/test_wan_vae model 2.1
mkdir "$work/t2v"
cat >"$work/t2v/config.json" <<END
{"_class_name": "WanTransformer3DModel", "patch_size": [1, 2, 2], "num_attention_heads": 1, "attention_head_dim": 128,
 "in_channels": 16, "out_channels": 16, "text_dim": 24, "freq_dim": 16, "ffn_dim": 64, "num_layers": 2}
END
trains "$wan" wan --model "$work/t2v"

# Both models of a pair have a program for each shape.
mkdir "$work/pair"
cp -R "$work/t2v" "$work/pair/transformer" && cp -R "$work/t2v" "$work/pair/transformer_2" || fail "no pair"
echo '{"boundary_ratio": 0.875}' >"$work/pair/model_index.json"
run="$wan $device --random --warmup 0 --lr 1e-3 --model $work/pair --expert both --lora-rank 2 --cache $dir/cache --buckets $work/table.json"
runs "4 buckets in one arena" $run --steps 8 --save "$work/high" --save-low "$work/low"
runs "memory:" $run --steps 3 --save-state "$work/state"
runs "resumed" $run --steps 8 --resume "$work/state" --save "$work/a" --save-low "$work/b"
cmp -s "$work/high" "$work/a" && cmp -s "$work/low" "$work/b" || fail "both experts: a run that resumes has other weights"
refuses 2 "balance: not with --expert both" $run --balance time

finish
