/* SPDX-License-Identifier: Apache-2.0 */

#ifndef COST_RECORDER_H
#define COST_RECORDER_H 1

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "cost-book.h"
#include "cost-clock.h"
#include "ovs-atomic.h"
#include "ovs-rcu.h"

struct cost_account;

/* Recording events.
 * =================
 *
 * A recorder has the numbers of one thread, or of several that take turns, for
 * one account, see lib/cost.h, which has the rules for threads, too. */

/* The blocks of a recorder. */
struct cost_classes {
    size_t n;
    OVSRCU_TYPE(struct cost_block *) blocks[];  /* 'n', each NULL if empty. */
};

/* What a recorder has recorded since it was created or cleared. */
struct cost_data {
    /* Used by the recording thread only. */
    uint32_t latest_class;              /* Recorded last, */
    struct cost_block *latest;          /* and its block. */

    atomic_uint64_t threshold_ns;       /* An event that takes longer may
                                         * belong to 'slowest', or be logged.
                                         * Other threads set it to 0: then the
                                         * next event finds out. */
    OVSRCU_TYPE(struct cost_classes *) classes;

    /* The recording thread takes one of these, adds an event, and puts it
     * back.  Whoever else takes one may keep it.  NULL if it is empty or has
     * been taken. */
    ATOMIC(struct cost_slow *) slowest;  /* The fastest one first. */
    ATOMIC(struct cost_sketch *) keys[COST_MAX_LISTS];
};

/* What is recorded of one account, see above.  Fits in a cache line. */
struct cost_recorder {
    OVSRCU_TYPE(struct cost_data *) data;  /* Its own or, until it records, an
                                            * empty one that all share. */
    const struct cost_kind *kind;

    /* Used by the recording thread only. */
    uint32_t sample_in;                 /* Events until the next sample. */
    uint32_t sample_interval;           /* When 'sample_in' was chosen. */
    uint32_t n_watch;                   /* Events to watch: 16 after one that
                                         * enters the slowest.  Has no effect
                                         * for kinds with reasons. */

    struct cost_account *account;
    uint64_t since_tick;                /* Number of the sampler's latest tick
                                         * when this was created. */
    char thread[COST_NAME_MAX];         /* Name of the recording thread. */
};

/* For lib/cost.c.  cost_recorder_take_data() frees the data after a grace
 * period (see ovs-rcu.h). */
struct cost_recorder *cost_recorder_alloc(const struct cost_kind *,
                                          const char *thread);
void cost_recorder_take_data(struct cost_recorder *);
struct cost_slow *cost_recorder_take_slowest(struct cost_recorder *);
void cost_recorder_take_keys(struct cost_recorder *,
                             struct cost_sketch *keys);
void cost_recorder_reset_threshold(struct cost_recorder *);
void cost_recorder_read(const struct cost_recorder *, struct cost_book *);
/* Returns the time of events, in ns, plus untimed events, plus counters. */
uint64_t cost_recorder_activity(const struct cost_recorder *);

/* Returns why the event that ends was slow, which began at most 'age_ns' ago
 * and took 'event_ns' of that.  The calling thread is that of the event.  Or
 * NULL.  Constant once any thread records. */
extern enum cost_cause (*cost_get_cause)(uint64_t event_ns, uint64_t age_ns);

/* For the log: an event has taken longer than 'log_ns', in its thread.  Its
 * span may be NULL.  The flight recorder is a cost_span_observer instead. */
typedef void cost_breach_cb(const struct cost_recorder *,
                            const struct cost_entry *, enum cost_cause,
                            const struct cost_span *);
void cost_set_breach_cb(cost_breach_cb *);

/* Recording.  The caller of cost_record() counts keys, with
 * cost_count_who(). */
void cost_record(struct cost_recorder *, const struct cost_entry *,
                 const uint64_t *counts, const struct cost_span *);
void cost_count(struct cost_recorder *, size_t class, size_t counter,
                uint64_t n);
void cost_count_who(struct cost_recorder *, size_t list,
                    const struct cost_who *, uint64_t ns, uint64_t n_lost);
void cost_pause(struct cost_recorder *);    /* Of a kind with reasons. */

void cost_sample__(struct cost_recorder *, uint32_t interval);
void cost_set_longest__(struct cost_block *, uint64_t after_ns);
void cost_count_event__(struct cost_recorder *, uint32_t class, size_t reason,
                        size_t counter, uint64_t n);

/* Returns true if 'recorder''s next event, which the caller records, is to
 * be split into stages (or timed, if its kind has reasons), one in 'interval'.
 *
 * If 'interval' is 0, because accounting is off, the caller need not call
 * this, but may: it returns true for the first event after accounting was
 * switched off, when a kind with reasons needs cost_pause(), which has
 * cost_count_event() ask whether accounting is on. */
static inline bool
cost_sample(struct cost_recorder *recorder, uint32_t interval)
{
    if (OVS_UNLIKELY(!--recorder->sample_in
                     || recorder->sample_interval != interval)) {
        cost_sample__(recorder, interval);
        return true;
    }
    return false;
}

/* Counts an event of 'recorder', whose kind has reasons, that is neither timed
 * nor has anything else to be recorded: increments the counter 'reason', and
 * adds 'n' to 'counter'.  The event's class is 'class', the last one if there
 * are not so many. */
static inline void
cost_count_event(struct cost_recorder *recorder, uint32_t class, size_t reason,
                 size_t counter, uint64_t n)
{
    struct cost_data *data = ovsrcu_get(struct cost_data *, &recorder->data);

    if (OVS_LIKELY(data->latest_class == class)) {
        cost_increase(&data->latest->counters[reason], 1);
        cost_increase(&data->latest->counters[counter], n);
    } else {
        cost_count_event__(recorder, class, reason, counter, n);
    }
}

#endif /* cost-recorder.h */
