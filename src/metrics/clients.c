/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "metrics/clients.h"

#include <string.h>

void via_metrics_clients_init(struct via_metrics_clients *clients)
{
    via_list_init(&clients->all);
}

static struct in6_addr address_of(const struct sockaddr *address)
{
    struct in6_addr result = {.s6_addr = {[10] = 0xff, [11] = 0xff}};
    if (address->sa_family == AF_INET6) {
        result = ((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    } else {
        memcpy(result.s6_addr + 12, &((const struct sockaddr_in *)(const void *)address)->sin_addr,
               sizeof(struct in_addr));
    }
    return result;
}

/* The oldest that has not been ended, of the address (NULL: of all). *ret_count: how many there
 * are. */
static struct via_metrics_client *find_oldest(const struct via_metrics_clients *clients,
                                              const struct in6_addr *address, unsigned *ret_count)
{
    struct via_metrics_client *oldest = NULL;
    *ret_count = 0;
    via_list_foreach(it, &clients->all) {
        struct via_metrics_client *client = via_list_entry(it, struct via_metrics_client, link);
        if (client->fd >= 0 &&
            (address == NULL || memcmp(&client->address, address, sizeof(*address)) == 0)) {
            oldest = oldest != NULL ? oldest : client;
            ++*ret_count;
        }
    }
    return oldest;
}

/* libmicrohttpd has no call that ends a connection. It closes one at whose end of file it is. */
static void end_client(struct via_metrics_client *client)
{
    (void)shutdown(client->fd, SHUT_RDWR);
    client->fd = -1;
}

void via_metrics_clients_add(struct via_metrics_clients *clients, struct via_metrics_client *client,
                             int fd, const struct sockaddr *address)
{
    unsigned count;
    client->fd = fd;
    client->address = address_of(address);
    via_list_push_back(&clients->all, &client->link);
    struct via_metrics_client *oldest = find_oldest(clients, &client->address, &count);
    if (count <= VIA_METRICS_CLIENTS_OF_ADDRESS_MAX) {
        oldest = find_oldest(clients, NULL, &count);
        if (count <= VIA_METRICS_CLIENTS_MAX) {
            return;
        }
    }
    end_client(oldest);
}
