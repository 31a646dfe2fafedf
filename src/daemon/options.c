/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "daemon/options.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config.h"
#include "daemon/log_writer.h"
#include "daemon/number.h"
#include "metrics/server.h"

enum option_id {
    OPT_CONFIG = 256,
    OPT_CHECK,
    OPT_RUNDIR,
    OPT_FABRIC,
    OPT_HOST,
    OPT_HOSTS_MAX,
    OPT_LINK,
    OPT_CHANNELS,
    OPT_SLOTS,
    OPT_FRAME_BYTES,
    OPT_GIVE_UP_MS,
    OPT_WAIT_MS,
    OPT_DMA_BYTES,
    OPT_HEARTBEAT_MS,
    OPT_DEAD_MS,
    OPT_SPIN_US,
    OPT_ATTACH,
    OPT_ADMIN,
    OPT_GROUP,
    OPT_NAME,
    OPT_ADDRESS,
    OPT_QUOTA,
    OPT_KEY,
    OPT_TUNE,
    OPT_METRICS,
    OPT_FOREGROUND,
    OPT_PARENT_DEATH,
    OPT_WITH,
    OPT_LOG_LEVEL,
    OPT_LOG_BYTES,
    OPT_READY_FD,
    OPT_PROTOCOL_VERSION,
    OPT_HELP,
    OPT_VERSION,
};

static const struct option long_options[] = {
    {"config", required_argument, NULL, OPT_CONFIG},
    {"check", no_argument, NULL, OPT_CHECK},
    {"rundir", required_argument, NULL, OPT_RUNDIR},
    {"fabric", required_argument, NULL, OPT_FABRIC},
    {"host", required_argument, NULL, OPT_HOST},
    {"hosts-max", required_argument, NULL, OPT_HOSTS_MAX},
    {"link", required_argument, NULL, OPT_LINK},
    {"channels", required_argument, NULL, OPT_CHANNELS},
    {"slots", required_argument, NULL, OPT_SLOTS},
    {"frame-bytes", required_argument, NULL, OPT_FRAME_BYTES},
    {"dma-bytes", required_argument, NULL, OPT_DMA_BYTES},
    {"give-up-ms", required_argument, NULL, OPT_GIVE_UP_MS},
    {"wait-ms", required_argument, NULL, OPT_WAIT_MS},
    {"heartbeat-ms", required_argument, NULL, OPT_HEARTBEAT_MS},
    {"dead-ms", required_argument, NULL, OPT_DEAD_MS},
    {"spin-us", required_argument, NULL, OPT_SPIN_US},
    {"attach", required_argument, NULL, OPT_ATTACH},
    {"admin", required_argument, NULL, OPT_ADMIN},
    {"group", required_argument, NULL, OPT_GROUP},
    {"name", required_argument, NULL, OPT_NAME},
    {"address", required_argument, NULL, OPT_ADDRESS},
    {"quota", required_argument, NULL, OPT_QUOTA},
    {"key", required_argument, NULL, OPT_KEY},
    {"tune", required_argument, NULL, OPT_TUNE},
    {"metrics", required_argument, NULL, OPT_METRICS},
    {"foreground", no_argument, NULL, OPT_FOREGROUND},
    {"parent-death", no_argument, NULL, OPT_PARENT_DEATH},
    {"with", required_argument, NULL, OPT_WITH},
    {"log-level", required_argument, NULL, OPT_LOG_LEVEL},
    {"log-bytes", required_argument, NULL, OPT_LOG_BYTES},
    {"ready-fd", required_argument, NULL, OPT_READY_FD},
    {"protocol-version", required_argument, NULL, OPT_PROTOCOL_VERSION},
    {"help", no_argument, NULL, OPT_HELP},
    {"version", no_argument, NULL, OPT_VERSION},
    {NULL, 0, NULL, 0},
};

static const char help[] =
    "usage: viaductd --host ID [OPTION...]\n"
    "       viaductd --config FILE [--check] [OPTION...]\n"
    "\n"
    "One host of a Viaduct fabric: its links, its transfer threads, the processes attached to it.\n"
    "\n"
    "  --config FILE         read all settings from a file, viaduct-host.conf(5); of the options "
    "only\n"
    "                        --foreground, --parent-death, --with and --ready-fd combine with it\n"
    "  --check               with --config: check the file, print all settings, and end\n"
    "  --host ID             id of this host\n"
    "  --hosts-max N         ids of the fabric are below N (64)\n"
    "  --link PEER:SIDE:N[:nodirect][:dimension=D][:like=CLASS][:window=BYTES][:seed=N]\n"
    "                        cable N to host PEER, of which this host is side 0 or 1; with\n"
    "                        nodirect, processes can not map memory over it; in dimension D of a\n"
    "                        torus; like real links of a class (pex, ivshmem, network;\n"
    "                        memory), with a window of BYTES bytes. Repeatable\n"
    "  --link PEER=DRIVER:TARGET[,KEY=VALUE...]\n"
    "                        a link to host PEER as the driver describes it, such as\n"
    "                        2=emu:/tmp/cable.sock,side=1,like=pex,window=4MiB\n"
    "  --rundir DIR          directory of the fabric's sockets\n"
    "  --fabric NAME         name of the fabric, when no directory is given (default)\n"
    "  --channels N          channels of each link (2)\n"
    "  --slots N             slots of a channel's pipe, a power of two (32)\n"
    "  --frame-bytes N       payload of a frame (32768)\n"
    "  --dma-bytes N         a DMA engine, which emulated ports then have, moves bodies of N "
    "bytes\n"
    "                        or more: for tests (0, none)\n"
    "  --give-up-ms N        operations end when their host has been unreachable for N ms\n"
    "                        (120000); 0 = never\n"
    "  --wait-ms N           operations end when a reachable host has not answered for N ms\n"
    "                        (600000); 0 = never\n"
    "  --heartbeat-ms N      interval between heartbeats of a link (25)\n"
    "  --dead-ms N           silence after which a link is down (80; ofi links 1000)\n"
    "  --spin-us N           longest that a transfer thread polls before it sleeps (50), 0 to "
    "10000\n"
    "  --attach WHO          users that may attach, with the owner and root: all, user:NAME,\n"
    "                        group:NAME, separated by commas. Repeatable\n"
    "  --admin WHO           users that may stop the host, cut and mend links and read the\n"
    "                        status, with the owner and root\n"
    "  --group NAME          the same as --attach group:NAME\n"
    "  --name NAME           what other hosts call this one (the name of the machine)\n"
    "  --address ADDRESS     IP address at which programs of this host are reached. Repeatable\n"
    "  --quota WHAT=N,...    what the processes of one user may have together: segments, memory\n"
    "                        (bytes; K, M, G, T), pipes, notes (half of the limits)\n"
    "  --key FILE            fabric key: a file of 32 to 4096 bytes; links come up only to hosts "
    "that\n"
    "                        have the same\n"
    "  --tune FILE           settings that viaduct-tune(1) has measured for these links\n"
    "  --metrics ADDRESS:PORT\n"
    "                        serve metrics for Prometheus there (http://ADDRESS:PORT/metrics)\n"
    "  --foreground          run in the foreground, and log to standard error\n"
    "  --parent-death        end when the process that started this one ends\n"
    "  --with PID            end when this process ends\n"
    "  --log-level LEVEL     error, warn, info, debug or trace (info)\n"
    "  --log-bytes N         limit of the log file and the one before it, together (16777216)\n"
    "  --ready-fd FD         write a byte to FD once processes can attach\n"
    "  --protocol-version N  speak another version than this program's: for tests\n"
    "  --help, --version\n"
    "\n"
    "viaductd(8) explains each option.\n";

static enum via_daemon_next wrong(const char *format, ...) VIA_PRINTF(1, 2);

static enum via_daemon_next wrong(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("viaductd: ", stderr);
    vfprintf(stderr, format, args);
    fputs("\nTry 'viaductd --help'.\n", stderr);
    va_end(args);
    return VIA_DAEMON_WRONG;
}

/* REST of "KEY=REST"; NULL: the word does not begin with this key. */
static const char *value_of(const char *word, const char *key)
{
    size_t length = strlen(key);
    return strncmp(word, key, length) == 0 && word[length] == '=' ? word + length + 1 : NULL;
}

/* The parts of a --link option, until the directory of the cables is known. */
struct link_words {
    unsigned side;
    unsigned number;   /* of the cable */
    bool is_described; /* the driver's description is already complete */
    char options[96];  /* ",KEY=VALUE..." of the emulated driver */
};

/* "nodirect", "dimension=D", "like=CLASS", "window=BYTES" or "seed=N". */
static bool parse_kind(const char *word, struct via_host_link *link, struct link_words *words)
{
    const char *text;
    uint64_t value;
    if ((text = value_of(word, "dimension")) != NULL) {
        bool good = via_daemon_number_parse(text, 0, VIA_DIMENSIONS_MAX - 1, &value);
        link->dimension = good ? (uint8_t)value : 0;
        return good;
    }
    bool is_number =
        (text = value_of(word, "window")) != NULL || (text = value_of(word, "seed")) != NULL;
    if (is_number ? !via_daemon_number_parse(text, 0, UINT64_MAX, &value)
                  : strcmp(word, "nodirect") != 0 && ((text = value_of(word, "like")) == NULL ||
                                                      text[strcspn(text, ",=")] != '\0')) {
        return false;
    }
    size_t used = strlen(words->options);
    size_t room = sizeof(words->options) - used;
    return (size_t)snprintf(words->options + used, room, ",%s", word) < room;
}

static const char *default_seed(void)
{
    const char *text = getenv("VIADUCT_EMU_SEED");
    uint64_t seed;
    return text != NULL && via_daemon_number_parse(text, 0, UINT64_MAX, &seed) ? text : "1";
}

/* PEER:SIDE:N[:KIND...] */
static bool parse_link(const char *text, struct via_host_link *link, struct link_words *ret_words)
{
    char word[128];
    if (strlen(text) >= sizeof(word)) {
        return false;
    }
    strcpy(word, text);
    char *rest = NULL;
    const char *peer = strtok_r(word, ":", &rest);
    const char *side = strtok_r(NULL, ":", &rest);
    const char *number = strtok_r(NULL, ":", &rest);
    uint64_t values[3];
    if (peer == NULL || side == NULL || number == NULL ||
        !via_daemon_number_parse(peer, 0, VIA_HOSTS_MAX - 1, &values[0]) ||
        !via_daemon_number_parse(side, 0, 1, &values[1]) ||
        !via_daemon_number_parse(number, 0, 999, &values[2])) {
        return false;
    }
    *link = (struct via_host_link){.peer = (uint16_t)values[0]};
    *ret_words = (struct link_words){.side = (unsigned)values[1], .number = (unsigned)values[2]};
    snprintf(ret_words->options, sizeof(ret_words->options), ",seed=%s", default_seed());
    for (const char *kind; (kind = strtok_r(NULL, ":", &rest)) != NULL;) {
        if (!parse_kind(kind, link, ret_words)) {
            return false;
        }
    }
    return true;
}

/* PEER=DESCRIPTION, which the driver reads. */
static bool parse_described(const char *text, struct via_host_link *link,
                            struct link_words *ret_words, char *ret_description)
{
    char peer[8];
    uint64_t value;
    size_t length = strcspn(text, "=:");
    if (text[length] != '=' || length >= sizeof(peer) ||
        strlen(text + length + 1) >= VIA_DAEMON_DESCRIPTION_BYTES) {
        return false;
    }
    memcpy(peer, text, length);
    peer[length] = '\0';
    if (!via_daemon_number_parse(peer, 0, VIA_HOSTS_MAX - 1, &value)) {
        return false;
    }
    *link = (struct via_host_link){.peer = (uint16_t)value};
    *ret_words = (struct link_words){.is_described = true};
    strcpy(ret_description, text + length + 1);
    return true;
}

static enum via_daemon_next add_link(struct via_daemon_options *options, struct link_words *words,
                                     const char *text)
{
    unsigned count = options->host.links_count;
    if (count == VIA_PORTS_MAX) {
        return wrong("--link %s: a host has at most %u links", text, VIA_PORTS_MAX);
    }
    struct via_host_link *link = &options->links[count];
    if (!parse_link(text, link, &words[count]) &&
        !parse_described(text, link, &words[count], options->link_descriptions[count])) {
        return wrong("--link %s: PEER:SIDE:N[:nodirect][:dimension=D][:like=CLASS][:window=BYTES]"
                     "[:seed=N], where PEER is 0 to %u, SIDE 0 or 1, N 0 to 999, D 0 to %u; or "
                     "PEER=DRIVER:TARGET[,KEY=VALUE...]",
                     text, VIA_HOSTS_MAX - 1, VIA_DIMENSIONS_MAX - 1);
    }
    for (unsigned i = 0; i < count; i++) {
        if (!words[i].is_described && !words[count].is_described &&
            options->links[i].peer == link->peer && words[i].number == words[count].number) {
            return wrong("--link %s: cable %u to host %u is given twice", text, words[count].number,
                         link->peer);
        }
    }
    options->host.links_count++;
    return VIA_DAEMON_RUN;
}

/* emu:PATH,side=S,...; a comma in the path is doubled. */
static bool describe_link(const struct via_rundir_path *path, const struct link_words *words,
                          char *ret_description)
{
    size_t used = (size_t)snprintf(ret_description, VIA_DAEMON_DESCRIPTION_BYTES, "emu:");
    for (const char *at = path->text; *at != '\0'; at++) {
        if (used + 3 >= VIA_DAEMON_DESCRIPTION_BYTES) {
            return false;
        }
        ret_description[used++] = *at;
        if (*at == ',') {
            ret_description[used++] = ',';
        }
    }
    size_t room = VIA_DAEMON_DESCRIPTION_BYTES - used;
    return (size_t)snprintf(ret_description + used, room, ",side=%u%s", words->side,
                            words->options) < room;
}

static enum via_daemon_next add_rights(struct via_rights *rights, const char *option,
                                       const char *text)
{
    struct via_error err;
    if (via_rights_add(rights, text, &err) != 0) {
        return wrong("--%s %s: %s", option, text, err.text);
    }
    return VIA_DAEMON_RUN;
}

/* Equivalent to --attach group:NAME. */
static enum via_daemon_next set_group(struct via_daemon_options *options, const char *name)
{
    char item[128];
    struct via_error err;
    if ((size_t)snprintf(item, sizeof(item), "group:%s", name) >= sizeof(item) ||
        strchr(name, ',') != NULL || via_rights_add(&options->host.attach, item, &err) != 0) {
        return wrong("--group %s: there is no such group", name);
    }
    return VIA_DAEMON_RUN;
}

static enum via_daemon_next set_metrics(struct via_daemon_options *options, const char *text)
{
    struct sockaddr_storage address;
    struct via_error err;
    if (via_metrics_parse_address(text, &address, &err) != 0) {
        return wrong("--metrics %s", err.text);
    }
    options->metrics = text;
    return VIA_DAEMON_RUN;
}

static enum via_daemon_next set_quota(struct via_daemon_options *options, const char *text)
{
    struct via_error err;
    if (via_quota_parse(&options->host.quota, text, &err) != 0) {
        return wrong("--quota %s: %s", text, err.text);
    }
    return VIA_DAEMON_RUN;
}

static const char *name_of(int id)
{
    for (const struct option *option = long_options; option->name != NULL; option++) {
        if (option->val == id) {
            return option->name;
        }
    }
    return "?";
}

static enum via_daemon_next parse_numeric(struct via_daemon_options *options, int id,
                                          const char *text)
{
    struct via_error err;
    const struct via_daemon_number *number = via_daemon_number_find(name_of(id));
    if (number != NULL && via_daemon_number_set(number, options, text, &err) != 0) {
        return wrong("--%s %s: %s", name_of(id), text, err.text);
    }
    return number != NULL ? VIA_DAEMON_RUN : wrong("--%s is not understood", name_of(id));
}

static enum via_daemon_next set_identity(struct via_daemon_options *options, bool is_name,
                                         const char *text)
{
    struct via_error err;
    struct via_host_identity *identity = &options->identity;
    if ((is_name ? via_host_identity_set_name(identity, text, &err)
                 : via_host_identity_add_address(identity, text, &err)) != 0) {
        return wrong("--%s: %s", is_name ? "name" : "address", err.text);
    }
    return VIA_DAEMON_RUN;
}

/* Makes the host's options point to the identity, when all options are parsed. */
static void connect_identity(struct via_daemon_options *options)
{
    struct via_host_identity *identity = &options->identity;
    for (unsigned i = 0; i < identity->addresses_count; i++) {
        options->addresses[i] = identity->addresses[i];
    }
    options->host.addresses = options->addresses;
    options->host.addresses_count = identity->addresses_count;
    options->host.name = identity->name[0] != '\0' ? identity->name : NULL;
}

struct parse {
    const char *rundir;
    const char *fabric;
    bool host_given;
    int other; /* an option that must be in the file instead; 0: none */
    struct link_words links[VIA_PORTS_MAX];
};

static enum via_daemon_next parse_one(struct via_daemon_options *options, struct parse *parse,
                                      int id)
{
    int level;
    switch (id) {
    case OPT_CONFIG:
        options->config_path = optarg;
        return VIA_DAEMON_RUN;
    case OPT_CHECK:
        options->check = true;
        return VIA_DAEMON_RUN;
    case OPT_RUNDIR:
        parse->rundir = optarg;
        return VIA_DAEMON_RUN;
    case OPT_FABRIC:
        parse->fabric = optarg;
        return VIA_DAEMON_RUN;
    case OPT_LINK:
        return add_link(options, parse->links, optarg);
    case OPT_ATTACH:
        return add_rights(&options->host.attach, "attach", optarg);
    case OPT_ADMIN:
        return add_rights(&options->host.admin, "admin", optarg);
    case OPT_GROUP:
        return set_group(options, optarg);
    case OPT_QUOTA:
        return set_quota(options, optarg);
    case OPT_NAME:
    case OPT_ADDRESS:
        return set_identity(options, id == OPT_NAME, optarg);
    case OPT_TUNE:
        options->tune_path = optarg;
        return VIA_DAEMON_RUN;
    case OPT_METRICS:
        return set_metrics(options, optarg);
    case OPT_KEY:
        options->key_path = optarg;
        return VIA_DAEMON_RUN;
    case OPT_FOREGROUND:
        options->foreground = true;
        return VIA_DAEMON_RUN;
    case OPT_PARENT_DEATH:
        options->parent_death = true;
        return VIA_DAEMON_RUN;
    case OPT_LOG_LEVEL:
        level = via_log_level_parse(optarg);
        if (level < 0) {
            return wrong("--log-level %s: error, warn, info, debug or trace", optarg);
        }
        options->log_level = (enum via_log_level)level;
        return VIA_DAEMON_RUN;
    case OPT_HELP:
        fputs(help, stdout);
        return VIA_DAEMON_DONE;
    case OPT_VERSION:
        printf("viaductd %s, protocol %u\n", VIADUCT_VERSION, VIA_PROTOCOL_VERSION);
        return VIA_DAEMON_DONE;
    case '?':
        fputs("Try 'viaductd --help'.\n", stderr);
        return VIA_DAEMON_WRONG;
    default:
        parse->host_given = parse->host_given || id == OPT_HOST;
        return parse_numeric(options, id, optarg);
    }
}

static enum via_daemon_next set_paths(struct via_daemon_options *options, const struct parse *parse)
{
    struct via_error err;
    int rc = 0;
    if (parse->rundir == NULL) {
        rc = via_rundir_default(parse->fabric, &options->rundir, &err);
    } else if (strlen(parse->rundir) >= sizeof(options->rundir.text)) {
        return wrong("--rundir %s: longer than %zu bytes", parse->rundir,
                     sizeof(options->rundir.text) - 1);
    } else {
        strcpy(options->rundir.text, parse->rundir);
    }
    for (unsigned i = 0; i < options->host.links_count && rc == 0; i++) {
        struct via_rundir_path path;
        options->links[i].description = options->link_descriptions[i];
        if (parse->links[i].is_described) {
            continue;
        }
        rc = via_rundir_link_path(options->rundir.text, options->host.host, options->links[i].peer,
                                  parse->links[i].number, &path, &err);
        if (rc == 0 && !describe_link(&path, &parse->links[i], options->link_descriptions[i])) {
            return wrong("%s: too long", path.text);
        }
    }
    if (rc != 0) {
        return wrong("%s", err.text);
    }
    connect_identity(options);
    options->host.rundir = options->rundir.text;
    options->host.links = options->links;
    return VIA_DAEMON_RUN;
}

void via_daemon_options_init(struct via_daemon_options *options)
{
    memset(options, 0, sizeof(*options));
    options->log_level = VIA_LOG_INFO;
    options->log_bytes = VIA_DAEMON_LOG_BYTES;
    options->ready_fd = -1;
    via_host_options_init(&options->host);
}

static enum via_daemon_next check_ready_fd(const struct via_daemon_options *options)
{
    if (options->ready_fd >= 0 && fcntl(options->ready_fd, F_GETFD) < 0) {
        return wrong("--ready-fd %d: %s", options->ready_fd, strerror(errno));
    }
    return VIA_DAEMON_RUN;
}

/* True if the option may accompany --config. Any other option in two places would leave open which
 * value applies. */
static bool is_allowed_with_file(int id)
{
    return id == OPT_CONFIG || id == OPT_CHECK || id == OPT_FOREGROUND || id == OPT_PARENT_DEATH ||
           id == OPT_WITH || id == OPT_READY_FD;
}

static void print_line(void *ctx, const char *line)
{
    fprintf(ctx, "viaductd: %s\n", line);
}

static enum via_daemon_next use_file(struct via_daemon_options *options, const struct parse *parse)
{
    static struct via_daemon_report report;
    if (parse->other != 0) {
        return wrong("--%s: not together with --config: the file sets it", name_of(parse->other));
    }
    if (options->config_path[0] != '/' && !options->check) {
        return wrong("--config %s: a daemon reads the file again later: an absolute path is needed",
                     options->config_path);
    }
    if (via_daemon_config_load(options->config_path, options, &report) != 0) {
        via_daemon_report_each(&report, print_line, stderr);
        return VIA_DAEMON_WRONG;
    }
    if (options->check) {
        via_daemon_config_print(options, stdout);
        return VIA_DAEMON_DONE;
    }
    return check_ready_fd(options);
}

enum via_daemon_next via_daemon_parse(int argc, char **argv, struct via_daemon_options *ret_options)
{
    struct parse parse = {0};
    via_daemon_options_init(ret_options);
    enum via_daemon_next next = VIA_DAEMON_RUN;
    for (int id;
         next == VIA_DAEMON_RUN && (id = getopt_long(argc, argv, "", long_options, NULL)) >= 0;) {
        parse.other = is_allowed_with_file(id) || id == '?' ? parse.other : id;
        next = parse_one(ret_options, &parse, id);
    }
    if (next != VIA_DAEMON_RUN) {
        return next;
    }
    if (optind < argc) {
        return wrong("'%s' is not understood", argv[optind]);
    }
    if (ret_options->config_path != NULL) {
        return use_file(ret_options, &parse);
    }
    if (ret_options->check) {
        return wrong("--check: needs --config FILE");
    }
    if (!parse.host_given) {
        return wrong("--host is missing");
    }
    next = check_ready_fd(ret_options);
    return next == VIA_DAEMON_RUN ? set_paths(ret_options, &parse) : next;
}
