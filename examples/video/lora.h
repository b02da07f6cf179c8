/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of adapters (LoRA) of other programs: their names, ranks and scales.  One reader finds all
 * of these in a file, so that no option repeats what the file says, and refuses by name what
 * ckpt_lora cannot compute.
 *
 *   diffusers  transformer.LAYER.lora_A.weight          settings of PEFT in the metadata
 *   PEFT       base_model.model.LAYER.lora_A.weight     settings in adapter_config.json beside it
 *   kohya      lora_unet_LAYER.lora_down.weight         a tensor .alpha for each layer
 *   original   model.diffusion_model.transformer.layers.0.attention.dense.matrix_A.0; no alpha
 *   states     value/transformer.LAYER.lora_A.weight    options in the metadata
 *
 * A layer adds scale B A x to its output.  The alpha of libckpt is scale times rank, also where the
 * file means alpha / sqrt(rank) (rsLoRA).
 */
#ifndef VIDEO_LORA_H
#define VIDEO_LORA_H

#include <jansson.h>
#include "ckpt_files.h"

enum { LORA_LAYER = 192 };

/* The names in a directory that PEFT loads. */
#define LORA_PEFT_FILE   "adapter_model.safetensors"
#define LORA_PEFT_CONFIG "adapter_config.json"

/* ---- names (lora_names.c) ------------------------------------------------------------------- */

enum lora_part { LORA_OTHER, LORA_A, LORA_B, LORA_ALPHA };

/* What a name of a tensor says.  layer: as in the file, or, of the original names, of the model;
 * adapter: the name that PEFT gives to one of several, or "". */
struct lora_part_name {
    enum lora_part part;
    char layer[LORA_LAYER], adapter[64];
    bool original;
};

void lora_part_name(const char *name, struct lora_part_name *to);

/* A layer's name without the prefix of another program: the model's, except for kohya's. */
const char *lora_layer_strip(const char *layer);

/* Finds the model's name of a layer: "transformer_blocks.0.attn1.to_q".  Returns false if the model
 * has no such layer. */
bool lora_layer_find(ckpt *c, const char *layer, char model[LORA_LAYER]);

enum video_lora_format { LORA_DIFFUSERS, LORA_PEFT, LORA_ORIGINAL, LORA_FORMATS };

/* The name in a file of that format of a parameter "transformer.LAYER.lora_A.weight".  Returns
 * false if the format has none. */
bool video_lora_name(enum video_lora_format format, const char *name, char *to, size_t size);

/* ---- files (lora_file.c) -------------------------------------------------------------------- */

struct video_lora_layer {
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
struct video_lora {
    char path[4096];
    struct video_lora_layer *layer;
    int n;
    json_t *settings; /* of PEFT, without prefixes; NULL: none */
    char note[64];    /* the file or key of the settings, for messages */
    double network;   /* kohya's alpha of layers without one; NAN: none */
    bool is_state, original;
    bool matched;       /* with the layers of the model */
    int64_t rank;       /* --lora-rank of a state's run, else of the first layer */
    double alpha;       /* --lora-alpha of a state's run; NAN: not in the file */
    char targets[1024]; /* names of layers inside a block, as for --lora-targets */
};

/* Opens a file or the directory that PEFT writes, and checks what it says.  Returns 0; 1: this is
 * no file of adapters, or cannot be read; -1 after an error message.  Close it in any case. */
int video_lora_open(struct video_lora *l, const char *path);
void video_lora_close(struct video_lora *l);

/* ---- settings (lora_settings.c) ------------------------------------------------------------- */

/* The note of a state for alphas that differ from --lora-alpha. */
#define LORA_ALPHAS "lora-alphas"

/* Reads the settings of an open file: from its metadata, or beside it.  Returns 0, or -1 after an
 * error message: a setting that is not supported. */
int video_lora_settings(struct video_lora *l, const ckpt_file *f);

/* Sets given and alpha of all layers.  Returns 0, or -1 after an error message. */
int video_lora_scale(struct video_lora *l);

#endif
