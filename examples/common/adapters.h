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

enum { LORA_LAYER = 192 };

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

/* How the files of a family call adapters. */
struct adapter_names {
    const char *prefix;   /* of the parameters that are adapters: "transformer." */
    bool archive;         /* the model is one that ckpt import reads */
    const char *blocks;   /* begins the layers that --lora-targets names; NULL: all layers */
    const char *part;     /* --lora-targets leaves out "attn1." of a layer in a block; NULL: none */
    const char *without;  /* begins the layers that have no adapter; NULL: none */
    const char *original; /* begins the names of the model's own code; NULL: there are none */
    const struct adapter_twin *twin;
    int twins;
};

/* ---- names (adapter_names.c) -------------------------------------------------------------------
 */

enum adapter_part { LORA_OTHER, LORA_A, LORA_B, LORA_ALPHA };

/* What a name of a tensor says.  layer: as in the file, or, of the original names, of the model;
 * adapter: the name that PEFT gives to one of several, or "". */
struct adapter_part_name {
    enum adapter_part part;
    char layer[LORA_LAYER], adapter[64];
    bool original;
};

void adapter_part_name(const struct adapter_names *n, const char *name,
                       struct adapter_part_name *to);

/* A layer's name without the prefix of another program: the model's, except for kohya's. */
const char *adapter_layer_strip(const char *layer);

/* Finds the model's name of a layer: "transformer_blocks.0.attn1.to_q".  Returns false if the model
 * has no such layer. */
bool adapter_layer_find(ckpt *c, const char *layer, char model[LORA_LAYER]);

enum adapter_format { LORA_DIFFUSERS, LORA_PEFT, LORA_ORIGINAL, LORA_FORMATS };

/* The name in a file of that format of a parameter PREFIX.LAYER.lora_A.weight.  Returns false if
 * the format has none. */
bool adapter_name(const struct adapter_names *n, enum adapter_format format, const char *name,
                  char *to, size_t size);

/* ---- files (adapter_file.c) --------------------------------------------------------------------
 */

struct adapter_layer {
    char name[LORA_LAYER];  /* as in the file */
    char model[LORA_LAYER]; /* of the model; kohya's until the model is there */
    char *a, *b;            /* names of the two factors in the file */
    int64_t rank, in, out;
    double given; /* alpha as the file says it; NAN: it does not */
    double alpha; /* scale times rank */
    int order;    /* of its weight among the parameters of the model */
    int target;   /* of its name in --lora-targets */
};

/* The adapters of a file; zeros: no file. */
struct adapter_file {
    const struct adapter_names *names;
    char path[4096];
    struct adapter_layer *layer;
    int n;
    json_t *settings; /* of PEFT, without prefixes; NULL: none */
    char note[64];    /* the file or key of the settings, for messages */
    double network;   /* kohya's alpha of layers without one; NAN: none */
    bool is_state, original;
    bool matched;       /* with the layers of the model */
    bool unscaled;      /* neither the file nor an option has an alpha */
    int64_t rank;       /* --lora-rank of a state's run, else of the first layer */
    double alpha;       /* --lora-alpha of a state's run; NAN: not in the file */
    char targets[1024]; /* names of layers inside a block, as for --lora-targets */
};

/* Opens a file or the directory that PEFT writes, and checks what it says.  Returns 0; 1: this is
 * no file of adapters, or cannot be read; -1 after an error message.  Close it in any case. */
int adapter_file_open(struct adapter_file *l, const struct adapter_names *names, const char *path);
void adapter_file_close(struct adapter_file *l);

/* ---- settings (adapter_settings.c) -------------------------------------------------------------
 */

/* The note of a state for alphas that differ from --lora-alpha. */
#define LORA_ALPHAS "lora-alphas"

/* Reads the settings of an open file: from its metadata, or beside it.  Returns 0, or -1 after an
 * error message: a setting that is not supported. */
int adapter_settings(struct adapter_file *l, const ckpt_file *f);

/* Sets given and alpha of all layers.  Returns 0, or -1 after an error message. */
int adapter_scale(struct adapter_file *l);

/* ---- options --------------------------------------------------------------------------------- */

struct adapter_options {
    int64_t rank;        /* 0: all weights are trained */
    double alpha;        /* below 0: of the file, else the rank */
    const char *targets; /* NULL: of the file, else the program's */
    const char *format, *merge, *frozen;
    struct adapter_file file; /* read from the file of adapters or the state to resume */
};

/* plain: the name in --frozen of weights as they are. */
#define ADAPTER_DEFAULTS(plain, kind) .alpha = -1, .format = kind, .frozen = plain

/* Rows of the program's table, whose options have a member `adapters`.  from: where adapters may
 * come from, in words. */
#define LORA_RANK_ROW(text) RANGE("lora-rank", INT, adapters.rank, "N", text, 1, 65536)
#define LORA_ALPHA_ROW                                                                             \
    RANGE("lora-alpha", FLOAT, adapters.alpha, "X",                                                \
          "adapters are scaled by X divided by their rank (default: from the file of adapters, "   \
          "else the rank)",                                                                        \
          0, OPTION_REAL)
#define LORA_MERGE_ROW                                                                             \
    ROW("lora-merge", STRING, adapters.merge, "FILE",                                              \
        "write the weights with the adapters merged into them at the end (default: not written)")

/* The value of --lora-format; LORA_FORMATS: there is no such format. */
enum adapter_format adapter_format(const struct adapter_options *o);

/* The adapter_config.json beside --save, or NULL if --lora-format writes none. */
const char *adapter_config(const struct adapter_options *o, const char *save, char path[4096]);

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
    bool trains;       /* there are steps */
};

/* Adds the adapters of the file, or those that the options name; the options then have what they
 * left open.  Returns 0, or -1 after an error message. */
int adapters_add(const struct adapter_run *r);

/* Keeps the untrained weights that match the pattern in the codes of --frozen, if it is not
 * `plain`.  Before a load the host then holds them in codes alone.  Returns 0, or -1 after an error
 * message. */
int adapters_code(const struct adapter_run *r, const char *plain, const char *weights);

/* Prints what the file of adapters is, if there is one. */
void adapters_introduce(const struct adapter_options *o);

/* Loads the adapters from the file.  Returns 0, or -1 after an error message. */
int adapters_load(const struct adapter_run *r);

/* After a step, where it is the first: names adapters that have not changed, because no product
 * reads their weight.  Returns 0, or -1 after an error message. */
int adapters_check_step(const struct training *t, int64_t step);

/* Stores in the states of this run what its options do not say of the adapters.  Returns 0, or -1
 * after an error message. */
int adapters_note(const struct adapter_run *r);

#endif
