/* SPDX-License-Identifier: Apache-2.0 */

#include <config.h>

#include "tx-cost.h"

#include "cost-report.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/json.h"

/* Classes: tx queues.  The last one stands for all others, too. */
#define N_CLASSES 64

DEFINE_EXTERN_PER_THREAD_DATA(tx_cost_current, NULL);

/* What is special about the burst that a thread is sending. */
struct tx_cost_burst {
    uint64_t begin;             /* Ticks, if TX_COST_TIMED or _NESTED. */
    uint64_t counts[COST_MAX_COUNTERS];
};
DEFINE_STATIC_PER_THREAD_DATA(struct tx_cost_burst, tx_cost_burst, { 0 });

/* Details of one of the slowest bursts. */
enum { DETAIL_PACKETS, DETAIL_DROPPED, N_DETAILS };

static void
get_details(const struct cost_span *span, uint64_t *details)
{
    details[DETAIL_PACKETS] = span->entry.stages[TX_COST_PACKETS];
    for (size_t i = TX_COST_DROP_DOWN; i < TX_COST_RETRIES; i++) {
        details[DETAIL_DROPPED] += tx_cost_burst_get()->counts[i];
    }
}

/* Appends the name of 'class' to 's', such as "txq3". */
static void
tx_cost_format_class(size_t class, struct ds *s)
{
    ds_put_format(s, "txq%"PRIuSIZE"%s", class,
                  class == N_CLASSES - 1 ? "+" : "");
}

/* By default, one burst in 64 is timed. */
struct cost_config tx_cost_config
    = COST_CONFIG_INITIALIZER("tx", 64);

const struct cost_kind tx_cost_kind = {
    .event = "burst",
    .config = &tx_cost_config,
    COST_STAGES(TX_COST_STAGES),
    COST_COUNTERS(TX_COST_COUNTERS),
    .n_reasons = TX_COST_N_REASONS,
    .n_classes = N_CLASSES,
    .format_class = tx_cost_format_class,
    .n_slowest = 5,                 /* As many as are shown by default. */
    .n_details = N_DETAILS,
    .get_details = get_details,
};

/* Initializes 'tx' for the thread named 'thread', which sends to the port that
 * 'account' is for.  'tsc' is where the thread keeps its latest reading of the
 * time stamp counter, or NULL.  The caller must destroy tx->recorder, or all
 * recorders of 'account' at a time. */
void
tx_cost_init(struct tx_cost *tx, struct cost_account *account,
             const char *thread, const uint64_t *tsc)
{
    memset(tx, 0, sizeof *tx);
    tx->recorder = cost_recorder_create(account, thread);
    tx->tsc = tsc;
}

/* Returns the time, in ticks.  'fresh' says whether '*tx->tsc' has just been
 * read. */
static uint64_t
tx_cost_now(const struct tx_cost *tx, bool fresh)
{
    return cost_clock_now(tx_cost_kind.event,
                          fresh && tx->tsc ? *tx->tsc : 0);
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
        cost_pause(tx->recorder);
    }
}

/* Does what tx_cost_begin() does for a burst that is to be timed, or is within
 * another event. */
void
tx_cost_begin__(struct tx_cost *tx, bool fresh)
{
    struct tx_cost_burst *burst = tx_cost_burst_get();

    tx->special |= *cost_innermost_get() ? TX_COST_NESTED : 0;
    burst->begin = tx_cost_now(tx, fresh);
}

/* Counts 'n' packets that the netdev drops from the burst that the calling
 * thread is sending, or that many retries.  Does nothing if the thread is not
 * sending one. */
void
tx_cost_count(enum tx_cost_counter counter, size_t n)
{
    struct tx_cost *tx = *tx_cost_current_get();

    if (tx && n) {
        tx->special |= TX_COST_COUNTED;
        tx_cost_burst_get()->counts[counter] += n;
        if (counter < TX_COST_RETRIES) {
            tx->dropped += n;
        }
    }
}

/* Does what tx_cost_end() does when more than 'n_packets' and 'reason' is to
 * be recorded. */
void
tx_cost_end__(struct tx_cost *tx, enum tx_cost_counter reason,
              size_t n_packets, bool has_oldest, int error, bool fresh)
{
    struct tx_cost_burst *burst = tx_cost_burst_get();
    size_t class = MIN((uint32_t) tx->qid, N_CLASSES - 1);
    bool timed = tx->special & TX_COST_TIMED;
    uint64_t *counts = burst->counts;
    struct cost_span span;
    uint64_t end = 0;

    if (tx->special & (TX_COST_TIMED | TX_COST_NESTED)) {
        end = tx_cost_now(tx, fresh);
        cost_span_exclude(cost_clock_ticks(burst->begin, end));
    }

    cost_span_open(&span, tx->recorder, timed, tx->queued);
    span.entry.counter = reason;
    counts[TX_COST_ERRORS] = error != 0;
    counts[TX_COST_SENT] = n_packets;
    if (timed) {
        cost_entry_add(&span.entry, TX_COST_PACKETS, n_packets);
        cost_span_lap(&span, TX_COST_WAIT, burst->begin);
        cost_span_lap(&span, TX_COST_SEND, end);
    }

    if (cost_enabled(&tx_cost_config)) {
        if (timed && has_oldest) {
            cost_span_finish(&span, end, class, counts);
        } else {
            uint64_t send
                = (timed ? cost_clock_ns(span.entry.stages[TX_COST_SEND])
                   : COST_CLOCK_UNKNOWN);

            if (send != COST_CLOCK_UNKNOWN) {
                cost_entry_add(&span.entry, TX_COST_SEND, send);
            }
            span.entry.class = class;
            cost_record(tx->recorder, &span.entry, counts, NULL);
        }
    }
    memset(counts, 0, sizeof burst->counts);

    /* With hash steering, there may be bursts to other tx queues. */
    tx->special &= TX_COST_TIMED;
    tx->dropped = 0;
}

/* Reports. */

static void
put_details(const char *account OVS_UNUSED, const uint64_t *details,
            bool packet OVS_UNUSED, struct json *json)
{
    cost_put_integer(json, "packets", details[DETAIL_PACKETS]);
    cost_put_integer(json, "dropped", details[DETAIL_DROPPED]);
}

/* Registers the tx/cost-* commands. */
void
tx_cost_register(void)
{
    static const struct cost_kind *const kinds[] = { &tx_cost_kind };
    static const struct cost_report report = {
        .prefix = "tx",
        .object = "port",
        .kinds = kinds,
        .n_kinds = ARRAY_SIZE(kinds),
        .class_help = "txq0 to txq62 or txq63+",
        .put_details = put_details,
    };

    cost_report_register(&report);
}
