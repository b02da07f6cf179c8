/* What command lines of the programs share: see options.h. */
#include <stdlib.h>
#include <string.h>
#include "options.h"
#include "say.h"

int option_sizes(const char *option, const char *text, const char *example, int n, int64_t **value)
{
    const char *at = text;

    for (int i = 0; i < n; i++) {
        char *end;
        long v = *at >= '0' && *at <= '9' ? strtol(at, &end, 10) : 0;
        if (v < 1 || v > 65536 || *end != (i + 1 < n ? 'x' : 0))
            return say_fail("--%s %s: give %s, as %s", option, text,
                            n == 2 ? "a width and a height" : "frames, height and width", example);
        *value[i] = v;
        at = end + 1;
    }
    return 0;
}

int option_dtype(const char *option, const char *name)
{
    if (strcmp(name, "fp32") && strcmp(name, "bf16"))
        return say_fail("--%s %s: give fp32 or bf16", option, name);
    return 0;
}
