/* SPDX-License-Identifier: Apache-2.0 */
/* Caption files beside videos, and lists of both: see videos.h. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../common/say.h"
#include "ckpt_tools.h"
#include "videos.h"

enum { LONGEST = 1 << 20 /* maximum bytes of a caption file */ };

/* ---- files --------------------------------------------------------------------------------- */

static const char *base_of(const char *name)
{
    const char *slash = strrchr(name, '/');

    return slash ? slash + 1 : name;
}

static bool ends_in(const char *name, const char *ending)
{
    size_t n = strlen(name), m = strlen(ending);

    return n > m && !strcasecmp(name + n - m, ending);
}

bool stdit_caption_is(const char *name)
{
    return ends_in(base_of(name), ".txt") || ends_in(base_of(name), ".json");
}

bool stdit_caption_belongs(const char *name, const char *video)
{
    const char *base = base_of(video);
    size_t n = (size_t)(base - video) + strcspn(base, ".");

    return !strncmp(name, video, n) && name[n] == '.' && !strchr(name + n, '/');
}

/* Removes blanks at both ends. */
static char *trim(char *text)
{
    static const char blanks[] = " \t\r\n";
    size_t blank = strspn(text, blanks), n = strlen(text);

    while (n > blank && strchr(blanks, text[n - 1]))
        n--;
    memmove(text, text + blank, n - blank);
    text[n - blank] = 0;
    return text;
}

static char *from_json(const char *name, const char *text, size_t n)
{
    json_t *j = json_loadb(text, n, 0, NULL);
    const char *found = json_string_value(json_object_get(j, "caption"));

    found = found ? found : json_string_value(json_object_get(j, "text"));
    if (!j)
        say_note("%s: is not JSON, so it has no caption", name);
    char *caption = found ? strdup(found) : NULL;
    json_decref(j);
    return caption;
}

char *stdit_caption_read(const char *path, const char *member, int64_t start, int64_t size)
{
    const char *name = member ? member : path;
    char *text = NULL;
    FILE *f;

    if (size > LONGEST || ckpt_input_open(&f, path)) {
        say_note("%s: cannot be read as a caption", name);
        return NULL;
    }
    text = calloc(1, LONGEST + 1);
    size_t n = text && !fseeko(f, (off_t)start, SEEK_SET)
                   ? fread(text, 1, size ? (size_t)size : LONGEST, f)
                   : 0;
    fclose(f);
    char *caption = !text || (size && n < (size_t)size) ? NULL
                    : ends_in(name, ".json")            ? from_json(name, text, n)
                                                        : strdup(trim(text));
    free(text);
    return caption;
}

char *stdit_caption_beside(const char *video)
{
    static const char *const endings[] = {".txt", ".json"};
    int stem = (int)(base_of(video) - video + (long)strcspn(base_of(video), "."));
    char path[4096];

    for (int i = 0; i < 2; i++)
        if (snprintf(path, sizeof path, "%.*s%s", stem, video, endings[i]) < (int)sizeof path &&
            !access(path, F_OK))
            return stdit_caption_read(path, NULL, 0, 0);
    return NULL;
}
