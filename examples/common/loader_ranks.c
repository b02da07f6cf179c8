/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unreadable clips of all ranks: each rank reads its own clips, so the ranks exchange their lists
 * when a state is written.  A run that resumes it, on any number of ranks, then knows all of them.
 */
#include <stdlib.h>
#include <string.h>
#include "ckpt_dist.h"
#include "ckpt_files.h"
#include "loader.h"
#include "resume.h"
#include "say.h"

/* Bytes of the longest text of any rank, with its terminating NUL. */
static int64_t longest(ckpt *c, const char *own, int64_t *lengths, int *rc)
{
    int64_t length = (int64_t)strlen(own) + 1, most = 0;

    *rc = ckpt_gather_ranks(c, &length, sizeof length, lengths);
    for (int r = 0; r < ckpt_ranks(c) && !*rc; r++)
        most = lengths[r] > most ? lengths[r] : most;
    return most;
}

/* Gathers and reads the texts of all ranks; `text` has room for these and one more. */
static int take_all(struct loader *l, ckpt *c, const char *own, char *text, size_t bytes)
{
    int n = ckpt_ranks(c);
    char *mine = text + (size_t)n * bytes;

    strcpy(mine, own);
    int rc = ckpt_gather_ranks(c, mine, bytes, text);
    for (int r = 0; r < n && !rc; r++)
        loader_take_bad(l, text + (size_t)r * bytes);
    return rc;
}

static int fail(ckpt *c, int rc)
{
    return rc ? say_fail("%s", ckpt_error(c)) : say_fail("no memory for clips that cannot be read");
}

int loader_note_bad(struct loader *l, ckpt *c)
{
    const char *own = loader_bad(l);
    int64_t *lengths = calloc((size_t)ckpt_ranks(c), sizeof *lengths);
    int rc = 0;
    size_t most = own && lengths ? (size_t)longest(c, own, lengths, &rc) : 0;
    char *text = most ? calloc((size_t)ckpt_ranks(c) + 1, most) : NULL;

    if (text)
        rc = take_all(l, c, own, text, most);
    own = text && !rc ? loader_bad(l) : NULL;
    if (own && *own)
        rc = ckpt_state_note(c, RESUME_BAD, own);
    free(lengths);
    free(text);
    return own && !rc ? 0 : fail(c, rc);
}
