/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Checks the fabric of this machine: its hosts, and the differences between their
 * configurations. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/doctor.h"
#include "cli/request.h"

#define ANSWER_MS 2500u
/* Limit for the differences of clocks, because people compare the logs of several machines. */
#define CLOCK_NS_MAX (500 * VIA_MSEC_NS)

static struct via_fabric fabric;

/* False: this machine has no daemon, or its daemon does not answer; the finding says so. */
static bool find_fabric(struct via_doctor_finding *finding)
{
    struct via_rundir_path rundir;
    struct via_error err = {0};
    unsigned local;
    if (via_rundir_default(NULL, &rundir, &err) != 0 ||
        via_rundir_local(rundir.text, &local) != 0) {
        via_doctor_report(finding, VIA_DOCTOR_OK, "no daemon of this machine in %s", rundir.text);
        return false;
    }
    json_decref(fabric.directory); /* from the check before */
    fabric.directory = NULL;
    if (via_fabric_open(&fabric, NULL, &err) != 0 || fabric.local < 0) {
        via_doctor_report(finding, VIA_DOCTOR_WARN, "%.500s", err.text);
        via_doctor_mend(finding, "systemctl status viaductd; its log says why it has ended");
        return false;
    }
    return true;
}

static uint64_t real_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * VIA_SEC_NS + (uint64_t)now.tv_nsec;
}

/* The difference between the host's clock and this machine's clock, less the time of the request
 * and of the answer. */
static uint64_t clock_difference(const json_t *status, uint64_t request_ns, uint64_t answered_ns)
{
    uint64_t there = via_answer_u64(status, "time_ns");
    if (there == 0 || (there >= request_ns && there <= answered_ns)) {
        return 0;
    }
    return there < request_ns ? request_ns - there : there - answered_ns;
}

static void check_hosts(struct via_doctor_finding *finding)
{
    if (!find_fabric(finding)) {
        return;
    }
    unsigned count = fabric.topology.hosts_count;
    via_doctor_report(finding, VIA_DOCTOR_OK, "%u, all answer", count);
    for (unsigned i = 0; i < count; i++) {
        struct via_error err = {0};
        json_t *status = NULL;
        unsigned host = fabric.topology.hosts[i];
        uint64_t request_ns = real_ns();
        int rc = via_fabric_request(&fabric, host, "status", ANSWER_MS, &status, &err);
        uint64_t difference_ns = rc == 0 ? clock_difference(status, request_ns, real_ns()) : 0;
        json_decref(status);
        if (rc != 0) {
            via_doctor_report(finding, VIA_DOCTOR_WARN, "%.500s", err.text);
            via_doctor_mend(finding, "'viaduct status' shows which links are not up, and why");
            return;
        }
        if (difference_ns > CLOCK_NS_MAX) {
            via_doctor_report(finding, VIA_DOCTOR_WARN,
                              "host %u: its clock differs from this machine's by %.1f s", host,
                              (double)difference_ns / (double)VIA_SEC_NS);
            via_doctor_mend(finding, "set the clocks of all machines by NTP");
        }
    }
}

/* Reports a value of a host that differs from that of this machine's host. */
static void compare(struct via_doctor_finding *finding, const char *key, const char *mend)
{
    const json_t *mine = via_fabric_entry(&fabric, (unsigned)fabric.local);
    for (unsigned i = 0; i < fabric.topology.hosts_count; i++) {
        unsigned host = fabric.topology.hosts[i];
        const json_t *entry = via_fabric_entry(&fabric, host);
        json_t *theirs = json_object_get(entry, key);
        json_t *ours = json_object_get(mine, key);
        if (theirs == NULL || ours == NULL || json_equal(theirs, ours)) {
            continue;
        }
        char *left = json_dumps(theirs, JSON_ENCODE_ANY);
        char *right = json_dumps(ours, JSON_ENCODE_ANY);
        via_doctor_report(finding, VIA_DOCTOR_WARN, "%s: host %u has %.60s, this host %d has %.60s",
                          key, host, left != NULL ? left : "?", fabric.local,
                          right != NULL ? right : "?");
        via_doctor_mend(finding, "%s", mend);
        free(left);
        free(right);
    }
}

static void check_names(struct via_doctor_finding *finding)
{
    const struct via_topology *topology = &fabric.topology;
    for (unsigned i = 0; i < topology->hosts_count; i++) {
        const char *name = via_fabric_host_name(&fabric, topology->hosts[i]);
        for (unsigned k = i + 1; name[0] != '\0' && k < topology->hosts_count; k++) {
            if (strcmp(name, via_fabric_host_name(&fabric, topology->hosts[k])) == 0) {
                via_doctor_report(finding, VIA_DOCTOR_WARN, "hosts %u and %u both are called %.64s",
                                  topology->hosts[i], topology->hosts[k], name);
                via_doctor_mend(finding, "give one of them another 'name' in its host.conf");
            }
        }
    }
}

static void check_addresses(struct via_doctor_finding *finding)
{
    for (unsigned i = 0; i < fabric.topology.hosts_count; i++) {
        unsigned host = fabric.topology.hosts[i];
        json_t *entry;
        size_t k;
        json_array_foreach(json_object_get(via_fabric_entry(&fabric, host), "addresses"), k, entry)
        {
            if (json_is_false(json_object_get(entry, "used"))) {
                via_doctor_report(
                    finding, VIA_DOCTOR_WARN,
                    "address %.46s of host %u is claimed by another host, too, or can not "
                    "be used here: TCP to it stays with the kernel",
                    via_answer_text(entry, "address"), host);
                via_doctor_mend(
                    finding, "correct 'addresses' in host.conf of the host without this address");
            }
        }
    }
}

static void check_ids(struct via_doctor_finding *finding)
{
    struct via_error err = {0};
    json_t *status = NULL, *id;
    size_t i;
    if (via_fabric_request(&fabric, (unsigned)fabric.local, "status", ANSWER_MS, &status, &err) !=
        0) {
        return; /* another check reports it */
    }
    json_array_foreach(json_object_get(status, "ids_shared"), i, id)
    {
        via_doctor_report(finding, VIA_DOCTOR_WARN, "two hosts of the fabric have the id %d",
                          (int)json_integer_value(id));
        via_doctor_mend(finding, "give one of them another 'id' in its host.conf");
    }
    json_decref(status);
}

static void check_agreement(struct via_doctor_finding *finding)
{
    if (!find_fabric(finding)) {
        return;
    }
    via_doctor_report(finding, VIA_DOCTOR_OK,
                      "versions, settings, names and addresses are consistent");
    check_addresses(finding);
    check_names(finding);
    check_ids(finding);
    compare(finding, "version", "install the same version on all machines");
    compare(finding, "fabric", "set the same 'fabric' in all host.conf");
    compare(finding, "hosts_max", "set the same value in all host.conf");
}

/* Reports links that are down for a reason, or degraded; and requester ids that a chip rejects. */
static void check_links(struct via_doctor_finding *finding)
{
    struct via_error err = {0};
    json_t *status = NULL, *link;
    size_t i;
    if (!find_fabric(finding)) {
        return;
    }
    if (via_fabric_request(&fabric, (unsigned)fabric.local, "status", ANSWER_MS, &status, &err) !=
        0) {
        via_doctor_report(finding, VIA_DOCTOR_WARN, "%.500s", err.text);
        via_doctor_mend(finding, "systemctl status viaductd; its log says why");
        return;
    }
    via_doctor_report(finding, VIA_DOCTOR_OK, "no link of this machine has an error");
    json_array_foreach(json_object_get(status, "links"), i, link)
    {
        if (via_answer_text(link, "error")[0] != '\0') {
            via_doctor_report(finding, VIA_DOCTOR_WARN, "%.64s: %.400s",
                              via_answer_text(link, "name"), via_answer_text(link, "error"));
            via_doctor_mend(finding, "docs/hardware.md says what to check");
        }
    }
    json_array_foreach(json_object_get(status, "links_failed"), i, link)
    {
        via_doctor_report(finding, VIA_DOCTOR_WARN, "not opened: %.400s", json_string_value(link));
        via_doctor_mend(finding, "remove the cause, then 'viaduct reload'");
    }
    json_decref(status);
}

const struct via_doctor_check via_doctor_fabric_checks[] = {
    {"links", check_links},
    {"hosts of the fabric", check_hosts},
    {"agreement of hosts", check_agreement},
};
const size_t via_doctor_fabric_checks_count = VIA_ARRAY_COUNT(via_doctor_fabric_checks);
