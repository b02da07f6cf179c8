/* SPDX-License-Identifier: Apache-2.0 */
/* Makes zips of stored members in memory. */
#ifndef TESTS_IMPORT_ZIP_H
#define TESTS_IMPORT_ZIP_H

#include <stddef.h>
#include <stdint.h>

enum { ZIP_ROOM = 1 << 21, ZIP_LIST_ROOM = 1 << 16 };

struct zip {
    uint8_t data[ZIP_ROOM], list[ZIP_LIST_ROOM]; /* the list joins the data at the end */
    size_t n, n_list, count;
    size_t begin; /* of the list in the data, after zip_end */
};

void zip_begin(struct zip *z);
void zip_member(struct zip *z, const char *name, const void *data, size_t size);
void zip_text(struct zip *z, const char *name, const char *text);
void zip_end(struct zip *z);

/* An archive of PyTorch as short as possible.  program and weights: its JSON and its list of
 * weights, NULL: empty ones.  Four storages of 64 bytes, data/weights/weight_0 to 3, are 1, 2, 3,
 * ... in fp32. */
void zip_archive(struct zip *z, const char *program, const char *weights);

#endif
