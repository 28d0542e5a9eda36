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

#include "tx-cost.h"

#include "cost-report.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/json.h"
#include "ovs-thread.h"
#include "smap.h"
#include "util.h"

DEFINE_EXTERN_PER_THREAD_DATA(tx_cost_current, NULL);

/* What is special about the burst that a thread is sending. */
struct tx_cost_burst {
    /* If it is timed, or within another event. */
    uint64_t begin;             /* Ticks. */
    uint64_t send;              /* Same, later if counting had to begin. */
    bool counting;              /* Does hardware count it? */
    struct cost_pmu_counts pmu;

    /* If TX_COST_COUNTED. */
    uint64_t counts[TX_COST_N_COUNTERS];
};
DEFINE_STATIC_PER_THREAD_DATA(struct tx_cost_burst, tx_cost_burst, { 0 });

/* Details of one of the slowest bursts. */
enum {
    TX_COST_DETAIL_PACKETS,
    TX_COST_DETAIL_DROPPED,
    TX_COST_N_DETAILS
};

static const char *const stages[TX_COST_N_STAGES] = {
    [TX_COST_WAIT] = "wait",
    [TX_COST_SEND] = "send",
    [TX_COST_PACKETS] = "packets",
    [TX_COST_CYCLES] = "cycles",
    [TX_COST_INSTRUCTIONS] = "instructions",
    [TX_COST_TOTAL] = "total",
};

static const char *const counters[TX_COST_N_COUNTERS] = {
    [TX_COST_FULL] = "full",
    [TX_COST_INTERVAL] = "interval",
    [TX_COST_ITERATION] = "iteration",
    [TX_COST_FORCED] = "forced",
    [TX_COST_DROP_DOWN] = "down",
    [TX_COST_DROP_MTU] = "mtu",
    [TX_COST_DROP_QOS] = "qos",
    [TX_COST_DROP_HWOL] = "offload",
    [TX_COST_DROP_FULL] = "no-room",
    [TX_COST_RETRIES] = "retries",
    [TX_COST_ERRORS] = "errors",
    [TX_COST_UNCOUNTED] = "uncounted",
    [TX_COST_COUNTED_PACKETS] = "counted-packets",
};

/* Appends the name of 'class' to 's', such as "txq3". */
static void
tx_cost_format_class(size_t class, struct ds *s)
{
    ds_put_format(s, "txq%"PRIuSIZE"%s", class,
                  class == TX_COST_N_QUEUES - 1 ? "+" : "");
}

static void
tx_cost_apply(const struct smap *other_config, bool enabled)
{
    cost_pmu_configure(enabled && smap_get_bool(other_config,
                                                "cost-hardware-counters",
                                                false));
}

/* By default, one burst in 64 is timed. */
struct cost_config tx_cost_config
    = COST_CONFIG_INITIALIZER("tx", 64, tx_cost_apply);

/* A burst's packets, each number of them in a bucket of its own. */
static const uint64_t packets_edges[TX_COST_MAX_PACKETS + 1] = {
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
    17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32
};
static const struct cost_hist_layout packets_layout = {
    .edges = packets_edges,
    .n_edges = ARRAY_SIZE(packets_edges),
    .linear = true,
};

const struct cost_kind tx_cost_kind = {
    .name = "burst",
    .config = &tx_cost_config,
    .stages = stages,
    .n_stages = TX_COST_N_STAGES,
    .values = (1u << TX_COST_PACKETS | 1u << TX_COST_CYCLES
               | 1u << TX_COST_INSTRUCTIONS),
    .optional = 1u << TX_COST_CYCLES | 1u << TX_COST_INSTRUCTIONS,
    .counters = counters,
    .n_counters = TX_COST_N_COUNTERS,
    .n_tally_rows = TX_COST_N_REASONS,
    .tally_stage = TX_COST_PACKETS,
    .tally_layout = &packets_layout,
    .n_classes = TX_COST_N_QUEUES,
    .format_class = tx_cost_format_class,
    .n_slowest = 5,                 /* As many as are shown by default. */
    .n_details = TX_COST_N_DETAILS,
};

/* Initializes 'tx' for the thread named 'thread', which sends to the port that
 * 'account' is for.  'tsc' is where it keeps what it has just read from the
 * time stamp counter when it calls functions below, or NULL.  What is recorded
 * belongs to 'account', with which it goes. */
void
tx_cost_init(struct tx_cost *tx, struct cost_account *account,
             const char *thread, const uint64_t *tsc)
{
    memset(tx, 0, sizeof *tx);
    tx->recorder = cost_recorder_get(account, thread);
    tx->tsc = tsc;
}

/* Returns the time, in ticks.  'fresh' says whether '*tx->tsc' has just been
 * read. */
static uint64_t
tx_cost_now(const struct tx_cost *tx, bool fresh)
{
    return (fresh && tx->tsc
            ? cost_clock_now_tsc(tx_cost_kind.name, *tx->tsc)
            : cost_clock_now(tx_cost_kind.name));
}

/* Does what tx_cost_queue() does when bursts are to be timed, or accounting
 * has been switched off. */
void
tx_cost_queue__(struct tx_cost *tx)
{
    if (cost_enabled(&tx_cost_config)) {
        tx->special = TX_COST_TIMED;
        tx->queued = tx_cost_now(tx, true);
    } else {
        cost_recorder_idle(tx->recorder);
        cost_pmu_idle();
    }
}

/* Does what tx_cost_begin() does for a burst that is to be timed, or is within
 * another event. */
void
tx_cost_begin__(struct tx_cost *tx, bool fresh)
{
    struct tx_cost_burst *burst = tx_cost_burst_get();

    tx->special |= cost_timer_is_running() ? TX_COST_NESTED : 0;
    if (!tx->special) {
        return;
    }
    burst->begin = burst->send = tx_cost_now(tx, fresh);
    burst->counting = (tx->special & TX_COST_TIMED
                       && cost_pmu_start(&burst->pmu));
    if (OVS_UNLIKELY(burst->counting)) {
        /* That took time, which is not the burst's. */
        burst->send = cost_clock_now(tx_cost_kind.name);
    }
}

static void
tx_cost_get_details(uint64_t *details, const void *tx_, size_t n_packets)
{
    const struct tx_cost *tx = tx_;

    details[TX_COST_DETAIL_PACKETS] = n_packets;
    details[TX_COST_DETAIL_DROPPED] = tx->dropped;
}

/* Adds 'n' to 'counter' of the calling thread's burst, which is sent to
 * 'tx'. */
static void
tx_cost_add(struct tx_cost *tx, enum tx_cost_counter counter, uint64_t n)
{
    struct tx_cost_burst *burst = tx_cost_burst_get();

    if (!(tx->special & TX_COST_COUNTED)) {
        tx->special |= TX_COST_COUNTED;
        memset(burst->counts, 0, sizeof burst->counts);
    }
    burst->counts[counter] += n;
}

/* Adds to 'event', the calling thread's burst of 'n_packets' packets to 'tx',
 * what hardware has counted since it began. */
static void
tx_cost_stop_counting(struct tx_cost *tx, size_t n_packets,
                      struct cost_event *event)
{
    struct tx_cost_burst *burst = tx_cost_burst_get();

    if (cost_pmu_stop(&burst->pmu)) {
        cost_event_add(event, TX_COST_CYCLES, burst->pmu.cycles);
        cost_event_add(event, TX_COST_INSTRUCTIONS, burst->pmu.instructions);
        tx_cost_add(tx, TX_COST_COUNTED_PACKETS, n_packets);
    } else {
        tx_cost_add(tx, TX_COST_UNCOUNTED, 1);
    }
}

/* Does what tx_cost_end() does when more than 'n_packets' and 'reason' is to
 * be recorded. */
void
tx_cost_end__(struct tx_cost *tx, enum tx_cost_counter reason,
              size_t n_packets, bool has_oldest, int error, bool fresh)
{
    struct tx_cost_burst *burst = tx_cost_burst_get();
    struct cost_details details = { tx_cost_get_details, tx, n_packets };
    struct cost_event event;
    uint64_t end = 0;

    if (tx->special & (TX_COST_TIMED | TX_COST_NESTED)) {
        end = tx_cost_now(tx, fresh);
        cost_timer_exclude(cost_clock_between(burst->begin, end));
    }
    if (cost_enabled(&tx_cost_config)) {
        cost_event_init(&event);
        event.counter = reason;
        event.total = COST_NOT_TIMED;
        cost_event_add(&event, TX_COST_PACKETS, n_packets);
        if (tx->special & TX_COST_TIMED) {
            uint64_t send = cost_clock_between(burst->send, end);

            if (OVS_UNLIKELY(burst->counting)) {
                tx_cost_stop_counting(tx, n_packets, &event);
            }
            cost_event_add(&event, TX_COST_SEND, send);
            if (has_oldest) {
                uint64_t wait = cost_clock_between(tx->queued, burst->begin);

                cost_event_add(&event, TX_COST_WAIT, wait);
                event.total = wait + send;
            }
        }
        if (OVS_UNLIKELY(error)) {
            tx_cost_add(tx, TX_COST_ERRORS, 1);
        }
        if (tx->special & TX_COST_COUNTED) {
            event.counts = burst->counts;
        }
        cost_record(tx->recorder, MIN(tx->qid, TX_COST_N_QUEUES - 1), &event,
                    &details);
    }
    /* With hash steering, there may be bursts to other tx queues. */
    tx->special &= TX_COST_TIMED;
    tx->dropped = 0;
}

/* Counts 'n' packets that the netdev drops from the burst that the calling
 * thread is sending, or that many retries.  Does nothing if the thread is not
 * sending one. */
void
tx_cost_count(enum tx_cost_counter counter, size_t n)
{
    struct tx_cost *tx = *tx_cost_current_get();

    if (tx && n) {
        tx_cost_add(tx, counter, n);
        if (counter < TX_COST_RETRIES) {
            tx->dropped += n;
        }
    }
}

static void
tx_cost_format_details(const char *account OVS_UNUSED,
                       const uint64_t *details, struct ds *s)
{
    uint64_t n = details[TX_COST_DETAIL_PACKETS];

    ds_put_format(s, "%"PRIu64" packet%s", n, n == 1 ? "" : "s");
    if (details[TX_COST_DETAIL_DROPPED]) {
        ds_put_format(s, ", %"PRIu64" dropped",
                      details[TX_COST_DETAIL_DROPPED]);
    }
}

static void
tx_cost_details_to_json(const char *account OVS_UNUSED,
                        const uint64_t *details, struct json *json)
{
    json_object_put(json, "packets",
                    json_integer_create(details[TX_COST_DETAIL_PACKETS]));
    json_object_put(json, "dropped",
                    json_integer_create(details[TX_COST_DETAIL_DROPPED]));
}

/* What follows from the stages of bursts.  What is not known is 0. */
struct tx_cost_derived {
    /* Ticks of the time stamp counter while sending. */
    double tsc_cycles_per_burst;
    double tsc_cycles_per_packet;

    /* Counted by hardware. */
    double cycles_per_instruction;
    double cycles_per_packet;
    double instructions_per_packet;
};

static void
tx_cost_derive(const struct cost_snapshot *snap, size_t class,
               struct tx_cost_derived *d)
{
    uint64_t counted = cost_snapshot_counter(snap, class,
                                             TX_COST_COUNTED_PACKETS);
    struct cost_hist_snapshot packets, send, cycles, instructions;
    uint32_t mult;
    int source;

    cost_snapshot_stage(snap, class, TX_COST_PACKETS, &packets);
    cost_snapshot_stage(snap, class, TX_COST_SEND, &send);
    cost_snapshot_stage(snap, class, TX_COST_CYCLES, &cycles);
    cost_snapshot_stage(snap, class, TX_COST_INSTRUCTIONS, &instructions);

    memset(d, 0, sizeof *d);
    atomic_read_relaxed(&cost_clock.source, &source);
    atomic_read_relaxed(&cost_clock.mult, &mult);
    if (source == COST_CLOCK_TSC && packets.sum) {
        d->tsc_cycles_per_burst = (cost_hist_snapshot_mean(&send)
                                   * (1u << COST_CLOCK_SHIFT) / mult);
        d->tsc_cycles_per_packet = (d->tsc_cycles_per_burst
                                    / cost_hist_snapshot_mean(&packets));
    }
    if (instructions.sum) {
        d->cycles_per_instruction = (double) cycles.sum / instructions.sum;
    }
    if (counted) {
        d->cycles_per_packet = (double) cycles.sum / counted;
        d->instructions_per_packet = (double) instructions.sum / counted;
    }
}

/* Appends to 's' why there is nothing that hardware has counted, if it should
 * have.  'any' says whether there is, nevertheless. */
static void
tx_cost_format_status(const struct cost_pmu_status *status, bool any,
                      struct ds *s)
{
    if (status->wanted && (status->error || !any)) {
        ds_put_cstr(s, "  hardware counters:  ");
        if (status->error) {
            cost_pmu_format_error(status->error, s);
        } else {
            ds_put_cstr(s, "no burst counted yet");
        }
        ds_put_char(s, '\n');
    }
}

static void
tx_cost_format_derived(const struct cost_snapshot *snap, size_t class,
                       struct ds *s)
{
    struct cost_pmu_status status;
    struct tx_cost_derived d;

    cost_pmu_get_status(&status);
    tx_cost_derive(snap, class, &d);
    if (d.tsc_cycles_per_burst) {
        ds_put_cstr(s, "  send (tsc cycles):  ");
        cost_report_put_real(s, d.tsc_cycles_per_burst);
        ds_put_cstr(s, " per burst  ");
        cost_report_put_real(s, d.tsc_cycles_per_packet);
        ds_put_cstr(s, " per packet\n");
    }
    if (d.cycles_per_instruction) {
        ds_put_cstr(s, "  hardware counters:  CPI ");
        cost_report_put_real(s, d.cycles_per_instruction);
        ds_put_cstr(s, "  ");
        cost_report_put_real(s, d.cycles_per_packet);
        ds_put_cstr(s, " cycles, ");
        cost_report_put_real(s, d.instructions_per_packet);
        ds_put_format(s, " instructions per packet%s\n",
                      status.user_space_only ? " (user space only)" : "");
    }
    if (!snap->thread[0]) {
        tx_cost_format_status(&status, d.cycles_per_instruction != 0, s);
    }
}

/* Adds 'value' to 'json' as 'name', if it is known. */
static void
tx_cost_put_known(struct json *json, const char *name, double value)
{
    if (value) {
        json_object_put(json, name, json_real_create(value));
    }
}

static void
tx_cost_derived_to_json(const struct cost_snapshot *snap, size_t class,
                        struct json *json)
{
    struct tx_cost_derived d;

    tx_cost_derive(snap, class, &d);
    tx_cost_put_known(json, "tsc_cycles_per_burst", d.tsc_cycles_per_burst);
    tx_cost_put_known(json, "tsc_cycles_per_packet", d.tsc_cycles_per_packet);
    tx_cost_put_known(json, "cycles_per_instruction",
                      d.cycles_per_instruction);
    tx_cost_put_known(json, "cycles_per_packet", d.cycles_per_packet);
    tx_cost_put_known(json, "instructions_per_packet",
                      d.instructions_per_packet);
}

static void
tx_cost_state_to_json(struct json *json)
{
    struct json *state = json_object_create();
    struct cost_pmu_status status;

    cost_pmu_get_status(&status);
    json_object_put(state, "on", json_boolean_create(status.wanted));
    json_object_put(state, "user_space_only",
                    json_boolean_create(status.user_space_only));
    if (status.wanted && status.error) {
        struct ds s = DS_EMPTY_INITIALIZER;

        cost_pmu_format_error(status.error, &s);
        json_object_put_string(state, "error", ds_cstr(&s));
        ds_destroy(&s);
    }
    json_object_put(json, "hardware_counters", state);
}

/* Registers the tx/cost-* commands. */
void
tx_cost_register(void)
{
    static const struct cost_kind *const kinds[] = { &tx_cost_kind };
    static const struct cost_counter_group groups[] = {
        { "sent when", TX_COST_FULL, TX_COST_DROP_DOWN, false },
        { "packets dropped", TX_COST_DROP_DOWN, TX_COST_RETRIES, false },
        { "other", TX_COST_RETRIES, TX_COST_COUNTED_PACKETS, false },
    };
    static const struct cost_report report = {
        .prefix = "tx",
        .object = "port",
        .kinds = kinds,
        .n_kinds = ARRAY_SIZE(kinds),
        .groups = groups,
        .n_groups = ARRAY_SIZE(groups),
        .class_help = "txq0 to txq62 or txq63+",
        .format_details = tx_cost_format_details,
        .details_to_json = tx_cost_details_to_json,
        .format_derived = tx_cost_format_derived,
        .derived_to_json = tx_cost_derived_to_json,
        .state_to_json = tx_cost_state_to_json,
    };

    cost_report_register(&report);
}
