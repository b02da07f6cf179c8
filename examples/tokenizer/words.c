/* SPDX-License-Identifier: Apache-2.0 */
/* vocab.txt of BERT, a token a line: read as the tokenizer.json that its class would write. */
#include <stdlib.h>
#include <string.h>
#include "../common/say.h"
#include "ckpt_tools.h"
#include "read.h"

/* Of two equal lines the later one counts. */
static json_t *read_lines(const char *path)
{
    json_t *vocab = json_object();
    bool failed = !vocab;
    int64_t id = 0;
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    FILE *f;

    if (ckpt_input_open(&f, path)) {
        say_fail("%s", ckpt_error(NULL));
        json_decref(vocab);
        return NULL;
    }
    for (; !failed && (n = getline(&line, &room, f)) > 0; id++) {
        while (n && (line[n - 1] == '\n' || line[n - 1] == '\r'))
            line[--n] = 0;
        failed = json_object_set_new(vocab, line, json_integer(id)); /* fails if not UTF-8 */
    }
    free(line);
    fclose(f);
    if (!failed)
        return vocab;
    say_fail("%s: line %lld is no token in UTF-8", path, (long long)id);
    json_decref(vocab);
    return NULL;
}

static int put_special(json_t *added, const json_t *vocab)
{
    static const char *const names[] = {"[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"};
    bool failed = false;

    for (size_t i = 0; i < sizeof names / sizeof *names && !failed; i++) {
        json_t *id = json_object_get(vocab, names[i]);
        json_t *one =
            id ? json_pack("{sO,ss,sb}", "id", id, "content", names[i], "special", 1) : NULL;
        failed = id && json_array_append_new(added, one);
    }
    return failed ? -1 : 0;
}

/* Takes vocab. */
static json_t *make_root(json_t *vocab)
{
    json_t *sep = json_object_get(vocab, "[SEP]"), *cls = json_object_get(vocab, "[CLS]");
    json_t *added = json_array(), *behind = NULL;
    bool failed = !added || put_special(added, vocab);

    if (sep && cls)
        behind = json_pack("{ss,s[sO],s[sO]}", "type", "BertProcessing", "sep", "[SEP]", sep, "cls",
                           "[CLS]", cls);
    if (!failed && !(sep && cls && !behind))
        return json_pack("{s{ss,ss,so},s{ss},s{ss},so*,so}", "model", "type", "WordPiece",
                         "unk_token", "[UNK]", "vocab", vocab, "normalizer", "type",
                         "BertNormalizer", "pre_tokenizer", "type", "BertPreTokenizer",
                         "post_processor", behind, "added_tokens", added);
    json_decref(vocab);
    json_decref(added);
    return NULL;
}

int parts_read_words(struct tokenizer_parts *p, const char *path)
{
    json_t *vocab = read_lines(path), *root = vocab ? make_root(vocab) : NULL;
    int rc = root ? parts_read_root(p, path, root) : -1;

    if (vocab && !root)
        say_fail("%s: no memory", path);
    json_decref(root);
    return rc;
}
