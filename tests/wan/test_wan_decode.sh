#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# wan-decode and video-encode as a user or a script runs it, with both autoencoders: budgets and tiers change no byte,
# plans need no file, and wrong input gets one sentence and a status that is not 0.
set -u

. "${srcdir:-.}/tests/model/programs.sh"

decode=${WAN_DECODE:-./wan-decode} encode=${VIDEO_ENCODE:-./video-encode}

# both KIND SIZE FPS SIDE: clips of 6 x 4 cells, which are SIZE.
both() {
    rm -f "$work/x.rgb"
    kind=$1 size=$2 side=$4
    dir=$work/$kind/vae model="--model $work/$kind" x=$work/x.rgb
    mkdir -p "$dir"
    tests/wan/test_wan_vae model "$kind" "$dir" || fail "no model"
    clip="--latents $dir/clip"
    runs "17 frames of $size" "$decode" $model $clip --output "$work/back.rgb"
    head -n 1 "$work/back.rgb" | tr -d x | grep -q "^RGBCLIP .* 17 $3$" || fail "another clip came back"
    runs "1 frames of $size" "$decode" $model --latents "$dir/picture" --output "$work/picture.rgb"

    refuses 1 "needs at least" "$decode" $model --vram 64K $clip --output "$x"
    [ "$(wc -l <"$work/err")" = 3 ] || fail "a refusal is not three lines"
    [ -e "$x" ] && fail "$kind: a refused run left a file"
    runs "17 frames" "$decode" $model --vram "$(needed)" $clip --output "$x"
    cmp -s "$work/back.rgb" "$x" || fail "$kind: a budget changed the frames"
    runs "2 frames at a time, exact" "$decode" $model --slice 2 $clip --output "$x"
    cmp -s "$work/back.rgb" "$x" || fail "$kind: --slice changed the frames"
    refuses 1 "needs at least" "$decode" $model --vram 64K --host 256M $clip --output "$x"
    runs "17 frames" "$decode" $model --vram "$(needed)" --host 256M --verify $clip --output "$x"
    cmp -s "$work/back.rgb" "$x" || fail "$kind: offloading changed the frames"

    runs "one tile holds the whole frame, exact" "$decode" $model --tiling $clip --output "$x"
    cmp -s "$work/back.rgb" "$x" || fail "$kind: a single tile is not the whole frame"
    runs "blended where they overlap, approximate" "$decode" $model --tiling --latents "$dir/wide" --output "$x"
    runs "1 frames of 320 x" "$decode" $model --latents "$dir/wide" --output "$work/wide.rgb"
    cmp -s "$work/wide.rgb" "$x" && fail "$kind: tiles are exact"

    # A plan needs the shape of a clip and no file: the same plan as that of the file.
    runs "smallest possible" "$decode" $model $clip --plan-only
    grep peak "$work/out" >"$work/peak"
    shape=17x$((4 * side))x$((6 * side))
    runs "smallest possible" "$decode" $model --clip $shape --plan-only
    grep peak "$work/out" | cmp -s "$work/peak" - || fail "another plan: $(cat "$work/out")"
    refuses 1 "must be multiples of $side" "$decode" $model --clip 17x$((4 * side + 4))x64 --plan-only
    refuses 1 "2 latent frames are 5 frames" "$decode" $model --clip 7x32x64 --plan-only

    # The cache of a trainer.
    data="--data $root/examples/data/bunny.rgb --device cpu --output $work/$kind/cache"
    runs "1 clips, 17 frames" "$encode" $model $data --frames 17 --size "$(echo $size | tr -d " ")"
    grep -q '"family": "wan"' "$work/$kind/cache/manifest.json" || fail "$kind: a cache of another family"
    mkdir "$work/$kind/short"
    { echo "RGBCLIP 96 64 5 8" && head -c 92160 /dev/zero; } >"$work/$kind/short/a.rgb"
    # A photo is named among any number of short clips.
    for name in b c d; do cp "$work/$kind/short/a.rgb" "$work/$kind/short/$name.rgb"; done
    { echo "RGBCLIP 96 64 1 8" && head -c 18432 /dev/zero; } >"$work/$kind/short/photo.rgb"
    runs "whose last frame is repeated: 4: a.rgb, b.rgb, c.rgb and 1 more" "$encode" $model --data "$work/$kind/short" --device cpu \
        --frames 9 --size 96x64 --output "$work/$kind/repeated"
    grep -q "clips of one frame, .*: 1: photo.rgb" "$work/out" || fail "$kind: no photo is named: $(cat "$work/out")"
    runs "1 frames of 96 x 64 each" "$encode" $model --data "$work/$kind/short" --device cpu --frames 1 --size 96x64 --output "$work/$kind/stills"
    grep -q "clips of one frame" "$work/out" && fail "$kind: photos are named where photos are wanted"
    refuses 1 "encodes 1, 5, 9, ... frames" "$encode" $model $data.2 --frames 7 --size 96x64
    refuses 1 "multiples of $side" "$encode" $model $data.2 --frames 9 --size 100x64
}

both 2.1 "48 x 32" 16 8
both 2.2 "96 x 64" 24 16

# ---- plans of the published sizes ----------------------------------------------------------------------

# A clip of TI2V-5B under 12G, and with some caches on the host under 6G.
mkdir "$work/published"
sed -e 's/"base_dim": 8/"base_dim": 160/' -e 's/"decoder_base_dim": 16/"decoder_base_dim": 256/' \
    -e 's/"num_res_blocks": 1/"num_res_blocks": 2/' "$work/2.2/vae/config.json" >"$work/published/config.json"
plan="--model $work/published --clip 121x704x1280 --machine h100-80 --plan-only"
runs "nothing is recomputed, nothing waits for copies" "$decode" $plan --vram 12G
refuses 1 "no plan fits 6.00 GiB" "$decode" $plan --vram 6G
runs "offloaded to the host" "$decode" $plan --vram 6G --host 2G

# ---- what goes wrong ---------------------------------------------------------------------------------

# The two have other parameters, and other latents.
mkdir "$work/other"
refuses 1 "latents of 16 channels" "$decode" --model "$work/2.2" --latents "$work/2.1/vae/clip" --output "$x"
config() {
    cp "$work/2.1/vae/config.json" "$work/other"
    sed "$1" "$work/$2/vae/config.json" >"$work/other/config.json"
    refuses 1 "$3" "$decode" --model "$work/other" --latents "$work/$2/vae/clip" --output "$x"
}
cp "$work/2.1/vae/diffusion_pytorch_model.safetensors" "$work/other"
config "s/x/x/" 2.2 "diffusion_pytorch_model.safetensors"
config 's/AutoencoderKLWan/AutoencoderKLCogVideoX/' 2.1 'is not "AutoencoderKLWan"'
config 's/\[1, 2, 4, 4\]/[1, 2, 4]/' 2.1 '"dim_mult" is not \[1, 2, 4, 4\]'
config 's/\[false, true, true\]/[true, true, true]/' 2.1 '"temperal_downsample" is not'
config 's/"attn_scales": \[\]/"attn_scales": [1.0]/' 2.1 '"attn_scales"'
config 's/"z_dim": 16/"z_dim": 15/' 2.1 '"latents_mean" is not a list of 15'
config 's/latents_std/latents_deviation/' 2.1 '"latents_deviation"'
config 's/"latents_std": \[0.5/"latents_std": [0/' 2.1 '"latents_std" has at place 0'
config 's/"num_res_blocks": 1/"num_res_blocks": 9/' 2.1 '"num_res_blocks" is 9; up to 8'
config 's/"num_res_blocks": 1/"num_res_blocks": 2/' 2.1 "not the weights of this autoencoder"
config 's/"patch_size": 2/"patch_size": 1/' 2.2 '"in_channels" is 12; with the other settings it is 3'
config 's/"base_dim": 8/"base_dim": 7/' 2.1 '"decoder_base_dim" is odd'
config 's/^{/{"temporal_window": 1,/' 2.1 '"temporal_window"'
cp "$work/2.1/vae/config.json" "$work/other"
head -c 100000 "$work/2.1/vae/diffusion_pytorch_model.safetensors" \
    >"$work/other/diffusion_pytorch_model.safetensors"
refuses 1 "diffusion_pytorch_model.safetensors" "$decode" --model "$work/other" \
    --latents "$work/2.1/vae/clip" --output "$x"
rm "$work/other/config.json"
: >"$work/other/Wan2.1_VAE.pth"
refuses 1 "a pickle of PyTorch, which is not read" "$decode" --model "$work/other" \
    --latents "$work/2.1/vae/clip" --output "$x"
refuses 2 "has no config.json" "$encode" --model "$work/other" --data "$root/examples/data/bunny.rgb" --output "$work/none"
sed 's/AutoencoderKLWan/AutoencoderKL/' "$work/2.1/vae/config.json" >"$work/other/config.json"
refuses 2 'is not "AutoencoderKLCogVideoX" or "AutoencoderKLWan"' "$encode" --model "$work/other" \
    --data "$root/examples/data/bunny.rgb" --output "$work/none"
echo '{"_class_name": "WanModel", "model_type": "ti2v"}' >"$work/other/config.json"
refuses 2 "original release.*ends in -Diffusers" "$encode" --model "$work/other" --data "$root/examples/data/bunny.rgb" --output "$work/none"
refuses 1 "original release.*ends in -Diffusers" "$decode" --model "$work/other" --latents "$work/2.1/vae/clip" --output "$x"
refuses 1 "No such file" "$decode" --model "$work/no" --latents "$work/2.1/vae/clip" --output "$x"

finish
