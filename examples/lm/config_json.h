/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of reading and writing a config.json: see config.c. */
#ifndef LM_CONFIG_JSON_H
#define LM_CONFIG_JSON_H

#include "../common/settings.h"
#include "config.h"

/* Keys that every family has. */
extern const struct json_keys lm_common_keys[];

/* The object that is written, and whether memory was too short for a part of it. */
struct lm_writing {
    json_t *root;
    bool failed;
};

/* Takes the value. */
void lm_set_value(struct lm_writing *o, const char *key, json_t *value);
void lm_set_int(struct lm_writing *o, const char *key, int64_t value);
void lm_set_real(struct lm_writing *o, const char *key, double value);
void lm_set_text(struct lm_writing *o, const char *key, const char *value);

/* ---- families with rotary positions (config_rotary.c) ---------------------------------------- */

void lm_rotary_read(struct settings *s, struct lm_config *c);
void lm_rotary_write(const struct lm_config *c, struct lm_writing *o);

/* ---- which layers have a window or no rotary embedding (config_layers.c) --------------------- */

/* Reads the window and fills in c->layer. */
void lm_layers_read(struct settings *s, struct lm_config *c);
void lm_layers_write(const struct lm_config *c, struct lm_writing *o);

/* ---- layers of experts (config_experts.c); nothing in other families ---------------------------
 */

void lm_experts_read(struct settings *s, struct lm_config *c);
void lm_experts_write(const struct lm_config *c, struct lm_writing *o);

/* ---- the rotary embedding (config_rope.c) ---------------------------------------------------- */

/* Of an object that has one. */
extern const struct json_keys lm_rope_keys[];
/* positions and head of c must be there; checks the keys inside objects with the table above. */
void lm_rope_read(struct settings *s, struct lm_config *c);
void lm_rope_write(const struct lm_config *c, struct lm_writing *o);

#endif
