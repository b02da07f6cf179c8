/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The safetensors format: 8 bytes little-endian header length N, N bytes of JSON, then the data.
 * The JSON object maps each name to {"dtype", "shape", "data_offsets": [begin, end)}; offsets count
 * from the start of the data.  "__metadata__" maps strings to strings.
 *
 * A model is one such file, or several files (shards) with an index that maps tensors to files.  A
 * tensor may be cut into pieces, each in another file (safetensors_pieces.c): then its name is in
 * each of them, and the index maps it to a list.
 *
 * Files that libckpt writes carry checksums (checksum.h) in three metadata notes: NOTE_SUM names
 * the checksum function; NOTE_SUM_HEADER is the sum of all bytes before the data, length and
 * padding included, with its own digits set to zeros; NOTE_SUM_DATA has the sum of each tensor that
 * is not empty, in the order of the data.  Each sum is 16 digits of lower-case hexadecimal.  There
 * are three keys so that a flipped bit in one of them cannot make the file look like one without
 * checksums.
 */
#ifndef CKPT_STATE_SAFETENSORS_H
#define CKPT_STATE_SAFETENSORS_H

#include <jansson.h>
#include "ckpt_files.h"
#include "core/file.h"

#define HEADER_MAX                                                                                 \
    ((int64_t)100 * 1000 * 1000) /* bytes of JSON; the usual limit of safetensors readers */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the data of a file is little-endian");

/* A dtype of the format.  A conversion is NULL if it could not represent the values. */
struct file_dtype {
    const char *name;
    int64_t size;
    void (*to_f32)(const void *src, float *dst, int64_t n);
    /* Returns the number of converted elements; if it is below n, the next element does not fit in
     * 32 bits. */
    int64_t (*to_i32)(const void *src, int32_t *dst, int64_t n);
};

/* NULL if the format has no such dtype. */
const struct file_dtype *file_dtype_find(const char *name);

struct file_part;

/* Where the elements of a piece belong.  A box of the tensor has sizes `box` and, in elements of
 * the tensor, strides and a base; the piece has the box's elements from `first` on, in row-major
 * order.
 */
struct file_piece {
    int ndim; /* of the box */
    int64_t box[CKPT_MAX_DIMS], stride[CKPT_MAX_DIMS], base, first;
    bool is_box; /* the piece is all of the box, which begins at `at`; else a run of the tensor */
    int64_t at[CKPT_MAX_DIMS];
    int whole_ndim; /* of the tensor; 0 and is_box: its shape follows from all pieces */
    int64_t whole[CKPT_MAX_DIMS];
};

struct file_tensor {
    const struct file_part *part; /* the file that stores its data */
    const char *name;             /* owned by the header */
    const struct file_dtype *dtype;
    int ndim;
    int64_t shape[CKPT_MAX_DIMS];
    int64_t numel;
    int64_t begin, end;         /* byte offsets in the data */
    uint64_t sum;               /* checksum of its bytes, if part->summed */
    struct file_piece *piece;   /* it is a piece of the tensor called so; NULL: whole */
    struct file_tensor *pieces; /* it has no bytes of its own, but these n; part: of the first */
    int n_pieces;
};

/* One safetensors file: the whole model, or a shard. */
struct file_part {
    char *path;
    int fd;
    json_t *header;
    int64_t data_start, data_size;
    struct file_tensor *tensors; /* moved to the ckpt_file when all parts are read */
    int count;
    bool summed;               /* it has checksums, and the header's checksum matched */
    struct file_piece *pieces; /* of its tensors that are pieces */
    /* Reads n bytes at an offset, where there is no file; NULL: from fd.  0 or a code. */
    int (*fetch)(const struct file_part *p, void *dst, int64_t n, int64_t offset);
    void *source; /* for fetch */
    int number;
};

struct ckpt_file {
    char *path; /* as passed by the caller: a file, an index or a directory */
    struct file_part *parts;
    int n_parts;                 /* sorted by path */
    struct file_tensor *tensors; /* of all parts, sorted by name */
    int count;
    struct file_tensor *pieces; /* of the tensors that are cut */
    json_t *notes;              /* the metadata of an index, or NULL */
};

/* One metadata entry; only programs interpret its text. */
struct file_note {
    const char *key, *text;
};

/* Sets the sentence, prefixed by the path; returns CKPT_EFORMAT. */
int file_bad(const char *path, const char *fmt, ...) CKPT_PRINTF(2, 3);
/* Reads n bytes at an offset.  Returns 0 or CKPT_EIO. */
int file_read_at(const char *path, int fd, void *dst, int64_t n, int64_t offset);

/* The same of a part. */
int file_read_part(const struct file_part *p, void *dst, int64_t n, int64_t offset);
/* Appends to f a part of `size` bytes that has path, fetch, source and number of `from`.  Returns 0
 * or a code. */
int file_add_fetched(ckpt_file *f, const struct file_part *from, int64_t size);

/* Whether a tensor has integers of 8 bits, which are codes of a weight if it has scales.  The entry
 * of the scales of an 8-bit weight, or -1; whether their shape is known; multiplies the
 * weight's values by them.  The last two return 0 or an error. */
bool file_is_int8(const struct file_tensor *e);
int file_find_scale(const ckpt_file *f, int entry);
int file_check_scale(const struct file_tensor *e, const struct file_tensor *scale);
int file_apply_scale(ckpt_file *f, int entry, int scale, float *values);

/* Fills header and tensors, and validates them against each other and the file size. */
int file_parse_header(struct file_part *p, const char *text, int64_t n);

/* Appends the parts of a file to those of f: the file itself, or if it is an index (not allowed for
 * a shard), the files it lists. */
int file_open_parts(ckpt_file *f, const char *path, bool shard);
/* Appends the files listed in an open index of `size` bytes, and validates each against the
 * index. */
int file_open_index(ckpt_file *f, const char *path, int fd, int64_t size);
/* Whether a path is a directory. */
bool file_is_directory(const char *path);
/* The path of a file beside another one, or in a directory path that ends in a slash.  The caller
 * frees it; NULL: no memory. */
char *file_beside(const char *path, const char *name);
/* Joins the tensors of all parts that were opened in one list. */
int file_join_parts(ckpt_file *f);
/* The parts of the state whose index this is, as NOTE_PARTS has them; NULL if it is none.  No
 * error: it may be anything. */
json_t *file_read_parts(const char *path);
/* Removes the parts of this index that no index in its folder has: of the state before, and of
 * saves that a crash ended. */
void file_sweep_parts(const char *path);
/* Writes the index of the joined parts of f, with notes. */
int file_write_index(const ckpt_file *f, const char *path, const struct file_note *notes,
                     int n_notes);
/* Appends the parts found in the directory f->path. */
int file_open_directory(ckpt_file *f);

/* Pieces (safetensors_pieces.c).  file_take_pieces: reads the notes of a part about them;
 * file_join_pieces: joins those of the list of all tensors, which is sorted, and checks that each
 * tensor is covered once; file_put_piece: puts n values of a piece, from its element `at` on, where
 * they belong in the elements [low, low + n_dst) of the tensor.  Values have `size` bytes. */
int file_take_pieces(struct file_part *p);
int file_join_pieces(ckpt_file *f);
void file_put_piece(const struct file_piece *q, int64_t at, int64_t n, const void *values,
                    int64_t size, int64_t low, int64_t n_dst, void *dst);
/* Reads all bytes of a tensor as they are, joined. */
int file_read_stored(const struct file_tensor *e, void *dst);

/* Whether a file that starts so is a NumPy array; reads the header of one of `size` bytes. */
bool file_is_npy(const char *bytes, int64_t n);
int file_read_npy(struct file_part *p, int64_t size);

/* Sets the sentence if the file starts like another known format; else returns 0. n: number of
 * bytes available, 16 at most. */
int file_check_kind(const char *path, const char *bytes, int64_t n);

/* ---- checksums ----------------------------------------------------------------------------- */

#define NOTE_SUM        "ckpt.checksum"
#define NOTE_SUM_HEADER "ckpt.checksum.header"
#define NOTE_SUM_DATA   "ckpt.checksum.data"

enum { SUM_DIGITS = 16 };

/* The notes about pieces: NOTE_PIECES of this library, a JSON object of {"NAME": {"shape": of the
 * tensor, "first": N}}, for a run of its elements; "view" and "axes" besides: the elements lie in
 * the order of the view, whose axis axes[i] is axis i of the tensor, as ckpt_param_file_axes says.
 * NOTE_BOXES of PyTorch's distributed checkpoints: {"NAME": {"saved_offsets": [...]}}.  NOTE_PARTS
 * of an index: an object with the header checksum of each file. */
#define NOTE_PIECES "ckpt.pieces"
#define NOTE_BOXES  "DCP_SHARDING_INFO"
#define NOTE_PARTS  "ckpt.parts"
#define INDEX_BEGIN "{\"metadata\":{\"total_size\":"
#define PART_MARK   ".part-" /* in the names of these files, after that of the index */

/* text: everything before the data.  Writes its checksum at the digits of NOTE_SUM_HEADER. */
void file_seal_header(char *text, int64_t n);
/* Compares the header's checksum if there is one; modifies text and restores it. */
int file_check_seal(const char *path, char *text, int64_t n);
/* Reads the checksums of the tensors of p, which must be in the order of the data. */
int file_take_sums(struct file_part *p);
/* Compares a tensor's checksum with the sum of the bytes that were read. */
int file_check_sum(const struct file_tensor *e, uint64_t sum);
/* Sets the sentence of a tensor that has another shape than the parameter; returns CKPT_ESHAPE. */
int file_shape_unfit(const char *path, const struct file_tensor *e, const struct ckpt_desc *d);

/* ---- writing ------------------------------------------------------------------------------- */

/* Writes all bytes of one tensor to dst.  Returns 0, or a code with its sentence set. */
typedef int (*tensor_source)(void *user, void *dst, int64_t bytes);

/* Like ckpt_file_add, but the bytes are requested when the file is written.  stored: what the file
 * says of the dtype if that is none of enum ckpt_dtype, or NULL. */
int file_add_source(ckpt_file_writer *w, const char *name, enum ckpt_dtype dtype,
                    const struct file_dtype *stored, int ndim, const int64_t *shape,
                    tensor_source source, void *user);

/* One tensor of a file that is being written. */
struct pending {
    char *name;
    enum ckpt_dtype dtype;
    const struct file_dtype *stored; /* see file_add_source */
    int ndim;
    int64_t shape[CKPT_MAX_DIMS];
    int64_t bytes;
    const void *data; /* the bytes, or NULL: source provides them */
    tensor_source source;
    void *user;
    bool finite;  /* floats of `data` are checked as they are written; CKPT_ENAN */
    uint64_t sum; /* checksum of the bytes, set when they are written */
};

/* The metadata of a file, of an index, or of the first file of a directory without one. */
json_t *file_notes(const ckpt_file *f);
/* The text of a metadata note, or NULL if there is none. */
const char *file_find_note(const ckpt_file *f, const char *key);

struct ckpt_file_writer {
    char *path;
    struct {
        struct pending *data;
        int64_t capacity;
    } tensors;
    int64_t count;
    int error;                     /* of a failed add: the file must not be written */
    const struct file_note *notes; /* owned by the caller until the file is written */
    int n_notes;
};

/* The header for a writer's tensors in their current order, padded so that the data starts on a
 * page. sums: include the tensors' checksums as they are now; the length does not depend on
 * them. */
int file_make_header(const ckpt_file_writer *w, bool sums, char **text, int64_t *size);

/* Sorts the tensors and writes the whole file to a descriptor.  Returns 0 or a code. */
int file_write_to(ckpt_file_writer *w, int fd);

#endif
