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

#include "revalidator-cost.h"

#include "cost-report.h"
#include "dump-observer.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/json.h"
#include "openvswitch/list.h"
#include "ovs-atomic.h"
#include "timeval.h"
#include "unixctl.h"
#include "util.h"

/* Whether flows had to be translated again: bit 0 of a class. */
enum {
    CLASS_STATISTICS,                   /* Nothing they depend on changed. */
    CLASS_REVALIDATE,                   /* Something may have. */
};

/* Details of one of the slowest rounds or shares. */
enum {
    DETAIL_FLOWS,                       /* In the datapath when it began. */
    N_DETAILS
};

/* A move of the flow limit. */
struct limit_move {
    long long int when;                 /* ms since the Epoch. */
    enum revalidator_cost_limit why;
    unsigned int from, to;
    long long int duration_ms;          /* Of the round, or -1 if a command
                                         * moved it. */
    size_t n_flows;                     /* In the datapath. */
};

#define N_MOVES 16                      /* That are kept. */

static struct ovs_mutex moves_mutex = OVS_MUTEX_INITIALIZER;

struct revalidator_cost {
    struct cost_account *rounds;
    struct cost_account *shares;
    struct cost_recorder *purged_rounds;  /* For flows that are purged, */
    struct cost_recorder *purged_shares;  /* by whichever thread does it. */
    char *name;

    /* What threads add up for the round. */
    atomic_uint64_t n_flows;
    atomic_uint64_t counters[REVALIDATOR_COST_N_COUNTERS];

    /* The leader's. */
    uint64_t reval_seq;                 /* Of the latest complete round. */
    uint64_t next_reval_seq;            /* Of this one. */

    /* Written by the leader before others take part, which then copy them: it
     * may begin the next round while they still record their share. */
    size_t class;
    uint64_t n_dp_flows;                /* Flows in the datapath. */

    /* In 'all_costs'. */
    struct ovs_list list_node OVS_GUARDED_BY(moves_mutex);

    unsigned int limit OVS_GUARDED_BY(moves_mutex);
    uint64_t n_moves OVS_GUARDED_BY(moves_mutex);  /* So far. */
    uint64_t n_known_flows OVS_GUARDED_BY(moves_mutex);  /* 'n_dp_flows'. */

    /* The latest is at (n_moves - 1) % N_MOVES. */
    struct limit_move moves[N_MOVES] OVS_GUARDED_BY(moves_mutex);
};

static struct ovs_list all_costs OVS_GUARDED_BY(moves_mutex)
    = OVS_LIST_INITIALIZER(&all_costs);

static struct cost_config config
    = COST_CONFIG_INITIALIZER("revalidator", COST_DEFAULT_SPLIT_INTERVAL,
                              NULL);

DEFINE_EXTERN_PER_THREAD_DATA(revalidator_cost_thread, { .on = false });

static const char *const round_stages[REVALIDATOR_COST_R_N_STAGES] = {
    [REVALIDATOR_COST_R_IDLE] = "idle",
    [REVALIDATOR_COST_R_START] = "start",
    [REVALIDATOR_COST_R_DUMP] = "dump",
    [REVALIDATOR_COST_R_SWEEP] = "sweep",
    [REVALIDATOR_COST_R_FINISH] = "finish",
    [REVALIDATOR_COST_R_THREADS] = "threads",
    [REVALIDATOR_COST_R_FLOWS] = "flows",
    [REVALIDATOR_COST_R_LIMIT] = "limit",
    [REVALIDATOR_COST_R_TOTAL] = "total",
};

static const char *const share_stages[REVALIDATOR_COST_N_STAGES] = {
    [REVALIDATOR_COST_IDLE] = "idle",
    [REVALIDATOR_COST_LEAD] = "lead",
    [REVALIDATOR_COST_LOCK] = "lock",
    [REVALIDATOR_COST_KERNEL] = "kernel",
    [REVALIDATOR_COST_DUMP] = "dump",
    [REVALIDATOR_COST_REVALIDATE] = "revalidate",
    [REVALIDATOR_COST_OPERATE] = "operate",
    [REVALIDATOR_COST_SWEEP] = "sweep",
    [REVALIDATOR_COST_BARRIER] = "barrier",
    [REVALIDATOR_COST_FLOWS] = "flows",
    [REVALIDATOR_COST_TOTAL] = "total",
};

/* Those of flows that are deleted are in the order of enum flow_del_reason. */
static const char *const counters[REVALIDATOR_COST_N_COUNTERS] = {
    [REVALIDATOR_COST_KEPT] = "kept",
    [REVALIDATOR_COST_MODIFIED] = "modified",
    [REVALIDATOR_COST_DUPLICATE] = "duplicate",
    [REVALIDATOR_COST_SKIPPED] = "skipped",
    [REVALIDATOR_COST_DELETED] = "unknown",
    "avoid-caching",
    "bad-odp-fit",
    "idle",
    "flow-limit",
    "wildcarded",
    "no-ofproto",
    "purge",
    "too-expensive",
    "update-fail",
    "translation",
    "missing",
};

static const char *const limits[REVALIDATOR_COST_N_LIMITS] = {
    [REVALIDATOR_COST_LIMIT_KEPT] = "kept",
    [REVALIDATOR_COST_LIMIT_SCALED] = "scaled",
    [REVALIDATOR_COST_LIMIT_REDUCED] = "reduced",
    [REVALIDATOR_COST_LIMIT_GREW] = "grew",
    [REVALIDATOR_COST_LIMIT_SET] = "set",
};

/* Appends the name of 'class' to 's', such as "statistics+reduced". */
static void
format_class(size_t class, struct ds *s)
{
    ds_put_cstr(s, class & CLASS_REVALIDATE ? "revalidate" : "statistics");
    if (class >> 1) {
        ds_put_format(s, "+%s", limits[class >> 1]);
    }
}

static const char *const round_units[REVALIDATOR_COST_R_N_STAGES] = {
    [REVALIDATOR_COST_R_LIMIT] = "flows",
};

const struct cost_kind revalidator_cost_round_kind = {
    .name = "round",
    .config = &config,
    .stages = round_stages,
    .n_stages = REVALIDATOR_COST_R_N_STAGES,
    .values = (1u << REVALIDATOR_COST_R_THREADS
               | 1u << REVALIDATOR_COST_R_FLOWS
               | 1u << REVALIDATOR_COST_R_LIMIT),
    .units = round_units,
    .always_split = true,
    .counters = counters,
    .n_counters = REVALIDATOR_COST_N_COUNTERS,
    .n_classes = REVALIDATOR_COST_N_CLASSES,
    .format_class = format_class,
    .n_slowest = COST_MAX_SLOWEST,
    .n_details = N_DETAILS,
    .typed_names = true,
};

const struct cost_kind revalidator_cost_share_kind = {
    .name = "share",
    .config = &config,
    .stages = share_stages,
    .n_stages = REVALIDATOR_COST_N_STAGES,
    .values = 1u << REVALIDATOR_COST_FLOWS,
    .always_split = true,
    .counters = counters,
    .n_counters = REVALIDATOR_COST_N_COUNTERS,
    .n_classes = REVALIDATOR_COST_N_CLASSES,
    .format_class = format_class,
    .n_slowest = COST_MAX_SLOWEST,
    .n_details = N_DETAILS,
    .typed_names = true,
};

/* Creates and returns the accounts for the datapath named 'name', whose flow
 * limit is 'flow_limit'.  The caller must destroy them with
 * revalidator_cost_destroy(). */
struct revalidator_cost *
revalidator_cost_create(const char *name, unsigned int flow_limit)
{
    struct revalidator_cost *cost = xzalloc(sizeof *cost);

    cost->rounds = cost_account_create(&revalidator_cost_round_kind, name,
                                       NULL);
    cost->shares = cost_account_create(&revalidator_cost_share_kind, name,
                                       NULL);
    cost->purged_rounds = cost_recorder_get(cost->rounds, "main");
    cost->purged_shares = cost_recorder_get(cost->shares, "main");
    cost->name = xstrdup(name);

    ovs_mutex_lock(&moves_mutex);
    cost->limit = flow_limit;
    ovs_list_push_back(&all_costs, &cost->list_node);
    ovs_mutex_unlock(&moves_mutex);
    return cost;
}

/* Destroys 'cost', which no thread may be using any more. */
void
revalidator_cost_destroy(struct revalidator_cost *cost)
{
    if (cost) {
        ovs_mutex_lock(&moves_mutex);
        ovs_list_remove(&cost->list_node);
        ovs_mutex_unlock(&moves_mutex);

        cost_account_destroy(cost->rounds);
        cost_account_destroy(cost->shares);
        free(cost->name);
        free(cost);
    }
}

/* Recording. */

static uint64_t
round_now(void)
{
    return cost_clock_now(revalidator_cost_round_kind.name);
}

/* Does what revalidator_cost_mark() does in a thread that is in a round. */
void
revalidator_cost_mark__(struct revalidator_cost_thread *thread,
                        enum revalidator_cost_stage stage)
{
    uint64_t now = round_now();
    uint64_t ticks = cost_clock_between(thread->last, now);

    cost_event_add(&thread->share, stage, ticks);
    thread->share.total += ticks;
    thread->last = now;
}

/* Ends 'stage' of the round at the calling thread's latest mark. */
static void
mark_round(struct revalidator_cost_thread *thread,
           enum revalidator_cost_round_stage stage)
{
    uint64_t ticks = cost_clock_between(thread->last_phase, thread->last);

    cost_event_add(&thread->round, stage, ticks);
    thread->round.total += ticks;
    thread->last_phase = thread->last;
}

/* The calling thread is the 'i'th revalidator from now on, and leads if 'i' is
 * 0. */
void
revalidator_cost_thread_start(struct revalidator_cost *cost, size_t i)
{
    struct revalidator_cost_thread *thread = revalidator_cost_thread_get();
    const char *name = get_subprogram_name();

    thread->recorder = cost_recorder_get(cost->shares, name);
    thread->leader = i ? NULL : cost_recorder_get(cost->rounds, name);
}

/* The calling thread is about to exit. */
void
revalidator_cost_thread_stop(void)
{
    struct revalidator_cost_thread *thread = revalidator_cost_thread_get();

    cost_recorder_release(thread->recorder);
    cost_recorder_release(thread->leader);
    thread->recorder = NULL;
    thread->on = false;
}

/* Starts the calling thread's share of a round. */
static void
begin_share(struct revalidator_cost_thread *thread)
{
    thread->on = thread->recorder && cost_enabled(&config);
    if (!thread->on) {
        thread->end = 0;
        return;
    }

    thread->begin = thread->last = round_now();
    cost_event_init(&thread->share);
    if (thread->end) {
        cost_event_add(&thread->share, REVALIDATOR_COST_IDLE,
                       cost_clock_between(thread->end, thread->begin));
    }
    thread->n_flows = 0;
    memset(thread->counters, 0, sizeof thread->counters);
}

/* The leader starts a round.  'reval_seq' is what says whether anything that
 * flows depend on has changed.
 *
 * If the round is cancelled, because revalidators are to pause or to exit,
 * there are no further calls for it; its time is idle. */
void
revalidator_cost_round_begin(struct revalidator_cost *cost,
                             uint64_t reval_seq)
{
    struct revalidator_cost_thread *thread = revalidator_cost_thread_get();

    cost->next_reval_seq = reval_seq;
    cost->class = (reval_seq != cost->reval_seq ? CLASS_REVALIDATE
                   : CLASS_STATISTICS);
    begin_share(thread);
    if (thread->on) {
        cost_event_init(&thread->round);
        thread->last_phase = thread->begin;
        if (thread->share.marked & (1u << REVALIDATOR_COST_IDLE)) {
            cost_event_add(&thread->round, REVALIDATOR_COST_R_IDLE,
                           thread->share.stages[REVALIDATOR_COST_IDLE]);
        }
    }
}

/* The leader has requested the dump of a datapath with 'n_flows' flows. */
void
revalidator_cost_dump_requested(struct revalidator_cost *cost, size_t n_flows)
{
    struct revalidator_cost_thread *thread = revalidator_cost_thread_get();

    cost->n_dp_flows = n_flows;
    ovs_mutex_lock(&moves_mutex);
    cost->n_known_flows = n_flows;
    ovs_mutex_unlock(&moves_mutex);
    if (thread->on) {
        revalidator_cost_mark__(thread, REVALIDATOR_COST_LEAD);
        mark_round(thread, REVALIDATOR_COST_R_START);
    }
}

/* Each thread is about to dump and revalidate flows. */
void
revalidator_cost_dump_begin(struct revalidator_cost *cost, bool leader)
{
    struct revalidator_cost_thread *thread = revalidator_cost_thread_get();

    thread->class = cost->class;
    thread->n_dp_flows = cost->n_dp_flows;
    if (leader) {
        revalidator_cost_mark(REVALIDATOR_COST_BARRIER);
    } else {
        begin_share(thread);
    }
}

/* All threads have dumped and revalidated flows. */
void
revalidator_cost_dump_end(bool leader)
{
    struct revalidator_cost_thread *thread = revalidator_cost_thread_get();

    if (thread->on) {
        revalidator_cost_mark__(thread, REVALIDATOR_COST_BARRIER);
        if (leader) {
            mark_round(thread, REVALIDATOR_COST_R_DUMP);
        }
    }
}

/* The calling thread has swept. */
void
revalidator_cost_sweep_end(struct revalidator_cost *cost)
{
    struct revalidator_cost_thread *thread = revalidator_cost_thread_get();

    if (thread->on) {
        uint64_t orig;

        revalidator_cost_mark__(thread, REVALIDATOR_COST_SWEEP);
        atomic_add_relaxed(&cost->n_flows, thread->n_flows, &orig);
        for (size_t i = 0; i < REVALIDATOR_COST_N_COUNTERS; i++) {
            if (thread->counters[i]) {
                atomic_add_relaxed(&cost->counters[i], thread->counters[i],
                                   &orig);
            }
        }
    }
}

static void
get_details(uint64_t *words, const void *n_dp_flows, size_t n OVS_UNUSED)
{
    words[DETAIL_FLOWS] = *(const uint64_t *) n_dp_flows;
}

/* Records 'event', with 'n_dp_flows' flows in the datapath, and 'n', what
 * became of its flows. */
static void
record(struct cost_recorder *recorder, size_t class, uint64_t n_dp_flows,
       struct cost_event *event,
       const uint64_t n[REVALIDATOR_COST_N_COUNTERS])
{
    const struct cost_details details = {
        .get = get_details,
        .aux = &n_dp_flows,
    };

    event->counts = n;
    cost_record(recorder, class, event, &details);
}

/* Records the share of 'thread', the calling one. */
static void
record_share(struct revalidator_cost_thread *thread)
{
    cost_event_add(&thread->share, REVALIDATOR_COST_FLOWS, thread->n_flows);
    record(thread->recorder, thread->class, thread->n_dp_flows, &thread->share,
           thread->counters);
    thread->end = thread->last;
    thread->on = false;
}

/* All threads have swept.  For all but the leader, this is the end of their
 * share. */
void
revalidator_cost_share_end(bool leader)
{
    struct revalidator_cost_thread *thread = revalidator_cost_thread_get();

    if (thread->on) {
        revalidator_cost_mark__(thread, REVALIDATOR_COST_BARRIER);
        if (leader) {
            mark_round(thread, REVALIDATOR_COST_R_SWEEP);
        } else {
            record_share(thread);
        }
    }
}

/* The flow limit is now 'limit', for the reason 'why' if it was another.
 * Returns the reason, or REVALIDATOR_COST_LIMIT_KEPT if it has not moved. */
static enum revalidator_cost_limit
set_limit(struct revalidator_cost *cost, enum revalidator_cost_limit why,
          unsigned int limit, long long int duration_ms)
{
    ovs_mutex_lock(&moves_mutex);
    if (limit == cost->limit) {
        why = REVALIDATOR_COST_LIMIT_KEPT;
    } else {
        struct limit_move *move = &cost->moves[cost->n_moves++ % N_MOVES];

        if (why == REVALIDATOR_COST_LIMIT_KEPT) {
            why = REVALIDATOR_COST_LIMIT_SET;
        }
        move->when = time_wall_msec();
        move->why = why;
        move->from = cost->limit;
        move->to = limit;
        move->duration_ms = duration_ms;
        move->n_flows = cost->n_known_flows;
        cost->limit = limit;
    }
    ovs_mutex_unlock(&moves_mutex);
    return why;
}

/* Returns the sum '*n' of what all threads have added to it, and clears it for
 * the next round. */
static uint64_t
take_sum(atomic_uint64_t *n)
{
    uint64_t sum;

    atomic_read_relaxed(n, &sum);
    atomic_store_relaxed(n, 0);
    return sum;
}

/* The leader ends the round, which 'n_threads' took part in, and which OVS
 * says has taken 'duration_ms'.  'flow_limit' is the flow limit now.  If that
 * was another, 'why' says what moved it, REVALIDATOR_COST_LIMIT_KEPT if it was
 * not the time that the round took. */
void
revalidator_cost_round_end(struct revalidator_cost *cost, size_t n_threads,
                           long long int duration_ms,
                           enum revalidator_cost_limit why,
                           unsigned int flow_limit)
{
    struct revalidator_cost_thread *thread = revalidator_cost_thread_get();
    uint64_t sums[REVALIDATOR_COST_N_COUNTERS];
    uint64_t n_flows;

    why = set_limit(cost, why, flow_limit, duration_ms);
    cost->reval_seq = cost->next_reval_seq;
    n_flows = take_sum(&cost->n_flows);
    for (size_t i = 0; i < REVALIDATOR_COST_N_COUNTERS; i++) {
        sums[i] = take_sum(&cost->counters[i]);
    }
    if (!thread->on) {
        return;
    }

    revalidator_cost_mark__(thread, REVALIDATOR_COST_LEAD);
    mark_round(thread, REVALIDATOR_COST_R_FINISH);
    record_share(thread);

    cost_event_add(&thread->round, REVALIDATOR_COST_R_THREADS, n_threads);
    cost_event_add(&thread->round, REVALIDATOR_COST_R_FLOWS, n_flows);
    cost_event_add(&thread->round, REVALIDATOR_COST_R_LIMIT, flow_limit);
    record(thread->leader, cost->class | why << 1, cost->n_dp_flows,
           &thread->round, sums);
}

/* The calling thread, while no round goes on, has purged flows. */
void
revalidator_cost_purged(struct revalidator_cost *cost)
{
    uint64_t *n = revalidator_cost_thread_get()->counters;

    for (size_t i = 0; i < REVALIDATOR_COST_N_COUNTERS; i++) {
        if (n[i]) {
            cost_count(cost->purged_rounds, CLASS_STATISTICS, i, n[i]);
            cost_count(cost->purged_shares, CLASS_STATISTICS, i, n[i]);
            n[i] = 0;
        }
    }
}

/* A command has set the flow limit to 'flow_limit'. */
void
revalidator_cost_limit_set(struct revalidator_cost *cost,
                           unsigned int flow_limit)
{
    set_limit(cost, REVALIDATOR_COST_LIMIT_SET, flow_limit, -1);
}

/* Reporting. */

static void
format_details(const char *account OVS_UNUSED, const uint64_t *details,
               struct ds *s)
{
    ds_put_format(s, "%"PRIu64" flows in the datapath",
                  details[DETAIL_FLOWS]);
}

static void
details_to_json(const char *account OVS_UNUSED, const uint64_t *details,
                struct json *json)
{
    json_object_put(json, "datapath_flows",
                    json_integer_create(details[DETAIL_FLOWS]));
}

/* Returns the 'i'th latest move of 'cost', or NULL if there is none. */
static const struct limit_move *
get_move(const struct revalidator_cost *cost, size_t i)
    OVS_REQUIRES(moves_mutex)
{
    return (i < MIN(cost->n_moves, N_MOVES)
            ? &cost->moves[(cost->n_moves - 1 - i) % N_MOVES] : NULL);
}

static void
format_moves(const struct revalidator_cost *cost, struct ds *s)
    OVS_REQUIRES(moves_mutex)
{
    const struct limit_move *move;

    ds_put_format(s, "%s: flow limit %u, moved %"PRIu64" time%s\n",
                  cost->name, cost->limit, cost->n_moves,
                  cost->n_moves == 1 ? "" : "s");
    for (size_t i = 0; (move = get_move(cost, i)); i++) {
        char *when = xastrftime_msec("%Y-%m-%d %H:%M:%S.###Z", move->when,
                                     true);

        ds_put_format(s, "  %s %s from %u to %u\n    ", when,
                      limits[move->why], move->from, move->to);
        if (move->duration_ms >= 0) {
            ds_put_format(s, "after a round of %lld ms with %"PRIuSIZE
                          " flows\n", move->duration_ms, move->n_flows);
        } else {
            ds_put_cstr(s, "by command\n");
        }
        free(when);
    }
}

static struct json *
moves_to_json(const struct revalidator_cost *cost)
    OVS_REQUIRES(moves_mutex)
{
    struct json *json = json_object_create();
    struct json *array = json_array_create_empty();
    const struct limit_move *move;

    for (size_t i = 0; (move = get_move(cost, i)); i++) {
        struct json *object = json_object_create();

        json_object_put(object, "time_us",
                        json_integer_create(move->when * 1000));
        json_object_put_string(object, "reason", limits[move->why]);
        json_object_put(object, "from", json_integer_create(move->from));
        json_object_put(object, "to", json_integer_create(move->to));
        if (move->duration_ms >= 0) {
            json_object_put(object, "duration_ms",
                            json_integer_create(move->duration_ms));
            json_object_put(object, "flows",
                            json_integer_create(move->n_flows));
        }
        json_array_add(array, object);
    }
    json_object_put_string(json, "name", cost->name);
    json_object_put(json, "flow_limit", json_integer_create(cost->limit));
    json_object_put(json, "moves", json_integer_create(cost->n_moves));
    json_object_put(json, "latest", array);
    return json;
}

/* Appends to 's' what has moved the flow limits, latest first. */
static void
format_limits(struct ds *s)
{
    const struct revalidator_cost *cost;

    ovs_mutex_lock(&moves_mutex);
    LIST_FOR_EACH (cost, list_node, &all_costs) {
        format_moves(cost, s);
    }
    ovs_mutex_unlock(&moves_mutex);
}

/* Returns the same in JSON. */
static struct json *
limits_to_json(void)
{
    struct json *json = cost_report_json_header("revalidator", "cost-limit",
                                                &config);
    struct json *array = json_array_create_empty();
    const struct revalidator_cost *cost;

    ovs_mutex_lock(&moves_mutex);
    LIST_FOR_EACH (cost, list_node, &all_costs) {
        json_array_add(array, moves_to_json(cost));
    }
    ovs_mutex_unlock(&moves_mutex);

    json_object_put(json, "datapaths", array);
    return json;
}

/* "revalidator/cost-limit". */
static void
show_limit(struct unixctl_conn *conn, int argc OVS_UNUSED,
           const char *argv[] OVS_UNUSED, void *aux OVS_UNUSED)
{
    if (unixctl_command_get_output_format(conn) == UNIXCTL_OUTPUT_FMT_JSON) {
        unixctl_command_reply_json(conn, limits_to_json());
    } else {
        struct ds s = DS_EMPTY_INITIALIZER;

        format_limits(&s);
        unixctl_command_reply(conn, s.length ? ds_cstr(&s) : "no datapath\n");
        ds_destroy(&s);
    }
}

/* Marks what the calling thread waits for in a dump. */
static void
observe_dump(enum dump_step step)
{
    revalidator_cost_mark(step == DUMP_STEP_WAIT ? REVALIDATOR_COST_DUMP
                          : step == DUMP_STEP_TURN ? REVALIDATOR_COST_LOCK
                          : REVALIDATOR_COST_KERNEL);
}

/* Starts accounting for dumps, and registers the revalidator/cost-*
 * commands. */
void
revalidator_cost_init(void)
{
    static const struct cost_kind *const kinds[] = {
        &revalidator_cost_round_kind,
        &revalidator_cost_share_kind,
    };
    static const struct cost_counter_group groups[] = {
        { "flows", REVALIDATOR_COST_KEPT, REVALIDATOR_COST_DELETED, false },
        { "deleted", REVALIDATOR_COST_DELETED, REVALIDATOR_COST_N_COUNTERS,
          false },
    };
    static const struct cost_report report = {
        .prefix = "revalidator",
        .object = "datapath",
        .kinds = kinds,
        .n_kinds = ARRAY_SIZE(kinds),
        .groups = groups,
        .n_groups = ARRAY_SIZE(groups),
        .class_help = "statistics or revalidate, followed by at most one of "
                      "+scaled, +reduced, +grew, +set",
        .format_details = format_details,
        .details_to_json = details_to_json,
        .format_more = format_limits,
        .more_to_json = limits_to_json,
    };

    dump_observer_set(observe_dump);
    cost_report_register(&report);
    unixctl_command_register("revalidator/cost-limit", "", 0, 0, show_limit,
                             NULL);
}
