/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of pt2-train. */
#include <string.h>
#include "../common/say.h"
#include "options.h"

const char say_program[] = "pt2-train";

#define ROW(...)   CKPT_OPTION(struct pt2_options, __VA_ARGS__)
#define RANGE(...) CKPT_OPTION_RANGE(struct pt2_options, __VA_ARGS__)

static const char usage[] =
    "Usage: pt2-train --model FILE.pt2 --data FILES [OPTION]...\n\n"
    "Trains a model that torch.export.save wrote inside a memory budget, on files with its\n"
    "inputs: safetensors or .npy.\n"
    "\nExamples:\n  pt2-train --model model.pt2 --data train --vram 8G --save tuned.safetensors\n"
    "  pt2-train --model model.pt2 --loss ce:0,label --data \"train-*.safetensors\" --frozen nf4 "
    "--lora-rank 8 --lora-targets q_proj,v_proj --save adapter_model.safetensors\n";

static const struct ckpt_option table[] = {
    CKPT_OPTION_GROUP("Model"),
    ROW("model", STRING, model, "FILE", "the archive, as torch.export.save writes it"),
    ROW("loss", STRING, loss, "LOSS",
        "the loss: an output, by its name or its number from 0; or KIND:OUTPUT,TARGET or "
        "KIND:TARGET (of output 0), where TARGET is a tensor of the data and KIND is mse, l1, "
        "huber, bce (of scores, not of probabilities) or ce (default: the model's own)"),
    ROW("dim", STRING, dim, "NAME=N",
        "sizes of dynamic dimensions, joined by commas: s17=8, or by an input and its axis, "
        "ids.1=128; NAME=batch: the one of the batch (default: the batch is axis 0, others are as "
        "in the data)"),
    GRAD_DTYPE_ROW,
    CKPT_OPTION_GROUP("Data"),
    ROW("data", STRING, data, "FILES",
        "a directory or a shell pattern of safetensors files with tensors called as the inputs, "
        "samples along axis 0, and of .npy files called INPUT.npy or INPUT-00001.npy"),
    ROW("shared", STRING, shared, "FILES",
        "such files with the inputs that all samples have in common, in their own shapes (default: "
        "none)"),
    ROW("keep-order", FLAG, keep_order, NULL,
        "take samples in the order of the files (default: shuffled in each epoch by --seed)"),
    CKPT_OPTION_GROUP("Trained weights"),
    ROW("freeze", STRING, freeze, "LIST",
        "patterns of names of parameters that are not trained, joined by commas (default: those "
        "that the model was exported with)"),
    ROW("lr-factors", STRING, lr_factors, "LIST",
        "PATTERN=FACTOR of learning rates, joined by commas; the last one that matches a name "
        "counts (default: 1)"),
    ROW("decay-factors", STRING, decay_factors, "LIST",
        "the same of the weight decay (default: 1 for matrices and kernels, 0 for others)"),
    LORA_RANK_ROW("train only LoRA adapters of rank N (default: train all weights)"),
    RANGE("lora-alpha", FLOAT, adapters.alpha, "X",
          "adapters are scaled by X divided by their rank (default: the rank)", 0, OPTION_REAL),
    ROW("lora-targets", STRING, adapters.targets, "LIST",
        "layers with adapters, joined by commas: the last parts of their names, or patterns (no "
        "default)"),
    ROW("frozen", STRING, adapters.frozen, "FORMAT",
        "storage of matrices that are not trained: model (as they are), int8 (8-bit codes) or nf4 "
        "(4-bit codes) (default model)"),
    LORA_MERGE_ROW,
    WEIGHTS_ROWS,
    ROW("save-pt2", STRING, save_pt2, "FILE",
        "write a copy of the archive with the trained weights at the end, adapters merged "
        "(default: not written)"),
    BATCH_ROW("samples", " 8; of an archive with fixed sizes: its own"),
    STEPS_ROWS(" 1000", " 1e-4", " 0", "0.01, for matrices only", "0: none"),
    BETA2_ROW("0.999"),
    CKPT_OPTION_GROUP("Validation"),
    ROW("val", STRING, validation, "FILES", "files for validation, as for --data (default: none)"),
    RANGE("val-every", INT, validation_every, "N",
          "measure the loss of --val also every N steps (default: only at the end)", 1,
          OPTION_MOST),
    LOG_ROWS("the first output"),
    HELP_ROWS,
    {0},
};

struct training_files pt2_files(const struct pt2_options *o)
{
    return (struct training_files){.library = &o->library, .train = &o->train};
}

/* ---- checks ---------------------------------------------------------------------------------- */

static int check_adapters(struct pt2_options *o)
{
    struct adapter_options *a = &o->adapters;

    if (a->rank && !a->targets)
        return say_fail("--lora-rank %lld: name the layers with --lora-targets LIST, as in "
                        "--lora-targets q_proj,v_proj; ckpt import %s --report lists them",
                        (long long)a->rank, o->model);
    if (adapter_options_check(a, "model"))
        return -1;
    if (a->rank && a->alpha < 0)
        a->alpha = (double)a->rank;
    if (adapter_options_directories(a, &o->train))
        return -1;
    if (a->rank && strcmp(a->frozen, "model") && o->save_pt2)
        return say_fail("--save-pt2 with --lora-rank and --frozen %s: codes cannot hold merged "
                        "weights: give --lora-merge FILE",
                        a->frozen);
    if (a->rank && (o->freeze || o->lr_factors || o->decay_factors))
        return say_fail("--freeze, --lr-factors and --decay-factors are for training all weights; "
                        "with --lora-rank only adapters are trained");
    if ((o->lr_factors || o->decay_factors) && !strcmp(o->train.optimizer, "muon"))
        return say_fail("--lr-factors and --decay-factors are not for --optimizer muon");
    return 0;
}

/* Files that are written at the end need an end. */
static int check_written(const struct pt2_options *o)
{
    const struct {
        const char *option, *path;
    } files[] = {{"save-pt2", o->save_pt2}, {"lora-merge", o->adapters.merge}};

    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (files[i].path &&
            (o->library.plan_only || (!training_has_steps(&o->train) && !o->train.load)))
            return say_fail("--%s %s: nothing would be written: %s", files[i].option, files[i].path,
                            o->library.plan_only ? "--plan-only ends before the first step"
                                                 : "there are no steps, and no --load");
    return 0;
}

static int check(struct pt2_options *o)
{
    struct training_files files = pt2_files(o);

    if (!o->model)
        return say_fail("give the archive with --model FILE.pt2");
    if (!o->data && !o->library.plan_only)
        return say_fail("give the inputs of the model with --data FILES");
    if (o->validation_every && !o->validation)
        return say_fail("--val-every needs --val FILES");
    if (check_adapters(o) || check_written(o))
        return -1;
    o->train.archive = o->save_pt2;
    /* The batch is checked when it is known. */
    return training_check(&o->train, &o->library, "bf16", 0) || outputs_asked(&files) ? -1 : 0;
}

int pt2_options_check_batch(const struct pt2_options *o)
{
    const int64_t micro = o->library.micro_batch;

    if (micro > 0 && o->train.batch % micro)
        return say_fail("--micro-batch %lld does not divide --batch %lld", (long long)micro,
                        (long long)o->train.batch);
    return 0;
}

struct option_reading pt2_options_reading(struct pt2_options *o)
{
    *o = (struct pt2_options){.adapters = {ADAPTER_DEFAULTS("model", "peft")},
                              .train = {TRAINING_DEFAULTS, .weight_decay = 0.01, .beta2 = 0.999},
                              .library = CKPT_OPTIONS_INIT};
    return (struct option_reading)OPTION_READING(o, table, usage, true);
}

int pt2_options_check(void *options)
{
    struct pt2_options *o = options;

    training_preset(&o->train, 0, 1000, 0, 1e-4);
    return check(o);
}
