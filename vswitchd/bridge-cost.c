/*
 * SPDX-License-Identifier: Apache-2.0
 *
 * Licensed under the Apache License, Version 2.0 (the "License");
 * you may not use this file except in compliance with the License.
 * You may obtain a copy of the License at:
 *
 *     http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing, software
 * distributed under the License is distributed on an "AS IS" BASIS,
 * WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
 * See the License for the specific language governing permissions and
 * limitations under the License.
 */

#include <config.h>

#include "bridge-cost.h"

#include "cost-report.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/json.h"
#include "openvswitch/shash.h"
#include "util.h"

/* Classes, of all three kinds of events, have names that are not known in
 * advance: those of types of interfaces, and of commands.  Each gets a class
 * when it is first seen.  The last class stands for names that come when all
 * other classes are taken. */
#define N_CLASSES 96
static struct shash classes = SHASH_INITIALIZER(&classes);
static const char *class_names[N_CLASSES] = {
    [0] = "iteration",
    [N_CLASSES - 1] = "other",
};

/* Details of one of the slowest iterations. */
enum {
    DETAIL_INTERFACES,                  /* Number of them updated. */
    DETAIL_COMMANDS,                    /* Number of them executed. */
    LOOP_N_DETAILS
};

/* Words with text, null-terminated, in the details of an interface or
 * command. */
#define TEXT_N_DETAILS 8

static const char *const loop_stages[BRIDGE_COST_N_STAGES] = {
    [BRIDGE_COST_POLL] = "poll",
    [BRIDGE_COST_IDL] = "idl",
    [BRIDGE_COST_DATAPATH] = "datapath",
    [BRIDGE_COST_OPENFLOW] = "openflow",
    [BRIDGE_COST_CONFIGURE] = "configure",
    [BRIDGE_COST_STATS] = "stats",
    [BRIDGE_COST_STATUS] = "status",
    [BRIDGE_COST_COMMIT] = "commit",
    [BRIDGE_COST_APPCTL] = "appctl",
    [BRIDGE_COST_ROUTES] = "routes",
    [BRIDGE_COST_NETDEV] = "netdev",
    [BRIDGE_COST_WAIT] = "wait",
    [BRIDGE_COST_OTHER] = "other",
    [BRIDGE_COST_RUN] = "run",
};

static const char *const iface_stages[BRIDGE_COST_IFACE_N_STAGES] = {
    [BRIDGE_COST_IFACE_CUSTOM] = "custom",
    [BRIDGE_COST_IFACE_STATS] = "stats",
    [BRIDGE_COST_IFACE_ROW] = "row",
    [BRIDGE_COST_IFACE_TOTAL] = "total",
};

static const char *const command_stages[] = { "total" };

static void
format_class(size_t class, struct ds *s)
{
    ds_put_cstr(s, class_names[class] ? class_names[class] : "");
}

static struct cost_config config
    = COST_CONFIG_INITIALIZER("bridge", COST_DEFAULT_SPLIT_INTERVAL, NULL);

static const struct cost_kind loop_kind = {
    .name = "iteration",
    .config = &config,
    .stages = loop_stages,
    .n_stages = BRIDGE_COST_N_STAGES,
    .always_split = true,
    .n_classes = N_CLASSES,
    .format_class = format_class,
    .n_slowest = COST_MAX_SLOWEST,
    .n_details = LOOP_N_DETAILS,
};

const struct cost_kind bridge_cost_iface_kind = {
    .name = "update",
    .config = &config,
    .stages = iface_stages,
    .n_stages = BRIDGE_COST_IFACE_N_STAGES,
    .n_classes = N_CLASSES,
    .format_class = format_class,
    .n_slowest = COST_MAX_SLOWEST,
    .n_details = TEXT_N_DETAILS,
};

static const struct cost_kind command_kind = {
    .name = "command",
    .config = &config,
    .stages = command_stages,
    .n_stages = ARRAY_SIZE(command_stages),
    .always_split = true,
    .n_classes = N_CLASSES,
    .format_class = format_class,
    .n_slowest = COST_MAX_SLOWEST,
    .n_details = TEXT_N_DETAILS,
};

/* The main thread's, created by bridge_cost_init(). */
static struct cost_recorder *loop_recorder;
static struct cost_recorder *iface_recorder;
static struct cost_recorder *command_recorder;

/* The main thread's iteration. */
static struct {
    bool active;                        /* Is it accounted for? */
    enum bridge_cost_stage stage;       /* That it is in. */
    uint64_t last;                      /* Ticks, when that began. */
    struct cost_event event;            /* So far. */
    uint64_t details[LOOP_N_DETAILS];
} loop;

/* Its clock: in a test, the stages of an iteration differ from each other and
 * do not depend on other iterations. */
static struct cost_clock_stepper stepper;

static uint64_t
clock_now(void)
{
    return cost_clock_stepper_now(&stepper, loop_kind.name);
}

/* Returns the ticks since 'last', which becomes 'now'. */
static uint64_t
ticks_since(uint64_t *last, uint64_t now)
{
    uint64_t ticks = cost_clock_between(*last, now);

    *last = now;
    return ticks;
}

/* Returns the class named 'name', which is created if there is none. */
static size_t
get_class(const char *name)
{
    static size_t latest;
    struct shash_node *node;
    size_t class;

    /* Most interfaces are of the same type. */
    if (!strcmp(name, class_names[latest])) {
        return latest;
    }

    node = shash_find(&classes, name);
    if (node) {
        return latest = (uintptr_t) node->data;
    }

    class = shash_count(&classes) + 1;
    if (class == N_CLASSES - 1) {
        return class;
    }
    node = shash_add(&classes, name, (void *) (uintptr_t) class);
    class_names[class] = node->name;
    return class;
}

/* Stores in 'details' as much of 'text' as fits, null-terminated.  What does
 * not fit is replaced by "...", without cutting through a UTF-8 character. */
static void
text_to_details(uint64_t *details, const char *text)
{
    char *copy = (char *) details;
    size_t max = TEXT_N_DETAILS * sizeof *details - 1;
    size_t len = strlen(text);

    memset(details, 0, TEXT_N_DETAILS * sizeof *details);
    if (len > max) {
        for (len = max - 3; len && (text[len] & 0xc0) == 0x80;) {
            len--;
        }
        memcpy(copy + len, "...", 3);
    }
    memcpy(copy, text, len);
}

/* Main loop. */

static void
get_loop_details(uint64_t *details, const void *aux OVS_UNUSED,
                 size_t n OVS_UNUSED)
{
    memcpy(details, loop.details, sizeof loop.details);
}

/* Ends the stage that the main loop is in, 'now'. */
static void
end_stage(uint64_t now)
{
    cost_event_add(&loop.event, loop.stage, ticks_since(&loop.last, now));
}

/* Ends an iteration of the main loop, if one has been started, and starts the
 * next. */
void
bridge_cost_next(void)
{
    static const struct cost_details details = { get_loop_details, NULL, 0 };
    bool stale = cost_clock_stepper_is_stale(&stepper);
    uint64_t now;

    if (!cost_enabled(&config) || !loop_recorder) {
        loop.active = false;
        return;
    }

    now = cost_clock_stepper_start(&stepper, loop_kind.name);
    if (loop.active && !stale) {
        end_stage(now);

        loop.event.total = 0;
        for (size_t i = BRIDGE_COST_POLL + 1; i < BRIDGE_COST_RUN; i++) {
            if (loop.event.marked & (1u << i)) {
                loop.event.total += loop.event.stages[i];
            }
        }
        cost_record(loop_recorder, 0, &loop.event, &details);
    } else {
        loop.last = now;
    }

    loop.active = true;
    loop.stage = BRIDGE_COST_OTHER;
    cost_event_init(&loop.event);
    memset(loop.details, 0, sizeof loop.details);
}

/* Ends the stage that the main loop is in, and begins 'stage'.  Returns the
 * one that ends, to which the caller returns in the same way if 'stage' is but
 * a part of it.  A stage may be entered any number of times. */
enum bridge_cost_stage
bridge_cost_enter(enum bridge_cost_stage stage)
{
    enum bridge_cost_stage outer = loop.stage;

    if (loop.active && stage != outer) {
        end_stage(clock_now());
        loop.stage = stage;
    }
    return outer;
}

/* Interfaces. */

/* Starts 'timer' for an update of the statistics of an interface, whose stages
 * cost_timer_mark() ends.  Requires bridge_cost_init(). */
void
bridge_cost_iface_start(struct cost_timer *timer)
{
    cost_timer_init(timer);
    cost_timer_start(timer, iface_recorder, 0);
}

static void
get_iface_details(uint64_t *details, const void *name, size_t n OVS_UNUSED)
{
    text_to_details(details, name);
}

/* Stops 'timer', whose last stage is BRIDGE_COST_IFACE_ROW, for the interface
 * 'name' of 'type'. */
void
bridge_cost_iface_stop(struct cost_timer *timer, const char *name,
                       const char *type)
{
    cost_timer_stop(timer, BRIDGE_COST_IFACE_ROW, get_class(type),
                    get_iface_details, name, 0);
    loop.details[DETAIL_INTERFACES]++;
}

/* Commands. */


static void
get_command_details(uint64_t *details, const void *argv_, size_t argc)
{
    const char *const *argv = argv_;
    struct ds s = DS_EMPTY_INITIALIZER;

    for (size_t i = 1; i < argc; i++) {
        ds_put_format(&s, "%s%s", i > 1 ? " " : "", argv[i]);
    }
    text_to_details(details, ds_cstr(&s));
    ds_destroy(&s);
}

/* Accounts for the command with the name and arguments in 'argv', which is
 * about to be executed, or has been if 'done'. */
void
bridge_cost_trace_command(int argc, const char *argv[], bool done)
{
    static uint64_t start;              /* 0 if it is not accounted for. */

    if (!done) {
        start = loop.active ? clock_now() : 0;
    } else if (start && !cost_clock_stepper_is_stale(&stepper)) {
        const struct cost_details details = {
            get_command_details, argv, argc
        };
        struct cost_event event;

        cost_event_init(&event);
        event.total = ticks_since(&start, clock_now());
        cost_record(command_recorder, get_class(argv[0]), &event, &details);
        loop.details[DETAIL_COMMANDS]++;
    }
}

/* Accounts for an update of the addresses of tunnels, which is about to begin,
 * in whatever stage the main loop is, or has ended if 'done'. */
void
bridge_cost_trace_addresses(bool done)
{
    static enum bridge_cost_stage outer;

    if (!done) {
        outer = bridge_cost_enter(BRIDGE_COST_ROUTES);
    } else {
        bridge_cost_enter(outer);
    }
}

/* Reporting. */

static void
put_plural(struct ds *s, uint64_t n, const char *noun)
{
    ds_put_format(s, "%"PRIu64" %s%s", n, noun, n == 1 ? "" : "s");
}

static void
format_details(const char *account, const uint64_t *details, struct ds *s)
{
    if (!strcmp(account, "main-loop")) {
        put_plural(s, details[DETAIL_INTERFACES], "interface");
        ds_put_cstr(s, ", ");
        put_plural(s, details[DETAIL_COMMANDS], "command");
    } else if (!strcmp(account, "interfaces")) {
        ds_put_format(s, "interface %s", (const char *) details);
    } else {
        const char *arguments = (const char *) details;

        ds_put_format(s, arguments[0] ? "arguments: %s" : "no arguments",
                      arguments);
    }
}

static void
details_to_json(const char *account, const uint64_t *details,
                struct json *json)
{
    if (!strcmp(account, "main-loop")) {
        json_object_put(json, "interfaces",
                        json_integer_create(details[DETAIL_INTERFACES]));
        json_object_put(json, "commands",
                        json_integer_create(details[DETAIL_COMMANDS]));
    } else {
        json_object_put_string(json,
                               (!strcmp(account, "interfaces")
                                ? "interface" : "arguments"),
                               (const char *) details);
    }
}

/* Returns the main thread's recorder of a new account, which lasts as long as
 * the process. */
static struct cost_recorder *
create_recorder(const struct cost_kind *kind, const char *account)
{
    return cost_recorder_get(cost_account_create(kind, account, NULL),
                             "main");
}

/* Creates the accounts and registers the bridge/cost-* commands. */
void
bridge_cost_init(void)
{
    static const struct cost_kind *const kinds[] = {
        &loop_kind, &bridge_cost_iface_kind, &command_kind
    };
    static const struct cost_report report = {
        .prefix = "bridge",
        .object = "account",
        .kinds = kinds,
        .n_kinds = ARRAY_SIZE(kinds),
        .class_help = "iteration, a type of interface or the name of a "
                      "command that has been counted",
        .format_details = format_details,
        .details_to_json = details_to_json,
    };

    loop_recorder = create_recorder(&loop_kind, "main-loop");
    iface_recorder = create_recorder(&bridge_cost_iface_kind, "interfaces");
    command_recorder = create_recorder(&command_kind, "commands");
    cost_report_register(&report);
}
