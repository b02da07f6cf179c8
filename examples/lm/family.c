/* SPDX-License-Identifier: Apache-2.0 */
/* The families of models, their presets, and what every model must fulfil: see config.h. */
#include <string.h>
#include "../common/adapters.h"
#include "../common/say.h"
#include "config.h"

/* ---- families ------------------------------------------------------------------------------- */

/* PEFT has the names of the whole model, from which GPT-2's files leave out "transformer.". */
static const struct adapter_names gpt2_adapters = {
    .prefix = "base_model.model.transformer.", .blocks = "h.", .part = "attn."};
static const struct adapter_names llama_adapters = {
    .prefix = "base_model.model.", .blocks = "model.layers.", .part = "self_attn."};
static const struct adapter_names bert_adapters = {
    .prefix = "base_model.model.", .blocks = "bert.encoder.layer.", .part = "attention."};

#define LLAMA_LAYERS "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"

static const struct lm_traits families[LM_FAMILIES] = {
    [LM_GPT2] = {"gpt2", "GPT-2", false, false, "wte.weight", "lm_head.weight", "transformer.",
                 &gpt2_adapters, "c_attn,c_proj,c_fc", 0, 1024, 700, 6e-4, 0.1, 0.95},
    [LM_LLAMA] = {"llama", "Llama", true, false, "model.embed_tokens.weight", "lm_head.weight",
                  NULL, &llama_adapters, LLAMA_LAYERS, 5e5, 1024, 700, 6e-4, 0.1, 0.95},
    [LM_QWEN2] = {"qwen2", "Qwen 2.5", true, false, "model.embed_tokens.weight", "lm_head.weight",
                  NULL, &llama_adapters, LLAMA_LAYERS, 1e6, 1024, 700, 6e-4, 0.1, 0.95},
    [LM_BERT] = {"bert", "BERT", false, true, "bert.embeddings.word_embeddings.weight",
                 "cls.predictions.decoder.weight", NULL, &bert_adapters, "query,key,value,dense", 0,
                 512, 10000, 1e-4, 0.01, 0.999},
};

const struct lm_traits *lm_traits_of(enum lm_family family)
{
    return &families[family];
}

const struct lm_traits *lm_traits(const struct lm_config *c)
{
    return lm_traits_of(c->family);
}

/* ---- presets ------------------------------------------------------------------------------- */

struct preset {
    const char *name;
    enum lm_family family;
    int64_t vocabulary, positions, width, layers, heads, kv_heads, head, mlp;
    bool tied;
    double eps, factor; /* factor: of the RoPE scaling; 0: none */
};

/* Published values, from each model's config.json. */
static const struct preset presets[] = {
    {"tiny", LM_GPT2, 256, 256, 128, 4, 4, 4, 32, 512, true, 1e-5, 0},
    {"tiny-llama", LM_LLAMA, 256, 256, 128, 4, 4, 2, 32, 384, false, 1e-5, 0},
    {"tiny-qwen", LM_QWEN2, 256, 256, 128, 4, 4, 2, 32, 384, true, 1e-6, 0},
    {"tiny-bert", LM_BERT, 260, 256, 128, 4, 4, 4, 32, 512, true, 1e-12, 0},
    {"gpt2-124M", LM_GPT2, 50257, 1024, 768, 12, 12, 12, 64, 3072, true, 1e-5, 0},
    {"gpt2-355M", LM_GPT2, 50257, 1024, 1024, 24, 16, 16, 64, 4096, true, 1e-5, 0},
    {"gpt2-774M", LM_GPT2, 50257, 1024, 1280, 36, 20, 20, 64, 5120, true, 1e-5, 0},
    {"gpt2-1558M", LM_GPT2, 50257, 1024, 1600, 48, 25, 25, 64, 6400, true, 1e-5, 0},
    {"bert-base", LM_BERT, 30522, 512, 768, 12, 12, 12, 64, 3072, true, 1e-12, 0},
    {"bert-large", LM_BERT, 30522, 512, 1024, 24, 16, 16, 64, 4096, true, 1e-12, 0},
    {"llama3.2-1B", LM_LLAMA, 128256, 131072, 2048, 16, 32, 8, 64, 8192, true, 1e-5, 32},
    {"llama3.2-3B", LM_LLAMA, 128256, 131072, 3072, 28, 24, 8, 128, 8192, true, 1e-5, 32},
    {"llama3.1-8B", LM_LLAMA, 128256, 131072, 4096, 32, 32, 8, 128, 14336, false, 1e-5, 8},
    {"qwen2.5-0.5B", LM_QWEN2, 151936, 32768, 896, 24, 14, 2, 64, 4864, true, 1e-6, 0},
    {"qwen2.5-1.5B", LM_QWEN2, 151936, 131072, 1536, 28, 12, 2, 128, 8960, true, 1e-6, 0},
    {"qwen2.5-3B", LM_QWEN2, 151936, 32768, 2048, 36, 16, 2, 128, 11008, true, 1e-6, 0},
    {"qwen2.5-7B", LM_QWEN2, 152064, 131072, 3584, 28, 28, 4, 128, 18944, false, 1e-6, 0},
    {"qwen2.5-14B", LM_QWEN2, 152064, 131072, 5120, 48, 40, 8, 128, 13824, false, 1e-5, 0},
    {"qwen2.5-32B", LM_QWEN2, 152064, 131072, 5120, 64, 40, 8, 128, 27648, false, 1e-5, 0},
};

static void take_preset(struct lm_config *c, const struct preset *p)
{
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
                            .theta = families[p->family].theta,
                            .spread = 0.02,
                            .scaling = {p->factor, 1, 4, 8192},
                            .begin = -1,
                            .pad = -1};
    if (p->family == LM_BERT)
        c->pad = p->vocabulary == 260 ? 256 : 0; /* tiny-bert has the bytes first */
    if (p->vocabulary == 50257)
        c->begin = 50256;
    if (p->vocabulary == 128256)
        c->begin = 128000;
    if (p->vocabulary > 128256)
        c->begin = 151643;
    if (c->begin >= 0)
        c->end = (struct lm_ids){1, {p->vocabulary == 128256 ? 128001 : c->begin}};
}

int lm_config_preset(struct lm_config *c, const char *name)
{
    enum { N = sizeof presets / sizeof *presets };
    char all[512] = "";
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

int lm_config_check(const struct lm_config *c, const char *where)
{
    if (c->heads < 1 || c->kv_heads < 1 || c->heads % c->kv_heads)
        return say_fail("%s: %lld heads are not a multiple of %lld heads of keys and values", where,
                        (long long)c->heads, (long long)c->kv_heads);
    if (c->head < 1 || (!lm_traits(c)->rotary && c->width % c->heads))
        return say_fail("%s: width %lld does not divide into %lld heads", where,
                        (long long)c->width, (long long)c->heads);
    if (lm_traits(c)->rotary && c->head % 2)
        return say_fail("%s: heads of width %lld: rotary embedding needs an even width", where,
                        (long long)c->head);
    return 0;
}
