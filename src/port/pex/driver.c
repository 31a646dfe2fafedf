/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Opens a pex port, and describes it. */
#include "port/pex/driver.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "model/pex/pex.h"
#include "port/pex/port.h"
#include "port/pex/regs.h"
#include "vfio/kernel.h"
#include "vfio/user.h"

#define WINDOW_BYTES_DEFAULT (UINT64_C(4) << 20)
#define WINDOW_BYTES_MIN (2 * VIA_PEX_PAGE_BYTES)
#define PAGE_BYTES VIA_PEX_PAGE_BYTES
#define MFD_HUGE_SHIFT 26 /* linux/memfd.h, which sys/mman.h excludes */

#define MODEL_PREFIX "model:"
#define USER_PREFIX "vfio-user:"

_Static_assert(sizeof(struct via_pex_config) <= VIA_LINK_CONFIG_BYTES, "fits");

/* --- descriptions --- */

static bool is_word(const struct via_link_word *word, const char *key, const char *value)
{
    if (strcmp(word->key, key) != 0) {
        return false;
    }
    return value == NULL ? word->value == NULL
                         : word->value != NULL && strcmp(word->value, value) == 0;
}

static bool parse_irq(const struct via_link_word *word, struct via_pex_config *config)
{
    if (is_word(word, "irq", "msi")) {
        config->irq = VIA_PCI_MSI;
    } else if (is_word(word, "irq", "intx")) {
        config->irq = VIA_PCI_INTX;
    } else if (is_word(word, "irq", "none")) {
        config->polls = true;
    } else {
        return false;
    }
    return true;
}

static int parse_word(const struct via_link_word *word, struct via_pex_config *config,
                      struct via_error *err)
{
    uint64_t bytes;
    if (is_word(word, "bar", "2") || is_word(word, "bar", "4")) {
        config->bar = (unsigned)(word->value[0] - '0');
    } else if (is_word(word, "alut", NULL) || is_word(word, "alut", "own")) {
        config->alut = true;
    } else if (is_word(word, "alut", "peer")) {
        config->alut = config->alut_at_peer = true;
    } else if (is_word(word, "slices", NULL)) {
        config->slices = config->alut = true;
    } else if (strcmp(word->key, "dma") == 0 && word->value != NULL && word->value[0] != '\0' &&
               strlen(word->value) < sizeof(config->engine)) {
        strcpy(config->engine, word->value);
    } else if (is_word(word, "b2b", "0") || is_word(word, "b2b", "1")) {
        config->b2b = true;
        config->b2b_end = (unsigned)(word->value[0] - '0');
    } else if (is_word(word, "nt", "0") || is_word(word, "nt", "1")) {
        config->twins = true;
        config->nt = (unsigned)(word->value[0] - '0');
    } else if (is_word(word, "revision", "any")) {
        config->any_revision = true;
    } else if (is_word(word, "noiommu", NULL)) {
        config->without_iommu = true;
    } else if (is_word(word, "lut", "d94") || is_word(word, "lut", "db4")) {
        config->lut_at_db4 = word->value[1] == 'b';
    } else if (is_word(word, "side", "virtual") || is_word(word, "side", "link")) {
        config->model_link = word->value[0] == 'l';
    } else if (strcmp(word->key, "window") == 0 && via_link_word_parse_bytes(word, &bytes) &&
               bytes >= WINDOW_BYTES_MIN && bytes % PAGE_BYTES == 0) {
        config->window_bytes_max = bytes;
    } else if (!parse_irq(word, config)) {
        return via_error_set(err, -EINVAL, "option '%s%s%s': not one of %s", word->key,
                             word->value != NULL ? "=" : "", word->value != NULL ? word->value : "",
                             via_pex_driver.usage);
    }
    return 0;
}

/* The text after the prefix; NULL: target has another prefix, or nothing follows. */
static const char *rest_of(const char *target, const char *prefix)
{
    size_t length = strlen(prefix);
    return strncmp(target, prefix, length) == 0 && target[length] != '\0' ? target + length : NULL;
}

static int pex_parse(const struct via_link_words *words, void *ret_config, struct via_error *err)
{
    struct via_pex_config config = {
        .bar = 2, .window_bytes_max = WINDOW_BYTES_DEFAULT, .irq = VIA_PCI_IRQ_KINDS};
    if (strlen(words->target) >= sizeof(config.target)) {
        return via_error_set(err, -ENAMETOOLONG, "%s: longer than %zu bytes", words->target,
                             sizeof(config.target) - 1);
    }
    if (rest_of(words->target, MODEL_PREFIX) == NULL &&
        rest_of(words->target, USER_PREFIX) == NULL && !via_kernel_is_address(words->target)) {
        return via_error_set(err, -EINVAL, "'%s': not 0000:03:00.0, vfio-user:PATH or model:NAME",
                             words->target);
    }
    strcpy(config.target, words->target);
    for (unsigned i = 0; i < words->count; i++) {
        int rc = parse_word(&words->word[i], &config, err);
        if (rc != 0) {
            return rc;
        }
    }
    bool is_kernel = via_kernel_is_address(words->target);
    bool fits = is_kernel ? via_kernel_is_address(config.engine) && !config.without_iommu
                          : rest_of(words->target, USER_PREFIX) != NULL;
    if (config.engine[0] != '\0' && !fits) {
        return via_error_set(
            err, -EINVAL,
            "dma=PATH goes with vfio-user:PATH, dma=0000:03:00.1 with a function of "
            "this machine, and not with noiommu");
    }
    if (config.twins && (rest_of(words->target, MODEL_PREFIX) == NULL || config.b2b)) {
        return via_error_set(err, -EINVAL, "nt= goes with model:NAME, and not with b2b");
    }
    memcpy(ret_config, &config, sizeof(config));
    return 0;
}

/* --- open --- */

static int open_function(struct via_pex_port *pex, struct via_error *err)
{
    if (pex->pci != NULL) {
        return 0;
    }
    const char *path = rest_of(pex->config.target, USER_PREFIX);
    if (path != NULL) {
        return via_vfio_user_open(path, &pex->pci, err);
    }
    if (via_kernel_is_address(pex->config.target)) {
        struct via_kernel_options options = {.address = pex->config.target,
                                             .without_iommu = pex->config.without_iommu,
                                             /* needed to map windows for the DMA function */
                                             .by_container = pex->config.engine[0] != '\0'};
        return via_kernel_open(&options, &pex->pci, err);
    }
    const char *name = rest_of(pex->config.target, MODEL_PREFIX);
    if (pex->config.b2b) {
        return via_pex_attach_pair(name, pex->config.b2b_end, &via_pex_options_default, &pex->pci,
                                   err);
    }
    enum via_pex_side side = pex->config.model_link ? VIA_PEX_LINK : VIA_PEX_VIRTUAL;
    return pex->config.twins
               ? via_pex_attach_named_twin(name, pex->config.nt, side, &via_pex_options_default,
                                           &pex->pci, err)
               : via_pex_attach_named(name, side, &via_pex_options_default, &pex->pci, err);
}

/* Page, inbox and window are as large as both BARs and the option allow. Both ends read the same
 * registers, so they compute the same size. */
static int open_geometry(struct via_pex_port *pex, struct via_error *err)
{
    uint64_t bytes = via_min(pex->chip.bar_bytes, pex->chip.peer_bar_bytes);
    bytes = via_min(bytes, pex->config.window_bytes_max);
    int rc = pex->config.slices && pex->host->slices ? via_pex_slices_init(pex, &bytes, err) : 0;
    if (rc != 0) {
        return rc;
    }
    if (bytes < PAGE_BYTES + via_max(pex->host->inbox_bytes_min, UINT64_C(1))) {
        return via_error_set(err, -ENOSPC,
                             "window of %llu bytes (BARs of %llu and %llu): the pipes need at "
                             "least %llu and a page",
                             (unsigned long long)bytes, (unsigned long long)pex->chip.bar_bytes,
                             (unsigned long long)pex->chip.peer_bar_bytes,
                             (unsigned long long)pex->host->inbox_bytes_min);
    }
    pex->memory_bytes = bytes;
    pex->base.side = pex->config.b2b ? pex->config.b2b_end : pex->chip.link_side ? 1 : 0;
    pex->base.caps = (struct via_port_caps){
        .window_bytes = bytes - PAGE_BYTES,
        .inbox_bytes = bytes - PAGE_BYTES,
        .store_bytes_max = sizeof(uint64_t),
    };
    return 0;
}

/* Without an IOMMU the memory must be physically contiguous and aligned as the BAR: one huge page.
 * Returns the binary logarithm of its size; 0: small pages suffice. */
static unsigned huge_page(const struct via_pex_port *pex, uint64_t alignment)
{
    static const unsigned small = 21, large = 30; /* of x86: 2 MiB and 1 GiB */
    return !pex->config.without_iommu                                      ? 0
           : via_max(pex->memory_bytes, alignment) <= UINT64_C(1) << small ? small
                                                                           : large;
}

static int allocate(struct via_pex_port *pex, unsigned huge, struct via_error *err)
{
    unsigned flags = huge != 0 ? MFD_HUGETLB | huge << MFD_HUGE_SHIFT : 0;
    uint64_t bytes =
        huge != 0 ? via_align_up(pex->memory_bytes, UINT64_C(1) << huge) : pex->memory_bytes;
    pex->memory_fd = memfd_create("viaduct-pex-inbox", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
    if (pex->memory_fd < 0 || ftruncate(pex->memory_fd, (off_t)bytes) != 0 ||
        fcntl(pex->memory_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        return via_error_set(err, -errno, "memory for the inbox: %s", strerror(errno));
    }
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, pex->memory_fd, 0);
    if (at == MAP_FAILED) {
        return via_error_set(err, -errno, "map the inbox: %s", strerror(errno));
    }
    pex->page = at;
    pex->mapped_bytes = bytes;
    pex->base.inbox = (unsigned char *)at + PAGE_BYTES;
    return 0;
}

static int open_memory(struct via_pex_port *pex, struct via_error *err)
{
    uint64_t alignment = pex->config.alut ? pex->chip.peer_bar_bytes / pex->chip.alut_entries
                                          : pex->chip.peer_bar_bytes;
    unsigned huge = huge_page(pex, alignment);
    int rc = allocate(pex, huge, err);
    if (rc != 0) {
        if (huge != 0) {
            via_error_prefix(err, "noiommu takes a huge page of %u MiB: ", 1u << (huge - 20));
        }
        return rc;
    }
    struct via_pci_memory memory = {
        .at = pex->page, .bytes = pex->memory_bytes, .fd = pex->memory_fd, .writable = true};
    rc = pex->pci->ops->dma_map(pex->pci, &memory, via_max(alignment, (uint64_t)PAGE_BYTES),
                                &pex->iova);
    return rc == 0 ? 0
                   : via_error_set(err, rc, "let the device reach %llu bytes of memory: %s",
                                   (unsigned long long)memory.bytes, strerror(-rc));
}

static int open_window(struct via_pex_port *pex, struct via_error *err)
{
    int rc = pex->pci->ops->map(pex->pci, pex->config.bar, pex->window_off, pex->memory_bytes, true,
                                &pex->mapping);
    if (rc == -ENOTSUP) {
        pex->mapping = (struct via_pci_mapping){.caching = VIA_PCI_UNCACHED};
        return 0; /* the window is reached by calls */
    }
    atomic_store_explicit(&pex->is_weak, pex->mapping.caching == VIA_PCI_COMBINING,
                          memory_order_relaxed);
    /* If a BAR is mapped, the kernel's VFIO may refuse access by calls. If memory imitates the BAR,
     * it has no registers to map. */
    if (rc == 0 && pex->config.b2b && pex->mapping.caching != VIA_PCI_MEMORY) {
        rc = pex->pci->ops->map(pex->pci, pex->config.bar, 0, PEX_REGISTERS_BYTES, true, &pex->far);
    }
    return rc == 0 ? 0 : via_error_set(err, rc, "map BAR %u: %s", pex->config.bar, strerror(-rc));
}

/* MSI if the function has it, else INTx; without either the control thread polls. */
static int open_interrupt(struct via_pex_port *pex, struct via_error *err)
{
    static const enum via_pci_irq_kind kinds[] = {VIA_PCI_MSI, VIA_PCI_INTX};
    enum via_pci_irq_kind wanted = pex->config.irq;
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(kinds) && !pex->config.polls; i++) {
        if ((wanted == VIA_PCI_IRQ_KINDS || wanted == kinds[i]) &&
            pex->pci->ops->irqs(pex->pci, kinds[i]) != 0 &&
            pex->pci->ops->irq_set(pex->pci, kinds[i], 1, &pex->irq_fd) == 0) {
            pex->irq_is_on = true;
            pex->config.irq = kinds[i];
            return 0;
        }
    }
    if (wanted != VIA_PCI_IRQ_KINDS) {
        return via_error_set(err, -ENOTSUP, "the function has no %s",
                             wanted == VIA_PCI_MSI ? "MSI" : "INTx");
    }
    return 0;
}

static int open_fds(struct via_pex_port *pex, struct via_error *err)
{
    struct epoll_event event = {.events = EPOLLIN};
    pex->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    pex->irq_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pex->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (pex->epoll_fd < 0 || pex->irq_fd < 0 || pex->kick_fd < 0 ||
        epoll_ctl(pex->epoll_fd, EPOLL_CTL_ADD, pex->irq_fd, &event) != 0 ||
        epoll_ctl(pex->epoll_fd, EPOLL_CTL_ADD, pex->kick_fd, &event) != 0) {
        return via_error_set(err, -errno, "eventfd: %s", strerror(errno));
    }
    return 0;
}

static void open_session(struct via_pex_port *pex)
{
    while (pex->session == 0 || pex->session == UINT32_MAX) {
        if (getrandom(&pex->session, sizeof(pex->session), 0) != sizeof(pex->session)) {
            pex->session = (uint32_t)via_pex_now_ns(pex) | 1;
        }
    }
    pex->asymmetric = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

/* The DMA function of a model in another process, which has a socket of its own. vfio-user does not
 * report the requester id, so the model's constant is used. */
static int open_user_engine(struct via_pex_port *pex, struct via_error *err)
{
    struct via_pci *pci;
    int rc = via_pex_dma_join(pex, pex->config.engine, err);
    if (rc != -ENOENT) {
        return rc;
    }
    rc = via_vfio_user_open(pex->config.engine, &pci, err);
    if (rc != 0) {
        return via_error_prefix(err, "dma=%s: ", pex->config.engine);
    }
    pci->requester = VIA_PEX_ENGINE_REQUESTER;
    return via_pex_dma_open(pex, pex->config.engine, pci, false, err);
}

static int open_first_kernel_engine(struct via_pex_port *pex, struct via_error *err)
{
    struct via_kernel_options options = {.address = pex->config.engine, .beside = pex->pci};
    struct via_pci *pci;
    uint32_t ids = 0;
    int rc = via_kernel_open(&options, &pci, err);
    if (rc != 0) {
        via_error_prefix(err, "dma=%s: ", pex->config.engine);
        return rc;
    }
    (void)pci->ops->config_read(pci, VIA_PCI_VENDOR_ID, 4, &ids);
    if (ids != (PEX_ENGINE << 16 | PEX_VENDOR)) {
        pci->ops->close(pci);
        return via_error_set(err, -ENODEV,
                             "dma=%s: vendor %04x, device %04x: no DMA function of a "
                             "PEX 87xx (10b5:87d0)",
                             pex->config.engine, ids & 0xffff, ids >> 16);
    }
    return via_pex_dma_open(pex, pex->config.engine, pci, true, err);
}

static int open_kernel_engine(struct via_pex_port *pex, struct via_error *err)
{
    int rc = via_pex_dma_join(pex, pex->config.engine, err);
    if (rc == -ENOENT) {
        rc = open_first_kernel_engine(pex, err);
    }
    return rc == 0 ? via_pex_dma_reach_window(pex, err) : rc;
}

/* The DMA function of a model in this process. A host with the virtual sides of two NT ports shares
 * one function. */
static int open_model_engine(struct via_pex_port *pex, const char *name, struct via_error *err)
{
    struct via_pex *model = via_pex_find(name);
    bool is_shared = pex->config.twins && !pex->config.model_link;
    struct via_pci *pci;
    int rc = is_shared ? via_pex_dma_join(pex, pex->config.target, err) : -ENOENT;
    if (rc != -ENOENT || model == NULL) {
        return rc;
    }
    model = pex->config.nt == 1        ? via_pex_twin(model)
            : pex->config.b2b_end == 1 ? via_pex_joined(model)
                                       : model;
    enum via_pex_side side = pex->config.model_link ? VIA_PEX_LINK : VIA_PEX_VIRTUAL;
    rc = is_shared ? via_pex_attach_engine_apart(model, side, &pci)
                   : via_pex_attach_engine(model, side, &pci);
    return rc == 0 ? via_pex_dma_open(pex, is_shared ? pex->config.target : "", pci, false, err)
                   : via_error_set(err, rc, "DMA function: %s", strerror(-rc));
}

static int open_engine(struct via_pex_port *pex, struct via_error *err)
{
    struct via_pci *given = pex->engine;
    pex->engine = NULL;
    if (given != NULL) {
        return via_pex_dma_open(pex, "", given, false, err);
    }
    if (pex->config.engine[0] != '\0') {
        return via_kernel_is_address(pex->config.engine) ? open_kernel_engine(pex, err)
                                                         : open_user_engine(pex, err);
    }
    const char *name = rest_of(pex->config.target, MODEL_PREFIX);
    return name != NULL ? open_model_engine(pex, name, err) : 0;
}

static int open_all(struct via_pex_port *pex, struct via_error *err)
{
    int rc = open_function(pex, err);
    if (rc == 0) {
        rc = via_pex_chip_identify(pex, err);
    }
    if (rc == 0) {
        rc = open_geometry(pex, err);
    }
    if (rc == 0) {
        rc = open_memory(pex, err);
    }
    if (rc == 0) {
        rc = open_window(pex, err);
    }
    if (rc == 0) {
        rc = open_fds(pex, err);
    }
    if (rc == 0) {
        rc = open_interrupt(pex, err);
    }
    return rc == 0 && (pex->host->dma || pex->engine != NULL) ? open_engine(pex, err) : rc;
}

static void close_functions(struct via_pci *pci, struct via_pci *engine)
{
    if (engine != NULL) {
        engine->ops->close(engine);
    }
    if (pci != NULL) {
        pci->ops->close(pci);
    }
}

int via_pex_port_open(const struct via_pex_config *config, struct via_pci *pci,
                      struct via_pci *engine, uint32_t session, const struct via_driver_host *host,
                      struct via_port **ret_port, struct via_error *err)
{
    struct via_pex_port *pex = aligned_alloc(
        VIA_CACHELINE, via_align_up(sizeof(struct via_pex_port), (uint64_t)VIA_CACHELINE));
    if (pex == NULL) {
        close_functions(pci, engine);
        return via_error_set(err, -ENOMEM, "%s", strerror(ENOMEM));
    }
    memset(pex, 0, sizeof(*pex));
    pex->config = *config;
    pex->pci = pci;
    pex->engine = engine;
    pex->session = session;
    pex->base.ops = &via_pex_port_ops;
    pex->host = host;
    pex->memory_fd = pex->epoll_fd = pex->irq_fd = pex->kick_fd = -1;
    open_session(pex);
    int rc = open_all(pex, err);
    if (rc != 0) {
        via_error_prefix(err, "%s: ", pex->config.target);
        via_pex_port_close(&pex->base);
        return rc;
    }
    *ret_port = &pex->base;
    return 0;
}

static int pex_open(const void *config_bytes, const struct via_driver_host *host,
                    struct via_port **ret_port, struct via_error *err)
{
    struct via_pex_config config;
    memcpy(&config, config_bytes, sizeof(config));
    return via_pex_port_open(&config, NULL, NULL, 0, host, ret_port, err);
}

void via_pex_port_close(struct via_port *port)
{
    struct via_pex_port *pex = via_pex_port_of(port);
    if (pex->kick_fd >= 0) {
        via_pex_link_close(pex);
    }
    if (pex->page != NULL) {
        via_pex_slices_conceal(pex);
        via_pex_slices_forget(pex);
    }
    via_pex_dma_close(pex);
    if (pex->irq_is_on) {
        (void)pex->pci->ops->irq_set(pex->pci, pex->config.irq, 0, NULL);
    }
    if (pex->far.at != NULL) {
        pex->pci->ops->unmap(pex->pci, &pex->far);
    }
    if (pex->mapping.at != NULL) {
        pex->pci->ops->unmap(pex->pci, &pex->mapping);
    }
    if (pex->iova != 0) {
        (void)pex->pci->ops->dma_unmap(pex->pci, pex->iova);
    }
    if (pex->pci != NULL) {
        via_pex_chip_leave(pex);
    }
    close_functions(pex->pci, pex->engine);
    if (pex->page != NULL) {
        munmap(pex->page, pex->mapped_bytes);
    }
    int fds[] = {pex->memory_fd, pex->epoll_fd, pex->irq_fd, pex->kick_fd};
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(fds); i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
    free(pex);
}

/* --- status --- */

static void pex_describe(const struct via_port *port, char *ret_text, size_t bytes)
{
    const struct via_pex_port *pex = via_pex_port_of(port);
    const struct via_pex_chip *chip = &pex->chip;
    const char *caching = pex->mapping.at == NULL                     ? "by calls"
                          : pex->mapping.caching == VIA_PCI_COMBINING ? "write-combined"
                          : pex->mapping.caching == VIA_PCI_UNCACHED  ? "uncached"
                                                                      : "memory";
    bool is_degraded = chip->width != 0 &&
                       (chip->width < chip->width_max || chip->generation < chip->generation_max);
    snprintf(ret_text, bytes,
             "PEX 87xx NT%u %s side, revision %02X, Gen%u x%u%s, BAR %u of %llu bytes (%s), %s, %s",
             chip->nt, chip->link_side ? "link" : "virtual", chip->revision, chip->generation,
             chip->width, is_degraded ? " (degraded)" : "", pex->config.bar,
             (unsigned long long)chip->bar_bytes, caching,
             !pex->irq_is_on                  ? "no interrupt"
             : pex->config.irq == VIA_PCI_MSI ? "MSI"
                                              : "INTx",
             pex->pci->ops->describe(pex->pci));
}

static void pex_status(const struct via_port *port, struct via_port_status *ret_status)
{
    const struct via_pex_port *pex = via_pex_port_of(port);
    const struct via_pex_chip *chip = &pex->chip;
    *ret_status = (struct via_port_status){
        .cut = pex->cut,
        .window_bytes = pex->base.caps.window_bytes,
        .class_name = "pex",
        .doorbells_fired = atomic_load_explicit(&pex->counters.rings, memory_order_relaxed),
        .imitation = rest_of(pex->config.target, MODEL_PREFIX) != NULL
                         ? "the chip and its DMA engine are the register model, in this process"
                     : rest_of(pex->config.target, USER_PREFIX) != NULL
                         ? "the chip is a process that is reached by messages"
                         : NULL,
    };
    memcpy(ret_status->error, pex->error, sizeof(pex->error));
    bool is_degraded = chip->width != 0 &&
                       (chip->width < chip->width_max || chip->generation < chip->generation_max);
    size_t length = 0;
    if (pex->error[0] == '\0' && is_degraded) {
        length =
            (size_t)snprintf(ret_status->error, sizeof(ret_status->error),
                             "the link trained to Gen%u x%u, the port is able to do Gen%u x%u; ",
                             chip->generation, chip->width, chip->generation_max, chip->width_max);
    }
    bool has_more =
        pex->error[0] == '\0' &&
        via_pex_probe_describe(pex, ret_status->error + length, sizeof(ret_status->error) - length);
    if (length != 0 && !has_more) {
        ret_status->error[length - 2] = '\0';
    }
}
_Static_assert(sizeof(((struct via_port_status *)NULL)->error) ==
                   sizeof(((struct via_pex_port *)NULL)->error),
               "the same text");

static int pex_fd(const struct via_port *port)
{
    return via_pex_port_of(port)->epoll_fd;
}

/* --- mappings of the window for measurements --- */

static int pex_view_open(struct via_port *port, bool combining, struct via_port_view *ret_view)
{
    static const enum via_port_caching kinds[] = {[VIA_PCI_UNCACHED] = VIA_PORT_UNCACHED,
                                                  [VIA_PCI_COMBINING] = VIA_PORT_COMBINING,
                                                  [VIA_PCI_MEMORY] = VIA_PORT_MEMORY};
    struct via_pex_port *pex = via_pex_port_of(port);
    struct via_pci_mapping mapping;
    int rc = pex->pci->ops->map(pex->pci, pex->config.bar, pex->window_off, pex->memory_bytes,
                                combining, &mapping);
    if (rc == 0) {
        *ret_view = (struct via_port_view){.at = mapping.at + PAGE_BYTES,
                                           .bytes = mapping.bytes - PAGE_BYTES,
                                           .caching = kinds[mapping.caching]};
    }
    return rc;
}

static void pex_view_close(struct via_port *port, struct via_port_view *view)
{
    struct via_pex_port *pex = via_pex_port_of(port);
    struct via_pci_mapping mapping = {.at = view->at - PAGE_BYTES,
                                      .bytes = view->bytes + PAGE_BYTES};
    pex->pci->ops->unmap(pex->pci, &mapping);
}

const struct via_driver via_pex_driver = {
    .name = "pex",
    .usage = "side=virtual|link, bar=2|4, window=BYTES, alut[=own|peer], slices, lut=d94|db4, "
             "irq=msi|intx|none, noiommu, revision=any, b2b=0|1, nt=0|1, dma=PATH|ADDRESS",
    .parse = pex_parse,
    .open = pex_open,
    .describe = pex_describe,
    .status = pex_status,
    .fd = pex_fd,
    .service = via_pex_link_service,
    .cut = via_pex_link_cut,
    .slices = via_pex_port_slices,
    .memory_register = via_pex_dma_register,
    .describes_hardware = true,
    .use_store = via_pex_use_store,
    .view_open = pex_view_open,
    .view_close = pex_view_close,
};
