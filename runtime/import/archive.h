/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A .pt2 file of torch.export.save: a zip archive whose members are stored, not compressed, under
 * one top folder.  The program is JSON, a weight is the raw bytes of a storage.
 *
 * The zip is read here and by no library.  What is needed of a member is where its bytes lie in the
 * file, so that a part of a weight can be read at an offset into memory that the caller has.
 * libarchive reads members from first to last as streams, and a program with it decodes a file of
 * 28 GB to reach its last weight; libzip and minizip seek in a member, but say no offset, keep a
 * lock or a cursor each archive, and neither refuses two members of one name.  Without compression
 * what remains is a table of 46 bytes a row.
 *
 * Nothing is mapped: a file that shrinks while it is read gives a sentence, not a signal.
 */
#ifndef CKPT_IMPORT_ARCHIVE_H
#define CKPT_IMPORT_ARCHIVE_H

#include <jansson.h>
#include "core/base.h"

struct archive_member {
    const char *name;      /* without the top folder; owned by the archive */
    uint64_t offset, size; /* of its data in the file, both inside it */
    uint64_t local, entry; /* its header, and its entry in the list of members, in the file */
    uint32_t sum;          /* of its data; 0: none was written */
};

struct archive;

/*
 * Opens the file and checks every entry of its central directory.  Refuses, with the sentence of
 * the thread, what is no zip of this layout: compressed, encrypted or repeated members, positions
 * outside the file, names that leave the folder, and what older versions of PyTorch wrote.
 */
int archive_open(struct archive **a, const char *path);
void archive_close(struct archive *a);

/* The path as it was opened, for sentences. */
const char *archive_path(const struct archive *a);
/* The bytes of the file. */
uint64_t archive_size(const struct archive *a);
/* Reads n bytes of the file, which must be in it. */
int archive_read_file(const struct archive *a, uint64_t at, void *to, size_t n);

/* NULL: there is no such member. */
const struct archive_member *archive_find(const struct archive *a, const char *name);
/* The i-th member in the order of names, or NULL behind the last. */
const struct archive_member *archive_at(const struct archive *a, int64_t i);

/* The name of the program in an archive: "model", or the first in the order of names. */
int archive_program(const struct archive *a, char *name, size_t size);

/* Reads n bytes of a member from position `at`, both of which are checked.  Any number of threads
 * may read at a time. */
int archive_read(const struct archive *a, const struct archive_member *m, uint64_t at, void *to,
                 size_t n);

/* Compares the sum of all bytes of a member (crc32.h) with the one in the archive. */
int archive_check(const struct archive *a, const struct archive_member *m, uint32_t sum);

/* Parses a member as JSON: an object, no key twice.  The caller owns it. */
int archive_json(const struct archive *a, const char *name, json_t **json);

#endif
