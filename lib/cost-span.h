/* SPDX-License-Identifier: Apache-2.0 */

#ifndef COST_SPAN_H
#define COST_SPAN_H 1

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "cost-clock.h"
#include "cost-recorder.h"
#include "ovs-thread.h"

/* Timing an event.
 * ================
 *
 *     struct cost_span span;
 *
 *     cost_span_begin(&span, recorder);
 *     ...parse...
 *     cost_lap(&kind, PARSE);
 *     ...translate...
 *     cost_lap(&kind, TRANSLATE);
 *     ...execute...
 *     cost_span_end(&span, EXECUTE, class);
 *
 * cost_lap() applies to the innermost span of the calling thread, so the code
 * that ends a stage need not know the code that began the event; a span of
 * another kind ignores it.  Spans of cost_span_begin() nest: the time of an
 * inner event is not part of the outer one, so their sum never counts time
 * twice.
 *
 * If events follow each other immediately, the end of one may be the start of
 * the next, as in lib/upcall-cost.h: cost_span_begin__() and cost_span_end__()
 * take the time, which saves a reading of the clock.
 *
 * cost_span_open() is for events that do not nest: one of several that are in
 * progress at the same time, or one whose time is to be part of the outer
 * event as well.  Such an event does not become innermost, unless the caller
 * makes it so, as lib/upcall-cost-kernel.c does with the upcall that is worked
 * on.  Its time is not subtracted from other events, unless the caller calls
 * cost_span_exclude(), as lib/tx-cost.c does.  The caller passes its points in
 * time:
 *
 *     cost_span_open(&span, recorder, sampled, now);
 *     cost_span_lap(&span, PARSE, now);
 *     cost_span_finish(&span, now, class, NULL);
 *
 *
 * Thread-safety
 * =============
 *
 * As lib/cost.h.  A span belongs to one thread at a time. */

/* One event that is being measured. */
struct cost_span {
    struct cost_recorder *recorder;     /* NULL if it measures nothing. */
    struct cost_span *outer;            /* Enclosing span, or NULL.  Not set by
                                         * cost_span_open(). */
    uint64_t begin;                     /* Ticks. */
    uint64_t start;                     /* Same, plus what is not part of the
                                         * event: inner ones, and stages that
                                         * are COST_APART. */
    uint64_t last;                      /* End of the latest stage, plus the
                                         * time of inner events since. */
    uint64_t trailing;                  /* Ticks of the latest stage if it is
                                         * COST_APART.  Not set before the
                                         * first one ends. */
    uint64_t excluded;                  /* Ticks of inner events. */
    bool sampled;                       /* Time the stages?  Also true if the
                                         * entry is 'watched'. */
    uint16_t lapped;                    /* Stages of 'entry' that are not
                                         * 'known' yet, but have ticks. */
    struct cost_who who[COST_MAX_LISTS];  /* With 'id' 0 if not known. */
    struct cost_entry entry;            /* What is known so far. */
};

/* The calling thread's innermost span, or NULL. */
DECLARE_EXTERN_PER_THREAD_DATA(struct cost_span *, cost_innermost);

/* Sees an event that cost_span_finish() has just recorded, except for its
 * keys, in its thread.  It ended at 'now', in ticks, or 'trailing' before that
 * if its last stage is COST_APART.  All that are split or slow are seen, and
 * some others.  Or NULL.  Any thread may set it. */
typedef void cost_span_observer(const struct cost_span *, uint64_t now);
extern ATOMIC(cost_span_observer *) cost_observer;

/* Only for a span of cost_span_begin(). */
void cost_span_cancel(struct cost_span *);

void cost_span_exclude(uint64_t ticks);

void cost_span_lap(struct cost_span *, size_t stage, uint64_t now);
void cost_span_finish(struct cost_span *, uint64_t now, size_t class,
                      const uint64_t *counts);

/* Returns the time, in ticks, for 'span', which measures something. */
static inline uint64_t
cost_span_now(const struct cost_span *span)
{
    return cost_clock_now(span->recorder->kind->event, 0);
}

/* Begins an event of 'recorder' at 'now', in ticks.  Its stages are recorded
 * if it is 'sampled', or watched because it follows one of the slowest.  A
 * watched event is counted as any other, but its stages are in no histogram,
 * except its total and those that are COST_ALWAYS. */
static inline void
cost_span_open(struct cost_span *span, struct cost_recorder *recorder,
               bool sampled, uint64_t now)
{
    span->recorder = recorder;
    span->begin = span->start = span->last = now;
    span->excluded = 0;
    span->lapped = 0;
    span->sampled = sampled;
    span->entry.known = 0;
    span->entry.counter = COST_NO_COUNTER;
    span->entry.watched = false;
    if (OVS_UNLIKELY(recorder->n_watch) && !sampled) {
        recorder->n_watch--;
        span->sampled = span->entry.watched = true;
    }
    for (size_t i = 0; i < COST_MAX_LISTS; i++) {
        span->who[i].id = 0;
    }
}

/* Does what cost_span_begin() does for 'recorder', whose accounting is on, at
 * 'now', in ticks. */
static inline void
cost_span_begin__(struct cost_span *span, struct cost_recorder *recorder,
                  bool sampled, uint64_t now)
{
    struct cost_span **innermost = cost_innermost_get();

    cost_span_open(span, recorder, sampled, now);
    span->outer = *innermost;
    *innermost = span;
}

/* Begins an event of 'recorder', for which 'span' becomes the calling thread's
 * innermost.
 *
 * If 'recorder' is NULL or its accounting is off, 'span' measures nothing.
 *
 * Every span that is begun must be ended or cancelled, by the same thread, in
 * reverse order of beginning. */
static inline void
cost_span_begin(struct cost_span *span, struct cost_recorder *recorder)
{
    uint32_t interval = (recorder
                         ? cost_sample_interval(recorder->kind->config) : 0);

    if (interval) {
        cost_span_begin__(span, recorder, (cost_sample(recorder, interval)
                                           || recorder->kind->exact),
                          cost_clock_now(recorder->kind->event, 0));
    } else {
        span->recorder = NULL;
    }
}

/* Does what cost_span_end() does for 'span', which measures something, at
 * 'now', in ticks. */
static inline void
cost_span_end__(struct cost_span *span, uint64_t now, size_t stage,
                size_t class)
{
    *cost_innermost_get() = span->outer;
    if (OVS_UNLIKELY(span->outer)) {
        cost_span_exclude(cost_clock_ticks(span->begin, now));
    }
    if (OVS_UNLIKELY(span->sampled)) {
        cost_span_lap(span, stage, now);
    }
    cost_span_finish(span, now, class, NULL);
}

/* Ends 'span''s event, whose last stage is 'stage', and records it for
 * 'class'. */
static inline void
cost_span_end(struct cost_span *span, size_t stage, size_t class)
{
    if (OVS_LIKELY(span->recorder)) {
        cost_span_end__(span, cost_span_now(span), stage, class);
    }
}

/* Returns the calling thread's innermost event if that is one of 'kind',
 * otherwise NULL.  The caller may set its 'who': the strings must stay until
 * the event has ended. */
static inline struct cost_span *
cost_span_current(const struct cost_kind *kind)
{
    struct cost_span *span = *cost_innermost_get();

    return span && span->recorder->kind->event == kind->event ? span : NULL;
}

/* Ends the stage 'stage' of the calling thread's innermost event, if that is
 * one of 'kind' and is to be split into stages.  A stage that ends several
 * times has the sum of the times; one that never ends is not recorded. */
static inline void
cost_lap(const struct cost_kind *kind, size_t stage)
{
    struct cost_span *span = *cost_innermost_get();

    if (span && OVS_UNLIKELY(span->sampled)
        && span->recorder->kind->event == kind->event) {
        cost_span_lap(span, stage, cost_span_now(span));
    }
}

/* Makes the calling thread's innermost event, if that is one of 'kind',
 * increment 'counter' when it ends. */
static inline void
cost_outcome(const struct cost_kind *kind, size_t counter)
{
    struct cost_span *span = cost_span_current(kind);

    if (span) {
        span->entry.counter = counter;
    }
}

#endif /* cost-span.h */
