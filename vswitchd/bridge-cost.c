/* SPDX-License-Identifier: Apache-2.0 */

#include <config.h>

#include "bridge-cost.h"

#include "cost-report.h"
#include "cost-threads.h"
#include "hash.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/json.h"
#include "openvswitch/ofp-msgs.h"
#include "unicode.h"
#include "util.h"
#include "work-observer.h"

/* All kinds of events share these classes.  A type of interface or message, or
 * a command, gets the next one of its own kind when it is first seen, or is
 * "other" if none is left: OVS has fewer of each. */
enum {
    ITERATION,
    FIRST_TYPE,
    FIRST_COMMAND = FIRST_TYPE + 64,
    FIRST_MESSAGE = FIRST_COMMAND + 512,
    OTHER = FIRST_MESSAGE + 256,
    N_CLASSES
};
static const char *class_names[N_CLASSES] = {
    [ITERATION] = "iteration",
    [OTHER] = "other",
};

/* Details of an iteration: interfaces updated and commands executed. */
enum { N_INTERFACES, N_COMMANDS, LOOP_N_DETAILS };

/* Details of an interface, command or message: words of its name, arguments or
 * peer. */
#define TEXT_N_DETAILS 8
#define PEER_MAX 256                    /* Including the null byte. */

/* Stages of a command. */
#define COMMAND_STAGES(COLUMN) \
    COLUMN(0, "total", NULL, 0, \
           "Executing the command, without what it does later, as exit does.")

/* Stages of a message. */
#define MESSAGE_STAGES(COLUMN) \
    COLUMN(0, "total", NULL, 0, "Handling the message, replies included.")

static void
format_class(size_t class, struct ds *s)
{
    ds_put_cstr(s, class_names[class] ? class_names[class] : "");
}

static void get_loop_details(const struct cost_span *, uint64_t *);
static void get_text_details(const struct cost_span *, uint64_t *);

static struct cost_config config
    = COST_CONFIG_INITIALIZER("bridge", COST_DEFAULT_SAMPLE_INTERVAL);

#define KIND(EVENT, STAGES, N_DETAILS, KEY, N_KEYS) \
    {                                           \
        .event = EVENT,                         \
        .config = &config,                      \
        COST_STAGES(STAGES),                    \
        .exact = true,                          \
        .n_classes = N_CLASSES,                 \
        .format_class = format_class,           \
        .lists = &(const struct cost_list) { .name = KEY, .max = N_KEYS }, \
        .n_lists = N_KEYS != 0,                 \
        .n_slowest = COST_MAX_SLOWEST,          \
        .n_details = N_DETAILS,                 \
        .get_details = (N_DETAILS == LOOP_N_DETAILS ? get_loop_details \
                        : get_text_details),    \
    }
static const struct cost_kind loop_kind
    = KIND("iteration", BRIDGE_COST_STAGES, LOOP_N_DETAILS, NULL, 0);
const struct cost_kind bridge_cost_iface_kind
    = KIND("update", BRIDGE_COST_IFACE_STAGES, TEXT_N_DETAILS, "interface",
           1024);
static const struct cost_kind command_kind
    = KIND("command", COMMAND_STAGES, TEXT_N_DETAILS, NULL, 0);
static const struct cost_kind message_kind
    = KIND("message", MESSAGE_STAGES, TEXT_N_DETAILS, "message", 256);

/* The main thread's, created by bridge_cost_init(). */
enum { LOOP, IFACES, COMMANDS, MESSAGES, N_ACCOUNTS };
static struct cost_recorder *recorders[N_ACCOUNTS];
static pthread_t main_thread;

/* The iteration in progress.  It has a recorder if accounting is on. */
static struct cost_span loop;
static enum bridge_cost_stage loop_stage;
static uint64_t loop_details[LOOP_N_DETAILS];

/* Details of the interface, command or message that ends. */
static const char *const *texts;
static size_t n_texts;

/* Returns the class of 'name', one of those from 'first' up to 'end'. */
static size_t
get_class(const char *name, size_t first, size_t end)
{
    for (size_t i = first; i < end; i++) {
        if (!class_names[i]) {
            class_names[i] = xstrdup(name);
        }
        if (!strcmp(name, class_names[i])) {
            return i;
        }
    }
    return OTHER;
}

/* Stores in 'details' the text of the event, with spaces in between, as far as
 * it fits. */
static void
get_text_details(const struct cost_span *span OVS_UNUSED, uint64_t *details)
{
    struct ds s = DS_EMPTY_INITIALIZER;
    char *error;

    for (size_t i = 0; i < n_texts; i++) {
        ds_put_format(&s, "%s%s", i ? " " : "", texts[i]);
    }

    /* JSON takes UTF-8 only. */
    error = utf8_validate(ds_cstr(&s), NULL);
    for (size_t i = 0; error && i < s.length; i++) {
        s.string[i] = s.string[i] & 0x80 ? '?' : s.string[i];
    }
    free(error);
    cost_copy_text((char *) details, TEXT_N_DETAILS * sizeof *details,
                   ds_cstr(&s));
    ds_destroy(&s);
}

static uint64_t
hash_text(const char *text)
{
    return (uint64_t) hash_string(text, 0) << 32 | hash_string(text, 1);
}

/* Main loop. */

static void
get_loop_details(const struct cost_span *span OVS_UNUSED, uint64_t *details)
{
    memcpy(details, loop_details, sizeof loop_details);
}

/* Ends an iteration of the main loop, if one has been started, and starts the
 * next. */
void
bridge_cost_next(void)
{
    bool enabled = cost_enabled(&config);
    uint64_t now;

    if (enabled) {
        cost_threads_mark(false);
    }
    now = cost_clock_now(loop_kind.event, 0);

    if (enabled && loop.recorder) {
        cost_span_lap(&loop, loop_stage, now);
        cost_span_finish(&loop, now, 0, NULL);
    }
    loop.recorder = NULL;
    if (enabled) {
        cost_span_open(&loop, recorders[LOOP], true, now);
    }
    loop_stage = BRIDGE_COST_OTHER;
    memset(loop_details, 0, sizeof loop_details);
}

/* Ends the stage that the main loop is in, and begins 'stage'.  Returns the
 * stage that ends, which the caller enters again if 'stage' is only a part of
 * it.  A stage may be entered any number of times.  A configuration that runs
 * datapaths and bridges stays one. */
enum bridge_cost_stage
bridge_cost_enter(enum bridge_cost_stage stage)
{
    enum bridge_cost_stage outer = loop_stage;

    if (outer == BRIDGE_COST_CONFIGURE && (stage == BRIDGE_COST_DATAPATH
                                           || stage == BRIDGE_COST_OPENFLOW)) {
        return outer;
    }
    if (loop.recorder && stage != outer) {
        cost_span_lap(&loop, outer, cost_span_now(&loop));
        loop_stage = stage;
        if (stage == BRIDGE_COST_POLL) {
            cost_threads_mark(true);
        }
    }
    return outer;
}

/* Begins 'span' for an update of the statistics of an interface, whose stages
 * cost_lap() ends. */
void
bridge_cost_iface_start(struct cost_span *span)
{
    cost_span_begin(span, recorders[IFACES]);
}

/* Ends 'span', whose last stage is BRIDGE_COST_IFACE_ROW, for the interface
 * 'name' of 'type'. */
void
bridge_cost_iface_stop(struct cost_span *span, const char *name,
                       const char *type)
{
    texts = &name;
    n_texts = 1;
    span->who[0] = (struct cost_who) {
        .id = hash_text(name), .name = name, .group = ""
    };
    cost_span_end(span, BRIDGE_COST_IFACE_ROW,
                  get_class(type, FIRST_TYPE, FIRST_COMMAND));
    loop_details[N_INTERFACES]++;
}

/* Accounts for the command with the name and arguments in 'argv', which is
 * about to be executed, or has been if 'done'. */
static void
trace_command(int argc, const char *argv[], bool done)
{
    static struct cost_span span;

    if (!loop.recorder) {
        return;
    } else if (!done) {
        cost_span_open(&span, recorders[COMMANDS], true, cost_span_now(&loop));
    } else {
        texts = argv + 1;
        n_texts = argc - 1;
        cost_span_finish(&span, cost_span_now(&loop),
                         get_class(argv[0], FIRST_COMMAND, FIRST_MESSAGE),
                         NULL);
        loop_details[N_COMMANDS]++;
    }
}

/* Returns the name of the process 'pid' at the other end of the connection
 * 'peer', or "" if it can't be seen.  The name is read when the connection is
 * first seen, and the latest connections are kept. */
static const char *
get_process(const char *peer, pid_t pid)
{
    static struct process {
        pid_t pid;
        char peer[PEER_MAX];
        char name[16];                  /* As long as the kernel's. */
    } cache[16];
    struct process *process = &cache[pid % ARRAY_SIZE(cache)];

    if (process->pid != pid
        || strncmp(process->peer, peer, sizeof process->peer - 1)) {
        process->pid = pid;
        ovs_strlcpy(process->peer, peer, sizeof process->peer);
        cost_read_file(process->name, sizeof process->name,
                       "/proc/%ld/comm", (long int) pid);
        process->name[strcspn(process->name, "\n")] = '\0';
        for (char *c = process->name; *c; c++) {
            *c = *c < ' ' || *c > '~' ? '?' : *c;   /* It may have any. */
        }
    }
    return process->name;
}

/* Sets 'text' to 'peer', "BRIDGE<->TARGET", without the number of a
 * connection: a client that connects again is the same one.  If process 'pid'
 * can be seen, "NAME (pid PID)" is the target.  'name' has no PID, and of a
 * long path the end. */
static void
name_peer(const char *peer, pid_t pid,
          char text[PEER_MAX], char name[COST_TEXT_MAX])
{
    const char *number = strrchr(peer, '#');
    size_t len = strlen(peer);

    if (number && number[1]
        && !number[1 + strspn(number + 1, "0123456789")]) {
        const char *process = pid ? get_process(peer, pid) : "";

        len = number - peer;
        if (process[0]) {
            len -= strlen("unix");
            snprintf(text, PEER_MAX, "%.*s%s (pid %ld)", (int) len, peer,
                     process, (long int) pid);
            snprintf(name, COST_TEXT_MAX, "%.*s%s", (int) len, peer, process);
            return;
        }
    }

    char *target = xmemdup0(peer, len);

    cost_copy_text(text, PEER_MAX, target);
    free(target);

    const char *path = strstr(text, "unix:");
    const char *file = strrchr(text, '/');

    if (strlen(text) >= COST_TEXT_MAX && path && file > path) {
        char *cut = xasprintf("%.*s...%s",
                              (int) (path - text + strlen("unix:")), text,
                              file);

        cost_copy_text(name, COST_TEXT_MAX, cut);
        free(cut);
    } else {
        cost_copy_text(name, COST_TEXT_MAX, text);
    }
}

/* Returns the class of the OpenFlow message 'oh'. */
static size_t
get_message_class(const struct ofp_header *oh)
{
    static uint16_t classes[256];       /* By enum ofpraw, or 0. */
    enum ofpraw raw;

    if (ofpraw_decode(&raw, oh)) {
        return get_class("bad", FIRST_MESSAGE, OTHER);
    } else if (raw >= ARRAY_SIZE(classes)) {
        return OTHER;
    } else if (!classes[raw]) {
        classes[raw] = get_class(ofpraw_get_name(raw), FIRST_MESSAGE, OTHER);
    }
    return classes[raw];
}

/* Accounts for the OpenFlow message 'oh' from 'peer', a process 'pid' of this
 * host unless that is 0.  OVS is about to handle the message, or has handled
 * it, if 'done'.  Handling may free it, so this reads its type before. */
static void
trace_message(const char *peer, pid_t pid, const struct ofp_header *oh,
              bool done)
{
    /* Of the latest peer, from which most messages are. */
    static char latest[PEER_MAX], text[PEER_MAX], name[COST_TEXT_MAX];
    static uint64_t hash;
    static pid_t latest_pid;

    static struct cost_span span;
    static size_t class;

    if (!loop.recorder) {
        return;
    } else if (!done) {
        class = get_message_class(oh);
        if (pid != latest_pid || strcmp(peer, latest)) {
            ovs_strlcpy(latest, peer, sizeof latest);
            latest_pid = pid;
            name_peer(peer, pid, text, name);
            hash = hash_text(name);
        }
        cost_span_open(&span, recorders[MESSAGES], true, cost_span_now(&loop));
        span.who[0] = (struct cost_who) {
            .id = hash + class, .name = class_names[class], .group = name
        };
    } else {
        const char *words = text;

        texts = &words;
        n_texts = 1;
        cost_span_finish(&span, cost_span_now(&loop), class, NULL);
    }
}

/* Accounts for a reading of all routes, or an update of the addresses of
 * tunnels, which is about to begin, in whatever stage the main loop is, or has
 * ended if 'done'.  One may be within the other. */
static void
trace_routes(bool done)
{
    static enum bridge_cost_stage outer;
    static int depth;

    if (done ? !--depth : !depth++) {
        outer = bridge_cost_enter(done ? outer : BRIDGE_COST_ROUTES);
    }
}

/* Accounts for ovsrcu_synchronize(), if the main thread is about to call it,
 * or has if 'done'. */
static void
trace_synchronize(bool done)
{
    static enum bridge_cost_stage outer;

    if (pthread_equal(pthread_self(), main_thread)) {
        outer = bridge_cost_enter(done ? outer : BRIDGE_COST_RCU);
    }
}

/* Reporting. */

static void
put_details(const char *account, const uint64_t *details,
            bool packet OVS_UNUSED, struct json *json)
{
    if (!strcmp(account, "main-loop")) {
        cost_put_integer(json, "interfaces", details[N_INTERFACES]);
        cost_put_integer(json, "commands", details[N_COMMANDS]);
    } else if (*(const char *) details) {
        json_object_put_string(json, (!strcmp(account, "interfaces")
                                      ? "interface"
                                      : !strcmp(account, "openflow") ? "peer"
                                      : "arguments"),
                               (const char *) details);
    }
}

/* Creates the accounts, registers the bridge/cost-* commands, and observes
 * work that is an event or a stage. */
void
bridge_cost_init(void)
{
    static const struct cost_kind *const kinds[N_ACCOUNTS] = {
        &loop_kind, &bridge_cost_iface_kind, &command_kind, &message_kind
    };
    static const char *const names[N_ACCOUNTS] = {
        "main-loop", "interfaces", "commands", "openflow"
    };
    static const struct cost_report report = {
        .prefix = "bridge",
        .object = "account",
        .kinds = kinds,
        .n_kinds = ARRAY_SIZE(kinds),
        .class_help = "iteration, or a type of interface, a command or a type "
                      "of OpenFlow message that has been counted",
        .put_details = put_details,
    };

    main_thread = pthread_self();
    for (size_t i = 0; i < N_ACCOUNTS; i++) {
        recorders[i] = cost_recorder_create(
            cost_account_create(kinds[i], names[i], NULL), "main");
    }
    cost_report_register(&report);
    atomic_store_relaxed(&work_observer.command, trace_command);
    atomic_store_relaxed(&work_observer.message, trace_message);
    atomic_store_relaxed(&work_observer.routes, trace_routes);
    atomic_store_relaxed(&work_observer.synchronize, trace_synchronize);
}
