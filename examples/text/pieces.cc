// SPDX-License-Identifier: Apache-2.0
// A C interface to SentencePiece models: see pieces.h.  No exception leaves these functions.
#include "pieces.h"

#include <sentencepiece_processor.h>

#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

struct pieces {
    sentencepiece::SentencePieceProcessor processor;
};

int pieces_open(struct pieces **p, const void *model, size_t bytes)
{
    *p = nullptr;
    try {
        *p = new pieces;
        const auto *begin = static_cast<const char *>(model);
        if ((*p)->processor.LoadFromSerializedProto(absl::string_view(begin, bytes)).ok())
            return 0;
    } catch (const std::exception &) {
    }
    pieces_close(*p);
    *p = nullptr;
    return -1;
}

void pieces_close(struct pieces *p)
{
    delete p;
}

int32_t pieces_count(const struct pieces *p)
{
    return p->processor.GetPieceSize();
}

int32_t pieces_find(const struct pieces *p, const char *name)
{
    try {
        int id = p->processor.PieceToId(name);
        return p->processor.IdToPiece(id) == name ? id : -1;
    } catch (const std::exception &) {
        return -1;
    }
}

int64_t pieces_encode(const struct pieces *p, const char *text, size_t n, int32_t **ids)
{
    *ids = nullptr;
    try {
        std::vector<int> found;
        if (!p->processor.Encode(absl::string_view(text, n), &found).ok())
            return -1;
        *ids = static_cast<int32_t *>(std::malloc((found.size() + 1) * sizeof **ids));
        if (!*ids)
            return -1;
        for (size_t i = 0; i < found.size(); i++)
            (*ids)[i] = found[i];
        return static_cast<int64_t>(found.size());
    } catch (const std::exception &) {
        return -1;
    }
}
