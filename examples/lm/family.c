/* SPDX-License-Identifier: Apache-2.0 */
/* The families of models, their presets, and what every model must fulfil: see config.h. */
#include <math.h>
#include <string.h>
#include "../common/adapters.h"
#include "../common/say.h"
#include "ckpt.h"
#include "config.h"

/* ---- families ------------------------------------------------------------------------------- */

/* PEFT has the names of the whole model, from which GPT-2's files leave out "transformer.". */
static const struct adapter_names gpt2_adapters = {
    .prefix = "base_model.model.transformer.", .blocks = "h.", .part = "attn."};
static const struct adapter_names llama_adapters = {
    .prefix = "base_model.model.", .blocks = "model.layers.", .part = "self_attn."};
static const struct adapter_names bert_adapters = {
    .prefix = "base_model.model.", .blocks = "bert.encoder.layer.", .part = "attention."};

#define LLAMA_LAYERS     "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"
#define ATTENTION_LAYERS "q_proj,k_proj,v_proj,o_proj"
#define PHI3_LAYERS      "qkv_proj,o_proj,gate_up_proj,down_proj"

/* clang-format off */
/* The names of Llama in files, and the recipe of llm.c. */
#define LLAMA                                                                                      \
    .rotary = true, .embedding = "model.embed_tokens.weight", .head = "lm_head.weight",            \
    .adapters = &llama_adapters, RECIPE
#define RECIPE .length = 1024, .warmup = 700, .lr = 6e-4, .weight_decay = 0.1, .beta2 = 0.95
#define SILU .activation = CKPT_NN_SILU
#define GEMMA                                                                                      \
    .norms = LM_NORMS_AROUND, .offset = true, .scaled = true, .tied = true, .grouped = true,       \
    .activation = CKPT_NN_GELU_TANH, .windows = LM_WINDOWS_PERIOD, .window = 4096,                 \
    .head_width = 256, .scalar = 256, .eps = 1e-6

static const struct lm_traits families[LM_FAMILIES] = {
    [LM_GPT2] = {"gpt2", "GPT-2", "GPT2LMHeadModel", .embedding = "wte.weight",
                 .head = "lm_head.weight", .prefix = "transformer.", .adapters = &gpt2_adapters,
                 .layers = "c_attn,c_proj,c_fc", RECIPE},
    [LM_BERT] = {"bert", "BERT", "BertForMaskedLM", .masked = true, .norms = LM_NORMS_LAST,
                 .embedding = "bert.embeddings.word_embeddings.weight",
                 .head = "cls.predictions.decoder.weight", .adapters = &bert_adapters,
                 .layers = "query,key,value,dense", .length = 512, .warmup = 10000, .lr = 1e-4,
                 .weight_decay = 0.01, .beta2 = 0.999},
    [LM_LLAMA] = {"llama", "Llama", "LlamaForCausalLM", LLAMA, SILU, .layers = LLAMA_LAYERS,
                  .eps = 1e-6, .theta = 1e4},
    [LM_MISTRAL] = {"mistral", "Mistral", "MistralForCausalLM", LLAMA, SILU,
                    .layers = LLAMA_LAYERS, .eps = 1e-6, .theta = 1e4, .grouped = true,
                    .windows = LM_WINDOWS_ALL, .window = 4096},
    [LM_QWEN2] = {"qwen2", "Qwen 2.5", "Qwen2ForCausalLM", LLAMA, SILU, .layers = LLAMA_LAYERS,
                  .eps = 1e-6, .theta = 1e4, .qkv_bias = true, .grouped = true,
                  .windows = LM_WINDOWS_FROM, .window = 4096},
    [LM_QWEN3] = {"qwen3", "Qwen 3", "Qwen3ForCausalLM", LLAMA, SILU, .layers = LLAMA_LAYERS,
                  .eps = 1e-6, .theta = 1e4, .qk_norm = LM_QK_HEAD, .grouped = true,
                  .head_width = 128, .windows = LM_WINDOWS_FROM, .window = 4096},
    [LM_GEMMA2] = {"gemma2", "Gemma 2", "Gemma2ForCausalLM", LLAMA, GEMMA,
                   .layers = LLAMA_LAYERS, .theta = 1e4, .period = 2, .cap = 50, .last_cap = 30},
    [LM_GEMMA3] = {"gemma3_text", "Gemma 3", "Gemma3ForCausalLM", LLAMA, GEMMA,
                   .layers = LLAMA_LAYERS, .theta = 1e6, .local_theta = 1e4, .period = 6,
                   .qk_norm = LM_QK_HEAD},
    [LM_PHI3] = {"phi3", "Phi-3", "Phi3ForCausalLM", LLAMA, SILU, .layers = PHI3_LAYERS,
                 .eps = 1e-5, .theta = 1e4, .fused = true, .windows = LM_WINDOWS_ALL},
    [LM_OLMO2] = {"olmo2", "OLMo 2", "Olmo2ForCausalLM", LLAMA, SILU, .layers = LLAMA_LAYERS,
                  .eps = 1e-5, .theta = 1e4, .norms = LM_NORMS_AFTER, .qk_norm = LM_QK_WHOLE},
    [LM_SMOLLM3] = {"smollm3", "SmolLM 3", "SmolLM3ForCausalLM", LLAMA, SILU,
                    .layers = LLAMA_LAYERS, .eps = 1e-6, .theta = 2e6, .tied = true,
                    .grouped = true, .windows = LM_WINDOWS_UNTURNED},
    [LM_QWEN3_MOE] = {"qwen3_moe", "Qwen 3 MoE", "Qwen3MoeForCausalLM", LLAMA, SILU,
                      .layers = ATTENTION_LAYERS, .eps = 1e-6, .theta = 1e4,
                      .qk_norm = LM_QK_HEAD, .grouped = true},
    [LM_GPT_OSS] = {"gpt_oss", "gpt-oss", "GptOssForCausalLM", LLAMA, SILU,
                    .layers = ATTENTION_LAYERS, .eps = 1e-5, .theta = 1.5e5, .sinks = true,
                    .grouped = true, .head_width = 64, .windows = LM_WINDOWS_PERIOD,
                    .window = 128, .period = 2},
};
/* clang-format on */

const struct lm_traits *lm_traits_of(enum lm_family family)
{
    return &families[family];
}

const struct lm_traits *lm_traits(const struct lm_config *c)
{
    return lm_traits_of(c->family);
}

/* ---- layers -------------------------------------------------------------------------------- */

static bool has_window(const struct lm_config *c, int64_t from, int64_t period, int64_t i)
{
    switch (lm_traits(c)->windows) {
    case LM_WINDOWS_NONE:
        return false;
    case LM_WINDOWS_ALL:
        return true;
    case LM_WINDOWS_FROM:
        return i >= from;
    case LM_WINDOWS_PERIOD:
        return period < 1 || (i + 1) % period;
    case LM_WINDOWS_UNTURNED:
        return c->layer[i] & LM_LAYER_UNTURNED;
    }
    return false;
}

void lm_layers_fill(struct lm_config *c, int64_t from, int64_t period)
{
    for (int64_t i = 0; i < LM_MOST_LAYERS && c->window; i++)
        if (has_window(c, from, period, i))
            c->layer[i] |= LM_LAYER_WINDOW;
}

/* ---- presets ------------------------------------------------------------------------------- */

struct preset {
    const char *name;
    enum lm_family family;
    int64_t vocabulary, positions, width, layers, heads, kv_heads, head, mlp;
    bool tied;
    double eps, theta;
    double factor;      /* of the scaling of Llama 3.1, or of Gemma 3's, which is linear; 0: none */
    int64_t window;     /* 0: none */
    int64_t begin, end; /* token ids; -1: none */
};

/* Published values, from each model's config.json. */
static const struct preset presets[] = {
    {"tiny", LM_GPT2, 256, 256, 128, 4, 4, 4, 32, 512, true, 1e-5, 0, 0, 0, -1, -1},
    {"tiny-llama", LM_LLAMA, 256, 256, 128, 4, 4, 2, 32, 384, false, 1e-5, 5e5, 0, 0, -1, -1},
    {"tiny-qwen", LM_QWEN2, 256, 256, 128, 4, 4, 2, 32, 384, true, 1e-6, 1e6, 0, 0, -1, -1},
    {"tiny-qwen3", LM_QWEN3, 256, 256, 128, 4, 4, 2, 32, 384, true, 1e-6, 1e6, 0, 0, -1, -1},
    {"tiny-mistral", LM_MISTRAL, 256, 256, 128, 4, 4, 2, 32, 384, false, 1e-5, 1e4, 0, 64, -1, -1},
    {"tiny-gemma2", LM_GEMMA2, 256, 256, 128, 4, 4, 2, 32, 384, true, 1e-6, 1e4, 0, 64, -1, -1},
    {"tiny-gemma3", LM_GEMMA3, 256, 256, 128, 6, 4, 1, 32, 384, true, 1e-6, 1e6, 0, 64, -1, -1},
    {"tiny-phi", LM_PHI3, 256, 256, 128, 4, 4, 4, 32, 384, false, 1e-5, 1e4, 0, 64, -1, -1},
    {"tiny-olmo", LM_OLMO2, 256, 256, 128, 4, 4, 4, 32, 384, false, 1e-6, 5e5, 0, 0, -1, -1},
    {"tiny-smollm3", LM_SMOLLM3, 256, 256, 128, 4, 4, 2, 32, 384, true, 1e-6, 5e6, 0, 0, -1, -1},
    {"tiny-qwen3-moe", LM_QWEN3_MOE, 256, 256, 128, 4, 4, 2, 32, 384, false, 1e-6, 1e6, 0, 0, -1,
     -1},
    {"tiny-gpt-oss", LM_GPT_OSS, 256, 256, 128, 4, 4, 2, 32, 96, false, 1e-5, 1.5e5, 0, 64, -1, -1},
    {"tiny-bert", LM_BERT, 260, 256, 128, 4, 4, 4, 32, 512, true, 1e-12, 0, 0, 0, -1, -1},
#define GPT2(name, width, layers, heads)                                                           \
    {                                                                                              \
        name, LM_GPT2, 50257, 1024, width, layers, heads, heads, 64, 4 * width, true, 1e-5, 0, 0,  \
            0, 50256, 50256                                                                        \
    }
    GPT2("gpt2-124M", 768, 12, 12),
    GPT2("gpt2-355M", 1024, 24, 16),
    GPT2("gpt2-774M", 1280, 36, 20),
    GPT2("gpt2-1558M", 1600, 48, 25),
    {"bert-base", LM_BERT, 30522, 512, 768, 12, 12, 12, 64, 3072, true, 1e-12, 0, 0, 0, -1, -1},
    {"bert-large", LM_BERT, 30522, 512, 1024, 24, 16, 16, 64, 4096, true, 1e-12, 0, 0, 0, -1, -1},
#define LLAMA3(name, width, layers, heads, head, mlp, tied, factor)                                \
    {                                                                                              \
        name, LM_LLAMA, 128256, 131072, width, layers, heads, 8, head, mlp, tied, 1e-5, 5e5,       \
            factor, 0, 128000, 128001                                                              \
    }
    LLAMA3("llama3.2-1B", 2048, 16, 32, 64, 8192, true, 32),
    LLAMA3("llama3.2-3B", 3072, 28, 24, 128, 8192, true, 32),
    LLAMA3("llama3.1-8B", 4096, 32, 32, 128, 14336, false, 8),
#define QWEN2(name, vocabulary, positions, width, layers, heads, kv, head, mlp, tied, eps)         \
    {                                                                                              \
        name, LM_QWEN2, vocabulary, positions, width, layers, heads, kv, head, mlp, tied, eps,     \
            1e6, 0, 0, 151643, 151643                                                              \
    }
    QWEN2("qwen2.5-0.5B", 151936, 32768, 896, 24, 14, 2, 64, 4864, true, 1e-6),
    QWEN2("qwen2.5-1.5B", 151936, 131072, 1536, 28, 12, 2, 128, 8960, true, 1e-6),
    QWEN2("qwen2.5-3B", 151936, 32768, 2048, 36, 16, 2, 128, 11008, true, 1e-6),
    QWEN2("qwen2.5-7B", 152064, 131072, 3584, 28, 28, 4, 128, 18944, false, 1e-6),
    QWEN2("qwen2.5-14B", 152064, 131072, 5120, 48, 40, 8, 128, 13824, false, 1e-5),
    QWEN2("qwen2.5-32B", 152064, 131072, 5120, 64, 40, 8, 128, 27648, false, 1e-5),
#define QWEN3(name, width, layers, heads, mlp, tied)                                               \
    {                                                                                              \
        name, LM_QWEN3, 151936, 40960, width, layers, heads, 8, 128, mlp, tied, 1e-6, 1e6, 0, 0,   \
            151643, 151645                                                                         \
    }
    QWEN3("qwen3-0.6B", 1024, 28, 16, 3072, true),
    QWEN3("qwen3-1.7B", 2048, 28, 16, 6144, true),
    QWEN3("qwen3-4B", 2560, 36, 32, 9728, true),
    QWEN3("qwen3-8B", 4096, 36, 32, 12288, false),
    {"qwen3-30B-A3B", LM_QWEN3_MOE, 151936, 40960, 2048, 48, 32, 4, 128, 6144, false, 1e-6, 1e6, 0,
     0, 151643, 151645},
    {"qwen3-235B-A22B", LM_QWEN3_MOE, 151936, 40960, 4096, 94, 64, 4, 128, 12288, false, 1e-6, 1e6,
     0, 0, 151643, 151645},
    {"gpt-oss-20b", LM_GPT_OSS, 201088, 131072, 2880, 24, 64, 8, 64, 2880, false, 1e-5, 1.5e5, 32,
     128, 199998, 200002},
    {"gpt-oss-120b", LM_GPT_OSS, 201088, 131072, 2880, 36, 64, 8, 64, 2880, false, 1e-5, 1.5e5, 32,
     128, 199998, 200002},
    {"mistral-7B-v0.1", LM_MISTRAL, 32000, 32768, 4096, 32, 32, 8, 128, 14336, false, 1e-5, 1e4, 0,
     4096, 1, 2},
    {"mistral-7B-v0.3", LM_MISTRAL, 32768, 32768, 4096, 32, 32, 8, 128, 14336, false, 1e-5, 1e6, 0,
     0, 1, 2},
    {"gemma2-2B", LM_GEMMA2, 256000, 8192, 2304, 26, 8, 4, 256, 9216, true, 1e-6, 1e4, 0, 4096, 2,
     1},
    {"gemma2-9B", LM_GEMMA2, 256000, 8192, 3584, 42, 16, 8, 256, 14336, true, 1e-6, 1e4, 0, 4096, 2,
     1},
    {"gemma3-270M", LM_GEMMA3, 262144, 32768, 640, 18, 4, 1, 256, 2048, true, 1e-6, 1e6, 0, 512, 2,
     1},
    {"gemma3-1B", LM_GEMMA3, 262144, 32768, 1152, 26, 4, 1, 256, 6912, true, 1e-6, 1e6, 0, 512, 2,
     1},
    {"gemma3-4B", LM_GEMMA3, 262208, 131072, 2560, 34, 8, 4, 256, 10240, true, 1e-6, 1e6, 8, 1024,
     2, 1},
    {"phi3-mini", LM_PHI3, 32064, 4096, 3072, 32, 32, 32, 96, 8192, false, 1e-5, 1e4, 0, 2047, 1,
     32000},
    {"olmo2-1B", LM_OLMO2, 100352, 4096, 2048, 16, 16, 16, 128, 8192, false, 1e-6, 5e5, 0, 0, -1,
     100257},
    {"olmo2-7B", LM_OLMO2, 100352, 4096, 4096, 32, 32, 32, 128, 11008, false, 1e-6, 5e5, 0, 0, -1,
     100257},
    {"smollm2-135M", LM_LLAMA, 49152, 8192, 576, 30, 9, 3, 64, 1536, true, 1e-5, 1e5, 0, 0, 0, 0},
    {"smollm2-360M", LM_LLAMA, 49152, 8192, 960, 32, 15, 5, 64, 2560, true, 1e-5, 1e5, 0, 0, 0, 0},
    {"smollm2-1.7B", LM_LLAMA, 49152, 8192, 2048, 24, 32, 32, 64, 8192, true, 1e-5, 1.3e5, 0, 0, 0,
     0},
    {"smollm3-3B", LM_SMOLLM3, 128256, 65536, 2048, 36, 16, 4, 128, 11008, true, 1e-6, 5e6, 0, 0,
     128000, 128012},
};

static void set_rope(struct lm_config *c, const struct preset *p)
{
    c->share = 1;
    c->rope[0] = (struct lm_rope){.theta = p->theta, .attention = 1};
    c->rope[1] = (struct lm_rope){.theta = families[p->family].local_theta, .attention = 1};
    if (p->factor > 0 && p->family == LM_GEMMA3) {
        c->rope[0].kind = LM_ROPE_LINEAR;
        c->rope[0].factor = p->factor;
    } else if (p->factor > 0 && p->family == LM_GPT_OSS) {
        c->rope[0] = (struct lm_rope){.kind = LM_ROPE_YARN,
                                      .theta = p->theta,
                                      .factor = p->factor,
                                      .low = 1,
                                      .high = 32,
                                      .attention = 0.1 * log(p->factor) + 1,
                                      .length = 4096};
    } else if (p->factor > 0) {
        c->rope[0].kind = LM_ROPE_LLAMA3;
        c->rope[0].factor = p->factor;
        c->rope[0].low = 1;
        c->rope[0].high = 4;
        c->rope[0].length = 8192;
    }
}

static void take_preset(struct lm_config *c, const struct preset *p)
{
    const struct lm_traits *f = &families[p->family];

    *c = (struct lm_config){.family = p->family,
                            .vocabulary = p->vocabulary,
                            .positions = p->positions,
                            .width = p->width,
                            .layers = p->layers,
                            .heads = p->heads,
                            .kv_heads = p->kv_heads,
                            .head = p->head,
                            .mlp = p->mlp,
                            .tied = p->tied,
                            .eps = p->eps,
                            .spread = 0.02,
                            .begin = p->begin,
                            .pad = -1,
                            .activation = f->activation,
                            .qkv_bias = f->qkv_bias,
                            .scale = f->scalar > 0 ? 1 / sqrt(f->scalar) : 0,
                            .cap = f->cap,
                            .last_cap = f->last_cap,
                            .window = p->window};
    if (p->family == LM_BERT)
        c->pad = p->vocabulary == 260 ? 256 : 0; /* tiny-bert has the bytes first */
    if (p->end >= 0)
        c->end = (struct lm_ids){1, {p->end}};
    set_rope(c, p);
    for (int64_t i = 3; i < LM_MOST_LAYERS && p->family == LM_SMOLLM3; i += 4)
        c->layer[i] = LM_LAYER_UNTURNED;
    lm_layers_fill(c, 0, f->period);
    lm_experts_preset(c, p->name);
}

int lm_config_preset(struct lm_config *c, const char *name)
{
    enum { N = sizeof presets / sizeof *presets };
    char all[1024] = "";
    size_t at = 0;

    for (int i = 0; i < N; i++) {
        if (!strcmp(name, presets[i].name)) {
            take_preset(c, &presets[i]);
            return 0;
        }
        at += (size_t)snprintf(all + at, sizeof all - at, "%s%s", i ? ", " : "", presets[i].name);
    }
    return say_fail("--model %s: no such preset and no config.json; the presets are %s", name, all);
}

/* ---- checks -------------------------------------------------------------------------------- */

int64_t lm_turned(const struct lm_config *c)
{
    return (int64_t)((double)c->head * c->share);
}

/* Of the rotary embedding. */
static int check_rope(const struct lm_config *c, const char *where)
{
    const struct lm_rope *r = &c->rope[0];
    int64_t turned = lm_turned(c);

    if (turned < 2 || turned % 2)
        return say_fail("%s: heads of width %lld: rotary embedding of %lld elements needs an even "
                        "width",
                        where, (long long)c->head, (long long)turned);
    if (turned < c->head && !lm_traits(c)->fused)
        return say_fail("%s: \"partial_rotary_factor\" %g is not supported in %s", where, c->share,
                        lm_traits(c)->title);
    if (r->kind == LM_ROPE_LONG && r->pairs != turned / 2)
        return say_fail("%s: longrope has %lld factors, and a head has %lld pairs", where,
                        (long long)r->pairs, (long long)turned / 2);
    return 0;
}

int lm_config_check(const struct lm_config *c, const char *where)
{
    if (c->heads < 1 || c->kv_heads < 1 || c->heads % c->kv_heads)
        return say_fail("%s: %lld heads are not a multiple of %lld heads of keys and values", where,
                        (long long)c->heads, (long long)c->kv_heads);
    if (c->head < 1 || (!lm_traits(c)->rotary && c->width % c->heads))
        return say_fail("%s: width %lld does not divide into %lld heads", where,
                        (long long)c->width, (long long)c->heads);
    return lm_experts_check(c, where) || (lm_traits(c)->rotary && check_rope(c, where)) ? -1 : 0;
}
