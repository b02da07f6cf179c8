/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adapters (LoRA) of a run, and the files of other programs with them: their names, ranks and
 * scales.  One reader finds all of these in a file, so that no option repeats what the file says,
 * and refuses by name what ckpt_lora cannot compute.
 *
 *   diffusers  transformer.LAYER.lora_A.weight          settings of PEFT in the metadata
 *   PEFT       base_model.model.LAYER.lora_A.weight     settings in adapter_config.json beside it
 *   kohya      lora_unet_LAYER.lora_down.weight         a tensor .alpha for each layer
 *   original   PREFIX.0.attention.dense.matrix_A.0      of a model's own code; no alpha
 *              diffusion_model.LAYER.lora_down.weight   a tensor .alpha for each layer (ComfyUI)
 *              diffusion_model.LAYER.diff, .diff_b      beside adapters: added to weight and bias
 *   states     value/PREFIX.LAYER.lora_A.weight         options in the metadata
 *
 * A layer adds scale B A x to its output.  The alpha of libckpt is scale times rank, also where the
 * file means alpha / sqrt(rank) (rsLoRA).
 */
#ifndef EXAMPLES_ADAPTERS_H
#define EXAMPLES_ADAPTERS_H

#include <jansson.h>
#include "ckpt_files.h"
#include "training.h"

enum { LORA_LAYER = 192, LORA_ALSO = 1 << 14, ADAPTER_BASE = 24 };

/* The names in a directory that PEFT loads. */
#define LORA_PEFT_FILE   "adapter_model.safetensors"
#define LORA_PEFT_CONFIG "adapter_config.json"

/* ---- a family of models ---------------------------------------------------------------------- */

/* Layers of a block whose adapters a model's own code trains; one product may have several. */
struct adapter_twin {
    const char *original;
    int number;
    const char *model;
};

/* A module under the name of a model's own code; a list ends with zeros. */
struct adapter_rename {
    const char *model, *other;
};

/* How the files of a family call adapters. */
struct adapter_names {
    const char *prefix;   /* of the parameters that are adapters: "transformer." */
    bool archive;         /* the model is one that ckpt import reads */
    const char *blocks;   /* begins the layers that --lora-targets names; NULL: all layers */
    const char *part;     /* --lora-targets leaves out "attn1." of a layer in a block; NULL: none */
    const char *without;  /* begins the layers that have no adapter; NULL: none */
    const char *pair[2];  /* begin the names of both models of a run of two; NULL: no pairs */
    bool diffs;           /* files may have differences of weights beside adapters */
    const char *original; /* begins the names of the model's own code; NULL: there are none */
    const struct adapter_twin *twin;
    int twins;
    /* The own code has other names, which the files of ComfyUI, kohya and original have, too:
     * inside a block, and of what is outside of all.  NULL: it has the same names. */
    const struct adapter_rename *inside, *outside;
};

/* ---- names (adapter_names.c) -------------------------------------------------------------------
 */

enum adapter_part {
    LORA_OTHER,
    LORA_A,
    LORA_B,
    LORA_MAGNITUDE,
    LORA_ALPHA,
    LORA_DIFF, /* of the weight of a layer, or of a parameter of that name */
    LORA_DIFF_BIAS
};

/* What a name of a tensor says.  layer: as in the file, or, of the original names, of the model;
 * adapter: the name that PEFT gives to one of several, or "". */
struct adapter_part_name {
    enum adapter_part part;
    char layer[LORA_LAYER], adapter[64];
    bool original;
};

void adapter_part_name(const struct adapter_names *n, const char *name,
                       struct adapter_part_name *to);

/* A name without the begin that says which model of a pair has it. */
const char *adapter_layer_own(const struct adapter_names *n, const char *name);

/* A layer's name without the prefix of another program: the model's, except for kohya's. */
const char *adapter_layer_strip(const char *layer);

/* Finds the model's name of a layer: "transformer_blocks.0.attn1.to_q".  Returns false if the model
 * has no such layer. */
bool adapter_layer_find(ckpt *c, const struct adapter_names *n, const char *layer,
                        char model[LORA_LAYER]);

/* Finds the parameter that a difference of a layer is of: its weight or its bias, or one of the
 * layer's own name, as a table has it.  Returns false if the model has none. */
bool adapter_diff_find(ckpt *c, const struct adapter_names *n, const char *layer, bool bias,
                       char parameter[LORA_LAYER]);

/* The i-th name in files of a whole weight beside its own: that of the model's own code, and the
 * same as ComfyUI has it.  Returns false if there is none. */
bool adapter_weight_name(const struct adapter_names *n, const char *name, int i, char *to,
                         size_t size);

enum adapter_format { LORA_DIFFUSERS, LORA_PEFT, LORA_ORIGINAL, LORA_KOHYA, LORA_FORMATS };

/* The name in a file of that format of a parameter PREFIX.LAYER.lora_A.weight.  Returns false if
 * the format has none. */
bool adapter_name(const struct adapter_names *n, enum adapter_format format, const char *name,
                  char *to, size_t size);

/* ---- files (adapter_file.c) --------------------------------------------------------------------
 */

struct adapter_layer {
    char name[LORA_LAYER];  /* as in the file */
    char model[LORA_LAYER]; /* of the model; kohya's until the model is there */
    char *a, *b, *m;        /* names in the file of the factors and of DoRA's magnitude, or NULL */
    int64_t rank, in, out, rows; /* rows: values of the magnitude */
    double given;                /* alpha as the file says it; NAN: it does not */
    double alpha;                /* scale times rank */
    int order;                   /* of its weight among the parameters of the model */
    int target;                  /* of its name in --lora-targets */
};

/* A difference of a weight, which is added as it is, as ComfyUI does: no alpha scales it. */
struct adapter_diff {
    char *tensor;           /* its name in the file */
    char layer[LORA_LAYER]; /* as in the file */
    bool bias;
    struct ckpt_desc desc; /* its shape */
};

/* The adapters of a file; zeros: no file. */
struct adapter_file {
    const struct adapter_names *names;
    char path[4096];
    struct adapter_layer *layer;
    int n;
    char **whole; /* names of the tensors that are trained as a whole */
    int n_whole;
    struct adapter_diff *diff;
    int n_diff;
    json_t *settings;        /* of PEFT, without prefixes; NULL: none */
    char note[64];           /* the file or key of the settings, for messages */
    char base[ADAPTER_BASE]; /* digest of the weights that it was trained on; "": not in the file */
    double network;          /* kohya's alpha of layers without one; NAN: none */
    bool is_state, original, dora;
    bool rooted;          /* --lora-rs of a state's run */
    bool matched;         /* with the layers of the model */
    bool unscaled;        /* neither the file nor an option has an alpha */
    int64_t rank;         /* --lora-rank of a state's run, else of the first layer */
    double alpha;         /* --lora-alpha of a state's run; NAN: not in the file */
    double dropout;       /* of the training that made the file */
    char targets[1024];   /* names of layers inside a block, as for --lora-targets */
    char also[LORA_ALSO]; /* layers that are trained as a whole, as for --lora-also */
};

/* Opens a file or the directory that PEFT writes, and checks what it says.  Returns 0; 1: this is
 * no file of adapters, or cannot be read; -1 after an error message.  Close it in any case. */
int adapter_file_open(struct adapter_file *l, const struct adapter_names *names, const char *path);
void adapter_file_close(struct adapter_file *l);

/* Whether a path is such a file, and no state. */
bool adapter_file_is(const struct adapter_names *names, const char *path);

/* ---- settings (adapter_settings.c) ----------------------------------------------------------- */

/* The note of a state for alphas that differ from --lora-alpha. */
#define LORA_ALPHAS "lora-alphas"
/* The note of a state, and of a file of adapters, with the digest of the weights below. */
#define LORA_BASE "lora-base"

/* Reads the settings of an open file: from its metadata, or beside it.  Returns 0, or -1 after an
 * error message: a setting that is not supported. */
int adapter_settings(struct adapter_file *l, const ckpt_file *f);

/* Whether a tensor of the file belongs to a layer of the setting modules_to_save. */
bool adapter_is_whole(const struct adapter_file *l, const char *tensor);

/* Sets given and alpha of all layers.  Returns 0, or -1 after an error message. */
int adapter_scale(struct adapter_file *l);

/* ---- options --------------------------------------------------------------------------------- */

struct adapter_options {
    int64_t rank;        /* 0: all weights are trained */
    double alpha;        /* below 0: of the file, else the rank */
    double dropout;      /* below 0: of the file, else 0 */
    bool rooted, dora;   /* rooted: alpha / sqrt(rank) is the scale of new adapters */
    const char *targets; /* NULL: of the file, else the program's */
    const char *also;    /* layers that are trained as a whole; NULL: of the file, else none */
    const char *format, *merge, *frozen;
    char base[ADAPTER_BASE];  /* digest of the loaded weights; "": not known */
    bool other_base;          /* they may differ from those of the file */
    struct adapter_file file; /* read from the file of adapters or the state to resume */
};

/* plain: the name in --frozen of weights as they are. */
#define ADAPTER_DEFAULTS(plain, kind) .alpha = -1, .dropout = -1, .format = kind, .frozen = plain

/* Rows of the program's table, whose options have a member `adapters`.  from: where adapters may
 * come from, in words. */
#define LORA_RANK_ROW(text) RANGE("lora-rank", INT, adapters.rank, "N", text, 1, 65536)
#define LORA_ALPHA_ROW                                                                             \
    RANGE("lora-alpha", FLOAT, adapters.alpha, "X",                                                \
          "adapters are scaled by X divided by their rank (default: from the file of adapters, "   \
          "else the rank)",                                                                        \
          0, OPTION_REAL)
#define LORA_KIND_ROWS                                                                             \
    RANGE("lora-dropout", FLOAT, adapters.dropout, "P",                                            \
          "probability with which a training step drops a value that an adapter reads (default: "  \
          "from the file of adapters, else 0)",                                                    \
          0, 0.999),                                                                               \
        ROW("lora-rs", FLAG, adapters.rooted, NULL,                                                \
            "new adapters are scaled by --lora-alpha divided by the square root of their rank "    \
            "(rsLoRA)"),                                                                           \
        ROW("lora-dora", FLAG, adapters.dora, NULL,                                                \
            "new adapters also train the lengths of the rows of a weight (DoRA)")
#define LORA_BASE_ROW                                                                              \
    ROW("lora-other-base", FLAG, adapters.other_base, NULL,                                        \
        "take adapters that were trained on other weights than --load")
#define LORA_MERGE_ROW                                                                             \
    ROW("lora-merge", STRING, adapters.merge, "FILE",                                              \
        "write the weights with the adapters merged into them at the end (default: not written)")

/* The value of --lora-format; LORA_FORMATS: there is no such format. */
enum adapter_format adapter_format(const struct adapter_options *o);

/* The adapter_config.json that is written beside the file of --save or --save-ema, for
 * outputs_check; no path if none is.  path: where its name is stored. */
struct ckpt_path adapter_beside(const struct adapter_options *o, const struct training_options *t,
                                bool average, char path[4096]);

/* The file that they are read from, also in a directory; NULL: none, or a state. */
const char *adapter_input(const struct adapter_options *o);

/* Checks that the adapter_config.json beside outputs would not become that of another adapter.
 * Returns 0, or -1 after an error message; adapter_options_read calls it. */
int adapter_options_directories(const struct adapter_options *o, const struct training_options *t);

/* Reads the adapters of `given` (NULL: none) or of the state to resume, if these have any, into
 * o->file, and the rank from them.  Returns 0, or -1 after an error message: the file contradicts
 * an option. */
int adapter_options_read(struct adapter_options *o, const struct adapter_names *names,
                         const struct training_options *t, const char *given);

/* Check that the options go together; plain: as in ADAPTER_DEFAULTS.  trained: also those of a
 * training that trains all weights or adapters alone.  Return 0, or -1 after an error message. */
int adapter_options_check(const struct adapter_options *o, const char *plain);
int adapter_options_trained(const struct adapter_options *o, const char *plain,
                            const struct training_options *t, bool plan_only);

/* ---- a run ----------------------------------------------------------------------------------- */

struct adapter_run {
    ckpt *context;
    struct adapter_options *options;
    const struct adapter_names *names;
    const char *model; /* its name, for messages */
    const char *tied;  /* the embedding that is the head, too; NULL: there is none */
    bool trains;       /* there are steps */
    const char *saved; /* begins the names in files, where names->prefix is not there; or NULL */
    bool frozen;       /* these are not trained */
    bool whole;        /* layers that are trained as a whole can be saved */
};

/* Adds the adapters of the file, or those that the options name; the options then have what they
 * left open.  Returns 0, or -1 after an error message. */
int adapters_add(const struct adapter_run *r);

/* Lets states leave out the weights below, which come from that option; path: NULL if `option` says
 * all.  Call it before they are loaded.  Returns 0, or -1 after an error message. */
int adapters_leave_base(const struct adapter_run *r, const char *option, const char *path);

/* Keeps the untrained weights that match the pattern in the codes of --frozen, if it is not
 * `plain`.  Before a load the host then holds them in codes alone.  Returns 0, or -1 after an error
 * message. */
int adapters_code(const struct adapter_run *r, const char *plain, const char *weights);

/* Keeps the layers of --lora-also trained; adapters_add calls it first. */
int adapters_keep_whole(const struct adapter_run *r);

/* Differences of weights in the file (adapter_diffs.c): checked against the model, and added to
 * loaded weights. */
int adapter_diffs_check(const struct adapter_run *r);
int adapter_diffs_add(const struct adapter_run *r);

/* For a save of what is trained: selects it, and gives the names of PEFT. */
bool adapters_saved(const struct adapter_run *r, const char *name);
bool adapters_saved_name(const struct adapter_run *r, const char *name, int i, char *to,
                         size_t size);

/* What the file of adapters is, in a line; NULL: there is none.  And printed. */
enum { ADAPTERS_TEXT = 4300 };
const char *adapters_text(const struct adapter_options *o, char dst[ADAPTERS_TEXT]);
void adapters_introduce(const struct adapter_options *o);

/* After the weights were loaded: loads the adapters of a file, or gives new ones of DoRA the
 * lengths of the weights' rows; a state sets both.  Returns 0, or -1 after an error message. */
int adapters_begin(const struct adapter_run *r);

/* After the first step of these: names adapters that have not changed, because no product reads
 * their weight.  Returns 0, or -1 after an error message. */
int adapters_check(const struct training *t, ckpt_param_filter of);
/* The same of all, after a step, where it is the first. */
int adapters_check_step(const struct training *t, int64_t step);

/* Stores in the states of this run what its options do not say of the adapters.  Returns 0, or -1
 * after an error message. */
int adapters_note(const struct adapter_run *r);

/* Writes --lora-merge, if it is given: the weights that `keep` accepts (NULL: all), with the
 * adapters added.  Returns 0, or -1 after an error message. */
int adapters_merge(ckpt *c, const struct adapter_options *o, ckpt_param_filter keep, void *user);

#endif
