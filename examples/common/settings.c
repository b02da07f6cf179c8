/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a config.json: see settings.h. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "say.h"
#include "settings.h"

/* The name after the owner, if the path looks like owner/name. */
static const char *name_on_hub(const char *path)
{
    const char *slash = strchr(path, '/');

    return slash && slash > path && *path != '.' && *path != '~' && slash[1] &&
                   !strchr(slash + 1, '/') && !strstr(slash, ".json")
               ? slash + 1
               : NULL;
}

/* A path that is not there but looks like a name on Hugging Face is answered with the command that
 * fetches it. */
int settings_exists(const char *path)
{
    const char *name = name_on_hub(path);
    struct stat st;

    if (!stat(path, &st))
        return 0;
    if (errno != ENOENT || !name)
        return say_fail("%s: cannot be read: %s", path, strerror(errno));
    return say_fail("%s: there is no such directory here; if it is a model on Hugging Face, "
                    "download it with \"hf download %s --local-dir %s\" and name %s",
                    path, path, name, name);
}

/* Keys that say "nothing is sparse"; any other value is refused by name. */
static const struct json_keys sparse[] = {
    JSON_ONLY("format", "dense"),
    JSON_UNUSED("global_sparsity ignore registry_requires_subclass targets"),
    JSON_ONLY("sparsity_structure", "0:0|unstructured"), JSON_END};

const struct json_keys settings_scaled[] = {
    JSON_ONLY("quant_method", "fp8|fbgemm_fp8|compressed-tensors"),
    /* compressed-tensors packs others in integers */
    JSON_ONLY("format", "float-quantized|int-quantized"), JSON_ONLY("fmt", "e4m3|float8_e4m3fn"),
    JSON_ONLY("weight_block_size", "128"), JSON_ONLY("transform_config", ""),
    JSON_READ_INSIDE("sparsity_config", sparse),
    JSON_UNUSED(
        "activation_scheme activation_scale_ub modules_to_not_convert ignored_layers ignore "
        "config_groups version quantization_status global_compression_ratio "
        "kv_cache_scheme dequantize scale_fmt"),
    JSON_END};

/* path: the file, or a directory with config.json in it. */
int settings_open(struct settings *s, const char *path)
{
    char inside[sizeof s->path];
    struct stat st;

    *s = (struct settings){.root = NULL};
    if (settings_exists(path))
        return -1;
    if (snprintf(inside, sizeof inside, "%s/config.json", path) < (int)sizeof inside &&
        !access(inside, F_OK))
        path = inside;
    else if (!stat(path, &st) && S_ISDIR(st.st_mode))
        return say_fail("%s: has no config.json", path);
    snprintf(s->path, sizeof s->path, "%s", path);
    s->root = json_keys_read(path);
    return s->root ? 0 : -1;
}

int settings_open_scheduler(struct settings *s, const char *model)
{
    static const char *const places[] = {"scheduler", "../scheduler"};
    char path[sizeof s->path];

    *s = (struct settings){.root = NULL};
    for (int i = 0; i < 2; i++)
        if (snprintf(path, sizeof path, "%s/%s/scheduler_config.json", model, places[i]) <
                (int)sizeof path &&
            !access(path, F_OK))
            return settings_open(s, path);
    return 1;
}

void settings_close(struct settings *s)
{
    json_decref(s->root);
    s->root = NULL;
}

/* Every key must be known: a setting that is not honoured would train another model. */
void settings_allow(struct settings *s, const struct json_keys *keys)
{
    s->failed = s->failed ? -1 : json_keys_check(s->path, "", s->root, keys);
}

const json_t *settings_find(const struct settings *s, const char *key)
{
    const json_t *v = json_object_get(s->root, key);

    return json_is_null(v) ? NULL : v;
}

bool settings_is_class(const struct settings *s, const char *name)
{
    const char *is = json_string_value(settings_find(s, "_class_name"));

    return (is && !strcmp(is, name)) ||
           !say_fail("%s: \"_class_name\" is %.80s; this program knows %s", s->path,
                     is ? is : "missing", name);
}

void settings_refuse(struct settings *s, const char *key, const char *format, ...)
{
    char why[512];
    va_list list;

    va_start(list, format);
    vsnprintf(why, sizeof why, format, list);
    va_end(list);
    s->failed = s->failed ? -1 : say_fail("%s: \"%s\" %s", s->path, key, why);
}

/* fallback below 0: the key must be there.  After a refusal the fallback is returned; s->failed
 * ends the reading later, so that the callers need no checks. */
int64_t settings_int(struct settings *s, const char *key, int64_t fallback)
{
    const json_t *v = settings_find(s, key);

    if (json_is_integer(v) && json_integer_value(v) > 0 && json_integer_value(v) <= 1 << 24)
        return json_integer_value(v);
    if (v || fallback < 0)
        settings_refuse(s, key, v ? "is not a whole number, 1 or more" : "is missing");
    return fallback;
}

int64_t settings_layers(struct settings *s, const char *key, int64_t fallback)
{
    enum { MOST = 4096 };
    int64_t n = settings_int(s, key, fallback);

    if (n > MOST)
        settings_refuse(s, key, "is above %d", MOST);
    return n;
}

double settings_real(struct settings *s, const json_t *in, const char *key, double fallback)
{
    const json_t *v = json_object_get(in, key);

    if (json_is_number(v) && json_number_value(v) > 0)
        return json_number_value(v);
    if (v && !json_is_null(v))
        settings_refuse(s, key, "is not a positive number");
    return fallback;
}

bool settings_flag(struct settings *s, const char *key, bool fallback)
{
    const json_t *v = settings_find(s, key);

    if (v && !json_is_boolean(v))
        settings_refuse(s, key, "is neither true nor false");
    return v ? json_is_true(v) : fallback;
}
