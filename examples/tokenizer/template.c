/* SPDX-License-Identifier: Apache-2.0 */
/* Post-processors: the tokens that are put before and behind every text. */
#include <string.h>
#include "../common/json_keys.h"
#include "../common/say.h"
#include "read.h"

static const struct json_keys template_keys[] = {JSON_READ("type single special_tokens"),
                                                 JSON_UNUSED("pair"), JSON_END};
static const struct json_keys sequence_keys[] = {JSON_READ("type processors"), JSON_END};
static const struct json_keys bytes_keys[] = {
    JSON_READ("type"), JSON_UNUSED("add_prefix_space trim_offsets use_regex"), JSON_END};
static const struct json_keys pair_keys[] = {
    JSON_READ("type sep cls"), JSON_UNUSED("trim_offsets add_prefix_space"), JSON_END};

static int add(const struct tokenizer_parts *p, struct ids *to, const char *path, const json_t *id)
{
    if (!json_is_integer(id) || json_integer_value(id) < 0 ||
        json_integer_value(id) >= p->vocabulary.n)
        return say_fail("%s: a token of its post_processor has no number below %ld", path,
                        (long)p->vocabulary.n);
    return ids_add(to, (int32_t)json_integer_value(id)) ? say_fail("%s: no memory", path) : 0;
}

/* A part of "single": {"Sequence": ...} is the text, {"SpecialToken": {"id": NAME}} a token. */
static int read_piece(struct tokenizer_parts *p, const char *path, const json_t *piece,
                      const json_t *tokens, bool *behind)
{
    const char *name =
        json_string_value(json_object_get(json_object_get(piece, "SpecialToken"), "id"));
    const json_t *ids = name ? json_object_get(json_object_get(tokens, name), "ids") : NULL, *id;
    size_t i;
    int rc = 0;

    if (json_object_get(piece, "Sequence")) {
        rc = *behind ? say_fail("%s: its post_processor has the text twice, which is not supported",
                                path)
                     : 0;
        *behind = true;
        return rc;
    }
    if (!json_is_array(ids))
        return say_fail("%s: the token %s of its post_processor is not among its special_tokens",
                        path, name ? name : "without a name");
    json_array_foreach(ids, i, id)
    {
        rc = rc ? rc : add(p, *behind ? &p->behind : &p->before, path, id);
    }
    return rc;
}

static int read_template(struct tokenizer_parts *p, const char *path, const json_t *part)
{
    const json_t *single = json_object_get(part, "single"), *piece;
    bool behind = false;
    size_t i;
    int rc = 0;

    json_array_foreach(single, i, piece)
    {
        rc = rc ? rc : read_piece(p, path, piece, json_object_get(part, "special_tokens"), &behind);
    }
    if (!rc && !behind)
        return say_fail("%s: the template of its post_processor has no text", path);
    return rc;
}

static int read_sequence(struct tokenizer_parts *p, const char *path, const json_t *part)
{
    json_t *one;
    size_t i;
    int rc = 0;

    json_array_foreach(json_object_get(part, "processors"), i, one)
    {
        rc = rc ? rc : template_read(p, path, one);
    }
    return rc;
}

/* Where bytes begin in the text is of no use here. */
static int read_bytes(struct tokenizer_parts *p, const char *path, const json_t *part)
{
    (void)p, (void)path, (void)part;
    return 0;
}

/* "cls": [NAME, ID] before and "sep" behind. */
static int read_pair(struct tokenizer_parts *p, const char *path, const json_t *part)
{
    return add(p, &p->before, path, json_array_get(json_object_get(part, "cls"), 1)) ||
                   add(p, &p->behind, path, json_array_get(json_object_get(part, "sep"), 1))
               ? -1
               : 0;
}

static const struct reader {
    const char *type;
    int (*read)(struct tokenizer_parts *p, const char *path, const json_t *part);
    const struct json_keys *keys;
} readers[] = {
    {"TemplateProcessing", read_template, template_keys},
    {"Sequence", read_sequence, sequence_keys},
    {"ByteLevel", read_bytes, bytes_keys},
    {"RobertaProcessing", read_pair, pair_keys},
    {"BertProcessing", read_pair, pair_keys},
};

int template_read(struct tokenizer_parts *p, const char *path, const json_t *part)
{
    const char *type = json_string_value(json_object_get(part, "type"));

    if (!part || json_is_null(part))
        return 0;
    for (size_t i = 0; type && i < sizeof readers / sizeof *readers; i++)
        if (!strcmp(type, readers[i].type))
            return json_keys_check(path, "post_processor", part, readers[i].keys)
                       ? -1
                       : readers[i].read(p, path, part);
    return say_fail("%s: a post_processor of type %s is not supported", path,
                    type ? type : "that is missing");
}
