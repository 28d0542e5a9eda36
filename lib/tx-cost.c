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
#include "util.h"

/* The burst that the calling thread is sending, or NULL. */
DEFINE_STATIC_PER_THREAD_DATA(struct tx_cost_burst *, current, NULL);

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

const struct cost_kind tx_cost_kind = {
    .name = "burst",
    .stages = stages,
    .n_stages = TX_COST_N_STAGES,
    .values = (1u << TX_COST_PACKETS | 1u << TX_COST_CYCLES
               | 1u << TX_COST_INSTRUCTIONS),
    .optional = 1u << TX_COST_CYCLES | 1u << TX_COST_INSTRUCTIONS,
    .counters = counters,
    .n_counters = TX_COST_N_COUNTERS,
    .n_classes = TX_COST_N_QUEUES,
    .format_class = tx_cost_format_class,
    .n_details = TX_COST_N_DETAILS,
};

/* Starts 'burst', which the calling thread is going to send on tx queue 'qid'
 * of the port that 'account' is for, at 'begin', from tx_cost_now().
 * 'recorder' is where to keep the thread's recorder for that port, or NULL
 * (see cost_record()). */
void
tx_cost_begin(struct tx_cost_burst *burst, struct cost_account *account,
              struct cost_recorder **recorder, int qid, uint64_t begin)
{
    burst->account = account;
    burst->recorder = recorder;
    burst->class = MIN(qid, TX_COST_N_QUEUES - 1);
    burst->begin = burst->send = begin;
    burst->dropped = 0;
    *current_get() = burst;

    burst->counting = cost_pmu_start(&burst->counts);
    if (OVS_UNLIKELY(burst->counting)) {
        /* That took time, which is not the burst's. */
        burst->send = cost_clock_now(tx_cost_kind.name);
    }
}

static void
tx_cost_get_details(uint64_t *details, const void *burst_, size_t n_packets)
{
    const struct tx_cost_burst *burst = burst_;

    details[TX_COST_DETAIL_PACKETS] = n_packets;
    details[TX_COST_DETAIL_DROPPED] = burst->dropped;
}

/* Adds to 'event', 'burst' of 'n_packets' packets, what hardware has counted
 * since it began. */
static void
tx_cost_stop_counting(struct tx_cost_burst *burst, size_t n_packets,
                      struct cost_event *event)
{
    if (cost_pmu_stop(&burst->counts)) {
        cost_event_add(event, TX_COST_CYCLES, burst->counts.cycles);
        cost_event_add(event, TX_COST_INSTRUCTIONS,
                       burst->counts.instructions);
        cost_count(burst->account, burst->class, TX_COST_COUNTED_PACKETS,
                   n_packets);
    } else {
        cost_count(burst->account, burst->class, TX_COST_UNCOUNTED, 1);
    }
}

/* Records 'burst' of 'n_packets' packets, the oldest of which has been in the
 * queue since 'queued', that was sent for 'reason' until 'end', both from
 * tx_cost_now().  'error' is what netdev_send() returned. */
void
tx_cost_end(struct tx_cost_burst *burst, enum tx_cost_counter reason,
            size_t n_packets, uint64_t queued, uint64_t end, int error)
{
    struct cost_details details = { tx_cost_get_details, burst, n_packets };
    struct cost_event event;

    *current_get() = NULL;
    if (OVS_UNLIKELY(!queued || !burst->begin || !end)) {
        return;
    }

    event.counter = reason;
    event.marked = (1u << TX_COST_WAIT | 1u << TX_COST_SEND
                    | 1u << TX_COST_PACKETS);
    if (OVS_UNLIKELY(burst->counting)) {
        tx_cost_stop_counting(burst, n_packets, &event);
    }
    event.stages[TX_COST_WAIT] = MAX(burst->begin, queued) - queued;
    event.stages[TX_COST_SEND] = MAX(end, burst->send) - burst->send;
    event.stages[TX_COST_PACKETS] = n_packets;
    event.total = event.stages[TX_COST_WAIT] + event.stages[TX_COST_SEND];

    cost_record(burst->account, burst->recorder, burst->class, &event,
                &details);
    if (OVS_UNLIKELY(error)) {
        cost_count(burst->account, burst->class, TX_COST_ERRORS, 1);
    }
}

/* Counts 'n' packets that the netdev drops from the burst that the calling
 * thread is sending, or that many retries.  Does nothing if the thread is not
 * sending one. */
void
tx_cost_count(enum tx_cost_counter counter, size_t n)
{
    struct tx_cost_burst *burst = *current_get();

    if (burst && n) {
        cost_count(burst->account, burst->class, counter, n);
        if (counter < TX_COST_RETRIES) {
            burst->dropped += n;
        }
    }
}

/* Sets '*class' to that named 's'.  Returns false if there is no such
 * class. */
static bool
tx_cost_class_from_string(const char *s, size_t *class)
{
    unsigned int qid;

    if (strncmp(s, "txq", 3) || !str_to_uint(s + 3, 10, &qid)
        || qid >= TX_COST_N_QUEUES) {
        return false;
    }
    *class = qid;
    return true;
}

static void
tx_cost_format_details(const char *account OVS_UNUSED,
                       const uint64_t *details, struct ds *s)
{
    ds_put_format(s, "%"PRIu64" packets", details[TX_COST_DETAIL_PACKETS]);
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
    if (!snap->thread) {
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
tx_cost_init(void)
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
        .class_from_string = tx_cost_class_from_string,
        .class_help = "txq0 to txq63",
        .format_details = tx_cost_format_details,
        .details_to_json = tx_cost_details_to_json,
        .format_derived = tx_cost_format_derived,
        .derived_to_json = tx_cost_derived_to_json,
        .state_to_json = tx_cost_state_to_json,
    };

    cost_report_register(&report);
}
