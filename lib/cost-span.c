/* SPDX-License-Identifier: Apache-2.0 */

#include <config.h>

#include "cost-span.h"

#include "util.h"

DEFINE_EXTERN_PER_THREAD_DATA(cost_innermost, NULL);

ATOMIC(cost_span_observer *) cost_observer;

/* Ends 'stage' of 'span''s event, which is sampled, at 'now', in ticks. */
void
cost_span_lap(struct cost_span *span, size_t stage, uint64_t now)
{
    uint64_t ticks = cost_clock_ticks(span->last, now);

    if (span->lapped & (1u << stage)) {
        span->entry.stages[stage] += ticks;
    } else {
        span->entry.stages[stage] = ticks;
        span->lapped |= 1u << stage;
    }
    span->trailing = 0;
    if (span->recorder->kind->stages[stage].flags & COST_APART) {
        span->start += ticks;
        span->trailing = ticks;
    }
    span->last = now;
}

/* Returns 'ticks' in ns, or 0 if that is not known. */
static uint64_t
known_ns(uint64_t ticks)
{
    uint64_t ns = ticks ? cost_clock_ns(ticks) : 0;

    return ns != COST_CLOCK_UNKNOWN ? ns : 0;
}

/* Records 'span''s event, which took 'total' ns or COST_CLOCK_UNKNOWN, and
 * ended at 'now'. */
static void COST_COLD
record(struct cost_span *span, uint64_t now, uint64_t total,
       const uint64_t *counts)
{
    const struct cost_kind *kind = span->recorder->kind;
    struct cost_entry *entry = &span->entry;
    size_t last = cost_kind_total(kind);
    cost_span_observer *observe;

    entry->excluded_ns = 0;
    entry->after_ns = span->lapped ? known_ns(span->trailing) : 0;
    if (total != COST_CLOCK_UNKNOWN) {
        cost_entry_add(entry, last, total);
        for (uint16_t lapped = span->lapped; lapped;
             lapped = zero_rightmost_1bit(lapped)) {
            size_t stage = raw_ctz(lapped);
            uint64_t ns = cost_clock_ns(entry->stages[stage]);

            if (ns != COST_CLOCK_UNKNOWN) {
                entry->stages[stage] = ns;
                entry->known |= 1u << stage;
            }
        }
        entry->excluded_ns = known_ns(span->excluded);
    } else {
        entry->known &= ~(1u << last);
    }
    cost_record(span->recorder, entry, counts, span);
    atomic_read_relaxed(&cost_observer, &observe);
    if (observe) {
        observe(span, now);
    }
    if (span->sampled && !entry->watched) {
        uint64_t ns = entry->known & (1u << last) ? entry->stages[last] : 0;

        for (size_t i = 0; i < kind->n_lists; i++) {
            if (span->who[i].id) {
                cost_count_who(span->recorder, i, &span->who[i], ns, 0);
            }
        }
    }
}

/* Records 'span''s event, of 'class', that took 'total_ns' and of which only
 * the counter is known.  Returns false, without doing anything, if
 * this takes cost_record(). */
static bool
record_total(const struct cost_span *span, uint32_t class, uint64_t total_ns)
{
    struct cost_data *data = ovsrcu_get(struct cost_data *,
                                        &span->recorder->data);
    struct cost_block *block = data->latest;
    bool highest;

    if (OVS_UNLIKELY(data->latest_class != class
                     || total_ns > cost_load(&data->threshold_ns)
                     || !cost_hist_record(block->total, total_ns, &highest))) {
        return false;
    }
    if (OVS_UNLIKELY(highest)) {
        cost_set_longest__(block, 0);
    }
    if (OVS_LIKELY(span->entry.counter != COST_NO_COUNTER)) {
        cost_increase(&block->counters[span->entry.counter], 1);
    }
    return true;
}

/* Ends 'span''s event at 'now', in ticks, and records it for 'class'.  Adds
 * 'counts' to the counters, if it is nonnull.  If its time is not known, the
 * event is counted without times. */
void
cost_span_finish(struct cost_span *span, uint64_t now, size_t class,
                 const uint64_t *counts)
{
    uint64_t total = cost_clock_ns(cost_clock_ticks(span->start, now));

    /* Most events are neither sampled nor slow. */
    if (OVS_LIKELY(!(span->sampled | span->entry.known | (uintptr_t) counts))
        && OVS_LIKELY(record_total(span, class, total))) {
        return;
    }
    span->entry.class = class;
    record(span, now, total, counts);
}

/* Takes 'ticks', which an event without a span took, off the calling thread's
 * innermost event, if there is one. */
void
cost_span_exclude(uint64_t ticks)
{
    struct cost_span *span = *cost_innermost_get();

    if (OVS_UNLIKELY(span)) {
        span->excluded += ticks;
        span->start += ticks;
        span->last += ticks;
    }
}

/* Ends 'span' without recording anything. */
void
cost_span_cancel(struct cost_span *span)
{
    if (span->recorder) {
        *cost_innermost_get() = span->outer;
        if (span->outer) {
            cost_span_exclude(cost_clock_ticks(span->begin,
                                               cost_span_now(span)));
        }
    }
}
