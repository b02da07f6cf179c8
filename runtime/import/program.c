/* SPDX-License-Identifier: Apache-2.0 */
/* What the rest of the room asks of a program. */
#include <string.h>
#include "import/program.h"

void pt2_program_free(struct pt2_program *p)
{
    heap_free(&p->heap);
    json_decref(p->json);
    *p = (struct pt2_program){.json = NULL};
}

const struct pt2_arg *pt2_arg_find(const struct pt2_node *n, const char *name)
{
    for (int i = 0; i < n->n_in; i++)
        if (!strcmp(n->in[i].name, name))
            return &n->in[i].arg;
    return NULL;
}

/* ---- places ---------------------------------------------------------------------------------- */

/* The innermost 'File "DIR/NAME", line N' of a stack. */
static const char *last_frame(const char *trace)
{
    const char *at = NULL;

    for (const char *next = strstr(trace, "File \""); next; next = strstr(next + 6, "File \""))
        at = next + 6;
    return at;
}

void pt2_node_place(const struct pt2_node *n, char *dst, size_t size)
{
    const char *file = last_frame(n->trace);
    const char *end = file ? strchr(file, '"') : NULL;
    const char *code = end ? strchr(end, '\n') : NULL;
    const char *where = *n->module ? n->module : "the model";

    if (!end || strncmp(end, "\", line ", 8) != 0) {
        snprintf(dst, size, "%s", where);
        return;
    }
    for (const char *c = file; c < end; c++)
        if (*c == '/')
            file = c + 1;
    code = code ? code + strspn(code, " \n") : "";
    snprintf(dst, size, "%s at %.*s:%.*s: %.*s", where, (int)(end - file), file,
             (int)strspn(end + 8, "0123456789"), end + 8, (int)strcspn(code, "\n"), code);
}

const char *pt2_dtype_name(int dtype)
{
    static const char *const names[] = {"?",         "uint8",      "int8",    "int16",   "int32",
                                        "int64",     "float16",    "float32", "float64", "chalf",
                                        "complex64", "complex128", "bool",    "bfloat16"};

    return dtype > 0 && dtype <= PT2_BF16 && dtype != 9 ? names[dtype] : "another dtype";
}
