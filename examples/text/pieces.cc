// SPDX-License-Identifier: Apache-2.0
// A C interface to SentencePiece models: see pieces.h.  No exception leaves these functions.
#include "pieces.h"

#include <sentencepiece_processor.h>

#include <cstdlib>
#include <exception>
#include <string>
#include <unordered_map>
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

// Characters of a text that no piece has.
struct strangers {
    const sentencepiece::SentencePieceProcessor &processor;
    std::unordered_map<std::string, bool> known; // those that were asked for

    // Alone, such a character is the blank before it and the unknown piece.
    bool has(const std::string &character)
    {
        auto found = known.find(character);
        if (found != known.end())
            return found->second;
        std::vector<int> ids;
        bool is = processor.Encode(character, &ids).ok() && !ids.empty() && ids.size() <= 2 &&
                  ids.back() == processor.unk_id();
        return known[character] = is;
    }
};

// A run of unknown characters is one piece, which SentencePiece makes in a time quadratic in its
// length: of long texts the first character of each run is enough.
static std::string shorten(const struct pieces *p, const char *text, size_t n)
{
    strangers strange{p->processor, {}};
    std::string out;
    bool run = false;

    for (size_t at = 0, size; at < n; at += size) {
        size = 1;
        while (at + size < n && (text[at + size] & 0xc0) == 0x80)
            size++;
        std::string character(text + at, size);
        bool is = strange.has(character);
        if (!is || !run)
            out += character;
        run = is;
    }
    return out;
}

int64_t pieces_encode(const struct pieces *p, const char *text, size_t n, int32_t **ids)
{
    *ids = nullptr;
    try {
        const size_t long_text = 4096;
        std::vector<int> found;
        std::string shorter = n > long_text ? shorten(p, text, n) : std::string();
        absl::string_view all = n > long_text ? absl::string_view(shorter)
                                              : absl::string_view(text, n);
        if (!p->processor.Encode(all, &found).ok())
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
