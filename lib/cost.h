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
#include "openvswitch/list.h"
#include "ovs-atomic.h"
#include "ovs-rcu.h"
#include "ovs-thread.h"
#include "random.h"

struct ds;
struct simap;
struct smap;

/* Cost accounting: where a thread's time goes, exactly and always on.
 * ====================================================================
 *
 * This is the recording layer.  What is measured is described by a 'struct
 * cost_kind': an event (such as an upcall) has a class, is split into stages
 * that follow each other, and increments counters.  A 'struct cost_account'
 * holds what was measured of one object (such as a datapath), in a 'struct
 * cost_recorder' for each thread that does.
 *
 * Whoever owns the context of an event (the PMD thread, its tx port, the
 * handler) owns the recorder, too, so that nothing is ever searched for:
 *
 *     recorder = cost_recorder_get(account, "pmd-c01");
 *     ...
 *     cost_record(recorder, class, &event, NULL);
 *     ...
 *     cost_recorder_release(recorder);
 *
 * All that belongs to one event is recorded at once.  An event whose stages
 * end in several modules is bracketed with a timer, a thin helper that fills
 * in a 'struct cost_event':
 *
 *     struct cost_timer timer;
 *
 *     cost_timer_init(&timer);
 *     cost_timer_start(&timer, recorder, 0);
 *     ...parse...
 *     cost_timer_mark(&kind, PARSE);
 *     ...translate...
 *     cost_timer_mark(&kind, TRANSLATE);
 *     ...execute...
 *     cost_timer_stop(&timer, EXECUTE, class, NULL, NULL, 0);
 *
 * cost_timer_mark() applies to the innermost timer of the calling thread, so
 * that the code that marks need not know the code that started; one of another
 * kind refuses it.  Timers nest: the time of an inner event is not part of the
 * outer one, so that adding up events never counts time twice.
 *
 * Of events that follow each other immediately, the end of one may be the
 * start of the next, which saves reading the clock:
 *
 *     cost_timer_init(&timer);
 *     for each event {
 *         cost_timer_start(&timer, recorder, 0);
 *         ...
 *         cost_timer_leave(&timer, EXECUTE, class, NULL, NULL, 0);
 *     }
 *     cost_timer_end(&timer);
 *
 * Every event is counted.  Splitting one into stages takes a clock reading per
 * stage, so that only one in 'split_interval' events is split.  The gaps
 * between them are random, 1 to 2 * 'split_interval' - 1 events: with fixed
 * gaps, of events that alternate (such as the upcalls before and after a
 * recirculation) one kind might never be split.
 *
 * Events as short as a burst of packets are not even timed, unless they are
 * among those: what is exact for each of them is a tally, see
 * cost_recorder_tally().
 *
 * Cost on x86-64, apart from reading the clock: see
 * Documentation/topics/upcall-cost.rst.
 *
 *
 * Thread-safety
 * =============
 *
 * A recorder has a single writer at any time: its owner makes sure of that.
 * Recording takes no lock, and waits for nobody.  It does allocate memory, for
 * what happens for the first time.  The writer must not be quiescent (see
 * ovs-rcu.h).
 *
 * Any thread may read or clear an account while others record into it; it gets
 * every event either whole or not at all.  A recorder that is released leaves
 * its numbers behind, in a pseudo-thread named "exited", and an account that
 * is destroyed in those that cost_accounts_get() has for deleted ones.
 *
 * Clearing an account takes the data away from its recorders; what is recorded
 * next is new data. */

#define COST_MAX_STAGES 16              /* Fits in cost_event's 'marked'. */
#define COST_MAX_COUNTERS 16
#define COST_MAX_SLOWEST 16             /* Slowest events kept per thread. */
#define COST_THREAD_NAME_MAX 16         /* Including the null byte. */
#define COST_NO_COUNTER UINT8_MAX
#define COST_NOT_TIMED UINT64_MAX       /* As an event's total. */

/* Settings of one report, see cost_configure(). */
struct cost_config {
    const char *name;                   /* Of the report, such as "upcall". */
    uint32_t default_interval;          /* For 'split_interval'. */

    /* Applies further settings of 'other_config', the column in the
     * Open_vSwitch table, while accounting is 'enabled' or not.  Or NULL. */
    void (*apply)(const struct smap *other_config, bool enabled);

    /* Counts, with cost_count(), what somebody else, such as the kernel, has
     * counted since this was last called.  Any thread calls it before accounts
     * are read or cleared and before accounting is switched on or off.  Or
     * NULL. */
    void (*refresh)(void);

    atomic_uint32_t split_interval;     /* 0 if accounting is off. */
    struct ovs_list list_node;          /* In 'configs', in cost.c. */
};

#define COST_CONFIG_INITIALIZER(NAME, INTERVAL, APPLY)          \
    { .name = NAME, .default_interval = INTERVAL,               \
      .apply = APPLY, .split_interval = INTERVAL }

#define COST_DEFAULT_SPLIT_INTERVAL 16
#define COST_MAX_SPLIT_INTERVAL 65536

void cost_configure(const struct smap *other_config);
void cost_config_register(struct cost_config *);

/* Returns in how many events one is split into stages, 0 if accounting is
 * off. */
static inline uint32_t
cost_split_interval(struct cost_config *config)
{
    uint32_t interval;

    atomic_read_relaxed(&config->split_interval, &interval);
    return interval;
}

/* Returns true if accounting is on for the report of 'config'. */
static inline bool
cost_enabled(struct cost_config *config)
{
    return cost_split_interval(config) != 0;
}

/* What is measured.  Static. */
struct cost_kind {
    const char *name;                   /* Of an event, such as "upcall".
                                         * Kinds whose names are the same
                                         * string share timers' marks. */
    struct cost_config *config;

    /* Stages of an event, in order.  The last one is the whole event. */
    const char *const *stages;
    size_t n_stages;
    uint16_t values;                    /* A bit for each stage that is not a
                                         * time but a number. */
    const char *const *units;           /* Of what these are, where it is not
                                         * the stage's name, or NULL. */
    uint16_t optional;                  /* A bit for each stage that is only
                                         * shown when there is any. */
    bool always_split;                  /* Are all events split? */

    /* Counters. */
    const char *const *counters;
    size_t n_counters;

    /* If nonzero, events are not all timed, but each of them increments one of
     * the first 'n_tally_rows' counters and has a number, which is stage
     * 'tally_stage'.  Both are exact, see cost_recorder_tally(). */
    size_t n_tally_rows;
    size_t tally_stage;
    const struct cost_hist_layout *tally_layout;  /* Linear. */

    /* Classes of events. */
    size_t n_classes;
    void (*format_class)(size_t class, struct ds *);

    /* The slowest events. */
    size_t n_slowest;                   /* Kept per thread. */
    size_t n_details;                   /* 64-bit words of details of each. */

    /* Words of events to be kept back before they are added to the
     * histograms together, for events that come thick and fast, or 0. */
    size_t n_pending;

    bool typed_names;                   /* Is an account's name
                                         * "TYPE@NAME"? */
};

/* Accounts. */
struct cost_account *cost_account_create(const struct cost_kind *,
                                         const char *name,
                                         const char *datapath);
void cost_account_destroy(struct cost_account *);

/* Recorders. */
struct cost_recorder *cost_recorder_get(struct cost_account *,
                                        const char *thread);
void cost_recorder_release(struct cost_recorder *);

/* What was recorded of one class of events.  Whatever is NULL has not happened
 * yet. */
struct cost_class {
    OVSRCU_TYPE(atomic_uint64_t *) counters;  /* kind->n_counters. */

    /* Pointers to kind->n_tally_rows tallies, each of which is an array of
     * atomic_uint64_t: how often each number came, of those above all edges
     * together, and these numbers' sum, sum of squares and maximum.  They are
     * followed by pointers to kind->n_stages histograms. */
    OVSRCU_TYPE(void *) parts[];
};

/* Classes that have been recorded, or NULL for others. */
struct cost_classes {
    size_t n;
    OVSRCU_TYPE(struct cost_class *) classes[];  /* 'n' of them. */
};

/* What one recorder has recorded since it was created or cleared. */
struct cost_data {
    /* The sequence lock of all that is recorded: odd while anything but
     * appending to 'pending' or incrementing a tally is going on. */
    atomic_uint32_t seq;
    atomic_uint32_t n_pending;          /* Words used in 'pending'. */

    /* Used by the recording thread only. */
    uint32_t latest_idx;                /* Class recorded last, */
    struct cost_class *latest;          /* and what there is of it. */
    uint64_t slow_threshold;            /* An event that takes longer, in ns,
                                         * belongs in 'slowest'. */
    size_t slow_next;                   /* Next of the slowest to replace. */

    const struct cost_kind *kind;
    OVSRCU_TYPE(struct cost_slowest *) slowest;
    OVSRCU_TYPE(struct cost_classes *) classes;
    atomic_uint64_t pending[];          /* kind->n_pending words. */
};

/* Stands for that of a recorder that has recorded nothing. */
extern struct cost_data cost_no_data;

/* What one thread records of one account.  Fits in a cache line. */
struct cost_recorder {
    OVSRCU_TYPE(struct cost_data *) data;  /* 'cost_no_data' if there is
                                            * nothing. */
    const struct cost_kind *kind;

    /* Used by the recording thread only. */
    uint32_t split_in;                  /* Events until the next split. */
    uint32_t split_interval;            /* When 'split_in' was chosen. */
    uint32_t tally_key;                 /* As given to cost_recorder_tally()
                                         * last, */
    uint32_t tally_row;
    atomic_uint64_t *tally;             /* and what there is of it in 'data',
                                         * unless that is 'cost_no_data'. */

    struct cost_account *account;
    char thread[COST_THREAD_NAME_MAX];  /* Name of the recording thread. */
};

/* An event that has been measured. */
struct cost_event {
    uint64_t total;                     /* Ticks, or COST_NOT_TIMED. */
    uint64_t excluded;                  /* Ticks of events within it, which are
                                         * not in 'total'. */
    uint16_t marked;                    /* A bit for each stage that is known,
                                         * except the last one. */
    uint8_t counter;                    /* To increment or COST_NO_COUNTER. */
    const uint64_t *counts;             /* What else to add to each counter, or
                                         * NULL. */
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

/* Recording. */
void cost_record(struct cost_recorder *, size_t class,
                 const struct cost_event *, const struct cost_details *);
void cost_count(struct cost_recorder *, size_t class, size_t counter,
                uint64_t n);
static inline bool cost_recorder_split(struct cost_recorder *,
                                       uint32_t interval);
static inline void cost_recorder_tally(struct cost_recorder *, uint32_t key,
                                       size_t row, size_t number, size_t max);
void cost_recorder_idle(struct cost_recorder *);

uint32_t cost_split_gap(uint32_t interval);
void cost_recorder_split__(struct cost_recorder *, uint32_t interval);
void cost_recorder_tally__(struct cost_recorder *, uint32_t key, size_t row,
                           size_t number);

/* One event that is being measured.  On the stack of the code that starts and
 * stops it. */
struct cost_timer {
    struct cost_recorder *recorder;     /* NULL if it measures nothing. */
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

/* The innermost timer of a thread. */
struct cost_thread {
    struct cost_timer *timer;
};
DECLARE_EXTERN_PER_THREAD_DATA(struct cost_thread, cost_thread);

static inline void cost_timer_init(struct cost_timer *);
static inline void cost_timer_start(struct cost_timer *,
                                    struct cost_recorder *, uint64_t tsc);
static inline void cost_timer_mark(const struct cost_kind *, size_t stage);
static inline void cost_timer_count(const struct cost_kind *, size_t counter);
static inline void cost_timer_leave(struct cost_timer *, size_t stage,
                                    size_t class, cost_details_cb *,
                                    const void *aux, size_t n);
static inline void cost_timer_end(struct cost_timer *);
static inline void cost_timer_stop(struct cost_timer *, size_t stage,
                                   size_t class, cost_details_cb *,
                                   const void *aux, size_t n);
static inline void cost_timer_cancel(struct cost_timer *);
static inline bool cost_timer_is_running(void);
void cost_timer_exclude(uint64_t ticks);

void cost_timer_mark__(struct cost_timer *, const struct cost_kind *,
                       size_t stage);
void cost_timer_refuse__(void);
void cost_timer_end__(struct cost_timer *, uint64_t now);
void cost_timer_cancel__(struct cost_timer *);

/* Returns true if 'recorder''s next event, which the caller must record, is to
 * be split into stages (or timed, if it has a tally), one in 'interval'.
 *
 * If 'interval' is 0, because accounting is off, the caller need not call
 * this, but may: it returns true now and then. */
static inline bool
cost_recorder_split(struct cost_recorder *recorder, uint32_t interval)
{
    if (OVS_UNLIKELY(!--recorder->split_in
                     || recorder->split_interval != interval)) {
        cost_recorder_split__(recorder, interval);
        return true;
    }
    return false;
}

/* Counts an event of 'recorder', whose kind has a tally of numbers up to
 * 'max', that is neither timed nor has anything else to be recorded: one word
 * is written, which is found without reading more than the recorder if the
 * event before it was of the same 'key' and 'row'.  The event's class is
 * 'key', the last one if there are not so many.
 *
 * Does not count it if cost_recorder_idle() has been called since the latest
 * event, and accounting is still off. */
static inline void
cost_recorder_tally(struct cost_recorder *recorder, uint32_t key, size_t row,
                    size_t number, size_t max)
{
    struct cost_data *data = ovsrcu_get(struct cost_data *, &recorder->data);

    if (OVS_LIKELY(recorder->tally_key == key && recorder->tally_row == row
                   && number <= max && data != &cost_no_data)) {
        cost_counter_add(&recorder->tally[number], 1);
    } else if (OVS_LIKELY(cost_enabled(recorder->kind->config))) {
        cost_recorder_tally__(recorder, key, row, number);
    }
}

/* Makes 'event' one of which nothing is known. */
static inline void
cost_event_init(struct cost_event *event)
{
    event->total = 0;
    event->excluded = 0;
    event->marked = 0;
    event->counter = COST_NO_COUNTER;
    event->counts = NULL;
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

/* Makes 'timer' ready for cost_timer_start() and cost_timer_end(). */
static inline void
cost_timer_init(struct cost_timer *timer)
{
    timer->open = false;
}

/* If 'timer''s event was left open, ends it now.  Then starts 'timer', which
 * becomes the calling thread's innermost, for an event of 'recorder' that
 * begins now.  'tsc' is 0, or what the caller has just read from the CPU's
 * time stamp counter, which may save reading the clock (see
 * cost_clock_now_tsc()).
 *
 * If 'recorder' is NULL or its accounting is off, measures nothing: all that
 * such a timer does is to take what cost_timer_count() is given, in its
 * event's 'counter'.
 *
 * Every timer that is started must be left, stopped or cancelled, by the same
 * thread, in reverse order of starting. */
static inline void
cost_timer_start(struct cost_timer *timer, struct cost_recorder *recorder,
                 uint64_t tsc)
{
    struct cost_thread *thread = cost_thread_get();
    uint32_t interval = (recorder ? cost_split_interval(recorder->kind->config)
                         : 0);
    uint64_t now = 0;

    if (OVS_LIKELY(interval)) {
        const char *name = recorder->kind->name;

        now = (tsc ? cost_clock_now_tsc(name, tsc) : cost_clock_now(name));
    }
    if (timer->open) {
        cost_timer_end__(timer, now);
    }

    timer->outer = thread->timer;
    thread->timer = timer;
    timer->event.marked = 0;
    timer->event.counter = COST_NO_COUNTER;
    if (OVS_LIKELY(interval)) {
        timer->recorder = recorder;
        timer->begin = timer->start = now;
        timer->event.excluded = 0;
        timer->event.counts = NULL;
        timer->split = cost_recorder_split(recorder, interval);
        if (OVS_UNLIKELY(timer->split)) {
            timer->last = now;
        }
    } else {
        timer->recorder = NULL;
        timer->split = false;
    }
}

/* Ends the stage 'stage' of the calling thread's innermost event, if there is
 * one and it is to be split into stages.  A stage that ends several times has
 * the sum of the times; one that never ends is not recorded. */
static inline void
cost_timer_mark(const struct cost_kind *kind, size_t stage)
{
    struct cost_timer *timer = cost_thread_get()->timer;

    if (timer && OVS_UNLIKELY(timer->split)) {
        cost_timer_mark__(timer, kind, stage);
    }
}

/* Makes the calling thread's innermost event, if there is one, increment
 * 'counter' when it stops. */
static inline void
cost_timer_count(const struct cost_kind *kind, size_t counter)
{
    struct cost_timer *timer = cost_thread_get()->timer;

    if (timer) {
        if (OVS_LIKELY(!timer->recorder
                       || timer->recorder->kind->name == kind->name)) {
            timer->event.counter = counter;
        } else {
            cost_timer_refuse__();
        }
    }
}

/* Ends 'timer''s event, whose last stage is 'stage', and records it for
 * 'class', as cost_timer_stop() does, but leaves open when it ends: that is
 * when cost_timer_start() or cost_timer_end() are called, until which 'aux'
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
        cost_timer_end__(timer, 0);
    }
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

/* Returns true if the calling thread measures an event with a timer, so that
 * the time of another event within it is to be taken off, with
 * cost_timer_exclude(). */
static inline bool
cost_timer_is_running(void)
{
    struct cost_timer *timer = cost_thread_get()->timer;

    return timer && timer->recorder;
}

/* Reading. */

/* One of the slowest events. */
struct cost_slow_event {
    uint64_t total_ns;
    uint64_t excluded_ns;               /* Of events within it. */
    long long int when_us;              /* Time of day it ended, us since the
                                         * Epoch. */
    size_t class;
    uint16_t marked;                    /* A bit for each of the 'stages'
                                         * that is known. */
    uint64_t stages[COST_MAX_STAGES];   /* ns or value. */
    char thread[COST_THREAD_NAME_MAX];
    uint64_t *details;                  /* kind->n_details. */
};

/* Of one class. */
struct cost_class_snapshot {
    uint64_t n_events;
    uint64_t counters[COST_MAX_COUNTERS];
    struct cost_hist_snapshot *stages[COST_MAX_STAGES];  /* NULL if empty. */
};

/* What one thread or several recorded. */
struct cost_snapshot {
    const struct cost_kind *kind;
    char thread[COST_THREAD_NAME_MAX];  /* Name, empty if several. */
    struct cost_class_snapshot **classes;  /* kind->n_classes, each NULL if
                                            * empty. */
    struct cost_slow_event *slowest;    /* Slowest first. */
    size_t n_slowest;
};

/* All that is known of an account. */
struct cost_account_snapshot {
    const struct cost_kind *kind;
    char *name;
    char *datapath;                     /* That its object is in, or is, or
                                         * NULL. */
    bool cleared;                       /* Since it was created? */
    long long int since_us;             /* Time of day of the latest clear, or
                                         * of its creation, us since the
                                         * Epoch. */
    long long int elapsed_ms;           /* Since then. */
    struct cost_snapshot total;
    bool shared;                        /* Is 'total' a copy, not a deep one,
                                         * of what the only thread has? */
    struct cost_snapshot *threads;      /* The last one is "exited". */
    size_t n_threads;
};

/* The sum of accounts of one kind. */
struct cost_sum {
    const struct cost_kind *kind;
    uint64_t n_accounts;
    long long int since_us;             /* Time of day when any of them was
                                         * cleared last, or the kind's first
                                         * one was created. */
    struct cost_snapshot total;
};

/* Accounts at one point in time. */
struct cost_accounts {
    struct cost_account **accounts;     /* Sorted by name. */
    size_t n;

    /* If all accounts were wanted, for each of 'n_kinds' kinds: the sum of
     * those that have been destroyed, and that of none, whose 'since_us' is
     * that of a sum of all accounts. */
    struct cost_sum *deleted;
    struct cost_sum *totals;
    size_t n_kinds;
};

/* What an account has at most need of to be sorted by. */
struct cost_summary {
    uint64_t n_events;
    uint64_t timed_ns;                  /* Sum of totals that are known. */
};

void cost_accounts_get(const struct cost_kind *const kinds[], size_t n_kinds,
                       const char *name, struct cost_accounts *);
void cost_accounts_put(struct cost_accounts *);
const char *cost_account_name(const struct cost_account *);
const struct cost_kind *cost_account_kind(const struct cost_account *);
void cost_account_summarize(struct cost_account *, struct cost_summary *);
void cost_account_read(struct cost_account *, bool slowest,
                       struct cost_account_snapshot *);
void cost_account_snapshot_uninit(struct cost_account_snapshot *);
size_t cost_accounts_clear(const struct cost_kind *const kinds[],
                           size_t n_kinds, const char *name);

void cost_snapshot_init(struct cost_snapshot *, const struct cost_kind *,
                        const char *thread);
void cost_snapshot_uninit(struct cost_snapshot *);
void cost_snapshot_merge(struct cost_snapshot *, const struct cost_snapshot *);
bool cost_snapshot_is_empty(const struct cost_snapshot *);
void cost_snapshot_stage(const struct cost_snapshot *, size_t class,
                         size_t stage, struct cost_hist_snapshot *);
uint64_t cost_snapshot_counter(const struct cost_snapshot *, size_t class,
                               size_t counter);
uint64_t cost_snapshot_count(const struct cost_snapshot *, size_t class);

#define COST_ALL_CLASSES SIZE_MAX

void cost_get_memory_usage(struct simap *usage);

#endif /* cost.h */
