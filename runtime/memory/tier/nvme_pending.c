/* SPDX-License-Identifier: Apache-2.0 */
/* In-flight slots of the NVMe tier: the call waited for, and one begun ahead. */
#include "memory/tier/nvme.h"

enum { MAX_PENDING = 2 };

struct nvme_pending *nvme_pending_add(struct nvme_pending_list *f, const struct nvme_call *call)
{
    if (f->n == MAX_PENDING)
        return NULL;
    struct nvme_pending *added = &f->at[(f->first + f->n++) % MAX_PENDING];
    *added = (struct nvme_pending){.call = *call, .left = *call};
    return added;
}

struct nvme_pending *nvme_pending_first(struct nvme_pending_list *f)
{
    return f->n ? &f->at[f->first] : NULL;
}

void nvme_pending_drop_first(struct nvme_pending_list *f)
{
    f->first = (f->first + 1) % MAX_PENDING;
    f->n--;
}

void nvme_pending_cancel(struct nvme_pending_list *f)
{
    for (int i = 0; i < MAX_PENDING; i++)
        f->at[i].left.offset = f->at[i].left.end;
}

bool nvme_pending_is(const struct nvme_pending *f, const struct nvme_call *call)
{
    return f->call.write == call->write && f->call.offset == call->offset &&
           f->call.end == call->end && f->call.memory == call->memory;
}

bool nvme_pending_done(const struct nvme_pending *f)
{
    return !f->out && f->left.offset == f->left.end;
}

struct nvme_pending *nvme_pending_take(struct nvme_pending_list *f, const struct nvme_files *files,
                                       struct nvme_piece *p)
{
    for (int i = 0; i < f->n; i++) {
        struct nvme_pending *pending = &f->at[(f->first + i) % MAX_PENDING];
        if (nvme_files_next(files, &pending->left, p)) {
            pending->out++;
            return pending;
        }
    }
    return NULL;
}
