/* SPDX-License-Identifier: Apache-2.0 */
/* What the source of a recorder is written from. */
#ifndef CKPT_IMPORT_SOURCE_MODEL_H
#define CKPT_IMPORT_SOURCE_MODEL_H

#include "core/params.h"
#include "import/trace.h"

struct source {
    struct trace *trace; /* calls that nothing reads leave it */
    struct trace *other; /* of the same model with another batch; NULL: it has one batch */
    int64_t batch, other_batch;
    const struct params *params;
    int32_t loss;          /* in the trace */
    const char *archive;   /* that was read, for a comment */
    const char *constants; /* file of the large constants */
};

#endif
