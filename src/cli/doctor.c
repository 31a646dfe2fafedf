/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "cli/doctor.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/fabric.h"
#include "cli/find.h"
#include "cli/hardware.h"

static const char help[] =
    "usage: viaduct doctor [--root DIR]\n"
    "\n"
    "Checks this machine and this user's set-up, and prints each problem with the way to\n"
    "repair it. The exit code is 1 if something keeps Viaduct from running.\n"
    "\n"
    "  --root DIR       look for hardware in DIR/sys and DIR/proc, not in /sys and /proc\n"
    "  -h, --help       this text\n";

static const struct option long_options[] = {
    {"root", required_argument, NULL, 'r'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

void via_doctor_report(struct via_doctor_finding *finding, enum via_doctor_level level,
                       const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(finding->text, sizeof(finding->text), format, args);
    va_end(args);
    finding->level = level;
}

void via_doctor_mend(struct via_doctor_finding *finding, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(finding->mend, sizeof(finding->mend), format, args);
    va_end(args);
}

/* --- installed parts ------------------------------------------------------------------------- */

static void check_daemon(struct via_doctor_finding *finding)
{
    struct via_find_path path;
    struct via_error err = {0};
    if (via_find_daemon(&path, &err) == 0) {
        via_doctor_report(finding, VIA_DOCTOR_OK, "%.500s", path.text);
    } else {
        via_doctor_report(finding, VIA_DOCTOR_FAIL, "%s", err.text);
        via_doctor_mend(finding, "build and install all of Viaduct: make install");
    }
}

/* Runs true(1) with the library. The messages of ld.so(8) go to text. */
static int try_preload(const char *path, char *text, size_t room)
{
    int status = -1;
    int out_fd = memfd_create("viaduct-doctor", MFD_CLOEXEC);
    fflush(NULL);
    pid_t pid = out_fd >= 0 ? fork() : -1;
    if (pid == 0) {
        setenv("LD_PRELOAD", path, 1);
        dup2(out_fd, STDERR_FILENO);
        execlp("true", "true", (char *)NULL);
        _exit(127);
    }
    if (pid > 0) {
        waitpid(pid, &status, 0);
    }
    ssize_t bytes = out_fd >= 0 ? pread(out_fd, text, room - 1, 0) : 0;
    text[bytes > 0 ? bytes : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    if (out_fd >= 0) {
        close(out_fd);
    }
    return status;
}

static void check_preload(struct via_doctor_finding *finding)
{
    struct via_find_path path;
    struct via_error err = {0};
    char text[300];
    if (via_find_preload(&path, &err) != 0) {
        via_doctor_report(finding, VIA_DOCTOR_FAIL, "%s", err.text);
        via_doctor_mend(finding, "build and install all of Viaduct: make install");
        return;
    }
    int status = try_preload(path.text, text, sizeof(text));
    if (status == 0 && text[0] == '\0') {
        via_doctor_report(finding, VIA_DOCTOR_OK, "%.500s", path.text);
        return;
    }
    via_doctor_report(finding, VIA_DOCTOR_FAIL, "%.250s: preload into true(1): %s", path.text,
                      text[0] != '\0' ? text : "the program failed");
    via_doctor_mend(finding, "'ldd' on this file shows what is missing; build it for this machine");
}

/* --- the run directory ----------------------------------------------------------------------- */

/* Removes the directory if this check has made it: the doctor leaves no files. */
static void check_rundir(struct via_doctor_finding *finding)
{
    static struct via_fabric fabric;
    struct via_error err = {0};
    struct via_rundir_path path;
    struct stat st;
    int rc = via_fabric_init(&fabric, NULL, &err);
    bool fresh = rc == 0 && lstat(fabric.rundir.text, &st) != 0;
    if (rc == 0) {
        rc = via_rundir_make(fabric.rundir.text, false, &err);
        fresh = fresh && rc == 0;
    }
    if (rc == 0) {
        rc = via_rundir_link_path(fabric.rundir.text, VIA_TOPOLOGY_HOST_MAX - 1,
                                  VIA_TOPOLOGY_HOST_MAX, VIA_TOPOLOGY_PORTS_MAX - 1, &path, &err);
    }
    if (rc == 0 && access(fabric.rundir.text, W_OK | X_OK) != 0) {
        rc = via_error_set(&err, -errno, "%s: write: %s", fabric.rundir.text, strerror(errno));
    }
    if (fresh) {
        struct via_error ignored;
        (void)!via_fabric_remove(&fabric, &ignored);
    }
    if (rc == 0) {
        via_doctor_report(finding, VIA_DOCTOR_OK, "%s", fabric.rundir.text);
    } else {
        via_doctor_report(finding, VIA_DOCTOR_FAIL, "%s", err.text);
        via_doctor_mend(finding, "set VIADUCT_RUNDIR to a short absolute path of a folder that is "
                                 "yours alone (mode 0700)");
    }
}

static unsigned count_dead(const struct via_fabric *fabric)
{
    unsigned count = 0;
    for (unsigned i = 0; i < fabric->topology.hosts_count; i++) {
        count += via_process_is_alive(&fabric->daemons[i]) ? 0 : 1;
    }
    return count;
}

/* Checks one fabric of this user. Adds its name to the finding if the fabric is damaged. */
static void check_fabric(const char *name, struct via_doctor_finding *finding)
{
    static struct via_fabric fabric;
    if (via_fabric_init(&fabric, name, NULL) != 0) {
        return;
    }
    int rc = via_fabric_load(&fabric, NULL);
    if (rc != 0 && rc != -EPROTO) {
        return;
    }
    unsigned dead = count_dead(&fabric);
    if (rc == 0 && dead == 0) {
        return;
    }
    via_doctor_report(finding, VIA_DOCTOR_WARN, "fabric '%s' in %s: %u of %u hosts are dead",
                      fabric.name, fabric.rundir.text, dead, fabric.topology.hosts_count);
    via_doctor_mend(finding, "viaduct down --fabric %s", fabric.name);
}

static void check_stale(struct via_doctor_finding *finding)
{
    static struct via_fabric fabric;
    via_doctor_report(finding, VIA_DOCTOR_OK, "none that crashed");
    if (via_fabric_init(&fabric, NULL, NULL) != 0) {
        return;
    }
    if (getenv("VIADUCT_RUNDIR") != NULL) {
        check_fabric(fabric.name, finding);
        return;
    }
    *strrchr(fabric.rundir.text, '/') = '\0';
    DIR *folder = opendir(fabric.rundir.text);
    for (struct dirent *entry = folder != NULL ? readdir(folder) : NULL; entry != NULL;
         entry = readdir(folder)) {
        check_fabric(entry->d_name, finding);
    }
    if (folder != NULL) {
        closedir(folder);
    }
}

static void check_netns(struct via_doctor_finding *finding)
{
    struct via_find_path path;
    if (geteuid() != 0) {
        via_doctor_report(finding, VIA_DOCTOR_OK, "only root can use --netns");
    } else if (via_find_in_path("ip", &path) != 0) {
        via_doctor_report(finding, VIA_DOCTOR_WARN,
                          "--netns does not work: no program 'ip' in $PATH");
        via_doctor_mend(finding, "install ip(8), in Debian the package iproute2");
    } else {
        via_doctor_report(finding, VIA_DOCTOR_OK, "--netns works with %.500s", path.text);
    }
}

static const struct via_doctor_check own_checks[] = {
    {"viaductd", check_daemon}, {"sockets library", check_preload}, {"run directory", check_rundir},
    {"fabrics", check_stale},   {"namespaces", check_netns},
};

/* --- the command ----------------------------------------------------------------------------- */

static void print_finding(const char *object, const struct via_doctor_finding *finding)
{
    static const char *const names[] = {
        [VIA_DOCTOR_OK] = "ok", [VIA_DOCTOR_WARN] = "warn", [VIA_DOCTOR_FAIL] = "fail"};
    printf("%-4s  %s: %s\n", names[finding->level], object, finding->text);
    if (finding->mend[0] != '\0') {
        printf("      mend: %s\n", finding->mend);
    }
}

static enum via_doctor_level check_all(const struct via_doctor_check *checks, size_t count)
{
    enum via_doctor_level worst = VIA_DOCTOR_OK;
    for (size_t i = 0; i < count; i++) {
        struct via_doctor_finding finding = {0};
        checks[i].check(&finding);
        print_finding(checks[i].object, &finding);
        worst = finding.level > worst ? finding.level : worst;
    }
    return worst;
}

/* Gives warnings at most, because a fabric runs without hardware. */
static void check_hardware(const char *root)
{
    static struct via_found found[VIA_FOUND_MAX];
    struct via_found_paths paths = {.root = root};
    struct via_error err = {0};
    int count = via_found_scan(&paths, found, &err);
    struct via_doctor_finding finding = {0};
    if (count <= 0) {
        via_doctor_report(&finding, count < 0 ? VIA_DOCTOR_WARN : VIA_DOCTOR_OK, "%s",
                          count < 0 ? err.text : "no NTB function of a known chip");
        print_finding("hardware", &finding);
    }
    for (int i = 0; i < count; i++) {
        unsigned wrong_count = 0;
        for (unsigned k = 0; k < via_hardware_checks_count; k++) {
            finding = (struct via_doctor_finding){0};
            via_hardware_checks[k](&found[i], &finding);
            if (finding.level != VIA_DOCTOR_OK) {
                print_finding(found[i].address, &finding);
                wrong_count++;
            }
        }
        if (wrong_count == 0) {
            via_doctor_report(&finding, VIA_DOCTOR_OK, "%s", found[i].chip->name);
            print_finding(found[i].address, &finding);
        }
    }
}

int via_cli_doctor(int argc, char **argv)
{
    const char *root = "";
    int opt;
    while ((opt = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
        if (opt == 'r') {
            root = optarg;
            continue;
        }
        if (opt != 'h') {
            return via_cli_usage(argv[0], NULL);
        }
        fputs(help, stdout);
        return VIA_CLI_OK;
    }
    if (optind < argc) {
        return via_cli_usage(argv[0], "'%s': one argument too many", argv[optind]);
    }
    enum via_doctor_level own = check_all(own_checks, VIA_ARRAY_COUNT(own_checks));
    enum via_doctor_level machine =
        check_all(via_doctor_machine_checks, via_doctor_machine_checks_count);
    check_hardware(root);
    (void)check_all(via_doctor_fabric_checks, via_doctor_fabric_checks_count); /* never a failure */
    return own == VIA_DOCTOR_FAIL || machine == VIA_DOCTOR_FAIL ? VIA_CLI_FAILED : VIA_CLI_OK;
}
