/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks and scales of adapters in the words of other programs: PEFT's LoraConfig, as its
 * adapter_config.json and diffusers' metadata have it, and kohya's metadata.
 */
#include <ctype.h>
#include <math.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "json_keys.h"
#include "say.h"
#include "ckpt_files.h"
#include "adapters.h"

#define NOTE   "lora_adapter_metadata"
#define PREFIX "transformer."
#define PEFT   "base_model.model."

enum { DEFAULT = 8 }; /* r and lora_alpha of LoraConfig */

/* Which layers have adapters is in the tensors. */
static const struct json_keys known[] = {
    JSON_READ("r lora_alpha rank_pattern alpha_pattern use_rslora use_dora lora_dropout "
              "modules_to_save"),
    JSON_UNUSED("target_modules exclude_modules layers_to_transform layers_pattern task_type "
                "base_model_name_or_path revision auto_mapping "
                "peft_version inference_mode runtime_config megatron_core "
                "qalora_group_size ensure_weight_tying merge_weights "
                /* of weights that are stored turned, as GPT-2's: the factors are the same */
                "fan_in_fan_out"),
    JSON_ONLY("peft_type", "LORA"), JSON_ONLY("bias", "none"),
    JSON_ONLY("lora_bias use_qalora", "false"),
    /* all others change the weights below, or the training decides how */
    JSON_ONLY("init_lora_weights", "true|false|gaussian|orthogonal"),
    JSON_ONLY("layer_replication target_parameters trainable_token_indices loftq_config eva_config "
              "corda_config lora_ga_config velora_config monteclora_config megatron_config "
              "use_bdlora arrow_config kasa_config alora_invocation_tokens enable_lora",
              ""),
    JSON_END};

/* ---- reading -------------------------------------------------------------------------------- */

static int check(struct adapter_file *l)
{
    char where[sizeof l->path + sizeof l->note + 2];

    snprintf(where, sizeof where, "%s: %s", l->path, l->note);
    return l->settings ? json_keys_check(where, "", l->settings, known)
                       : say_fail("%s is not JSON", where);
}

/* Takes the prefix of diffusers from the keys. */
static json_t *without_prefix(json_t *all)
{
    json_t *own = json_object(), *value;
    const char *key;

    json_object_foreach(all, key, value)
    {
        const bool has = !strncmp(key, PREFIX, strlen(PREFIX));
        if (json_object_set(own, has ? key + strlen(PREFIX) : key, value)) {
            json_decref(own);
            own = NULL;
            break;
        }
    }
    json_decref(all);
    return own;
}

static int read_metadata(struct adapter_file *l, const char *text)
{
    json_t *all = json_loads(text, JSON_REJECT_DUPLICATES, NULL);

    snprintf(l->note, sizeof l->note, NOTE);
    l->settings = json_is_object(all) ? without_prefix(all) : all;
    return check(l);
}

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* Returns 1 if there is no such file. */
static int read_beside(struct adapter_file *l)
{
    char path[sizeof l->path + sizeof LORA_PEFT_CONFIG];
    const int stem = (int)(file_name(l->path) - l->path);

    snprintf(path, sizeof path, "%.*s" LORA_PEFT_CONFIG, stem, l->path);
    if (access(path, F_OK))
        return 1;
    snprintf(l->note, sizeof l->note, LORA_PEFT_CONFIG);
    l->settings = json_keys_read(path);
    return l->settings ? check(l) : -1;
}

/* A state has the options of its run; alphas that differ from --lora-alpha are in a note of their
 * own. */
static int read_state(struct adapter_file *l, const ckpt_file *f)
{
    const char *alpha = ckpt_file_note(f, CKPT_STATE_NOTE "lora-alpha");
    const char *others = ckpt_file_note(f, CKPT_STATE_NOTE LORA_ALPHAS);
    const char *targets = ckpt_file_note(f, CKPT_STATE_NOTE "lora-targets");

    const char *rank = ckpt_file_note(f, CKPT_STATE_NOTE "lora-rank");
    const char *dropout = ckpt_file_note(f, CKPT_STATE_NOTE "lora-dropout");
    const char *also = ckpt_file_note(f, CKPT_STATE_NOTE "lora-also");
    const char *rooted = ckpt_file_note(f, CKPT_STATE_NOTE "lora-rs");

    snprintf(l->note, sizeof l->note, "options");
    l->rank = rank ? strtoll(rank, NULL, 10) : l->rank;
    snprintf(l->targets, sizeof l->targets, "%s", targets ? targets : "");
    snprintf(l->also, sizeof l->also, "%s", also && strcmp(also, "none") ? also : "");
    l->alpha = alpha ? strtod(alpha, NULL) : NAN;
    l->rooted = rooted && !strcmp(rooted, "yes");
    l->dropout = dropout ? strtod(dropout, NULL) : 0;
    l->settings = alpha ? json_pack("{sf}", "lora_alpha", l->alpha) : json_object();
    json_t *pattern = others ? json_loads(others, 0, NULL) : NULL;
    if (!l->settings || (pattern && json_object_set_new(l->settings, "alpha_pattern", pattern)))
        return say_fail("%s: no memory for its options", l->path);
    return 0;
}

/* PEFT reads a file of its name by the settings beside it, whatever else the file says. */
int adapter_settings(struct adapter_file *l, const ckpt_file *f)
{
    const bool own = !strcmp(file_name(l->path), LORA_PEFT_FILE);
    const bool peft = l->n && !strncmp(l->layer[0].name, PEFT, strlen(PEFT));
    const char *text = ckpt_file_note(f, NOTE), *network = ckpt_file_note(f, "ss_network_alpha");
    char *end;
    int rc = 1;

    const char *base = ckpt_file_note(f, l->is_state ? CKPT_STATE_NOTE LORA_BASE : LORA_BASE);

    snprintf(l->base, sizeof l->base, "%s", base ? base : "");
    if (l->is_state)
        return read_state(l, f);
    if (own)
        rc = read_beside(l);
    if (rc > 0 && text)
        rc = read_metadata(l, text);
    if (rc > 0 && peft)
        rc = read_beside(l);
    l->network = network ? strtod(network, &end) : NAN;
    if (network && (end == network || *end))
        l->network = NAN;
    return rc < 0 ? -1 : 0;
}

/* ---- patterns ------------------------------------------------------------------------------- */

/* Whether a pattern of Python means the same to regcomp. */
static bool is_plain(const char *p)
{
    for (; *p; p++) {
        if (*p == '\\' && (isalnum((unsigned char)p[1]) || !p[1]))
            return false;
        if (*p == '\\')
            p++;
        else if (strchr("(*+?}", *p) && p[1] == '?')
            return false;
    }
    return true;
}

/* 1: the pattern of PEFT is for this layer; 0: it is not; -1 after an error message. */
static int matches(const struct adapter_file *l, const char *pattern, const char *layer)
{
    char whole[1024];
    regex_t r;

    if (snprintf(whole, sizeof whole, "^(.*\\.)?(%s)$", pattern) >= (int)sizeof whole ||
        !is_plain(pattern) || regcomp(&r, whole, REG_EXTENDED | REG_NOSUB))
        return say_fail("%s: %s: the pattern \"%.200s\" is not supported; write out the layers",
                        l->path, l->note, pattern);
    int found = !regexec(&r, layer, 0, NULL, 0);
    regfree(&r);
    return found;
}

/* Finds a number of a layer: from the first pattern that matches, else under `key`.  Returns 0, or
 * -1 after an error message. */
static int find_number(const struct adapter_file *l, const char *patterns, const char *key,
                       const char *layer, double *to)
{
    const json_t *found = json_object_get(l->settings, key);
    json_t *all = json_object_get(l->settings, patterns), *value;
    const char *pattern;
    int rc = 0;

    json_object_foreach(all, pattern, value)
    {
        rc = matches(l, pattern, layer);
        if (rc) {
            found = value;
            break;
        }
    }
    if (!found || json_is_null(found))
        *to = l->is_state ? NAN : DEFAULT;
    else
        *to = json_is_number(found) ? json_number_value(found) : NAN;
    if (rc < 0 || isfinite(*to) || l->is_state)
        return rc < 0 ? -1 : 0;
    return say_fail("%s: %s: \"%s\" is not a number for %s", l->path, l->note, key, layer);
}

/* ---- layers that are trained as a whole ------------------------------------------------------ */

/* Whether the name of the layer, or of one that it is in, ends so, as PEFT compares: norm is also
 * input_layernorm. */
static bool is_called(const char *layer, size_t n, const char *name)
{
    const size_t m = strlen(name);

    for (size_t i = 0; m && i + m <= n; i++)
        if (!strncmp(layer + i, name, m) && (i + m == n || layer[i + m] == '.'))
            return true;
    return false;
}

bool adapter_is_whole(const struct adapter_file *l, const char *tensor)
{
    const json_t *all = json_object_get(l->settings, "modules_to_save"), *value;
    const char *dot = strrchr(tensor, '.');
    size_t i;

    json_array_foreach(all, i, value) if (dot && json_is_string(value) &&
                                          is_called(tensor, (size_t)(dot - tensor),
                                                    json_string_value(value))) return true;
    return false;
}

/* ---- scales --------------------------------------------------------------------------------- */

static int check_rank(const struct adapter_file *l, const struct adapter_layer *x)
{
    double rank = DEFAULT;

    if (l->is_state)
        return 0;
    if (find_number(l, "rank_pattern", "r", x->model, &rank))
        return -1;
    if (rank != (double)x->rank)
        return say_fail("%s: %s: \"r\" gives %s the rank %g, but its tensors have rank %lld",
                        l->path, l->note, x->model, rank, (long long)x->rank);
    return 0;
}

static bool is_probability(const json_t *v)
{
    return json_is_number(v) && json_number_value(v) >= 0 && json_number_value(v) < 1;
}

static bool is_names(const json_t *v)
{
    const json_t *name;
    size_t i;

    json_array_foreach(v, i, name) if (!json_is_string(name)) return false;
    return json_is_array(v);
}

static bool is_switch(const json_t *v)
{
    return json_is_boolean(v);
}

static bool is_object(const json_t *v)
{
    return json_is_object(v);
}

/* Settings of another type than PEFT's. */
static int check_types(const struct adapter_file *l)
{
    static const struct {
        const char *key;
        bool (*is)(const json_t *v);
        const char *what;
    } types[] = {{"use_rslora", is_switch, "neither true nor false"},
                 {"use_dora", is_switch, "neither true nor false"},
                 {"rank_pattern", is_object, "not an object of layers and numbers"},
                 {"alpha_pattern", is_object, "not an object of layers and numbers"},
                 {"lora_dropout", is_probability, "no probability below 1"},
                 {"modules_to_save", is_names, "not a list of names"}};

    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const json_t *v = json_object_get(l->settings, types[i].key);
        if (v && !json_is_null(v) && !types[i].is(v))
            return say_fail("%s: %s: \"%s\" is %s", l->path, l->note, types[i].key, types[i].what);
    }
    return 0;
}

/* What the settings say of DoRA is what the tensors are. */
static int check_dora(const struct adapter_file *l)
{
    const json_t *given = json_object_get(l->settings, "use_dora");

    if (l->is_state || !given || json_is_null(given) || json_is_true(given) == l->dora)
        return 0;
    return say_fail("%s: %s: \"use_dora\" is %s, and its tensors have %s lora_magnitude_vector",
                    l->path, l->note, l->dora ? "false" : "true", l->dora ? "a" : "no");
}

int adapter_scale(struct adapter_file *l)
{
    const bool rooted = json_is_true(json_object_get(l->settings, "use_rslora"));

    if (check_types(l) || check_dora(l))
        return -1;
    if (!l->is_state)
        l->dropout = json_number_value(json_object_get(l->settings, "lora_dropout"));
    for (int i = 0; i < l->n; i++) {
        struct adapter_layer *x = &l->layer[i];
        const bool own = !isnan(x->given); /* a tensor of its own */
        if (l->settings && !own &&
            (check_rank(l, x) ||
             find_number(l, "alpha_pattern", "lora_alpha", x->model, &x->given)))
            return -1;
        if (isnan(x->given))
            x->given = l->network;
        x->alpha = isnan(x->given)  ? (double)x->rank
                   : rooted && !own ? x->given * sqrt((double)x->rank)
                                    : x->given;
    }
    return 0;
}
