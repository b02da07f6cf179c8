/* SPDX-License-Identifier: Apache-2.0 */
/* Writing and reading the file of a rendezvous, four lines of text. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "dist/comm/rendezvous_file.h"

/* ---- the text -------------------------------------------------------------------------------- */

static void print_file(const struct rendezvous_file *file, char text[RENDEZVOUS_FILE_MAX])
{
    char secret[2 * JOB_SECRET + 1] = "none";
    for (int i = 0; i < JOB_SECRET && file->has_secret; i++)
        snprintf(secret + 2 * i, 3, "%02x", file->secret[i]);
    snprintf(text, RENDEZVOUS_FILE_MAX, "libckpt rendezvous 1\naddress %s %d\njob %s\nsecret %s\n",
             file->host, (int)file->port, *file->job ? file->job : "-", secret);
}

static bool parse_secret(const char *text, struct rendezvous_file *out)
{
    out->has_secret = strcmp(text, "none") != 0;
    if (!out->has_secret)
        return true;
    if (strlen(text) != (size_t)2 * JOB_SECRET ||
        strspn(text, "0123456789abcdef") != (size_t)2 * JOB_SECRET)
        return false;
    for (int i = 0; i < JOB_SECRET; i++) {
        char byte[3] = {text[2 * i], text[2 * i + 1], '\0'};
        out->secret[i] = (uint8_t)strtol(byte, NULL, 16);
    }
    return true;
}

/* The parsed file must print to the same bytes, so it contains nothing else. */
const char *rendezvous_file_parse(const char *text, struct rendezvous_file *out)
{
    static const char *const wrong = "it is not the file of a rendezvous";
    char secret[2 * JOB_SECRET + 1] = "", again[RENDEZVOUS_FILE_MAX];
    struct address address;
    memset(out, 0, sizeof *out);
    if (sscanf(text, "libckpt rendezvous 1\naddress %63s %7d\njob %63s\nsecret %64s\n", out->host,
               &out->port, out->job, secret) != 4 ||
        !parse_secret(secret, out))
        return wrong;
    if (!strcmp(out->job, "-"))
        *out->job = '\0';
    memcpy(address.host, out->host, sizeof address.host);
    address.port = out->port;
    if (addresses_read(&address, sizeof address, &address, 1) ||
        !hello_text_is_good(out->job, sizeof out->job, true))
        return wrong;
    print_file(out, again);
    return strcmp(text, again) ? wrong : NULL;
}

/* ---- the file -------------------------------------------------------------------------------- */

static bool write_all(int fd, const char *text)
{
    size_t left = strlen(text);
    while (left) {
        ssize_t n = write(fd, text, left);
        if (n < 0 && errno != EINTR)
            return false;
        text += n > 0 ? n : 0;
        left -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* A file of another job may exist: the text is written to a temporary file and renamed. */
int rendezvous_file_write(const char *path, const struct rendezvous_file *file)
{
    char aside[4096], text[RENDEZVOUS_FILE_MAX];
    if (snprintf(aside, sizeof aside, "%s.%ld", path, (long)getpid()) >= (int)sizeof aside)
        return error_set(CKPT_ECOMM, "the path of the rendezvous is too long: %.80s...", path);
    print_file(file, text);
    unlink(aside); /* left by an earlier process with the same pid */
    int fd = open(aside, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    bool ok = fd >= 0 && write_all(fd, text);
    int error = ok ? 0 : errno;
    if (fd >= 0 && close(fd) && ok)
        error = errno;
    if (!error && rename(aside, path))
        error = errno;
    if (!error)
        return 0;
    if (fd >= 0)
        unlink(aside);
    return error_set(CKPT_ECOMM, "cannot write the rendezvous file %s: %s", path, strerror(error));
}

/* In a shared directory another user could write an address of his own. */
static const char *belongs_to_us(int fd)
{
    struct stat s;
    if (fstat(fd, &s))
        return strerror(errno);
    if (!S_ISREG(s.st_mode))
        return "it is not a file";
    if (s.st_uid != geteuid())
        return "it belongs to another user";
    if (s.st_mode & 077)
        return "others than its owner may read or write it";
    return NULL;
}

const char *rendezvous_file_read(const char *path, struct rendezvous_file *out)
{
    char text[RENDEZVOUS_FILE_MAX] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return errno == ENOENT ? "rank 0 did not write it" : strerror(errno);
    const char *wrong = belongs_to_us(fd);
    ssize_t n = wrong ? 0 : read(fd, text, sizeof text - 1);
    if (n < 0)
        wrong = strerror(errno);
    close(fd);
    return wrong ? wrong : rendezvous_file_parse(text, out);
}

void rendezvous_file_remove(const char *path, const struct rendezvous_file *file)
{
    struct rendezvous_file there;
    if (!rendezvous_file_read(path, &there) && there.port == file->port &&
        !memcmp(there.secret, file->secret, sizeof there.secret) && !strcmp(there.host, file->host))
        unlink(path);
}
