/* SPDX-License-Identifier: Apache-2.0 */
/* Recognises files of other formats by their first bytes and says how to convert them. */
#include <string.h>
#include "state/safetensors.h"

/* A command that converts a torch.save file to safetensors. */
#define CONVERT                                                                                    \
    "; convert it: python3 -c 'import sys, torch, safetensors.torch as s; d = "                    \
    "torch.load(sys.argv[1], \"cpu\", weights_only=True); d = d.get(\"state_dict\", d); "          \
    "s.save_file({k: v.clone().contiguous() for k, v in d.items() if torch.is_tensor(v)}, "        \
    "sys.argv[2])' IN OUT.safetensors"

static const struct {
    const char *bytes;
    size_t n;
    const char *what;
} kinds[] = {
    {"PK\3\4", 4, "is a zip archive, as torch.save writes (.bin, .pt, .pth, .ckpt)" CONVERT},
    {"\x80\2", 2, "is a Python pickle, as torch.save wrote before 1.6" CONVERT},
    {"\x80\3", 2, "is a Python pickle" CONVERT},
    {"\x80\4", 2, "is a Python pickle" CONVERT},
    {"\x80\5", 2, "is a Python pickle" CONVERT},
    {"version https://", 16,
     "is a pointer of Git LFS and not the file itself: fetch that with git lfs pull"},
    {"<!", 2, "is a page of HTML: what was downloaded is not the file"},
    {"<html", 5, "is a page of HTML: what was downloaded is not the file"},
    {"\x89HDF", 4, "is an HDF5 file (.h5)"},
    {"GGUF", 4, "is a GGUF file"},
    {"\x1f\x8b", 2, "is compressed (gzip): unpack it first"},
};

int file_check_kind(const char *path, const char *bytes, int64_t n)
{
    /* If a JSON header starts at byte 8, the bytes before it are a length, whatever their value. */
    if (n < 9 || bytes[8] == '{')
        return 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if ((size_t)n >= kinds[i].n && !memcmp(bytes, kinds[i].bytes, kinds[i].n))
            return file_bad(path, "is not a safetensors file; it %s", kinds[i].what);
    return 0;
}
