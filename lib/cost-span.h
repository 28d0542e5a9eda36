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
 *     cost_span_init(&span);
 *     cost_span_begin(&span, recorder, 0);
 *     ...parse...
 *     cost_lap(&kind, PARSE);
 *     ...translate...
 *     cost_lap(&kind, TRANSLATE);
 *     ...execute...
 *     cost_span_end(&span, EXECUTE, class, NULL, NULL, 0);
 *
 * cost_lap() applies to the innermost span of the calling thread, so that the
 * code that ends a stage need not know the code that began the event; a span
 * of another kind refuses it.  Spans nest: the time of an inner event is not
 * part of the outer one, so that adding up events that are begun never counts
 * time twice.
 *
 * Of events that follow each other immediately, the end of one may be the
 * start of the next, which saves reading the clock:
 *
 *     cost_span_init(&span);
 *     for each event {
 *         cost_span_begin(&span, recorder, 0);
 *         ...
 *         cost_span_leave(&span, EXECUTE, class, NULL, NULL, 0);
 *     }
 *     cost_span_close(&span);
 *
 * An event that is not within the code of one function, such as one of several
 * that go on at the same time, does not become innermost, and its time is not
 * taken off other events, nor theirs off it.  Its points in time are given:
 *
 *     cost_span_open(&span, recorder, sampled, now);
 *     cost_span_lap(&span, PARSE, now);
 *     cost_span_finish(&span, now, class, NULL, NULL);
 *
 *
 * Thread-safety
 * =============
 *
 * As lib/cost.h.  A span belongs to one thread at a time. */

/* One event that is being measured. */
struct cost_span {
    struct cost_recorder *recorder;     /* NULL if it measures nothing. */
    struct cost_span *outer;            /* Enclosing span, if any. */
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
    bool sampled;                       /* Time the stages? */
    bool watched;                       /* For the slowest events only? */
    bool left;                          /* Between cost_span_leave() and
                                         * cost_span_close()? */

    /* Given to cost_span_leave(). */
    uint8_t stage;
    struct cost_details details;

    uint64_t laps[COST_MAX_STAGES];     /* Ticks of each stage in 'lapped'. */
    uint16_t lapped;

    struct cost_who who[COST_MAX_LISTS];  /* With 'id' 0 if not known. */
    struct cost_entry entry;            /* What else is known so far. */
};

/* What a thread measures. */
struct cost_thread {
    struct cost_span *span;             /* Its innermost span. */
    struct cost_span *open;             /* A span for cost_span_current() while
                                         * there is no innermost one. */
};
DECLARE_EXTERN_PER_THREAD_DATA(struct cost_thread, cost_thread);

/* Sees an event that has ended at 'now', in ticks. */
typedef void cost_span_observer(const struct cost_span *, uint64_t now);
void cost_span_observe(cost_span_observer *);

void cost_span_cancel(struct cost_span *);
void cost_span_exclude(uint64_t ticks);

void cost_span_open(struct cost_span *, struct cost_recorder *, bool sampled,
                    uint64_t now);
void cost_span_lap(struct cost_span *, size_t stage, uint64_t now);
void cost_span_finish(struct cost_span *, uint64_t now, size_t class,
                      const uint64_t *counts, const struct cost_details *);

void cost_lap__(struct cost_span *, const struct cost_kind *, size_t stage);
void cost_span_refuse__(void);
void cost_span_close__(struct cost_span *, uint64_t now);

/* Returns the time, in ticks, for 'span', which measures something. */
static inline uint64_t
cost_span_now(const struct cost_span *span)
{
    return cost_clock_now(span->recorder->kind->event, 0);
}

/* Has the stages of 'span''s event, which begins, timed although it is not
 * sampled, if it is one of those that follow one of the slowest. */
static inline void
cost_span_watch(struct cost_span *span)
{
    span->watched = false;
    if (!span->sampled && OVS_UNLIKELY(span->recorder->n_watch)) {
        span->recorder->n_watch--;
        span->sampled = span->watched = true;
    }
}

/* Makes 'span' ready for cost_span_begin() and cost_span_close(). */
static inline void
cost_span_init(struct cost_span *span)
{
    span->left = false;
}

/* If 'span''s event was left open, ends it now.  Then begins an event of
 * 'recorder', for which 'span' becomes the calling thread's innermost.  'tsc'
 * is 0, or what the caller has just read from the CPU's time stamp counter,
 * which may save reading the clock.
 *
 * If 'recorder' is NULL or its accounting is off, measures nothing: all that
 * such a span does is to take what cost_outcome() is given, in its entry's
 * 'counter'.
 *
 * Every span that is begun must be left, ended or cancelled, by the same
 * thread, in reverse order of beginning. */
static inline void
cost_span_begin(struct cost_span *span, struct cost_recorder *recorder,
                uint64_t tsc)
{
    struct cost_thread *thread = cost_thread_get();
    uint32_t interval = (recorder
                         ? cost_sample_interval(recorder->kind->config) : 0);
    uint64_t now = 0;

    if (OVS_LIKELY(interval)) {
        now = cost_clock_now(recorder->kind->event, tsc);
    }
    if (span->left) {
        cost_span_close__(span, now);
    }

    span->outer = thread->span;
    thread->span = span;
    span->entry.known = span->entry.watched = 0;
    span->entry.counter = COST_NO_COUNTER;
    if (OVS_LIKELY(interval)) {
        span->recorder = recorder;
        span->lapped = 0;
        span->begin = span->start = span->last = now;
        span->excluded = 0;
        span->who[0].id = span->who[1].id = 0;
        span->sampled = (cost_sample(recorder, interval)
                         || recorder->kind->exact);
        cost_span_watch(span);
    } else {
        span->recorder = NULL;
        span->sampled = false;
    }
}

/* Ends the stage 'stage' of the calling thread's innermost event, if there is
 * one and it is to be split into stages.  A stage that ends several times has
 * the sum of the times; one that never ends is not recorded. */
static inline void
cost_lap(const struct cost_kind *kind, size_t stage)
{
    struct cost_span *span = cost_thread_get()->span;

    if (span && OVS_UNLIKELY(span->sampled)) {
        cost_lap__(span, kind, stage);
    }
}

/* Makes the calling thread's innermost event, if there is one, increment
 * 'counter' when it ends. */
static inline void
cost_outcome(const struct cost_kind *kind, size_t counter)
{
    struct cost_span *span = cost_thread_get()->span;

    if (span) {
        if (OVS_LIKELY(!span->recorder
                       || span->recorder->kind->event == kind->event)) {
            span->entry.counter = counter;
        } else {
            cost_span_refuse__();
        }
    }
}

/* Ends 'span''s event, whose last stage is 'stage', and records it for
 * 'class', as cost_span_end() does, but leaves open when it ends: that is when
 * cost_span_begin() or cost_span_close() are called, until which 'aux' must
 * stay valid.  Later laps do not belong to the event. */
static inline void
cost_span_leave(struct cost_span *span, size_t stage, size_t class,
                cost_details_cb *get_details, const void *aux, size_t n)
{
    struct cost_thread *thread = cost_thread_get();

    if (OVS_LIKELY(thread->span == span)) {
        thread->span = span->outer;
    } else {
        cost_span_refuse__();
    }
    span->left = span->recorder != NULL;
    span->stage = stage;
    span->entry.class = class;
    span->details.get = get_details;
    span->details.aux = aux;
    span->details.n = n;
}

/* If 'span''s event was left open, ends it now. */
static inline void
cost_span_close(struct cost_span *span)
{
    if (span->left) {
        cost_span_close__(span, 0);
    }
}

/* Ends 'span''s event, whose last stage is 'stage', and records it for
 * 'class'.  Should the event be among the slowest, records the details that
 * 'get_details', which may be NULL, gets from 'aux' and 'n', too. */
static inline void
cost_span_end(struct cost_span *span, size_t stage, size_t class,
              cost_details_cb *get_details, const void *aux, size_t n)
{
    cost_span_leave(span, stage, class, get_details, aux, n);
    cost_span_close(span);
}

/* Returns the event of 'kind' that the calling thread measures, for which the
 * caller may set 'who', or NULL if there is none.  The strings must stay until
 * the event has ended. */
static inline struct cost_span *
cost_span_current(const struct cost_kind *kind)
{
    struct cost_thread *thread = cost_thread_get();
    struct cost_span *span = thread->span ? thread->span : thread->open;

    return (span && span->recorder
            && span->recorder->kind->event == kind->event ? span : NULL);
}

/* Returns true if the calling thread measures an event, so that the time of
 * another event within it is to be taken off, with cost_span_exclude(). */
static inline bool
cost_span_is_running(void)
{
    struct cost_span *span = cost_thread_get()->span;

    return span && span->recorder;
}

#endif /* cost-span.h */
