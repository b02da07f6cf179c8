/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_config.json, which may change what tokenizer.json says. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../common/json_keys.h"
#include "../common/say.h"
#include "read.h"

static const struct json_keys added_keys[] = {
    JSON_READ("content single_word lstrip rstrip normalized special"), JSON_END};

/* Chats, batches and what decoding tidies are of no use here. */
static const struct json_keys keys[] = {
    JSON_READ(
        "add_bos_token add_eos_token add_prefix_space bos_token eos_token unk_token pad_token "
        "sep_token cls_token mask_token additional_special_tokens added_tokens_decoder "
        "tokenizer_class legacy"),
    JSON_UNUSED(
        "model_max_length max_length max_len padding_side truncation_side truncation_strategy "
        "stride pad_to_multiple_of pad_token_type_id model_input_names "
        "tokenizer_file vocab_file merges_file processor_class name_or_path backend is_local "
        "special_tokens_map_file auto_map use_fast from_slow trust_remote_code "
        "transformers_version device_map local_files_only vocab_size pad_token_id "
        "bos_token_id eos_token_id unk_token_id revision cache_dir return_token_type_ids"),
    JSON_UNUSED("chat_template default_chat_template response_schema use_default_system_prompt "
                "clean_up_tokenization_spaces spaces_between_special_tokens errors "
                "sp_model_kwargs extra_ids extra_special_tokens fix_mistral_regex "
                "model_specific_special_tokens image_token video_token audio_token boi_token "
                "eoi_token vision_bos_token vision_eos_token"),
    JSON_ONLY("split_special_tokens do_lower_case", "false"), JSON_END};

/* What else BERT's class has; words that are never split are its special tokens. */
static const struct json_keys bert_keys[] = {
    JSON_READ("do_lower_case strip_accents tokenize_chinese_chars"),
    JSON_UNUSED("do_basic_tokenize"), JSON_ONLY("never_split", ""), JSON_MORE(keys), JSON_END};

/* The name of "bos_token" or another: a text, or an added token. */
static const char *name_of(const json_t *token)
{
    return json_string_value(json_is_object(token) ? json_object_get(token, "content") : token);
}

static int32_t find(const struct tokenizer_parts *p, const char *name)
{
    for (int32_t i = 0; i < p->vocabulary.n; i++)
        if (p->vocabulary.name[i] && !strcmp(p->vocabulary.name[i], name))
            return i;
    return -1;
}

static bool is_added(const struct tokenizer_parts *p, int32_t id)
{
    const struct added_list *lists[] = {&p->added, &p->added_normalized};

    for (int l = 0; l < 2; l++)
        for (int i = 0; i < lists[l]->n; i++)
            if (lists[l]->token[i].id == id)
                return true;
    return false;
}

/* Special tokens of the file that are plain tokens of tokenizer.json become added ones. */
static int put_special(struct tokenizer_parts *p, const char *path, const json_t *token)
{
    const char *name = name_of(token);
    int32_t id = name ? find(p, name) : -1;

    if (id < 0 || is_added(p, id))
        return 0;
    json_t *plain = json_pack("{ss,sb}", "content", name, "special", 1);
    int rc = plain ? parts_put_added(p, path, id, json_is_object(token) ? token : plain)
                   : say_fail("%s: no memory", path);
    json_decref(plain);
    return rc;
}

static int read_special(struct tokenizer_parts *p, const char *path, const json_t *root)
{
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};
    json_t *token;
    size_t i;
    int rc = 0;

    for (i = 0; i < sizeof names / sizeof *names && !rc; i++)
        rc = put_special(p, path, json_object_get(root, names[i]));
    json_array_foreach(json_object_get(root, "additional_special_tokens"), i, token)
    {
        rc = rc ? rc : put_special(p, path, token);
    }
    return rc;
}

static int read_added(struct tokenizer_parts *p, const char *path, const json_t *added)
{
    const char *id;
    json_t *token;
    int rc = 0;

    json_object_foreach((json_t *)added, id, token)
    {
        if (!rc && !(rc = json_keys_check(path, "added_tokens_decoder", token, added_keys)))
            rc = parts_put_added(p, path, strtoll(id, NULL, 10), token);
    }
    return rc;
}

static int put(struct tokenizer_parts *p, const char *path, const json_t *root, const char *adds,
               const char *key, struct ids *to)
{
    const char *name = name_of(json_object_get(root, key));
    int32_t id = name ? find(p, name) : -1;

    to->n = 0;
    if (!json_is_true(json_object_get(root, adds)) || !name)
        return 0;
    if (id < 0)
        return say_fail("%s: \"%s\" is %s, which is no token", path, key, name);
    return ids_add(to, id) ? say_fail("%s: no memory", path) : 0;
}

/* Either key replaces the post-processor of tokenizer.json. */
static int read_ends(struct tokenizer_parts *p, const char *path, const json_t *root)
{
    if (!json_is_boolean(json_object_get(root, "add_bos_token")) &&
        !json_is_boolean(json_object_get(root, "add_eos_token")))
        return 0;
    return put(p, path, root, "add_bos_token", "bos_token", &p->before) ||
                   put(p, path, root, "add_eos_token", "eos_token", &p->behind)
               ? -1
               : 0;
}

/* A file with a name beside tokenizer_config.json; false: there is none. */
static bool beside(const char *path, const char *name, char file[4096])
{
    const char *slash = strrchr(path, '/');

    return snprintf(file, 4096, "%.*s%s", slash ? (int)(slash - path) + 1 : 0, path, name) < 4096 &&
           !access(file, F_OK);
}

int tokenizer_config_open(struct tokenizer_parts *p, const char *path)
{
    if (!beside(path, "tokenizer_config.json", p->config_path))
        return 0;
    p->config = json_keys_read_wide(p->config_path);
    const struct json_keys *known = p->kind == MODEL_WORDPIECE ? bert_keys : keys;
    return p->config ? json_keys_check(p->config_path, "", p->config, known) : -1;
}

/* transformers 5 makes the parts of this class itself, whatever tokenizer.json has: blanks become
 * marks, and a text begins with one. */
static int make_llama(struct tokenizer_parts *p, const char *path)
{
    const json_t *legacy = json_object_get(p->config, "legacy");
    bool prefix = !json_is_false(json_object_get(p->config, "add_prefix_space"));

    normalizer_close(p->normalizer);
    splitter_close(p->splitter);
    p->normalizer = NULL;
    return splitter_metaspace(&p->splitter, path, prefix, !json_is_true(legacy));
}

/* So it does for BERT. */
static int make_bert(struct tokenizer_parts *p, const char *path)
{
    json_t *accents = json_object_get(p->config, "strip_accents");
    bool lower = !json_is_false(json_object_get(p->config, "do_lower_case"));
    bool apart = !json_is_false(json_object_get(p->config, "tokenize_chinese_chars"));
    json_t *part = json_pack("{ss,sb,sb,sO*}", "type", "BertNormalizer", "lowercase", lower,
                             "handle_chinese_chars", apart, "strip_accents", accents);

    normalizer_close(p->normalizer);
    p->normalizer = NULL;
    int rc = part ? normalizer_read(&p->normalizer, path, part) : say_fail("%s: no memory", path);
    json_decref(part);
    return rc;
}

/* The "model_type" of config.json beside the file, malloc'ed; NULL: there is none. */
static char *model_type(const char *path)
{
    char file[4096];
    json_t *config = beside(path, "config.json", file) ? json_keys_read(file) : NULL;
    const char *type = json_string_value(json_object_get(config, "model_type"));
    char *copy = type ? strdup(type) : NULL;

    json_decref(config);
    return copy;
}

int tokenizer_config_is_gpt2(const struct tokenizer_parts *p, const char *path)
{
    const char *class = json_string_value(json_object_get(p->config, "tokenizer_class"));
    char *type = model_type(path), file[4096];
    bool other = class ? strncmp(class, "GPT2Tokenizer", strlen("GPT2Tokenizer")) != 0
                       : type && strcmp(type, "gpt2") != 0;
    int rc = 0;

    if (other)
        rc = say_fail("%s: the tokenizer of %s splits text otherwise than GPT-2's: it needs a "
                      "tokenizer.json, which save_pretrained of transformers writes",
                      path, class ? class : type);
    else if (beside(path, "added_tokens.json", file))
        rc = say_fail("%s: is not read: the tokenizer needs a tokenizer.json, which "
                      "save_pretrained of transformers writes",
                      file);
    free(type);
    return rc;
}

static bool is_bert(const struct tokenizer_parts *p)
{
    const char *class = json_string_value(json_object_get(p->config, "tokenizer_class"));

    return p->kind == MODEL_WORDPIECE && p->config &&
           (!class || !strncmp(class, "BertTokenizer", strlen("BertTokenizer")));
}

/* Whether the class is that of Llama, and the model is no other one. */
static bool is_llama(const struct tokenizer_parts *p, const char *path)
{
    const char *class = json_string_value(json_object_get(p->config, "tokenizer_class"));
    bool named = class && !strncmp(class, "LlamaTokenizer", strlen("LlamaTokenizer"));
    char *type = model_type(path);
    bool is = p->bpe.model.falls_back && named && (!type || !strcmp(type, "llama"));

    free(type);
    return is;
}

int tokenizer_config_class(struct tokenizer_parts *p, const char *path)
{
    const json_t *prefix = json_object_get(p->config, "add_prefix_space");

    if (is_llama(p, path))
        return make_llama(p, path);
    if (is_bert(p))
        return make_bert(p, path);
    bool has = splitter_has_prefix(p->splitter) || normalizer_has_prefix(p->normalizer);
    if (json_is_boolean(prefix) && json_is_true(prefix) != has)
        return say_fail("%s: \"add_prefix_space\" is %s, and tokenizer.json says otherwise; make "
                        "them agree",
                        p->config_path, has ? "false" : "true");
    return 0;
}

int tokenizer_config_tokens(struct tokenizer_parts *p)
{
    const json_t *root = p->config;

    if (!root)
        return 0;
    return read_added(p, p->config_path, json_object_get(root, "added_tokens_decoder")) ||
                   read_special(p, p->config_path, root) || read_ends(p, p->config_path, root)
               ? -1
               : 0;
}
