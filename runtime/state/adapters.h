/* SPDX-License-Identifier: Apache-2.0 */
/* What files of adapters alone say about them, for PEFT and diffusers. */
#ifndef CKPT_STATE_ADAPTERS_H
#define CKPT_STATE_ADAPTERS_H

#include "state/save.h"

/* The prefix of PEFT's own files, which have adapter_config.json beside them. */
#define ADAPTERS_PEFT "base_model.model."
/* The key of PEFT's settings in the metadata of a file, as diffusers reads it. */
#define ADAPTERS_NOTE "lora_adapter_metadata"

/* The note of a state (ckpt_state_note) that is in the metadata, too: the weights below. */
#define ADAPTERS_BASE "lora-base"

/* Whether these are values of adapters and nothing else, also no tensors of alpha: readers of
 * kohya's names find no settings of PEFT for them, and diffusers fails where they are there. */
bool adapters_alone(const struct save_item *items, int n);

/* For an A that is written as LAYER.lora_down.weight: makes the item after it LAYER.alpha.  Returns
 * 1 or 2 items, or CKPT_ENOMEM. */
int adapters_alpha_items(struct save_item *items);

struct adapters_texts {
    char *note;   /* of ADAPTERS_NOTE */
    char *config; /* adapter_config.json; NULL: these are not PEFT's names */
};

/* Returns 0 or CKPT_ENOMEM; free the texts in either case. */
int adapters_describe(struct adapters_texts *t, const struct save_item *items, int n);
void adapters_free(struct adapters_texts *t);

/* Writes adapter_config.json beside a file.  Returns 0 or a code, with the sentence of the
 * thread. */
int adapters_write_config(const char *path, const char *text);

#endif
