/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of lm-train, and the parts that lm-sample shares. */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "ckpt_ops.h"
#include "ckpt_tools.h"
#include "chat_data.h"
#include "masked.h"
#include "options.h"
#include "../common/settings.h"
#include "../tokenizer/tokenizer.h"

#define ROW(...)   CKPT_OPTION(struct lm_options, __VA_ARGS__)
#define RANGE(...) CKPT_OPTION_RANGE(struct lm_options, __VA_ARGS__)

static const char usage[] =
    "Usage: lm-train [OPTION]...\n\n"
    "Trains GPT-2, Llama, Mistral, Qwen, Gemma, Phi, OLMo, SmolLM or BERT inside a memory\n"
    "budget.  Without options: a tiny GPT-2 on the bytes of the included text.\n"
    "\nExamples:\n  lm-train --model Qwen2.5-0.5B --load Qwen2.5-0.5B --data text.txt --vram "
    "8G --save-hf tuned\n"
    "  lm-train --model gpt2-124M --dtype bf16 --data \"train_*.bin\" --micro-batch auto "
    "--vram 16G\n"
    "  lm-train --model bert-large --dtype bf16 --data books.txt --tokenizer vocab.txt "
    "--whole-words --next-sentence --vram 8G\n"
    "  lm-train --model Qwen2.5-7B --load Qwen2.5-7B --data text.txt --dtype bf16 --lora-rank 16 "
    "--frozen nf4 --vram 12G --save adapter/adapter_model.safetensors\n";

static const struct ckpt_option table[] = {
    CKPT_OPTION_GROUP("Model"),
    LM_MODEL_ROWS,
    GRAD_DTYPE_ROW,
    CKPT_OPTION_GROUP("Data"),
    ROW("data", STRING, data, "FILES",
        "files of tokens (llm.c, LLMQ), text, or conversations (.jsonl, .json), as a shell "
        "pattern; "
        "random: random tokens "
        "(default: the included text with the tiny preset, else random)"),
    ROW("val", STRING, validation, "FILES", "files for validation, as for --data (default: none)"),
    LM_TEXT_ROWS,
    RANGE("length", COUNT, length, "N",
          "tokens of a sample; auto: the longest, in multiples of 128, that fits the budgets "
          "(default: the preset's)",
          1, 1 << 24),
    ROW("in-order", FLAG, in_order, NULL, "take samples in the order of the files"),
    CKPT_OPTION_GROUP("Conversations"),
    LM_TEMPLATE_ROW,
    ROW("pack", FLAG, pack, NULL,
        "put several conversations into a row, without attention from one to another"),
    ROW("balance", STRING, balance_name, "KIND",
        "with --pack, which rows of a step a rank computes: those with which the ranks' attention "
        "takes as long (time), as many tokens (tokens), or the next ones (none) (default none)"),
    ROW("too-long", STRING, too_long_name, "WHAT",
        "conversations longer than --length: refuse, cut or drop (default refuse)"),
    CKPT_OPTION_GROUP("Masks of BERT"),
    RANGE("mask-share", FLOAT, mask_share, "X", "share of the tokens to predict (default 0.15)",
          1e-6, 1),
    ROW("whole-words", FLAG, whole_words, NULL, "predict all tokens of a word together"),
    ROW("next-sentence", FLAG, next_sentence, NULL,
        "also predict whether the second part of a sample follows its first one, or is of another "
        "document"),
    PREFERENCE_ROWS,
    DISTILL_ROWS,
    CKPT_OPTION_GROUP("Adapters"),
    LORA_RANK_ROW("train only LoRA adapters of rank N (default: from --adapter or --resume, else "
                  "train all weights)"),
    LORA_ALPHA_ROW,
    LORA_KIND_ROWS,
    ROW("lora-targets", STRING, adapters.targets, "LIST",
        "layers with adapters, joined by commas: the last parts of their names, or patterns "
        "(default: from the file of adapters, else all linear layers of a block)"),
    ROW("lora-also", STRING, adapters.also, "LIST",
        "other layers that are trained as a whole, joined by commas: the last parts of their "
        "names, "
        "or patterns, such as norm,lm_head (default: from the file of adapters, else none)"),
    LM_ADAPTER_ROW,
    LORA_BASE_ROW,
    ROW("train-adapter", STRING, train_adapter, "NAME",
        "the one of several adapters that is trained; the others stay as they are (no default)"),
    ROW("frozen", STRING, adapters.frozen, "FORMAT",
        "with --lora-rank, storage of the matrices of the blocks: model (as --dtype), int8 (8-bit "
        "codes) or nf4 (4-bit codes) (default model)"),
    LORA_MERGE_ROW,
    WEIGHTS_ROWS,
    ROW("save-hf", STRING, to_hf, "DIR",
        "write the weights in the format of Hugging Face, too, with config.json, the "
        "tokenizer and generation_config.json; adapters are merged into them"),
    ROW("shard-size", SIZE, shard_size, "SIZE", "largest file of --save-hf (default 5G)"),
    BATCH_ROW("samples", ": the preset's"),
    STEPS_ROWS(": the preset's", ": the preset's", ": the preset's",
               "0.1; BERT 0.01; for matrices only", "0: none"),
    BETA2_ROW("0.95; BERT 0.999"),
    RANGE("loss-chunk", COUNT, loss_chunk, "N",
          "tokens whose scores are computed at a time, at most, in up to 64 equal chunks; auto: "
          "the number with the fastest step that fits (another number may change the last bits; "
          "default: up to 2^29 scores)",
          1, OPTION_MOST),
    CKPT_OPTION_GROUP("Validation and samples"),
    RANGE(
        "val-every", INT, validation_every, "N",
        "measure the loss of --val and the answers of --eval also every N steps (default: only at "
        "the end)",
        1, OPTION_MOST),
    RANGE("val-batches", INT, validation_batches, "N",
          "most batches of --val in each measurement (default 8)", 1, OPTION_MOST),
    ROW("eval", STRING, eval, "FILE",
        "questions with exact answers, objects with prompt or messages, and answer; the share that "
        "is answered exactly is measured with the loss of --val (default: none)"),
    RANGE("sample-every", INT, sample_every, "N",
          "generate text every N steps and at the end (default: never)", 1, OPTION_MOST),
    LM_SAMPLE_ROWS,
    LOG_ROWS("scores"),
    HELP_ROWS,
    {0},
};

/* ---- the model ----------------------------------------------------------------------------- */

/* Whether the name is a path: it contains '/', or is a directory or a .json file. */
static bool is_path(const char *name)
{
    struct stat st;

    return strchr(name, '/') ||
           (!stat(name, &st) && (S_ISDIR(st.st_mode) || strstr(name, ".json")));
}

static void take(int64_t *value, int64_t given)
{
    if (given)
        *value = given;
}

int lm_options_config(struct lm_options *o)
{
    struct lm_config *c = &o->config;
    bool grouped;

    if (o->train.load && settings_exists(o->train.load))
        return -1;
    if (is_path(o->model) ? lm_config_read(c, o->model) : lm_config_preset(c, o->model))
        return -1;
    grouped = c->kv_heads != c->heads;
    take(&c->width, o->hidden);
    take(&c->layers, o->layers);
    take(&c->heads, o->heads);
    take(&c->mlp, o->mlp);
    if (c->experts.count)
        take(&c->experts.inner, o->mlp);
    take(&c->vocabulary, o->vocabulary);
    if (o->hidden || o->heads)
        c->head = c->width / c->heads;
    if (o->heads && !grouped)
        c->kv_heads = o->heads;
    take(&c->kv_heads, o->kv_heads);
    if (!lm_traits(c)->rotary && c->kv_heads != c->heads)
        return say_fail("--kv-heads %lld: in %s each head has its own keys", (long long)o->kv_heads,
                        lm_traits(c)->title);
    c->pairs |= o->next_sentence;
    return lm_config_check(c, "the options");
}

bool lm_is_directory(const char *path)
{
    struct stat st;

    return path && !stat(path, &st) && S_ISDIR(st.st_mode);
}

bool lm_options_beside(const struct lm_options *o, const char *name, char path[4096])
{
    const char *const places[] = {o->train.load, o->model};

    for (int i = 0; i < 2; i++)
        if (lm_is_directory(places[i]) && snprintf(path, 4096, "%s/%s", places[i], name) < 4096 &&
            !access(path, F_OK))
            return true;
    return false;
}

const char *lm_options_tokenizer(const struct lm_options *o)
{
    if (o->tokenizer)
        return strcmp(o->tokenizer, "bytes") ? o->tokenizer : NULL;
    if (lm_is_directory(o->train.load) && tokenizer_is_in(o->train.load))
        return o->train.load;
    return lm_is_directory(o->model) && tokenizer_is_in(o->model) ? o->model : NULL;
}

int lm_options_check_bytes(const struct lm_options *o)
{
    const char *from = lm_is_directory(o->train.load) ? o->train.load : o->model;

    if (o->tokenizer || lm_options_tokenizer(o) || !lm_is_directory(from) ||
        o->config.vocabulary <= 256)
        return 0;
    return say_fail("%s: has no tokenizer.json, and its %lld tokens are more than bytes: give "
                    "--tokenizer FILE, or --tokenizer bytes",
                    from, (long long)o->config.vocabulary);
}

/* --tokenizer may be a directory, or a file under any name. */
bool lm_options_companion(const struct lm_options *o, const char *name, char path[4096])
{
    const char *tokenizer = lm_options_tokenizer(o), *slash;

    if (!strcmp(name, "generation_config.json") || !tokenizer)
        return strcmp(name, "generation_config.json") ? false : lm_options_beside(o, name, path);
    slash = strrchr(tokenizer, '/');
    if (lm_is_directory(tokenizer))
        snprintf(path, 4096, "%s/%s", tokenizer, name);
    else if (!strcmp(name, "tokenizer.json") && strcmp(slash ? slash + 1 : tokenizer, "vocab.json"))
        snprintf(path, 4096, "%s", tokenizer);
    else
        snprintf(path, 4096, "%.*s%s", slash ? (int)(slash - tokenizer) + 1 : 0, tokenizer, name);
    return !access(path, F_OK);
}

/* ---- training ------------------------------------------------------------------------------ */

struct recipe {
    int64_t batch, length, steps, warmup;
    double lr;
};

/* The tiny presets learn the bundled text; the others use published settings, for a few steps. */
static void fill_recipe(struct lm_options *o)
{
    const struct lm_traits *f = lm_traits(&o->config);
    bool tiny = !strncmp(o->model, "tiny", 4);
    struct recipe r = tiny ? (struct recipe){8, 128, 400, 20, 1e-3}
                           : (struct recipe){4, f->length, 10, f->warmup, f->lr};

    if (r.length > o->config.positions)
        r.length = o->config.positions;
    option_take(&o->length, r.length, 0);
    if (o->adapters.rank) /* few numbers are trained, and they begin as 0 */
        r.lr = 2e-4, r.warmup = 0;
    if (o->preference.loss && !tiny)
        r.lr = o->adapters.rank ? 1e-5 : 1e-6, r.warmup = 0;
    training_preset(&o->train, r.batch, r.steps, r.warmup, r.lr);
    if (o->train.weight_decay < 0)
        o->train.weight_decay = o->adapters.rank ? 0 : f->weight_decay;
    o->train.beta2 = o->train.beta2 < 0 ? f->beta2 : o->train.beta2;
    if (!o->data && !tiny)
        o->data = "random";
}

int64_t lm_options_targets(const struct lm_options *o)
{
    if (!lm_traits(&o->config)->masked)
        return o->length;
    return masking_count(masking_room(o->length, o->next_sentence), o->mask_share);
}

/* With --micro-batch auto the size is not known yet: anything from one sample to the batch. */
int64_t lm_options_tokens(const struct lm_options *o, bool largest)
{
    int64_t micro = o->library.micro_batch;

    if (micro == CKPT_AUTO)
        micro = largest ? 0 : 1;
    return (micro ? micro : o->train.batch) * lm_options_targets(o) *
           (o->preference.loss ? PREFERENCE_TEXTS : 1);
}

/* Whether some number of equal chunks of at most `chunk` tokens exists. */
static bool divides(int64_t tokens, int64_t chunk)
{
    for (int n = 1; n <= CKPT_MAX_PARTS; n++)
        if (tokens % n == 0 && tokens / n <= chunk)
            return true;
    return false;
}

/* A chunk divides the tokens of every micro-batch that may be chosen, and plans record its size. */
static int check_chunk(struct lm_options *o)
{
    int64_t chunk = o->loss_chunk, largest = lm_options_tokens(o, true),
            smallest = lm_options_tokens(o, false);

    if (chunk == CKPT_AUTO && o->library.plan_in)
        return say_fail("--loss-chunk auto with --plan-in: the plan is for one size; give that "
                        "size");
    if (chunk > largest)
        o->loss_chunk = largest;
    if (chunk > 0 && !divides(smallest, chunk))
        return say_fail("--loss-chunk %lld: %lld tokens of a micro-step do not divide into %d or "
                        "fewer equal chunks of at most that size",
                        (long long)chunk, (long long)smallest, CKPT_MAX_PARTS);
    return 0;
}

/* The options of masks are for masked models, and no text continues there. */
static int check_masks(struct lm_options *o)
{
    const struct lm_traits *f = lm_traits(&o->config);
    const char *given = o->mask_share > 0  ? "mask-share"
                        : o->whole_words   ? "whole-words"
                        : o->next_sentence ? "next-sentence"
                                           : NULL;
    enum { MOST_ROWS = 1 << 24 };

    if (!f->masked)
        return given ? say_fail("--%s: %s predicts the next token, and masks none; this option is "
                                "for BERT",
                                given, f->title)
                     : 0;
    o->mask_share = o->mask_share > 0 ? o->mask_share : 0.15;
    if (masking_room(o->length, o->next_sentence) < 1 + o->next_sentence)
        return say_fail("--length %lld: too short for the marks of a sample and its tokens",
                        (long long)o->length);
    if (lm_options_tokens(o, true) / lm_options_targets(o) > MOST_ROWS / o->length)
        return say_fail("--batch %lld: a micro-step has at most %d tokens; give --micro-batch N",
                        (long long)o->train.batch, MOST_ROWS);
    if (o->sample_every || o->eval)
        return say_fail("--%s: BERT fills in masked tokens, and continues no text; leave it out",
                        o->eval ? "eval" : "sample-every");
    return 0;
}

/* Options of conversations, in a run that reads none. */
static int check_conversations(const struct lm_options *o)
{
    const bool reads =
        (o->data && chat_is_data(o->data)) || (o->validation && chat_is_data(o->validation));

    if (o->too_long_name && o->preference.loss)
        return say_fail("--too-long: --loss %s cuts texts to --length", o->preference.name);
    if (o->too_long_name && !reads)
        return say_fail("--too-long: the data have no conversations");
    if (o->chat_template && !reads && !o->eval && !o->preference.loss)
        return say_fail("--chat-template: the data have no conversations, and no --eval FILE asks");
    return 0;
}

/* Packed rows of a micro-step are one sequence, whose places are exact numbers in fp32. */
static int check_pack(const struct lm_options *o)
{
    enum { MOST_TOKENS = 1 << 24 };

    if (o->pack && lm_traits(&o->config)->masked)
        return say_fail("--pack: BERT learns no conversations");
    if (o->pack && lm_traits(&o->config)->sinks)
        return say_fail("--pack: attention of %s has sinks, and they cannot have rows of several "
                        "samples; leave it out",
                        lm_traits(&o->config)->title);
    if (o->pack && o->preference.loss)
        return say_fail("--pack: --loss %s has samples of two texts", o->preference.name);
    if (o->balance && !o->pack)
        return say_fail("--balance is for rows of --pack: others all take equally long");
    if (o->balance && o->distill.from)
        return say_fail("--balance: --distill has its numbers in the order of the samples");
    if (o->pack && lm_options_tokens(o, true) > MOST_TOKENS)
        return say_fail("--pack: a micro-step has at most %d tokens; give --micro-batch N",
                        MOST_TOKENS);
    return 0;
}

int lm_options_adapters(struct lm_options *o, bool trains)
{
    struct adapter_options *a = &o->adapters;
    const char *from = o->train.state.from;

    if (lm_adapters_list(o, trains))
        return -1;
    if (o->adapter && o->others.n < 2 && from && strcmp(from, RESUME_AUTO))
        return say_fail("--resume and --adapter exclude each other: a state contains the adapters");
    if (o->adapter && !o->train.load && !from)
        return say_fail("--adapter %s is for the weights that it was trained on: give --load FILE",
                        o->adapter);
    if (adapter_options_read(a, lm_adapter_names(o), &o->train, o->adapter) ||
        adapter_options_check(a, "model"))
        return -1;
    if (o->config.experts.count && strcmp(a->frozen, "model") != 0)
        return say_fail("--frozen %s: there are no codes for experts, which %s has", a->frozen,
                        lm_traits(&o->config)->title);
    if (o->adapter && !a->file.n)
        return say_fail("--adapter: %s: %s", a->file.path,
                        access(a->file.path, F_OK) ? "no such file or directory"
                                                   : "there are no LoRA adapters in it");
    if (lm_adapters_read(o))
        return -1;
    if (a->rank && !a->file.n && a->alpha < 0)
        a->alpha = (double)a->rank;
    if (a->rank && !a->targets && !a->file.n)
        a->targets = lm_traits(&o->config)->layers;
    return 0;
}

/* ---- --length auto ------------------------------------------------------------------------ */

void lm_options_shorten(struct lm_options *o, int64_t tokens)
{
    if (tokens < o->longest)
        o->longest = o->length =
            tokens < LM_LENGTH_UNIT ? LM_LENGTH_UNIT : tokens / LM_LENGTH_UNIT * LM_LENGTH_UNIT;
}

static int check_one_length(const struct lm_options *o)
{
    const struct lm_traits *f = lm_traits(&o->config);

    if (f->masked)
        return say_fail("--length auto: documents of %s are cut before a plan is made; give "
                        "--length N",
                        f->title);
    if (o->train.state.from)
        return say_fail("--length auto with --resume: a state is for samples of one length; give "
                        "--length N, as its run printed it");
    if (o->library.plan_in)
        return say_fail("--length auto with --plan-in: the plan is for one length; give --length "
                        "N");
    if (o->sample_every || o->eval)
        return say_fail("--length auto with --%s: the caches of generated text have the length of "
                        "a sample; give --length N",
                        o->eval ? "eval" : "sample-every");
    if (o->preference.loss)
        return say_fail("--length auto with --loss %s: texts are cut before a plan is made; give "
                        "--length N",
                        o->preference.name);
    if (o->distill.from || o->distill.to)
        return say_fail("--length auto with --%s: its file is for samples of one length; give "
                        "--length N",
                        o->distill.from ? "distill" : "save-logits");
    if (o->config.positions < LM_LENGTH_UNIT)
        return say_fail("--length auto: chooses a multiple of %d, and the model has %lld "
                        "positions; give --length N",
                        LM_LENGTH_UNIT, (long long)o->config.positions);
    return 0;
}

/* A given chunk must divide the tokens of any length: see check_chunk. */
static int check_auto_length(struct lm_options *o)
{
    if (check_one_length(o))
        return -1;
    o->longest = INT64_MAX;
    lm_options_shorten(o, o->config.positions);
    const int64_t samples = lm_options_tokens(o, true) / o->length;
    if (o->loss_chunk > 0)
        lm_options_shorten(o, o->loss_chunk * CKPT_MAX_PARTS / samples);
    return 0;
}

/* What reads several texts at once, or rows by number, cannot have a rank's tokens alone. */
static int check_sequence(const struct lm_options *o)
{
    const char *with = lm_traits(&o->config)->masked ? "BERT fills in masked tokens"
                       : o->preference.loss          ? "--loss compares texts"
                       : o->distill.from || o->distill.to
                           ? "logits of a teacher are those of whole texts"
                       : o->config.experts.count > 0 ? "a layer of experts orders all tokens"
                       : o->balance != BALANCE_NONE  ? "--balance deals rows to single ranks"
                                                     : NULL;

    const int64_t n = o->library.sequence,
                  rest = n > 1 && !o->pack && o->length > 0 ? o->length % n : 0;

    if (rest)
        return say_fail("--sequence %lld: --length %lld does not divide into %lld equal parts; "
                        "%lld and %lld do",
                        (long long)n, (long long)o->length, (long long)n,
                        (long long)(o->length - rest), (long long)(o->length - rest + n));
    if (n < 2 || !with)
        return 0;
    return say_fail("--sequence %lld: %s; leave it out", (long long)o->library.sequence, with);
}

/* What reads weights that are not trained, or needs whole ones, cannot have a rank's part. */
static int check_tensor(const struct lm_options *o)
{
    const char *with = o->adapters.rank     ? "--lora-rank freezes the weights it splits"
                       : o->preference.loss ? "--loss compares with a frozen model"
                       : o->distill.from || o->distill.to ? "--distill needs whole models"
                       : o->config.experts.count > 0      ? "layers of experts are not split"
                       : o->sample_every || o->eval       ? "texts are continued by whole models"
                       : o->balance != BALANCE_NONE       ? "--balance deals rows to single ranks"
                       : o->library.qat                   ? "--qat rounds whole weights"
                                                          : NULL;

    if (o->library.tensor < 2 || !with)
        return 0;
    return say_fail("--tensor %lld: %s; leave it out", (long long)o->library.tensor, with);
}

/* Positions beyond those of the model would be read without an error where they are rotary. */
static int check(struct lm_options *o)
{
    if (o->length == CKPT_AUTO && check_auto_length(o))
        return -1;
    if (o->length > o->config.positions)
        return say_fail("--length %lld: the model has positions for %lld tokens",
                        (long long)o->length, (long long)o->config.positions);
    o->too_long = chat_too_long(o->too_long_name);
    if (o->too_long < 0 || balance_read(o->balance_name, &o->balance) || check_sequence(o) ||
        check_tensor(o) || check_conversations(o) || check_pack(o) || check_masks(o) ||
        distill_options_check(&o->distill, o->preference.loss ? o->preference.name : NULL,
                              lm_traits(&o->config)->masked, o->config.vocabulary) ||
        adapter_options_trained(&o->adapters, "model", &o->train, o->library.plan_only))
        return -1;
    if (o->validation_every && !o->validation && !o->eval)
        return say_fail("--val-every needs --val FILES or --eval FILE");
    if (o->shard_size < 1)
        return say_fail("--shard-size: give bytes, as 5G");
    if (o->to_hf &&
        (o->library.plan_only || (!o->train.steps && !o->train.load && !o->train.state.from)))
        return say_fail("--save-hf %s: nothing would be written: there is nothing to save",
                        o->to_hf);
    o->train.directory = o->to_hf;
    if (o->sample_every && lm_options_check_bytes(o))
        return -1;
    return training_check(&o->train, &o->library, o->dtype, o->train.batch) ? -1 : check_chunk(o);
}

struct training_files lm_files(const struct lm_options *o)
{
    return (struct training_files){
        .library = &o->library, .train = &o->train, .out = o->to_hf, .out_option = "--save-hf"};
}

struct option_reading lm_reading(struct option_reading r)
{
    static const char *const once[] = {"adapter", "several are one value, NAME=FILE,NAME=FILE"};

    r.once = once;
    return r;
}

struct option_reading lm_options_reading(struct lm_options *o)
{
    *o = (struct lm_options)LM_OPTIONS_INIT;
    return lm_reading((struct option_reading)OPTION_READING(o, table, usage, true));
}

int lm_options_check(void *options)
{
    struct lm_options *o = options;

    if (lm_recover(o) ||
        dtype_select(&o->dtype, &o->train.state, o->train.load, o->train.dtype_note) ||
        lm_options_config(o) || lm_options_generation(o) || lm_options_adapters(o, true) ||
        preference_options_check(&o->preference,
                                 o->adapters.rank && !o->adapters.also &&
                                     !o->adapters.file.n_whole && o->others.n < 2,
                                 lm_traits(&o->config)->masked))
        return -1;
    if (o->adapters.dropout > 0 && (o->preference.loss || o->pack))
        return say_fail("--lora-dropout %g: its draws follow from the number of a sample, which %s "
                        "has not",
                        o->adapters.dropout,
                        o->pack ? "a row of several (--pack)" : "a pair of texts (--loss)");
    if (o->preference.loss && o->eval)
        return say_fail("--eval: a run with --loss %s answers no questions; leave it out",
                        o->preference.name);
    if (o->distill.to && o->library.plan_only)
        return say_fail("--save-logits %s: --plan-only computes none", o->distill.to);
    if (o->preference.loss && o->config.balance > 0)
        return say_fail("--loss %s: it has no balance of experts; set \"output_router_logits\" to "
                        "false in config.json",
                        o->preference.name);
    fill_recipe(o);
    if (check(o))
        return -1;
    struct training_files files = lm_files(o);
    return outputs_asked(&files);
}
