/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors of named samples in files: safetensors, whose tensors have the samples along axis 0, and
 * .npy, whose names are those of their tensors with or without a number, "ids-00001.npy".  A tensor
 * of several files is one after the other, in the order of the names of the files.
 */
#ifndef PT2_DATASET_H
#define PT2_DATASET_H

#include "../common/names.h"
#include "ckpt_files.h"

/* A part of a column in one file. */
struct dataset_part {
    int file, entry;
    int64_t rows;
};

struct dataset_column {
    const char *name; /* borrowed */
    bool whole;       /* read as i32, else as fp32 */
    int ndim;         /* of a sample; of all samples together in a file that is read whole */
    int64_t shape[CKPT_MAX_DIMS], values;
    struct dataset_part *part;
    int n;
    int64_t rows;
};

enum { DATASET_OPEN = 64 }; /* files that are open at a time */

struct dataset {
    const char *option; /* for messages */
    char **path;
    int n_files;
    struct {
        int number; /* of the file, from 1; 0: none */
        ckpt_file *file;
    } open[DATASET_OPEN];
    struct dataset_column *column;
    int n;
    int64_t rows;
    struct names unread; /* tensors that no column reads */
};

/* A tensor that is looked for. */
struct dataset_wanted {
    const char *name;
    bool whole;
};

/*
 * Finds tensors in a directory or the files of a pattern.  shared: in their own shapes, as far as
 * they are there, each in one file; else all of them, with as many samples each.  Returns 0, or -1
 * after an error message; close d in either case.
 */
int dataset_open(struct dataset *d, const char *option, const char *pattern, int n,
                 const struct dataset_wanted *wanted, bool shared);
void dataset_close(struct dataset *d);

/* The column with this name, or NULL. */
const struct dataset_column *dataset_find(const struct dataset *d, const char *name);

/* Reads the values of one sample; of a shared tensor, row 0 is all of it.  Returns 0, or -1 after
 * an error message. */
int dataset_read(struct dataset *d, const struct dataset_column *c, int64_t row, void *to);

#endif
