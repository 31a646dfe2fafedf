/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The domain of a host's IOMMU for one device of the model. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "model/pex/chip.h"

#define PAGE_BYTES 4096u

static int take_address(struct via_pex_domain *domain, uint64_t bytes, uint64_t alignment,
                        uint64_t *iova)
{
    if (domain->dmas_count == VIA_PEX_DMAS_MAX) {
        return -ENOSPC;
    }
    return alignment != 0 ? via_iova_take(&domain->iova, bytes, alignment, iova)
                          : via_iova_take_at(&domain->iova, *iova, bytes);
}

int via_pex_domain_map(struct via_pex *pex, struct via_pex_domain *domain,
                       const struct via_pci_memory *memory, uint64_t alignment, uint64_t *ret_iova)
{
    if (memory->bytes == 0 || memory->bytes % PAGE_BYTES != 0 ||
        (alignment != 0 && alignment < PAGE_BYTES) || (uintptr_t)memory->at % PAGE_BYTES != 0) {
        return -EINVAL;
    }
    struct via_pex_dma dma = {.iova = *ret_iova,
                              .bytes = memory->bytes,
                              .at = memory->at,
                              .fd = -1,
                              .fd_off = memory->fd_off,
                              .writable = memory->writable};
    if (memory->fd >= 0) {
        dma.fd = fcntl(memory->fd, F_DUPFD_CLOEXEC, 0);
        if (dma.fd < 0) {
            return -errno;
        }
    }
    int rc = take_address(domain, memory->bytes, alignment, &dma.iova);
    if (rc != 0) {
        if (dma.fd >= 0) {
            close(dma.fd);
        }
        return rc;
    }
    dma.serial = ++pex->serials;
    domain->dmas[domain->dmas_count++] = dma;
    via_pex_update_views(pex);
    *ret_iova = dma.iova;
    return 0;
}

static void forget(struct via_pex *pex, struct via_pex_domain *domain, unsigned index)
{
    struct via_pex_dma dma = domain->dmas[index];
    domain->dmas[index] = domain->dmas[--domain->dmas_count];
    (void)!via_iova_give_back(&domain->iova, dma.iova);
    via_pex_update_views(pex);
    if (dma.fd >= 0) {
        close(dma.fd);
    }
}

int via_pex_domain_unmap(struct via_pex *pex, struct via_pex_domain *domain, uint64_t iova)
{
    for (unsigned i = 0; i < domain->dmas_count; i++) {
        if (domain->dmas[i].iova == iova) {
            forget(pex, domain, i);
            return 0;
        }
    }
    return -ENOENT;
}

void via_pex_domain_clear(struct via_pex *pex, struct via_pex_domain *domain)
{
    while (domain->dmas_count != 0) {
        forget(pex, domain, 0);
    }
}
