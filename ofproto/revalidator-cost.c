/* SPDX-License-Identifier: Apache-2.0 */

#include <config.h>

#include "revalidator-cost.h"

#include "cost-report.h"
#include "cost-span.h"
#include "ofproto-dpif.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/json.h"
#include "timeval.h"
#include "util.h"
#include "work-observer.h"

/* A thread counts, and all threads add up for the round, the counters and, in
 * addition, the flows that were dumped. */
enum { N_FLOWS = REVALIDATOR_COST_N_COUNTERS, N_SUMS };

/* A move of the flow limit. */
struct limit_move {
    long long int when;                 /* ms since the Epoch. */
    enum revalidator_cost_limit why;
    unsigned int from, to;
    long long int duration_ms;          /* Of the round, -1 for a command. */
    uint64_t n_flows;                   /* In the datapath. */
};
enum { N_MOVES = 16 };

struct revalidator_cost {
    struct cost_account *rounds;
    struct cost_account *shares;
    struct cost_recorder *purged_rounds;  /* Of the thread that purges. */
    struct cost_recorder *purged_shares;
    atomic_uint64_t sums[N_SUMS];       /* Of all threads, for the round. */

    /* Written by the leader before other threads take part. */
    atomic_uint64_t n_dp_flows;         /* Flows in the datapath. */
    uint64_t reval_seq;                 /* When the round began. */
    size_t class;                       /* Of changes since the latest
                                         * complete round. */

    /* Written by the main thread, and cleared by the leader. */
    atomic_uint32_t reasons;            /* 1 << enum revalidate_reason. */

    /* Guarded by 'mutex'. */
    struct ovs_list list_node;          /* In 'all_costs'. */
    unsigned int limit;
    uint64_t n_moves;
    struct limit_move moves[N_MOVES];   /* The latest ones, latest first. */
};

static struct ovs_mutex mutex = OVS_MUTEX_INITIALIZER;
static struct ovs_list all_costs OVS_GUARDED_BY(mutex)
    = OVS_LIST_INITIALIZER(&all_costs);

static struct cost_config config
    = COST_CONFIG_INITIALIZER("revalidator", COST_DEFAULT_SAMPLE_INTERVAL);

/* A thread that may be a revalidator. */
struct thread {
    struct cost_recorder *recorder;     /* Of shares, if it is one. */
    struct cost_recorder *leader;       /* Of rounds, if it leads. */
    uint64_t end;                       /* Of its previous share, or 0. */

    /* Copies: the leader may begin the next round while other threads still
     * record their share of this one. */
    size_t class;
    size_t n_dp_flows;

    /* Without a recorder outside of rounds and while accounting is off. */
    struct cost_span share;
    struct cost_span round;             /* If it leads. */
    uint64_t sums[N_SUMS];
};
DEFINE_STATIC_PER_THREAD_DATA(struct thread, thread, { NULL });

/* By enum revalidator_cost_limit. */
static const char *const limits[REVALIDATOR_COST_N_LIMITS] = {
    "kept", "scaled", "reduced", "grew", "set",
};

/* Why flows may have to be translated again, by enum revalidate_reason. */
enum { NONE, SEVERAL = REV_MCAST_SNOOPING + 1, UNKNOWN, N_REASONS };
static const char *const reasons[N_REASONS] = {
    [NONE] = "statistics",
    [REV_RECONFIGURE] = "revalidate:reconfigure",
    [REV_STP] = "revalidate:stp",
    [REV_RSTP] = "revalidate:rstp",
    [REV_BOND] = "revalidate:bond",
    [REV_PORT_TOGGLED] = "revalidate:port-toggled",
    [REV_FLOW_TABLE] = "revalidate:flow-table",
    [REV_MAC_LEARNING] = "revalidate:mac-learning",
    [REV_MCAST_SNOOPING] = "revalidate:mcast-snooping",
    [SEVERAL] = "revalidate:several",
    [UNKNOWN] = "revalidate",
};

/* A class has a reason, and the enum revalidator_cost_limit of a round. */
static void
format_class(size_t class, struct ds *s)
{
    ds_put_cstr(s, reasons[class % N_REASONS]);
    if (class >= N_REASONS) {
        ds_put_format(s, "+%s", limits[class / N_REASONS]);
    }
}

static void
get_details(const struct cost_span *span OVS_UNUSED, uint64_t *n_dp_flows)
{
    *n_dp_flows = thread_get()->n_dp_flows;
}

#define KIND(EVENT, STAGES)                                             \
    {                                                                   \
        .event = EVENT,                                                 \
        .config = &config,                                              \
        COST_STAGES(STAGES),                                            \
        COST_COUNTERS(REVALIDATOR_COST_COUNTERS),                       \
        .exact = true,                                                  \
        .n_classes = REVALIDATOR_COST_N_LIMITS * N_REASONS,             \
        .format_class = format_class,                                   \
        .n_slowest = COST_MAX_SLOWEST,                                  \
        .n_details = 1,                 /* Flows in the datapath. */    \
        .get_details = get_details,                                     \
        .typed_names = true,                                            \
    }
static const struct cost_kind round_kind
    = KIND("round", REVALIDATOR_COST_ROUND_STAGES);
static const struct cost_kind share_kind
    = KIND("share", REVALIDATOR_COST_STAGES);

/* Creates and returns the accounts for the datapath named 'name', whose flow
 * limit is 'flow_limit'.  The caller must destroy them with
 * revalidator_cost_destroy(). */
struct revalidator_cost *
revalidator_cost_create(const char *name, unsigned int flow_limit)
{
    struct revalidator_cost *cost = xzalloc(sizeof *cost);

    cost->rounds = cost_account_create(&round_kind, name, NULL);
    cost->shares = cost_account_create(&share_kind, name, NULL);
    cost->purged_rounds = cost_recorder_create(cost->rounds, "main");
    cost->purged_shares = cost_recorder_create(cost->shares, "main");
    cost->limit = flow_limit;

    ovs_mutex_lock(&mutex);
    ovs_list_push_back(&all_costs, &cost->list_node);
    ovs_mutex_unlock(&mutex);
    return cost;
}

/* Destroys 'cost', which no thread may be using any more. */
void
revalidator_cost_destroy(struct revalidator_cost *cost)
{
    if (cost) {
        ovs_mutex_lock(&mutex);
        ovs_list_remove(&cost->list_node);
        ovs_mutex_unlock(&mutex);

        cost_account_destroy(cost->rounds);
        cost_account_destroy(cost->shares);
        free(cost);
    }
}

/* The calling thread is the 'i'th revalidator from now on, and leads if 'i' is
 * 0. */
void
revalidator_cost_thread_start(struct revalidator_cost *cost, size_t i)
{
    const char *name = get_subprogram_name();
    struct thread *thread = thread_get();

    thread->recorder = cost_recorder_create(cost->shares, name);
    thread->leader = i ? NULL : cost_recorder_create(cost->rounds, name);
}

/* The calling thread is about to exit. */
void
revalidator_cost_thread_stop(void)
{
    struct thread *thread = thread_get();

    cost_recorder_destroy(thread->recorder);
    cost_recorder_destroy(thread->leader);
    memset(thread, 0, sizeof *thread);
}

/* Begins the share of 'thread' and, if it leads, the round. */
static void
begin(struct thread *thread)
{
    struct cost_span *share = &thread->share;

    if (!thread->recorder || !cost_enabled(&config)) {
        share->recorder = thread->round.recorder = NULL;
        thread->end = 0;
        return;
    }

    uint64_t now = cost_clock_now(round_kind.event, 0);

    cost_span_open(share, thread->recorder, true,
                   thread->end ? thread->end : now);
    if (thread->end) {
        cost_span_lap(share, REVALIDATOR_COST_IDLE, now);
    }
    memset(thread->sums, 0, sizeof thread->sums);

    /* The idle time of the round is the same. */
    BUILD_ASSERT_DECL(!REVALIDATOR_COST_IDLE && !REVALIDATOR_COST_R_IDLE);
    thread->round = *share;
    thread->round.recorder = thread->leader;
}

/* Ends 'stage' of the calling thread's share of a round, if it is in one.  A
 * stage that ends several times has the sum of the times. */
void
revalidator_cost_mark(enum revalidator_cost_stage stage)
{
    struct cost_span *share = &thread_get()->share;

    if (share->recorder) {
        cost_span_lap(share, stage, cost_clock_now(round_kind.event, 0));
    }
}

/* Does the same and, if the calling thread leads, ends 'round_stage' of the
 * round at the same time. */
static void
mark(enum revalidator_cost_stage stage,
     enum revalidator_cost_round_stage round_stage)
{
    struct thread *thread = thread_get();

    revalidator_cost_mark(stage);
    if (thread->round.recorder) {
        cost_span_lap(&thread->round, round_stage, thread->share.last);
    }
}

/* If 'thread' is in a round, records its share, which ends with the latest
 * stage.  If it leads, records the round, too, which moved the flow limit as
 * 'why' says and has 'sums' as its counters. */
static void
finish(struct thread *thread, enum revalidator_cost_limit why,
       const uint64_t *sums)
{
    struct cost_span *share = &thread->share;
    struct cost_span *round = &thread->round;

    if (share->recorder) {
        thread->end = share->last;
        cost_entry_add(&share->entry, REVALIDATOR_COST_FLOWS,
                       thread->sums[N_FLOWS]);
        cost_span_finish(share, share->last, thread->class, thread->sums);
    }
    if (round->recorder) {
        cost_span_finish(round, round->last, thread->class + why * N_REASONS,
                         sums);
    }
    share->recorder = round->recorder = NULL;
}

/* What flows depend on has changed, for 'reason', an enum revalidate_reason.
 * The caller changes the sequence number of flows afterwards. */
void
revalidator_cost_changed(struct revalidator_cost *cost, unsigned int reason)
{
    uint32_t orig;

    atomic_or(&cost->reasons, UINT32_C(1) << reason, &orig);
}

/* The leader begins a round.  'reval_seq' changes with what flows depend on.
 *
 * If the round is cancelled, because revalidators are to pause or to exit,
 * there are no further calls for it; its time is idle. */
void
revalidator_cost_round_begin(struct revalidator_cost *cost,
                             uint64_t reval_seq)
{
    if (reval_seq != cost->reval_seq) {
        uint32_t new = atomic_exchange(&cost->reasons, 0);
        size_t class = (!new ? UNKNOWN
                        : is_pow2(new) ? log_2_floor(new) : SEVERAL);

        cost->class = cost->class && cost->class != class ? SEVERAL : class;
        cost->reval_seq = reval_seq;
    }
    begin(thread_get());
}

/* The leader has requested the dump of a datapath with 'n_flows' flows. */
void
revalidator_cost_dump_requested(struct revalidator_cost *cost, size_t n_flows)
{
    cost_store(&cost->n_dp_flows, n_flows);
    mark(REVALIDATOR_COST_LEAD, REVALIDATOR_COST_R_START);
}

/* Each thread is about to dump and revalidate flows. */
void
revalidator_cost_dump_begin(struct revalidator_cost *cost)
{
    struct thread *thread = thread_get();

    thread->class = cost->class;
    thread->n_dp_flows = cost_load(&cost->n_dp_flows);
    if (thread->leader) {
        revalidator_cost_mark(REVALIDATOR_COST_BARRIER);
    } else {
        begin(thread);
    }
}

/* The calling thread has got 'n_flows' flows from the datapath. */
void
revalidator_cost_batch(size_t n_flows)
{
    thread_get()->sums[N_FLOWS] += n_flows;
    revalidator_cost_mark(REVALIDATOR_COST_DUMP);
}

/* Counts a flow with the result 'counter'. */
void
revalidator_cost_count(enum revalidator_cost_counter counter)
{
    thread_get()->sums[counter]++;
}

/* All threads have dumped and revalidated flows. */
void
revalidator_cost_dump_end(void)
{
    mark(REVALIDATOR_COST_BARRIER, REVALIDATOR_COST_R_DUMP);
}

/* The calling thread has swept. */
void
revalidator_cost_sweep_end(struct revalidator_cost *cost)
{
    struct thread *thread = thread_get();
    uint64_t orig;

    revalidator_cost_mark(REVALIDATOR_COST_SWEEP);
    for (size_t i = 0; thread->share.recorder && i < N_SUMS; i++) {
        atomic_add_relaxed(&cost->sums[i], thread->sums[i], &orig);
    }
}

/* All threads have swept, which ends the share of each but the leader. */
void
revalidator_cost_share_end(void)
{
    struct thread *thread = thread_get();

    mark(REVALIDATOR_COST_BARRIER, REVALIDATOR_COST_R_SWEEP);
    if (!thread->leader) {
        finish(thread, REVALIDATOR_COST_LIMIT_KEPT, NULL);
    }
}

/* The flow limit is now 'limit', for the reason 'why' if it was another, after
 * a round of 'duration_ms', or, if that is -1, by a command.  Returns the
 * reason, or REVALIDATOR_COST_LIMIT_KEPT if the limit has not moved. */
enum revalidator_cost_limit
revalidator_cost_limit_set(struct revalidator_cost *cost,
                           enum revalidator_cost_limit why,
                           unsigned int limit, long long int duration_ms)
{
    ovs_mutex_lock(&mutex);
    if (limit == cost->limit) {
        why = REVALIDATOR_COST_LIMIT_KEPT;
    } else {
        struct limit_move *move = cost->moves;
        unsigned int from = cost->limit;

        if (!why || (why == REVALIDATOR_COST_LIMIT_GREW && limit < from)) {
            why = REVALIDATOR_COST_LIMIT_SET;
        }
        if (why == REVALIDATOR_COST_LIMIT_GREW && move->why == why) {
            /* It grows in each round.  Even with pauses, this is one move. */
            from = move->from;
        } else {
            memmove(move + 1, move, sizeof cost->moves - sizeof *move);
            cost->n_moves++;
        }
        *move = (struct limit_move) {
            .when = time_wall_msec(),
            .why = why,
            .from = from,
            .to = limit,
            .duration_ms = duration_ms,
            .n_flows = cost_load(&cost->n_dp_flows),
        };
        cost->limit = limit;
    }
    ovs_mutex_unlock(&mutex);
    return why;
}

/* The leader ends the round, which 'n_threads' took part in, and which took
 * 'duration_ms' as OVS measures it.  'flow_limit' is the flow limit now.  If
 * the limit moved because of the duration, 'why' is the reason. */
void
revalidator_cost_round_end(struct revalidator_cost *cost, size_t n_threads,
                           long long int duration_ms,
                           enum revalidator_cost_limit why,
                           unsigned int flow_limit)
{
    struct thread *thread = thread_get();
    struct cost_entry *entry = &thread->round.entry;
    uint64_t sums[N_SUMS];

    for (size_t i = 0; i < N_SUMS; i++) {
        sums[i] = cost_load(&cost->sums[i]);
        cost_store(&cost->sums[i], 0);
    }
    cost->class = 0;
    why = revalidator_cost_limit_set(cost, why, flow_limit, duration_ms);
    mark(REVALIDATOR_COST_LEAD, REVALIDATOR_COST_R_FINISH);
    cost_entry_add(entry, REVALIDATOR_COST_R_THREADS, n_threads);
    cost_entry_add(entry, REVALIDATOR_COST_R_FLOWS, sums[N_FLOWS]);
    cost_entry_add(entry, REVALIDATOR_COST_R_LIMIT, flow_limit);
    finish(thread, why, sums);
}

/* The calling thread, while no round goes on, has purged flows. */
void
revalidator_cost_purged(struct revalidator_cost *cost)
{
    uint64_t *sums = thread_get()->sums;

    for (size_t i = 0; i < REVALIDATOR_COST_N_COUNTERS; i++) {
        cost_count(cost->purged_rounds, 0, i, sums[i]);
        cost_count(cost->purged_shares, 0, i, sums[i]);
        sums[i] = 0;
    }
}

/* Reporting. */

static void
put_details(const char *account OVS_UNUSED, const uint64_t *details,
            bool packet OVS_UNUSED, struct json *json)
{
    cost_put_integer(json, "datapath_flows", *details);
}

/* Returns each datapath's flow limit and its latest moves in JSON, and appends
 * the same to the text 's'. */
static struct json *
report_limits(const struct cost_view *view OVS_UNUSED, struct ds *s)
{
    struct json *json = cost_report_json_header("revalidator", "cost-limit",
                                                &config);
    struct json *datapaths = cost_put_array(json, "datapaths");
    const struct revalidator_cost *cost;

    ovs_mutex_lock(&mutex);
    LIST_FOR_EACH (cost, list_node, &all_costs) {
        const char *name = cost_account_name(cost->rounds);
        struct json *datapath = cost_add_object(datapaths);
        struct json *latest = cost_put_array(datapath, "latest");

        cost_put_name(s, name, false);
        ds_put_format(s, ": flow limit %u, moved %"PRIu64" time%s\n",
                      cost->limit, cost->n_moves,
                      cost->n_moves == 1 ? "" : "s");
        json_object_put_string(datapath, "name", name);
        cost_put_integer(datapath, "flow_limit", cost->limit);
        cost_put_integer(datapath, "moves", cost->n_moves);

        for (size_t i = 0; i < MIN(cost->n_moves, N_MOVES); i++) {
            const struct limit_move *move = &cost->moves[i];
            struct json *object = cost_add_object(latest);

            ds_put_strftime_msec(s, "  %Y-%m-%d %H:%M:%S.###Z ", move->when,
                                 true);
            ds_put_format(s, "%s from %u to %u\n    ", limits[move->why],
                          move->from, move->to);
            cost_put_integer(object, "time_us", move->when * 1000);
            json_object_put_string(object, "reason", limits[move->why]);
            cost_put_integer(object, "from", move->from);
            cost_put_integer(object, "to", move->to);
            if (move->duration_ms >= 0) {
                ds_put_format(s, "after a round of %lld ms with %"PRIu64
                              " flows\n", move->duration_ms, move->n_flows);
                cost_put_integer(object, "duration_ms", move->duration_ms);
                cost_put_integer(object, "flows", move->n_flows);
            } else {
                ds_put_cstr(s, "by command\n");
            }
        }
    }
    ovs_mutex_unlock(&mutex);
    return json;
}

/* "revalidator/cost-limit". */
static struct json *
show_limit(const struct cost_view *view, struct ds *s)
{
    struct json *json = report_limits(view, s);

    ds_put_cstr(s, s->length ? "" : "no datapath\n");
    return json;
}

/* Ends a stage at 'step' of a dump. */
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
        &round_kind, &share_kind,
    };
    static const struct cost_command command = {
        .name = "revalidator/cost-limit",
        .usage = "",
        .cb = show_limit,
    };
    static const struct cost_report report = {
        .prefix = "revalidator",
        .object = "datapath",
        .kinds = kinds,
        .n_kinds = ARRAY_SIZE(kinds),
        .class_help = "statistics, or revalidate: with a reason, followed by "
                      "at most one of +scaled, +reduced, +grew, +set",
        .put_details = put_details,
        .more = report_limits,
    };

    atomic_store_relaxed(&work_observer.dump, observe_dump);
    cost_report_register(&report);
    cost_report_register_command(&command);
}
