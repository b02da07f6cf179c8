/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file of "file:PATH", by which ranks find rank 0: its address, and the secret of the job if
 * the user gave none.  Only its owner may read it; files with other permissions are rejected.
 */
#ifndef CKPT_RENDEZVOUS_FILE_H
#define CKPT_RENDEZVOUS_FILE_H

#include "dist/comm/hello.h"

enum { RENDEZVOUS_FILE_MAX = 512 }; /* bytes of a file, including the NUL */

struct rendezvous_file {
    char host[SOCKET_HOST];
    int32_t port;
    char job[HELLO_TEXT];
    bool has_secret;
    uint8_t secret[JOB_SECRET];
};

/* NULL, or what is wrong with the text of a file. */
const char *rendezvous_file_parse(const char *text, struct rendezvous_file *out);

/* Replaces the file atomically.  Returns 0 or CKPT_ECOMM. */
int rendezvous_file_write(const char *path, const struct rendezvous_file *file);
/* NULL, or why there is no valid file. */
const char *rendezvous_file_read(const char *path, struct rendezvous_file *out);
/* Removes the file unless another job replaced it. */
void rendezvous_file_remove(const char *path, const struct rendezvous_file *file);

#endif
