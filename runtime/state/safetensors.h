/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The safetensors format: 8 bytes little-endian header length N, N bytes of JSON, then the data.
 * The JSON object maps each name to {"dtype", "shape", "data_offsets": [begin, end)}, offsets
 * counted from the start of the data; "__metadata__" maps strings to strings.
 *
 * A model is one such file, or several (shards) and an index that says which tensor is in which.
 *
 * Files that libckpt writes carry checksums (checksum.h) in three notes of the metadata:
 * NOTE_SUM names the function; NOTE_SUM_HEADER is the sum of everything before the data, length and
 * padding included, its own digits taken for zeros; NOTE_SUM_DATA has the sum of each tensor that
 * has bytes, in the order of the data.  Each is 16 digits of lower-case hexadecimal.  Three keys,
 * so that a bit that flips in one of them does not make a file look like one without checksums.
 */
#ifndef CKPT_STATE_SAFETENSORS_H
#define CKPT_STATE_SAFETENSORS_H

#include <jansson.h>
#include "ckpt_files.h"
#include "core/file.h"

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

struct file_part;

struct file_tensor {
    const struct file_part *part; /* that has its data */
    const char *name;             /* owned by the header */
    const struct file_dtype *dtype;
    int ndim;
    int64_t shape[CKPT_MAX_DIMS];
    int64_t numel;
    int64_t begin, end; /* in the data */
    uint64_t sum;       /* of its bytes, where part->summed */
};

/* One safetensors file: all there is, or a shard. */
struct file_part {
    char *path;
    int fd;
    json_t *header;
    int64_t data_start, data_size;
    struct file_tensor *tensors; /* handed on to the ckpt_file when all is read */
    int count;
    bool summed; /* it carries checksums; that of the header was right */
};

struct ckpt_file {
    char *path; /* as it was given: of a file, an index or a directory */
    struct file_part *parts;
    int n_parts;                 /* by path */
    struct file_tensor *tensors; /* of all parts, by name */
    int count;
};

/* Sets the sentence with the path in front; returns CKPT_EFORMAT. */
int file_bad(const char *path, const char *fmt, ...) CKPT_PRINTF(2, 3);
/* Reads n bytes at an offset.  Returns 0 or CKPT_EIO. */
int file_read_at(const char *path, int fd, void *dst, int64_t n, int64_t offset);

/* Fills header and tensors and checks them against each other and the file's size. */
int file_parse_header(struct file_part *p, const char *text, int64_t n);

/* Appends the parts of a file to those of f: itself or, unless it has to be a shard, those that it
 * names as an index. */
int file_open_parts(ckpt_file *f, const char *path, bool shard);
/* Those that an index names, which is open and so long; each is checked against it. */
int file_open_index(ckpt_file *f, const char *path, int fd, int64_t size);
/* Those of the directory f->path. */
int file_open_directory(ckpt_file *f);

/* The sentence for a file that begins as another format does, or 0.  n: how many bytes of it are
 * known, 16 at most. */
int file_check_kind(const char *path, const char *bytes, int64_t n);

/* ---- checksums ----------------------------------------------------------------------------- */

#define NOTE_SUM        "ckpt.checksum"
#define NOTE_SUM_HEADER "ckpt.checksum.header"
#define NOTE_SUM_DATA   "ckpt.checksum.data"

enum { SUM_DIGITS = 16 };

/* text: everything before the data.  Puts its sum where the digits of NOTE_SUM_HEADER are. */
void file_seal_header(char *text, int64_t n);
/* Compares it where there is one; writes to text, and restores it. */
int file_check_seal(const char *path, char *text, int64_t n);
/* Fills the sums of the tensors of p, which are in the order of the data. */
int file_take_sums(struct file_part *p);
/* Compares the sum of what was read. */
int file_check_sum(const struct file_tensor *e, uint64_t sum);

/* ---- writing ------------------------------------------------------------------------------- */

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
    uint64_t sum; /* of the bytes, once they are written */
};

/* A line of the metadata: text for readers that know what it means. */
struct file_note {
    const char *key, *text;
};

/* What a note of the metadata says, or NULL where there is none, as in several files. */
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

/* The header text of a writer's tensors, in their order, padded for the data to begin on a page.
 * sums: with checksums, those of the tensors as they are now; the length does not depend on them.
 */
int file_make_header(const ckpt_file_writer *w, bool sums, char **text, int64_t *size);

/* Sorts the tensors and writes all of the file to a descriptor.  Returns 0 or a code. */
int file_write_to(ckpt_file_writer *w, int fd);

#endif
