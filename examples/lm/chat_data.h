/* SPDX-License-Identifier: Apache-2.0 */
/* Files of conversations as training data. */
#ifndef LM_CHAT_DATA_H
#define LM_CHAT_DATA_H

#include "chat.h"
#include "dataset.h"

/* What happens to conversations of more tokens than a row. */
enum chat_too_long { CHAT_REFUSE, CHAT_CUT, CHAT_DROP };

/* The value of --too-long, NULL: not given; -1 after an error message. */
int chat_too_long(const char *name);

/* Whether the files of a pattern are conversations: their names end with .jsonl or .json. */
bool chat_is_data(const char *pattern);

/* What was found in the files. */
struct chat_counts {
    int64_t conversations, trained; /* tokens that are targets */
    int64_t cut, dropped, turns, untrained;
    int64_t digest; /* of all tokens and what is trained on */
};

/*
 * Opens the conversations of all files that match, as a dataset of samples.  limit: of the
 * vocabulary.  Returns 0, or -1 after an error message.
 */
struct chat_opening {
    const struct chat *chat;
    enum chat_too_long too_long;
    bool packs, shuffled;
    int64_t length, limit;
    uint64_t seed;
};
int chat_data_open(struct dataset *d, const char *pattern, const struct chat_opening *how,
                   struct chat_counts *counts);

#endif
