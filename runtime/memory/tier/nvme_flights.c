/* SPDX-License-Identifier: Apache-2.0 */
/* In-flight slots of the NVMe tier: the call waited for, and one begun ahead. */
#include "memory/tier/nvme.h"

enum { MOST = 2 };

struct nvme_flight *nvme_flights_add(struct nvme_flights *f, const struct nvme_call *call)
{
    if (f->n == MOST)
        return NULL;
    struct nvme_flight *added = &f->at[(f->first + f->n++) % MOST];
    *added = (struct nvme_flight){.asked = *call, .left = *call};
    return added;
}

struct nvme_flight *nvme_flights_first(struct nvme_flights *f)
{
    return f->n ? &f->at[f->first] : NULL;
}

void nvme_flights_drop_first(struct nvme_flights *f)
{
    f->first = (f->first + 1) % MOST;
    f->n--;
}

void nvme_flights_cancel(struct nvme_flights *f)
{
    for (int i = 0; i < MOST; i++)
        f->at[i].left.offset = f->at[i].left.end;
}

bool nvme_flight_is(const struct nvme_flight *f, const struct nvme_call *call)
{
    return f->asked.write == call->write && f->asked.offset == call->offset &&
           f->asked.end == call->end && f->asked.memory == call->memory;
}

bool nvme_flight_over(const struct nvme_flight *f)
{
    return !f->out && f->left.offset == f->left.end;
}

struct nvme_flight *nvme_flights_take(struct nvme_flights *f, const struct nvme_files *files,
                                      struct nvme_piece *p)
{
    for (int i = 0; i < f->n; i++) {
        struct nvme_flight *flight = &f->at[(f->first + i) % MOST];
        if (nvme_files_next(files, &flight->left, p)) {
            flight->out++;
            return flight;
        }
    }
    return NULL;
}
