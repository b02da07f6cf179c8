#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The commands and the program of README.md, on a CPU and at a tiny size.  The model that is only
# planned has its size there, so that "ckpt advise" prints what the page says: 10 CPU seconds.
. "${srcdir:-.}/tests/recipes/pages.sh"
small="--device cpu --threads 1"
home=$work/home
program ckpt
program lm-train $small --hidden 16 --heads 2 --layers 1 --mlp 32 --length 16 --batch 2 --steps 2 --sample-every 2
program stdit-train
program pt2-train $small --steps 2

# Without the cache, which doc/recipe-cogvideox.md makes.
stand_in cogvideo-train <<SH
[ "\$3 \$4" = "--cache cache" ] && [ "\$1" = --model ] && model=\$2 && shift 4 || exit 2
exec "$build/cogvideo-train" --model "\$model" "\$@" $small --random --data random --frames 9 --size 32x16 --batch 1 --steps 1
SH

# What is there before: a model's directory, an archive of PyTorch and its data.
mkdir "$home/CogVideoX-5b"
cp "$root/tests/cogvideo/5b/config.json" "$home/CogVideoX-5b"
gzip -dc "$root/tests/import/models/gpt2.pt2.gz" >"$home/model.pt2"
gzip -dc "$root/tests/import/models/gpt2.safetensors.gz" >"$work/reference"
mkdir "$work/samples"
tests/pt2/shards "$work/reference" "$work/samples" 8 1 || fail "no samples"
cp "$work/samples"/*.safetensors "$home/train.safetensors"
cp "$root/README.md" "$home"
printf '#!/bin/sh\necho demo\n' >"$home/bootstrap"
chmod +x "$home/bootstrap"

# The program is compiled as the page says.
flags=$(sed -n 's/^CFLAGS = //p; s/^SANITIZER_FLAGS = //p' Makefile | tr '\n' ' ')
stand_in pkg-config <<SH
echo "-I$root/runtime -L$build/.libs -Wl,-rpath,$build/.libs -lckpt -lm"
SH
stand_in cc <<SH
exec $(sed -n 's/^CC = //p' Makefile) -std=gnu11 $flags -Wall -Wextra -Werror "\$@"
SH
run_page README.md 4 says
for budget in none 4M; do
    runs "^loss 0" "$home/a.out" --vram $budget --device cpu
    cp "$work/out" "$work/$budget"
done
cmp -s "$work/none" "$work/4M" || fail "mlp.c: another loss under 4M: $(cat "$work/4M")"
refuses 1 "needs at least" "$home/a.out" --vram 1M --device cpu
finish
