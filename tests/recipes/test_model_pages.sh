#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The commands of the pages about language models and CogVideoX, and of doc/using.md, on a CPU with
# tiny models of random weights under the names of the pages.
. "${srcdir:-.}/tests/recipes/pages.sh"
small="--device cpu --threads 1"
home=$work/home
[ -x tests/cogvideo/test_vae ] || exit 77
./ckpt info | grep -q "FFmpeg *yes" || exit 77

# lm-train at a tiny size: gpt-oss has the sizes of its file, BERT a tokenizer of its own.
stand_in lm-train <<SH
last="--device cpu --threads 1 --steps 2 --batch 2 --micro-batch 1 --warmup 0 --length 96"
case "\$*" in
*"--steps 0"*) last="\$last --steps 0" ;;
esac
case "\$*" in
*"--load gpt-oss"*) last="\$last --length 16 --data gpt-oss-20b/tokens.bin" ;;
*bert*) last="\$last --hidden 16 --heads 2 --layers 1 --mlp 32 --length 24" ;;
*README.md*) last="\$last --sample-every 1 --length 32" ;;
*) last="\$last --hidden 64 --heads 2 --kv-heads 1 --layers 1 --mlp 64" ;;
esac
case "\$*" in
*gpt2*) last=\$(echo "\$last" | sed 's/--kv-heads 1//') ;;
esac
exec "$build/lm-train" "\$@" \$last
SH
program lm-sample $small --sample-tokens 8
program ckpt
stand_in vae-train <<SH
case "\$*" in
*--random*) last="--random 5x16x16" ;;
*) last="--size 16x16 --lengths 5" ;;
esac
exec "$build/vae-train" "\$@" $small --model tiny --steps 2 \$last
SH
program vae-encode $small --model tiny
program vae-decode $small --model tiny
stand_in stdit-train <<SH
case "\$*" in
*--video-dir*) last="--frames 5" ;;
*--latent*) last="--latent 3x4x6" ;;
esac
exec "$build/stdit-train" "\$@" $small --hidden 16 --heads 2 --depth 1 --caption-channels 8 --steps 3 --sample-steps 0 \
    --dtype fp32 \$last
SH
program stdit-sample $small --hidden 16 --heads 2 --depth 1 --caption-channels 8 --frames 5 --steps 1
program cogvideo-encode $small --frames 9 --height 16 --width 32
program cogvideo-decode $small
stand_in cogvideo-train <<SH
last="--height 16 --width 32"
case "\$*" in
*I2V*) last="--height 64 --width 96 --text prompt.safetensors" ;;
*"--data videos"*) last="\$last --text prompt.safetensors" ;;
esac
exec "$build/cogvideo-train" "\$@" $small --frames 9 --batch 1 --steps 2 --snr-shift 1 \$last
SH
program cogvideo-sample $small --steps 2 --snr-shift 1 --frames 9 --height 16 --width 32

# What is there before.
tiny=$work/tiny
mkdir -p "$tiny/tokenizer" "$tiny/videos"
cp "$root/tests/tokenizer/qwen2.json" "$tiny/tokenizer/tokenizer.json"
cp "$root/tests/model/chat/chatml.jinja" "$tiny/tokenizer/chat_template.jinja"
for i in 1 2 3 4 5 6; do
    printf '{"messages": [{"role": "user", "content": "say %d"}, {"role": "assistant", "content": "cat %d"}]}\n' $i $i >&3
    printf '{"prompt": "say %d", "chosen": "cat", "rejected": "dog"}\n' $i >&4
done 3>"$tiny/talks.jsonl" 4>"$tiny/pairs.jsonl"
cp "$tiny/talks.jsonl" "$tiny/more.jsonl"
echo '{"prompt": "say 1", "answer": "cat 1"}' >"$tiny/questions.jsonl"
if ! ./lm-train --model tiny-qwen3 --hidden 64 --heads 2 --kv-heads 1 --layers 1 --mlp 64 --vocabulary 490 --length 96 $small \
    --tokenizer "$tiny/tokenizer" --data "$tiny/talks.jsonl" --batch 1 --steps 1 --save-hf "$tiny/Qwen2.5-7B" >"$work/out" 2>&1; then
    grep -q "built without" "$work/out" && exit 77
    fail "$(cat "$work/out")"
fi
cp -r "$tiny/Qwen2.5-7B" "$tiny/Qwen2.5-0.5B"
mkdir "$tiny/gpt-oss-20b"
cp "$root"/tests/model/lm/gpt_oss/[cmt]* "$tiny/gpt-oss-20b"
cp "$root/tests/model/lm/bert/vocab.txt" "$tiny"
for name in books more text; do cp "$root/doc/tour.md" "$tiny/$name.txt"; done
for name in fineweb_train_0 fineweb_val_0 tokens; do cp "$root/tests/model/lm/gpt2-text.bin" "$tiny/$name.bin"; done
cp "$root/README.md" "$tiny"

runs memory ./vae-train $small --size 16x16 --lengths 5 --image-share 0 --video "$root/examples/data/bunny.rgb" --steps 1 \
    --output "$work/v" --save "$tiny/vae.safetensors"
cog=$tiny/CogVideoX-5b
for name in CogVideoX-5b CogVideoX-5b-I2V; do
    mkdir "$tiny/$name" "$tiny/$name/transformer" "$tiny/$name/vae" "$tiny/$name/text_encoder" "$tiny/$name/tokenizer"
    tests/cogvideo/test_vae model "$tiny/$name/vae" >/dev/null || fail "no autoencoder"
    case $name in *I2V) kind=5b-i2v ;; *) kind=5b ;; esac
    sed 's/"text_embed_dim": 12/"text_embed_dim": 24/; s/"max_text_seq_length": 5/"max_text_seq_length": 226/' \
        "$root/tests/cogvideo/$kind/config.json" >"$tiny/$name/transformer/config.json"
    cp "$root"/tests/text/t5/* "$tiny/$name/text_encoder"
    cp "$root"/tests/text/tokenizer/* "$tiny/$name/tokenizer"
    runs memory ./cogvideo-train --model "$tiny/$name" --random --data random --frames 9 --size 96x64 $small --steps 1 \
        --save "$tiny/$name/transformer/diffusion_pytorch_model.safetensors"
done
cp -r "$cog" "$tiny/DIR"
for name in clip video videos/a; do cp "$root/examples/data/bunny.mp4" "$tiny/$name.mp4"; done
echo "a rabbit" | tee "$tiny/videos/a.txt" >"$tiny/prompts.txt"
echo a.mp4 >"$tiny/videos/images.txt"
echo clip.mp4 >"$tiny/videos.txt"
./text-encode $small --family cogvideox --model "$cog" --prompts "$tiny/prompts.txt" --output "$tiny/prompt.safetensors" \
    >"$work/out" 2>&1 || { grep -q "built without" "$work/out" && exit 77 || fail "$(cat "$work/out")"; }
runs . ./cogvideo-encode $small --model "$cog" --frames 9 --height 16 --width 32 --video "$tiny/clip.mp4" --output "$work/l"
cp "$work/l/clip.safetensors" "$tiny"
mkdir -p "$tiny/videos/cache/video_latent/cogvideox"
for size in 16x32 64x96; do
    runs . ./cogvideo-encode $small --model "$cog" --frames 9 --height "${size%x*}" --width "${size#*x}" --video "$tiny/videos/a.mp4" \
        --output "$tiny/videos/cache/video_latent/cogvideox/9x$size"
done
echo a.mp4 >"$tiny/videos/videos.txt"
cp "$tiny/prompts.txt" "$tiny/videos"

page() {
    fresh_home
    cp -r "$tiny"/* "$home"
    run_page "$@"
}
page doc/llmc.md 1
page doc/lm.md 8
page doc/cogvideo-vae.md 1
page doc/cogvideo.md 7
page doc/using.md 6
finish
