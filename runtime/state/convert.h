/* SPDX-License-Identifier: Apache-2.0 */
/* Writes what is in one or several files to another form, tensor by tensor. */
#ifndef CKPT_STATE_CONVERT_H
#define CKPT_STATE_CONVERT_H

#include <stdint.h>

/* One file; a directory as on Hugging Face; a distributed checkpoint of PyTorch in safetensors. */
enum convert_form { CONVERT_FILE, CONVERT_HF, CONVERT_DCP };

struct convert {
    const char *from, *to;
    enum convert_form form;
    const char *only;   /* prefix of the names to write, which they lose; NULL: all */
    int64_t most;       /* bytes of a file of a directory; at least one tensor is in each */
    int tensors, files; /* set: how many were written */
    char base[256];     /* set: what a state leaves out, in words (base_weights.h); "": nothing */
};

/* Bytes and metadata stay as they are; tensors in pieces are joined.  A directory must be new or
 * empty, and is empty after a failure.  Returns 0 or a code, with its sentence. */
int convert_files(struct convert *o);

#endif
