/*
 * The safetensors format: 8 bytes little-endian header length N, N bytes of JSON, then the data.
 * The JSON object maps each name to {"dtype", "shape", "data_offsets": [begin, end)}, offsets
 * counted from the start of the data; "__metadata__" maps strings to strings.
 */
#ifndef CKPT_STATE_SAFETENSORS_H
#define CKPT_STATE_SAFETENSORS_H

#include <jansson.h>
#include "file.h"

#define HEADER_MAX ((int64_t)100 * 1000 * 1000) /* bytes of JSON; the limit every reader has */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the data of a file is little-endian");

/* A dtype of the format.  Conversions are NULL where the value would not be what is asked for. */
struct file_dtype {
    const char *name;
    int64_t size;
    void (*to_f32)(const void *src, float *dst, int64_t n);
    /* Returns how many were converted: the next one does not fit in 32 bits if that is below n. */
    int64_t (*to_i32)(const void *src, int32_t *dst, int64_t n);
};

/* NULL if the format knows no such dtype. */
const struct file_dtype *file_dtype_find(const char *name);

struct file_tensor {
    const char *name; /* owned by the header */
    const struct file_dtype *dtype;
    int ndim;
    int64_t shape[CKPT_MAX_DIMS];
    int64_t numel;
    int64_t begin, end; /* in the data */
};

struct ckpt_file {
    char *path;
    int fd;
    json_t *header;
    int64_t data_start, data_size;
    struct file_tensor *tensors; /* by name */
    int count;
};

/* Sets the sentence with the path in front; returns CKPT_EFORMAT. */
int file_bad(const ckpt_file *f, const char *fmt, ...) CKPT_PRINTF(2, 3);

/* Fills header and tensors and checks them against each other and the file's size. */
int file_parse_header(ckpt_file *f, const char *text, int64_t n);

/* "[2, 3]" into dst. */
void shape_format(char *dst, size_t size, int ndim, const int64_t *shape);

/* Writes all bytes of one tensor to dst.  Returns 0, or a code with its sentence set. */
typedef int (*tensor_source)(void *user, void *dst, int64_t bytes);

/* As ckpt_file_add, but the bytes are asked for when the file is written. */
int file_add_source(ckpt_file_writer *w, const char *name, enum ckpt_dtype dtype, int ndim,
                    const int64_t *shape, tensor_source source, void *user);

/* One tensor of a file being written. */
struct pending {
    char *name;
    enum ckpt_dtype dtype;
    int ndim;
    int64_t shape[CKPT_MAX_DIMS];
    int64_t bytes;
    const void *data; /* the bytes, or NULL: they come from source */
    tensor_source source;
    void *user;
};

/* A line of the metadata: text for readers that know what it means. */
struct file_note {
    const char *key, *text;
};

/* What a note says, or NULL where there is none. */
const char *file_find_note(const ckpt_file *f, const char *key);

struct ckpt_file_writer {
    char *path;
    struct {
        struct pending *data;
        int64_t capacity;
    } tensors;
    int64_t count;
    int error;                     /* of a failed add: such a file must not be written */
    const struct file_note *notes; /* the caller's, until the file is written */
    int n_notes;
};

/* The header text of a writer's tensors, in their order, padded for the data to begin on a page. */
int file_make_header(const ckpt_file_writer *w, char **text, int64_t *size);

#endif
