/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of text-encode. */
#include <string.h>
#include "../common/options.h"
#include "../common/outputs.h"
#include "../common/say.h"
#include "options.h"

#define ROW(...)   CKPT_OPTION(struct text_options, __VA_ARGS__)
#define RANGE(...) CKPT_OPTION_RANGE(struct text_options, __VA_ARGS__)

static const char usage[] =
    "Usage: text-encode [OPTION]... --model DIR --prompts FILE --family NAME "
    "--output FILE\n\n"
    "Encodes prompts with T5 or UMT5 for a video model, inside a memory budget.\n"
    "\nExamples:\n  text-encode --model t5-v1_1-xxl --prompts prompts.txt "
    "--family opensora --output text.safetensors\n"
    "  text-encode --model t5-v1_1-xxl --csv clips.csv --column text --family "
    "opensora --vram 8G --output text\n";

static const struct ckpt_option table[] = {
    CKPT_OPTION_GROUP("Options"),
    ROW("model", STRING, model, "DIR",
        "directory of T5 or UMT5 in the format of Hugging Face, or of a model with text_encoder/ "
        "and tokenizer/"),
    SPIECE_ROW(tokenizer, "--model"),
    ROW("prompts", STRING, prompts, "FILE", "text file with one prompt per line"),
    ROW("csv", STRING, csv, "FILE", "table with a column of prompts, in place of --prompts"),
    ROW("column", STRING, column, "NAME", "column of prompts in --csv (default text)"),
    ROW("family", STRING, family_name, "NAME",
        "opensora: cleaned prompts of 300 tokens, with a mask; cogvideox: unchanged prompts of 226 "
        "tokens, without a mask; wan: 512 tokens of UMT5, zeros after the prompt (no default)"),
    RANGE("length", INT, length, "N", "tokens of a prompt (default: from --family)", 1, 65536),
    RANGE("batch", INT, batch, "N", "prompts per forward pass (default 16)", 1, 65536),
    ROW("dtype", STRING, dtype, "TYPE",
        "dtype of weights, activations and features: fp32 or bf16 (default bf16)"),
    ROW("output", STRING, output, "FILE", "file for the features (safetensors)"),
    RANGE("shard", INT, shard, "N",
          "write one file per N prompts, NAME-00001-of-00003.safetensors and so on (default: one "
          "file)",
          1, 1000000000),
    ROW("resume", FLAG, resume, NULL,
        "keep existing files that contain the features of these prompts"),
    HELP_ROWS,
    {0},
};

static int check_files(const struct text_options *o)
{
    const struct ckpt_path all[] = {
        {"--tokenizer", o->tokenizer, CKPT_PATH_INPUT, 0},
        {"--prompts", o->prompts, CKPT_PATH_INPUT, 0},
        {"--csv", o->csv, CKPT_PATH_INPUT, 0},
        {"--output", o->library.plan_only ? NULL : o->output, CKPT_PATH_FILE, 0},
    };

    return outputs_take(&o->library, all, sizeof all / sizeof *all);
}

/* A plan reads and writes no files, so it needs no names of them. */
static int check(struct text_options *o)
{
    if (!o->model)
        return say_fail("--model DIR is missing: the text encoder");
    if (text_family(o->family_name, &o->family) || option_dtype("dtype", o->dtype))
        return -1;
    if (!o->library.plan_only && !o->prompts == !o->csv)
        return say_fail("give one of --prompts FILE and --csv FILE");
    if (o->column && !o->csv)
        return say_fail("--column %s is for --csv FILE", o->column);
    if (!o->library.plan_only && !o->output)
        return say_fail("--output FILE is missing: the file for the features");
    option_take(&o->length, text_reading(o->family).length, 0);
    return outputs_untrained(&o->library) || check_files(o) ? -1 : 0;
}

const char *text_options_tokenizer(const struct text_options *o, char path[4096])
{
    return o->tokenizer ? o->tokenizer : text_tokenizer_path(o->model, path);
}

int text_options_parse(struct text_options *o, int argc, char **argv)
{
    const struct option_reading reading = OPTION_READING(o, table, usage, false);

    *o = (struct text_options){.dtype = "bf16", .batch = 16, .library = CKPT_OPTIONS_INIT};
    int rc = options_read(&reading, argc, argv);
    if (rc)
        return rc;
    return check(o);
}
