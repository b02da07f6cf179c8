/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file of "file:PATH", by which ranks find rank 0: where it listens, and the secret of the job
 * where the user gave none.  Only its owner may read it, and only such a file is believed.
 */
#ifndef CKPT_RENDEZVOUS_FILE_H
#define CKPT_RENDEZVOUS_FILE_H

#include "dist/comm/hello.h"

enum { RENDEZVOUS_FILE_MOST = 512 }; /* bytes of a file, its end included */

struct rendezvous_file {
    char host[SOCKET_HOST];
    int32_t port;
    char job[HELLO_TEXT];
    bool has_secret;
    uint8_t secret[JOB_SECRET];
};

/* NULL, or what is wrong with the text of a file. */
const char *rendezvous_file_parse(const char *text, struct rendezvous_file *out);

/* Puts it in place as a whole.  Returns 0 or CKPT_ECOMM. */
int rendezvous_file_write(const char *path, const struct rendezvous_file *file);
/* NULL, or why there is none that can be believed. */
const char *rendezvous_file_read(const char *path, struct rendezvous_file *out);
/* Removes it, unless another took its place. */
void rendezvous_file_remove(const char *path, const struct rendezvous_file *file);

#endif
