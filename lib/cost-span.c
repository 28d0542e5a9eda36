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

#include "cost-span.h"

#include "coverage.h"
#include "util.h"

COVERAGE_DEFINE(cost_refused);

DEFINE_EXTERN_PER_THREAD_DATA(cost_thread, { NULL, NULL });

/* Called for each event that has been recorded, or NULL. */
static ATOMIC(cost_span_observer *) observer;

/* Makes 'observer_' see each event, in its thread, after it has been recorded,
 * or none if that is NULL.  Any thread may call this. */
void
cost_span_observe(cost_span_observer *observer_)
{
    atomic_store_relaxed(&observer, observer_);
}

/* A lap or an outcome has met a span that it is not for, or spans do not end
 * in the reverse order of beginning. */
void
cost_span_refuse__(void)
{
    COVERAGE_INC(cost_refused);
}

/* Begins an event of 'recorder' at 'now', in ticks.  Its stages are recorded
 * if 'sampled'. */
void
cost_span_open(struct cost_span *span, struct cost_recorder *recorder,
               bool sampled, uint64_t now)
{
    span->recorder = recorder;
    span->begin = span->start = span->last = now;
    span->excluded = 0;
    span->lapped = 0;
    span->sampled = sampled;
    cost_span_watch(span);
    span->who[0].id = span->who[1].id = 0;
    cost_entry_init(&span->entry, 0);
}

/* Ends 'stage' of 'span''s event, which is sampled, at 'now', in ticks. */
void
cost_span_lap(struct cost_span *span, size_t stage, uint64_t now)
{
    uint64_t ticks = cost_clock_ticks(span->last, now);

    if (span->lapped & (1u << stage)) {
        span->laps[stage] += ticks;
    } else {
        span->laps[stage] = ticks;
        span->lapped |= 1u << stage;
    }
    span->trailing = 0;
    if (span->recorder->kind->stages[stage].flags & COST_APART) {
        span->start += ticks;
        span->trailing = ticks;
    }
    span->last = now;
}

/* Ends 'span''s event at 'now', in ticks, and records it for 'class'.  Adds
 * 'counts' to the counters, if it is nonnull.  If its time is not known, the
 * event is counted without times. */
void
cost_span_finish(struct cost_span *span, uint64_t now, size_t class,
                 const uint64_t *counts, const struct cost_details *details)
{
    uint64_t total = cost_clock_ns(cost_clock_ticks(span->start, now));
    const struct cost_kind *kind = span->recorder->kind;
    size_t last = cost_kind_total(kind);
    struct cost_entry *entry = &span->entry;
    cost_span_observer *observe;

    for (uint16_t lapped = span->lapped; OVS_UNLIKELY(lapped);
         lapped = zero_rightmost_1bit(lapped)) {
        size_t stage = raw_ctz(lapped);
        uint64_t ns = cost_clock_ns(span->laps[stage]);

        if (OVS_LIKELY(ns != COST_CLOCK_UNKNOWN
                       && total != COST_CLOCK_UNKNOWN)) {
            cost_entry_add(entry, stage, ns);
        }
    }
    entry->excluded_ns = 0;
    if (OVS_LIKELY(total != COST_CLOCK_UNKNOWN)) {
        cost_entry_add(entry, last, total);
        if (OVS_UNLIKELY(span->excluded)) {
            uint64_t ns = cost_clock_ns(span->excluded);

            entry->excluded_ns = ns != COST_CLOCK_UNKNOWN ? ns : 0;
        }
    }
    entry->class = class;
    for (size_t i = 0; OVS_UNLIKELY(span->watched) && i < last; i++) {
        if (cost_stage_is_sampled(kind, i)) {
            entry->watched |= entry->known & (1u << i);
            entry->known &= ~(1u << i);
        }
    }
    cost_record(span->recorder, entry, counts, details, span->who);
    atomic_read_relaxed(&observer, &observe);
    if (OVS_UNLIKELY(observe)) {
        observe(span, now);
    }
    for (size_t i = 0; i < kind->n_lists; i++) {
        if (span->who[i].id && !(span->watched && kind->lists[i].sampled)) {
            cost_count_who(span->recorder, i, &span->who[i],
                           total != COST_CLOCK_UNKNOWN ? total : 0, 0);
        }
    }
}

/* Does what cost_lap() does for a 'span' that is sampled. */
void
cost_lap__(struct cost_span *span, const struct cost_kind *kind, size_t stage)
{
    if (OVS_LIKELY(span->recorder->kind->event == kind->event)) {
        cost_span_lap(span, stage, cost_span_now(span));
    } else {
        cost_span_refuse__();
    }
}

/* Takes 'ticks' off the event of 'span'. */
static void
exclude(struct cost_span *span, uint64_t ticks)
{
    if (span && span->recorder) {
        span->excluded += ticks;
        span->start += ticks;
        span->last += ticks;
    }
}

/* Takes 'ticks', which an event without a span took, off the calling thread's
 * innermost event, if there is one. */
void
cost_span_exclude(uint64_t ticks)
{
    exclude(cost_thread_get()->span, ticks);
}

/* Ends 'span''s event, which was left open, 'now', or at the present time if
 * that is 0. */
void
cost_span_close__(struct cost_span *span, uint64_t now)
{
    if (!now) {
        now = cost_span_now(span);
    }
    exclude(span->outer, cost_clock_ticks(span->begin, now));
    if (OVS_UNLIKELY(span->sampled)) {
        cost_span_lap(span, span->stage, now);
    }
    span->left = false;
    cost_span_finish(span, now, span->entry.class, NULL, &span->details);
}

/* Ends 'span' without recording anything. */
void
cost_span_cancel(struct cost_span *span)
{
    cost_span_leave(span, 0, 0, NULL, NULL, 0);
    if (span->left) {
        span->left = false;
        exclude(span->outer,
                cost_clock_ticks(span->begin, cost_span_now(span)));
    }
}
