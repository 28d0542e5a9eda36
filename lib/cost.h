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

#ifndef COST_H
#define COST_H 1

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "cost-clock.h"
#include "cost-histogram.h"
#include "mpsc-queue.h"
#include "openvswitch/list.h"
#include "ovs-thread.h"
#include "random.h"

struct ds;
struct smap;

/* Cost accounting: where a thread's time goes, exactly and always on.
 * ====================================================================
 *
 * This is the recording layer.  What is measured is described by a 'struct
 * cost_kind': an event (such as an upcall) has a class, is split into stages
 * that follow each other, and may increment one counter.  A 'struct
 * cost_account' holds what was measured of one object (such as a datapath).
 *
 * A hook brackets an event with cost_timer_start() and cost_timer_stop(), and
 * code in between calls cost_timer_mark() at the end of each stage:
 *
 *     struct cost_timer timer;
 *
 *     cost_timer_start(&timer, account, 0);
 *     ...parse...
 *     cost_timer_mark(PARSE);
 *     ...translate...
 *     cost_timer_mark(TRANSLATE);
 *     ...execute...
 *     cost_timer_stop(&timer, EXECUTE, class, NULL, NULL, 0);
 *
 * cost_timer_mark() applies to the innermost timer of the calling thread, so
 * that the code that marks need not know the code that started.  Timers nest:
 * the time of an inner event is not part of the outer one, so that adding up
 * events never counts time twice.
 *
 * Of events that follow each other immediately, the end of one may be the
 * start of the next, which saves reading the clock:
 *
 *     cost_timer_init(&timer);
 *     for each event {
 *         cost_timer_next(&timer, account, 0);
 *         ...
 *         cost_timer_leave(&timer, EXECUTE, class, NULL, NULL, 0);
 *     }
 *     cost_timer_end(&timer);
 *
 * A stage may also be a number, such as the packets in a burst, which
 * cost_timer_value() sets.
 *
 * Events that overlap, such as those of a batch, can't be bracketed, and of
 * others somebody has read the clock already.  The code that handles them
 * calls cost_record().
 *
 * Every event is counted and its total time recorded.  Splitting an event into
 * stages takes one more clock reading per stage, so that only one in
 * 'split_interval' events is split.  The gaps between them are random, 1 to
 * 2 * 'split_interval' - 1 events: with fixed gaps, of events that alternate
 * (such as the upcalls before and after a recirculation) one kind might never
 * be split.
 *
 * Cost on x86-64, apart from reading the clock: see
 * Documentation/topics/upcall-cost.rst.
 *
 *
 * Thread-safety
 * =============
 *
 * Each thread writes only to recorders of its own, which it creates on its
 * first event, without waiting for any other thread.  It first appends an
 * event to an array of pending ones, which is short and thus stays in the
 * cache, and adds them to the histograms, which do not, some fifty at a time.
 *
 * Any thread may read an account while others record into it; it gets every
 * event, pending or not, either whole or not at all.  A thread that exits
 * leaves its numbers behind, in a pseudo-thread named "exited".
 *
 * Clearing an account bumps its generation: each thread clears its own data
 * with its next event, readers ignore data of an earlier generation.
 */

#define COST_MAX_STAGES 16              /* Fits in cost_event's 'marked'. */
#define COST_MAX_COUNTERS 16
#define COST_N_SLOWEST 16               /* Slowest events kept per thread. */
#define COST_N_PENDING 128              /* Words of pending events. */
#define COST_NO_COUNTER UINT8_MAX

/* What is measured.  Static. */
struct cost_kind {
    const char *name;                   /* Of an event, such as "upcall". */

    /* Stages of an event, in order.  The last one is the whole event. */
    const char *const *stages;
    size_t n_stages;
    uint16_t values;                    /* A bit for each stage that is not a
                                         * time but a number. */
    uint16_t optional;                  /* A bit for each stage that is only
                                         * shown when there is any. */
    bool always_split;                  /* Does cost_record() keep the stages
                                         * of all events? */

    /* Counters, at most one of which each event increments. */
    const char *const *counters;
    size_t n_counters;

    /* Classes of events. */
    size_t n_classes;
    void (*format_class)(size_t class, struct ds *);

    /* Number of 64-bit words with details kept of each of the slowest
     * events. */
    size_t n_details;

    /* Counts, with cost_count(), what somebody else, such as the kernel, has
     * counted since this was last called.  Any thread calls it before an
     * account is read or cleared and before accounting is switched on or off,
     * while 'accounts_mutex' is held.  May be NULL. */
    void (*refresh)(void);
};

/* Run-time configuration, see cost_configure(). */
struct cost_config {
    atomic_bool enabled;
    atomic_uint32_t split_interval;
};
extern struct cost_config cost_config;

#define COST_DEFAULT_SPLIT_INTERVAL 16
#define COST_MAX_SPLIT_INTERVAL 65536

void cost_configure(const struct smap *);

/* Returns true if accounting is on. */
static inline bool
cost_enabled(void)
{
    bool enabled;

    atomic_read_relaxed(&cost_config.enabled, &enabled);
    return enabled;
}

/* Accounts. */
struct cost_account *cost_account_create(const struct cost_kind *,
                                         const char *name);
void cost_account_destroy(struct cost_account *);

/* What one thread recorded of one class of events. */
struct cost_class {
    atomic_uint64_t counters[COST_MAX_COUNTERS];  /* kind->n_counters used. */
    struct cost_hist stages[];          /* kind->n_stages. */
};

/* What one thread recorded in one account.  What every event needs comes
 * first, in one cache line, followed by the events that are pending: an upcall
 * leaves little else in the cache. */
struct cost_recorder {
    struct cost_account *account;

    /* Written by the recording thread only.  'seq' is the sequence lock of all
     * that is recorded: odd while anything but appending to 'pending' is going
     * on. */
    atomic_uint32_t seq;
    atomic_uint32_t generation;         /* Of the account, of what is
                                         * recorded. */
    atomic_uint32_t n_pending;          /* Words used in 'pending'. */

    /* Used by the recording thread only. */
    uint32_t latest_class;              /* Recorded last, known to exist. */
    uint64_t slow_threshold;            /* An event that takes longer, in ns,
                                         * belongs in 'slowest'. */
    uint32_t split_in;                  /* Events until the next split. */
    uint32_t split_interval;            /* When 'split_in' was chosen. */
    uint16_t values;                    /* kind->values. */

    /* Written by the recording thread only. */
    OVS_ALIGNED_VAR(CACHE_LINE_SIZE) atomic_uint64_t pending[COST_N_PENDING];

    const struct cost_kind *kind;
    size_t slow_next;                   /* Next of the slowest to replace. */
    struct cost_recorder *next;         /* The thread's next recorder. */
    atomic_uint64_t *slowest;           /* COST_N_SLOWEST records. */
    ATOMIC(struct cost_class *) *classes;  /* kind->n_classes, on demand. */

    /* Life time. */
    atomic_int state;                   /* One of RECORDER_*, in cost.c. */
    char *thread;                       /* Name of the recording thread. */
    struct mpsc_queue_node queue_node;  /* In account's 'registered'. */
    struct ovs_list list_node;          /* In account's 'recorders'. */
};

/* An event that has been measured. */
struct cost_event {
    uint64_t total;                     /* Ticks. */
    uint16_t marked;                    /* A bit for each stage that is known,
                                         * except the last one. */
    uint8_t counter;                    /* To increment or COST_NO_COUNTER. */
    uint64_t stages[COST_MAX_STAGES];   /* Ticks or value, of those in
                                         * 'marked'. */
};

static inline void cost_event_init(struct cost_event *);
static inline void cost_event_add(struct cost_event *, size_t stage,
                                  uint64_t n);

/* Fills in the details of a slow event, kind->n_details words.  'aux' and 'n'
 * are what was given when the event stopped. */
typedef void cost_details_cb(uint64_t *details, const void *aux, size_t n);

/* Where the details of an event come from. */
struct cost_details {
    cost_details_cb *get;               /* Or NULL. */
    const void *aux;
    size_t n;
};

/* One event that is being measured.  On the stack of the code that starts and
 * stops it. */
struct cost_timer {
    struct cost_recorder *recorder;     /* NULL if accounting is off. */
    struct cost_timer *outer;           /* Enclosing timer, if any. */
    uint64_t begin;                     /* Ticks: cost_timer_start(). */
    uint64_t start;                     /* Same, plus time of inner events. */
    uint64_t last;                      /* Latest mark, plus the same. */
    bool split;                         /* Record the stages? */
    bool open;                          /* Between cost_timer_leave() and
                                         * cost_timer_end()? */

    /* Given to cost_timer_leave(). */
    uint8_t stage;
    uint32_t class;
    struct cost_details details;

    struct cost_event event;            /* So far. */
};

/* Recording state of a thread. */
struct cost_thread {
    struct cost_timer *timer;           /* Innermost running timer. */
    struct cost_recorder *latest;       /* Recorder used last. */
    struct cost_recorder *recorders;    /* All. */
};
DECLARE_EXTERN_PER_THREAD_DATA(struct cost_thread, cost_thread);

static inline void cost_timer_start(struct cost_timer *,
                                    struct cost_account *, uint64_t tsc);
static inline void cost_timer_mark(size_t stage);
static inline void cost_timer_value(size_t stage, uint64_t value);
static inline void cost_timer_count(size_t counter);
static inline void cost_timer_stop(struct cost_timer *, size_t stage,
                                   size_t class, cost_details_cb *,
                                   const void *aux, size_t n);
static inline void cost_timer_cancel(struct cost_timer *);

static inline void cost_timer_catch(struct cost_timer *);

static inline void cost_timer_init(struct cost_timer *);
static inline void cost_timer_next(struct cost_timer *, struct cost_account *,
                                   uint64_t tsc);
static inline void cost_timer_leave(struct cost_timer *, size_t stage,
                                    size_t class, cost_details_cb *,
                                    const void *aux, size_t n);
static inline void cost_timer_end(struct cost_timer *);

void cost_record(struct cost_account *, struct cost_recorder **,
                 size_t class, struct cost_event *,
                 const struct cost_details *);
void cost_count(struct cost_account *, size_t class, size_t counter,
                uint64_t n);

struct cost_recorder *cost_recorder_get(struct cost_account *);
uint32_t cost_split_gap(uint32_t interval);
void cost_recorder_split__(struct cost_recorder *, uint32_t interval);
void cost_timer_end__(struct cost_timer *, uint64_t now);
void cost_timer_cancel__(struct cost_timer *);

/* Returns the time, in ticks, for 'timer''s event. */
static inline uint64_t
cost_timer_now(const struct cost_timer *timer)
{
    return cost_clock_now(timer->recorder->kind->name);
}

/* Returns true if 'recorder''s next event, which the caller must record or
 * cancel, is to be split into stages. */
static inline bool
cost_recorder_split(struct cost_recorder *recorder)
{
    uint32_t interval;

    atomic_read_relaxed(&cost_config.split_interval, &interval);
    if (OVS_UNLIKELY(!--recorder->split_in
                     || recorder->split_interval != interval)) {
        cost_recorder_split__(recorder, interval);
        return true;
    }
    return false;
}

/* Makes 'event' one of which nothing is known. */
static inline void
cost_event_init(struct cost_event *event)
{
    event->total = 0;
    event->marked = 0;
    event->counter = COST_NO_COUNTER;
}

/* Adds 'n', ticks or a value, to 'stage' of 'event'. */
static inline void
cost_event_add(struct cost_event *event, size_t stage, uint64_t n)
{
    if (event->marked & (1u << stage)) {
        event->stages[stage] += n;
    } else {
        event->stages[stage] = n;
        event->marked |= 1u << stage;
    }
}

/* Does what cost_timer_start() does while accounting is on, for 'recorder' of
 * the calling thread 'now'. */
static inline void
cost_timer_start__(struct cost_timer *timer, struct cost_recorder *recorder,
                   uint64_t now)
{
    timer->recorder = recorder;
    timer->begin = timer->start = now;
    timer->event.marked = 0;
    timer->event.counter = COST_NO_COUNTER;
    timer->split = cost_recorder_split(recorder);
    if (OVS_UNLIKELY(timer->split)) {
        timer->last = now;
    }
}

/* Starts 'timer' for an event of 'account' that begins now.  'tsc' is 0, or
 * what the caller has just read from the CPU's time stamp counter, which may
 * save reading the clock (see cost_clock_now_tsc()).  If accounting is off,
 * this and everything else done with 'timer' does nothing.
 *
 * Every timer that is started must be stopped or cancelled, by the same
 * thread, in reverse order of starting. */
static inline void
cost_timer_start(struct cost_timer *timer, struct cost_account *account,
                 uint64_t tsc)
{
    struct cost_thread *thread = cost_thread_get();
    struct cost_recorder *recorder;

    timer->outer = thread->timer;
    thread->timer = timer;

    timer->open = false;
    if (OVS_UNLIKELY(!cost_enabled())) {
        timer->recorder = NULL;
        timer->split = false;
        return;
    }

    recorder = thread->latest;
    if (OVS_LIKELY(recorder && recorder->account == account && tsc)) {
        cost_timer_start__(timer, recorder, cost_clock_now_tsc(
                               recorder->kind->name, tsc));
    } else {
        /* Creating a recorder takes time that is not the event's. */
        recorder = cost_recorder_get(account);
        cost_timer_start__(timer, recorder,
                           cost_clock_now(recorder->kind->name));
    }
}

/* Ends 'stage' of 'timer''s event, which is to be split, at 'now'. */
static inline void
cost_timer_mark__(struct cost_timer *timer, size_t stage, uint64_t now)
{
    cost_event_add(&timer->event, stage,
                   cost_clock_between(timer->last, now));
    timer->last = now;
}

/* Ends the stage 'stage' of the calling thread's innermost event, if there is
 * one and it is to be split into stages.  A stage that ends several times has
 * the sum of the times; one that never ends is not recorded. */
static inline void
cost_timer_mark(size_t stage)
{
    struct cost_timer *timer = cost_thread_get()->timer;

    if (timer && OVS_UNLIKELY(timer->split)) {
        cost_timer_mark__(timer, stage, cost_timer_now(timer));
    }
}

/* Sets 'stage', one of kind->values, of the calling thread's innermost event,
 * if there is one, to 'value'. */
static inline void
cost_timer_value(size_t stage, uint64_t value)
{
    struct cost_timer *timer = cost_thread_get()->timer;

    if (timer) {
        timer->event.stages[stage] = value;
        timer->event.marked |= 1u << stage;
    }
}

/* Makes the calling thread's innermost event, if there is one, increment
 * 'counter' when it stops. */
static inline void
cost_timer_count(size_t counter)
{
    struct cost_timer *timer = cost_thread_get()->timer;

    if (timer) {
        timer->event.counter = counter;
    }
}

/* Ends 'timer' without recording anything. */
static inline void
cost_timer_cancel(struct cost_timer *timer)
{
    if (timer->recorder) {
        cost_timer_cancel__(timer);
    } else {
        cost_thread_get()->timer = timer->outer;
    }
}

/* Makes 'timer' the calling thread's innermost only so that it catches what
 * cost_timer_count() is given, in its event's 'counter'.  It must be
 * cancelled. */
static inline void
cost_timer_catch(struct cost_timer *timer)
{
    struct cost_thread *thread = cost_thread_get();

    timer->outer = thread->timer;
    timer->recorder = NULL;
    timer->split = timer->open = false;
    timer->event.counter = COST_NO_COUNTER;
    thread->timer = timer;
}

/* Makes 'timer' ready for cost_timer_next() and cost_timer_end(). */
static inline void
cost_timer_init(struct cost_timer *timer)
{
    timer->open = false;
}

/* Ends 'timer''s event, whose last stage is 'stage', and records it for
 * 'class', as cost_timer_stop() does, but leaves open when it ends: that is
 * when cost_timer_next() or cost_timer_end() are called, until which 'aux'
 * must stay valid.  Marks no longer belong to the event. */
static inline void
cost_timer_leave(struct cost_timer *timer, size_t stage, size_t class,
                 cost_details_cb *get_details, const void *aux, size_t n)
{
    struct cost_thread *thread = cost_thread_get();

    ovs_assert(thread->timer == timer);
    thread->timer = timer->outer;

    timer->open = timer->recorder != NULL;
    timer->stage = stage;
    timer->class = class;
    timer->details.get = get_details;
    timer->details.aux = aux;
    timer->details.n = n;
}

/* If 'timer''s event was left open, ends it now. */
static inline void
cost_timer_end(struct cost_timer *timer)
{
    if (timer->open) {
        cost_timer_end__(timer, cost_timer_now(timer));
    }
}

/* If 'timer''s event was left open, ends it now.  Then starts the next, as
 * cost_timer_start() does, of the same 'account'. */
static inline void
cost_timer_next(struct cost_timer *timer, struct cost_account *account,
                uint64_t tsc)
{
    if (timer->open) {
        struct cost_thread *thread = cost_thread_get();
        const char *name = timer->recorder->kind->name;
        uint64_t now = (tsc ? cost_clock_now_tsc(name, tsc)
                        : cost_clock_now(name));

        cost_timer_end__(timer, now);
        if (OVS_LIKELY(cost_enabled())) {
            timer->outer = thread->timer;
            thread->timer = timer;
            timer->open = false;
            cost_timer_start__(timer, timer->recorder, now);
            return;
        }
    }
    cost_timer_start(timer, account, tsc);
}

/* Ends 'timer''s event, whose last stage is 'stage', and records it for
 * 'class'.  Should the event be among the slowest, records the details that
 * 'get_details', which may be NULL, gets from 'aux' and 'n', too. */
static inline void
cost_timer_stop(struct cost_timer *timer, size_t stage, size_t class,
                cost_details_cb *get_details, const void *aux, size_t n)
{
    cost_timer_leave(timer, stage, class, get_details, aux, n);
    cost_timer_end(timer);
}

/* Reading. */

/* One of the slowest events. */
struct cost_slow_event {
    uint64_t total_ns;
    long long int when_us;              /* Time of day it ended, us since the
                                         * Epoch. */
    size_t class;
    uint16_t marked;                    /* A bit for each of the 'stages'
                                         * that is known. */
    uint64_t stages[COST_MAX_STAGES];   /* ns or value. */
    char *thread;
    uint64_t *details;                  /* kind->n_details. */
};

/* What one thread or several recorded. */
struct cost_snapshot {
    const struct cost_kind *kind;
    char *thread;                       /* Name, NULL if several. */
    struct cost_hist_snapshot **classes;  /* kind->n_classes, each NULL or
                                           * kind->n_stages histograms. */
    uint64_t **counters;                /* Ditto, kind->n_counters each. */
    struct cost_slow_event *slowest;    /* Slowest first. */
    size_t n_slowest;
};

/* All that is known of an account. */
struct cost_account_snapshot {
    const struct cost_kind *kind;
    char *name;
    long long int elapsed_ms;           /* Since created or cleared. */
    struct cost_snapshot total;
    struct cost_snapshot *threads;
    size_t n_threads;
};

size_t cost_accounts_read(const struct cost_kind *const kinds[],
                          size_t n_kinds, const char *name,
                          struct cost_account_snapshot **);
void cost_accounts_free(struct cost_account_snapshot *, size_t n);
size_t cost_accounts_clear(const struct cost_kind *const kinds[],
                           size_t n_kinds, const char *name);

void cost_snapshot_stage(const struct cost_snapshot *, size_t class,
                         size_t stage, struct cost_hist_snapshot *);
uint64_t cost_snapshot_counter(const struct cost_snapshot *, size_t class,
                               size_t counter);
uint64_t cost_snapshot_count(const struct cost_snapshot *, size_t class);

#define COST_ALL_CLASSES SIZE_MAX

#endif /* cost.h */
