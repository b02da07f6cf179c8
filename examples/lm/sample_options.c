/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of lm-sample. */
#include "ckpt_tools.h"
#include "options.h"

#define ROW(...)   CKPT_OPTION(struct lm_options, __VA_ARGS__)
#define RANGE(...) CKPT_OPTION_RANGE(struct lm_options, __VA_ARGS__)

static const char usage[] =
    "Usage: lm-sample [OPTION]... --load WEIGHTS\n\n"
    "Generates text with a model that lm-train knows, inside a memory budget.\n"
    "\nExamples:\n  lm-sample --load Qwen2.5-0.5B --prompt \"Once upon a time\"\n"
    "  lm-sample --load tuned --prompt \"Once\" --temperature 0 --sample-tokens "
    "64 --vram 4G\n  lm-sample --load Qwen2.5-0.5B-Instruct --chat \"Name three colours.\"\n";

static const struct ckpt_option table[] = {
    CKPT_OPTION_GROUP("Model"),
    ROW("load", STRING, train.load, "FILE",
        "weights (safetensors), or a Hugging Face model directory, whose config.json replaces "
        "--model"),
    PARTIAL_ROW(train.partial),
    LM_ADAPTER_ROW,
    LORA_BASE_ROW,
    ROW("use", STRING, use, "NAMES",
        "those of several adapters that are added, joined by commas (default: all)"),
    LM_MODEL_ROWS,
    CKPT_OPTION_GROUP("Text"),
    LM_TEXT_ROWS,
    RANGE("length", INT, length, "N",
          "tokens of context (default 1024, or fewer if the model has fewer positions)", 2,
          1 << 24),
    ROW("chat", STRING, chat, "TEXT",
        "instead of --prompt, a turn of a user, which goes through the chat template of the model "
        "(default: --prompt)"),
    ROW("messages", STRING, messages, "FILE",
        "instead of --prompt, a JSON file with an array of messages, or an object with "
        "\"messages\", to be answered (default: --prompt)"),
    LM_TEMPLATE_ROW,
    LM_SAMPLE_ROWS,
    HELP_ROWS,
    {0},
};

static int check(struct lm_options *o)
{
    if (lm_traits(&o->config)->masked)
        return say_fail("%s: BERT fills in masked tokens, and continues no text: give a model of "
                        "another family",
                        o->model);
    if (o->chat && o->messages)
        return say_fail("--chat and --messages exclude each other");
    if (o->chat_template && !o->chat && !o->messages)
        return say_fail("--chat-template needs --chat TEXT or --messages FILE");
    if (!o->train.load && !o->library.plan_only)
        return say_fail("--load FILE is missing: weights, or a model directory of Hugging Face");
    if (dtype_select_for(&o->dtype, o->train.load))
        return -1;
    option_take(&o->length, o->config.positions < 1024 ? o->config.positions : 1024, 0);
    if (o->length > o->config.positions)
        return say_fail("--length %lld: the model has positions for %lld tokens",
                        (long long)o->length, (long long)o->config.positions);
    if (!o->library.plan_only && lm_options_check_bytes(o))
        return -1;
    return outputs_untrained(&o->library);
}

int lm_sample_options_parse(struct lm_options *o, int argc, char **argv)
{
    const struct option_reading reading =
        lm_reading((struct option_reading)OPTION_READING(o, table, usage, false));

    *o = (struct lm_options)LM_OPTIONS_INIT;
    o->model = NULL;
    int rc = options_read(&reading, argc, argv);
    if (rc)
        return rc;
    if (!o->model)
        o->model = lm_is_directory(o->train.load) ? o->train.load : "tiny";
    return lm_recover(o) || lm_options_config(o) || lm_options_generation(o) || check(o) ||
                   lm_options_adapters(o, false)
               ? -1
               : 0;
}
