/* SPDX-License-Identifier: Apache-2.0 */
/* The scenarios of torture.c. */
#ifndef TESTS_TORTURE_SCENARIOS_H
#define TESTS_TORTURE_SCENARIOS_H

#include <config.h>
#include <stdbool.h>
#include <stddef.h>

#define OPTIONS " --device cpu --threads 1"
#define SLOW    " --machine ^/tests/torture/slow.json"
#define TIERS   OPTIONS " --micro-batch 4096 --vram 8M --host 2M --nvme .:32M" SLOW
#define CUDA    " --device cuda --vram 128M"
/* The fake GPU uses no memory besides the arena, so this is the same budget. */
#define CUDA_TIERS " --device cuda --micro-batch 4096 --vram 76M --host 2M --nvme .:32M" SLOW
#define VAE        " --groups 2 --spatial-widths 4,4 --temporal-widths 4,4,4"
#define VAE_TRAIN                                                                                  \
    "vae-train" VAE " --size 16x8 --image-share 0 --stage 1 --lengths 1 --batch 1 --clips 1 "      \
    "--video ^/examples/data/bunny.rgb" OPTIONS
#define TINY_VAE                                                                                   \
    "vae-train --size 16x8 --image-share 0 --lengths 1 --batch 1 --clips 1 --steps 1 "             \
    "--video ^/examples/data/bunny.rgb --save vae" OPTIONS
#define DENOISER                                                                                   \
    " --model tiny --hidden 24 --heads 2 --depth 1 --caption-channels 8 --text-tokens 4"
#define STDIT "stdit-train" DENOISER " --latent 2x4x4 --sample-steps 0" OPTIONS

#define LM                                                                                         \
    "lm-train --hidden 16 --heads 2 --layers 1 --mlp 16 --length 8 --batch 1 --ema-decay 0.9 "     \
    "--data random" OPTIONS
#define VOLUME       " --data ^/tests/volume/reference.csv --classes 4 --levels 2 --width 4"
#define VOLUME_TRAIN "volume-train" VOLUME " --patch 8x8x8 --batch 1" OPTIONS
#define COGVIDEO                                                                                   \
    "cogvideo-train --model ^/tests/cogvideo/5b --snr-shift 1 "                                    \
    "--features ^/tests/cogvideo/5b/step.safetensors --batch 2" OPTIONS
/* The model lies where it was prepared. */
#define COGVIDEO_VAE " --model @" OPTIONS
#define RESUMES      " --resume state --save-state state --save w --log log"
#define WRITES       "pwrite write fwrite fclose"

#define SOCKETS                                                                                    \
    "malloc pthread_create open fopen socket setsockopt bind listen accept connect send recv "     \
    "poll getaddrinfo rename"

/* A scenario: `prepare` makes the file "before", and others that do not change; `run` finds it as
 * "state" and may replace it.  "@" stands for the folder in which prepare ran, "^" for the source
 * folder, "%" for a port of this run.  Ranks meet at an address, not at a file, which needs the
 * name of the machine: the C library ends the process if its name look-up has no memory. */
static const struct scenario {
    const char *name;
    const char *prepare[3];
    const char *run;
    const char *also;  /* orders for the shim that stand whatever else fails */
    int rank;          /* of two, which has the fault; -1: one alone */
    bool slow;         /* only with --all */
    bool alone;        /* a run takes all cores: one at a time */
    bool cuda;         /* on the fake of a GPU; left out where the CUDA device is not built.  The
                          others see none, whatever the machine has */
    const char *out;   /* what the run writes besides the state; NULL: "w" */
    bool varies;       /* of another content each time */
    const char *few;   /* kinds that are taken without --all; NULL: every one */
    bool heavy;        /* a run takes seconds, for planning: fewer calls are taken */
    const char *needs; /* left out if this program is not built */
} scenarios[] = {
    {.name = "job",
     .prepare = {"job 2 256 - state -" OPTIONS " --plan-out plan"},
     .run = "job 4 256 state state w" OPTIONS " --plan-in @/plan",
     .rank = -1},
    {.name = "save-async",
     .prepare = {"job 2 256 - state -" OPTIONS " --plan-out plan"},
     .run = "job 4 256 state state w" OPTIONS " --save-async --host 2M",
     .rank = -1},
    {.name = "tiers",
     .prepare = {"job 1 8192 - state -" TIERS " --plan-out plan"},
     .run = "job 2 8192 state state w" TIERS " --plan-in @/plan",
     .rank = -1},
    {.name = "tiers without io_uring",
     .prepare = {"job 1 8192 - state -" TIERS " --plan-out plan"},
     .run = "job 2 8192 state state w" TIERS " --plan-in @/plan",
     .also = "uring_init:1+",
     .rank = -1},
    {.name = "rank 0 of 2",
     .prepare = {"job 2 256 - state -" OPTIONS},
     .run = "job 4 128 state state w" OPTIONS " --ranks tcp:127.0.0.1:% --comm-deadline 1",
     .rank = 0,
     .few = SOCKETS},
    {.name = "rank 1 of 2",
     .prepare = {"job 2 256 - state -" OPTIONS},
     .run = "job 4 128 state state w" OPTIONS " --ranks tcp:127.0.0.1:% --comm-deadline 1",
     .rank = 1,
     .few = SOCKETS},
    {.name = "writes of rank 0 of 2",
     .prepare = {"job 2 256 - state -" OPTIONS},
     .run = "job 4 128 state state w" OPTIONS " --ranks tcp:127.0.0.1:% --comm-deadline 1",
     .rank = 0,
     .few = WRITES " rename"},
    {.name = "async writes of rank 1 of 2",
     .prepare = {"job 2 256 - state -" OPTIONS},
     .run = "job 4 128 state state w" OPTIONS
            " --ranks tcp:127.0.0.1:% --comm-deadline 1 --save-async --host 2M",
     .rank = 1,
     .few = WRITES " rename"},
    {.name = "stdit-train",
     .prepare = {STDIT " --steps 2 --save-state state --plan-out plan"},
     .run = STDIT " --steps 3 --resume state --save-state state --save w --log log --plan-in "
                  "@/plan",
     .rank = -1},
    {.name = "bf16",
     .prepare = {STDIT " --dtype bf16 --steps 2 --save-state state --plan-out plan"},
     .run = STDIT " --dtype bf16 --steps 3 --resume state --save-state state --save w --log log "
                  "--plan-in @/plan",
     .rank = -1,
     .few = "malloc calloc realloc fwrite"},
    {.name = "stdit-sample",
     .prepare = {TINY_VAE, STDIT " --steps 1 --save-state state --save-ema weights"},
     .run =
         "stdit-sample" DENOISER " --load @/weights --vae @/vae --size 16x8 --frames 1 --steps 2 "
         "--out ." OPTIONS,
     .out = "sample.png",
     .rank = -1,
     .few = "fwrite",
     .heavy = true},
    {.name = "vae-train",
     .prepare = {VAE_TRAIN " --steps 1 --save-state state --plan-out plan"},
     .run = VAE_TRAIN " --steps 2 --resume state --save-state state --save w --log log "
                      "--plan-in @/plan",
     .rank = -1,
     .few = "fwrite",
     .heavy = true},
    {.name = "vae-encode",
     .prepare = {VAE_TRAIN " --steps 1 --save-state state --save weights"},
     .run = "vae-encode" VAE " --load @/weights @/clip.rgb w" OPTIONS,
     .rank = -1,
     .few = "pwrite",
     .heavy = true},
    {.name = "vae-decode",
     .prepare = {VAE_TRAIN " --steps 1 --save-state state --save weights",
                 "vae-encode" VAE " --load weights @/clip.rgb latents" OPTIONS},
     .run = "vae-decode" VAE " --load @/weights @/latents w" OPTIONS,
     .rank = -1,
     .few = "fwrite",
     .heavy = true},
    {.name = "lm-train",
     .prepare = {LM " --steps 1 --save-state state"},
     .run = LM " --steps 2" RESUMES,
     .rank = -1,
     .few = WRITES},
    {.name = "lm-train --save-hf",
     .prepare = {LM " --steps 1 --save-state state"},
     .run = LM " --steps 2 --resume state --save-state state --save-hf w",
     .out = "w/model.safetensors",
     .rank = -1,
     .few = WRITES},
    {.name = "lm-train --keep",
     .prepare = {LM " --steps 1 --save-state state"},
     .run = LM " --steps 2 --resume state --save-state state --save w --save-every 1 --keep 1",
     .rank = -1,
     .few = WRITES},
    {.name = "volume-train",
     .prepare = {VOLUME_TRAIN " --steps 1 --save-state state"},
     .run = VOLUME_TRAIN " --steps 2" RESUMES,
     .rank = -1,
     .few = WRITES},
    {.name = "volume-infer",
     .prepare = {VOLUME_TRAIN " --steps 1 --save-state state --save weights"},
     .run = "volume-infer" VOLUME " --load @/weights --window 8x8x8 --out w" OPTIONS,
     .out = "w/reference.raw",
     .rank = -1,
     .few = WRITES},
    {.name = "cogvideo-train",
     .prepare = {COGVIDEO " --steps 1 --save-state state"},
     .run = COGVIDEO " --steps 2" RESUMES,
     .rank = -1,
     .few = WRITES},
    {.name = "cogvideo-sample",
     .prepare = {"job 1 256 - state -" OPTIONS},
     .run = "cogvideo-sample --model ^/tests/cogvideo/5b --snr-shift 1 "
            "--text ^/tests/cogvideo/5b/clip.safetensors --frames 5 --height 48 --width 80 "
            "--steps 1 --out w" OPTIONS,
     .out = "w/latents-1.safetensors",
     .rank = -1,
     .few = WRITES},
    {.name = "cogvideo-encode",
     .prepare = {"test_vae model .", "job 1 256 - state -" OPTIONS},
     .run = "cogvideo-encode --video @/clip.rgb --frames 1 --height 16 --width 16 --output "
            "w" COGVIDEO_VAE,
     .out = "w/clip.safetensors",
     .rank = -1,
     .few = WRITES,
     .needs = "test_vae"},
    {.name = "cogvideo-decode",
     .prepare = {"test_vae model .", "job 1 256 - state -" OPTIONS,
                 "cogvideo-encode --video clip.rgb --frames 1 --height 16 --width 16 --output "
                 "." COGVIDEO_VAE},
     .run = "cogvideo-decode --latents @/clip.safetensors --output w.rgb" COGVIDEO_VAE,
     .out = "w.rgb",
     .rank = -1,
     .few = WRITES,
     .needs = "test_vae"},
    {.name = "video-encode",
     .prepare = {TINY_VAE, "job 1 256 - state -" OPTIONS},
     .run = "video-encode --vae @/vae --vae-model tiny --data @/clip.rgb --size 16x8 --frames 1 "
            "--output w" OPTIONS,
     .out = "w/manifest.json",
     .rank = -1,
     .few = WRITES,
     .heavy = true},
#ifdef HAVE_SENTENCEPIECE
    {.name = "text-encode",
     .prepare = {"job 1 256 - state -" OPTIONS},
     .run = "text-encode --model ^/tests/text/t5 --tokenizer ^/tests/text/tokenizer --family "
            "cogvideox --prompts ^/AUTHORS --length 12 --output w" OPTIONS,
     .rank = -1,
     .few = WRITES},
#endif
    {.name = "ckpt plan",
     .prepare = {"job 1 256 - state -" OPTIONS " --graph-out graph"},
     .run = "ckpt plan --graph @/graph --vram 1200K --out w" SLOW,
     .rank = -1,
     .few = "malloc calloc realloc fopen fwrite fflush fclose"},
    {.name = "ckpt machine",
     .prepare = {"job 1 256 - state -" OPTIONS},
     .run = "ckpt machine --device cpu --out w",
     .rank = -1,
     .varies = true,
     .heavy = true,
     .slow = true,
     .alone = true},
    {.name = "ckpt info",
     .prepare = {"job 1 256 - state w" OPTIONS},
     .run = "ckpt info",
     .rank = -1},
    {.name = "cuda",
     .prepare = {"job 2 256 - state -" CUDA " --plan-out plan"},
     .run = "job 4 256 state state w" CUDA " --plan-in @/plan",
     .rank = -1,
     .cuda = true,
     .few = "cuda cublas"},
    {.name = "cuda tiers",
     .prepare = {"job 1 8192 - state -" CUDA_TIERS " --plan-out plan"},
     .run = "job 2 8192 state state w" CUDA_TIERS " --plan-in @/plan",
     .rank = -1,
     .cuda = true,
     .few = "cuda cublas"},
    {.name = "planning",
     .prepare = {"job 2 256 - state -" OPTIONS},
     .run = "job 4 256 state state w" OPTIONS " --vram 1200K --plan-out plan",
     .rank = -1,
     .slow = true},
};

#endif
