/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt convert: writes a model or a state of training to another form of files. */
#include <string.h>
#include "ckpt_tools.h"
#include "cli/cli.h"
#include "state/convert.h"

struct convert_options {
    struct convert files;
    const char *form;
    bool help;
};

#define ROW(...) CKPT_OPTION(struct convert_options, __VA_ARGS__)

static const struct ckpt_option convert_table[] = {
    ROW("out", STRING, files.to, "PATH",
        "file or directory to write; a directory must be new or empty (default: none, must be "
        "given)"),
    ROW("form", STRING, form, "FORM",
        "file: one safetensors file; hf: a directory as on Hugging Face; dcp: a distributed "
        "checkpoint of PyTorch in safetensors, as HuggingFaceStorageReader reads (default file)"),
    ROW("only", STRING, files.only, "PREFIX",
        "only tensors whose names begin so, without that: value/ or ema/ of a state are weights "
        "(default: all, with the notes of a state)"),
    ROW("shard-size", SIZE, files.most, "SIZE",
        "hf and dcp: bytes of a file, at the most (default 5G)"),
    ROW("help", FLAG, help, NULL, "print this text (-h)"),
    {0},
};

static int find_form(const char *name)
{
    static const char *const names[] = {
        [CONVERT_FILE] = "file", [CONVERT_HF] = "hf", [CONVERT_DCP] = "dcp"};

    for (int i = 0; i < 3; i++)
        if (!strcmp(name, names[i]))
            return i;
    return -1;
}

int cli_convert(int argc, char **argv)
{
    struct convert_options o = {.form = "file", .files.most = -1};

    if (argc > 1 && argv[1][0] != '-') { /* the input stands before the options */
        o.files.from = argv[1];
        argv[1] = argv[0];
        argc--;
        argv++;
    }
    int rc =
        cli_parse(convert_table, &o, &o.help, argc, argv, "convert PATH --out PATH [option]...");
    if (rc)
        return rc < 0 ? 0 : rc;
    if (!o.files.from || !o.files.to)
        return cli_usage("the %s is missing: ckpt convert PATH --out PATH [option]...",
                         o.files.from ? "output" : "input");
    const int form = find_form(o.form);
    if (form < 0)
        return cli_usage("--form %s: there are file, hf and dcp", o.form);
    if (!o.files.most)
        return cli_usage("--shard-size: give at least one byte");
    if (form == CONVERT_FILE && o.files.most > 0)
        return cli_usage("--shard-size is for --form hf and dcp: --form file writes one file");
    if (o.files.most < 0)
        o.files.most = INT64_C(5) << 30;
    o.files.form = (enum convert_form)form;
    if (convert_files(&o.files))
        return cli_fail("%s", ckpt_error(NULL));
    printf("%s: %d tensors in %d file%s\n", o.files.to, o.files.tensors, o.files.files,
           o.files.files == 1 ? "" : "s");
    if (*o.files.base)
        fprintf(
            stderr,
            "ckpt: %s leaves out the frozen weights of its run, which came from %s; so does %s\n",
            o.files.from, o.files.base, o.files.to);
    return 0;
}
