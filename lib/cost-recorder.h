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

#ifndef COST_RECORDER_H
#define COST_RECORDER_H 1

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "cost-book.h"
#include "openvswitch/list.h"
#include "ovs-atomic.h"
#include "ovs-rcu.h"

struct cost_account;
struct smap;

/* Recording events.
 * =================
 *
 * What one thread records of one account, see lib/cost.h, which has the rules
 * for threads, too. */

/* Settings of one report, see cost_configure(). */
struct cost_config {
    const char *name;                   /* Of the report, such as "upcall". */
    uint32_t default_interval;          /* For 'sample_interval'. */

    /* Applies further settings of 'other_config', the column in the
     * Open_vSwitch table, while accounting is 'enabled' or not.  Or NULL, as
     * long as the report is not extended. */
    void (*apply)(const struct smap *other_config, bool enabled);

    /* Counts, with cost_count(), what somebody else, such as the kernel, has
     * counted since this was last called.  Any thread calls it before accounts
     * are read or cleared and before accounting is switched on or off.  Or
     * NULL. */
    void (*refresh)(void);

    atomic_uint32_t sample_interval;    /* 0 if accounting is off. */
    atomic_uint64_t log_ns;             /* Events that take longer are counted
                                         * in 'n_slow', and the slowest of a
                                         * second is logged, unless it is 0. */
    struct cost_breach *breach;         /* The slowest one that is to be, in
                                         * cost.c, or NULL. */
    struct ovs_list list_node;          /* In 'configs', in cost.c. */
};

#define COST_CONFIG_INITIALIZER(NAME, INTERVAL)                 \
    { .name = NAME, .default_interval = INTERVAL,               \
      .sample_interval = INTERVAL }

#define COST_DEFAULT_SAMPLE_INTERVAL 16
#define COST_MAX_SAMPLE_INTERVAL 65536

/* Returns in how many events one is sampled, 0 if accounting is off. */
static inline uint32_t
cost_sample_interval(struct cost_config *config)
{
    uint32_t interval;

    atomic_read_relaxed(&config->sample_interval, &interval);
    return interval;
}

/* Returns true if accounting is on for the report of 'config'. */
static inline bool
cost_enabled(struct cost_config *config)
{
    return cost_sample_interval(config) != 0;
}

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
    uint32_t n_max;                     /* No number in a tally is higher:
                                         * each sample adds to it what may be
                                         * counted until the next one. */

    atomic_uint64_t slow_ns;            /* An event that takes longer belongs
                                         * in 'slowest', or is to be logged.
                                         * A tick takes these, so that it
                                         * begins at 0 again. */
    OVSRCU_TYPE(struct cost_classes *) classes;
    OVSRCU_TYPE(struct cost_slowest *) slowest;
    OVSRCU_TYPE(struct cost_keys *) keys[COST_MAX_LISTS];  /* NULL if empty. */
};

/* Stands for that of a recorder that has recorded nothing. */
extern struct cost_data cost_no_data;

/* What one thread records of one account.  Fits in a cache line. */
struct cost_recorder {
    OVSRCU_TYPE(struct cost_data *) data;  /* 'cost_no_data' if there is
                                            * nothing. */
    const struct cost_kind *kind;

    /* Used by the recording thread only. */
    uint32_t sample_in;                 /* Events until the next sample. */
    uint32_t sample_interval;           /* When 'sample_in' was chosen. */
    uint32_t tally_class;               /* As given to cost_tally() last. */
    uint16_t tally_row;
    uint16_t n_watch;                   /* Events to watch: 16 after one that
                                         * enters the slowest. */
    atomic_uint32_t *tally;             /* The counts of each number for these,
                                         * unless 'data' is 'cost_no_data'. */

    struct cost_account *account;
    char thread[COST_NAME_MAX];         /* Name of the recording thread. */
};

/* For lib/cost.c. */
struct cost_recorder *cost_recorder_alloc(const struct cost_kind *,
                                          const char *thread);
void cost_recorder_free(struct cost_recorder *);
void cost_recorder_take_data(struct cost_recorder *);
bool cost_recorder_read(const struct cost_recorder *, bool slowest,
                        struct cost_book *);
void cost_recorder_take_slowest(struct cost_recorder *, struct cost_book *);

/* Returns why the event that ends was slow, which began at most 'age_ns' ago
 * and took 'event_ns' of that.  The calling thread is that of the event. */
typedef enum cost_cause cost_cause_cb(uint64_t event_ns, uint64_t age_ns);
void cost_set_cause_cb(cost_cause_cb *);

/* Tells of an event that has taken longer than 'log_ns', in its thread.  'who'
 * has the event's key of each list, with 'id' 0 if it is not known, or is NULL
 * if there is none. */
typedef void cost_breach_cb(const struct cost_recorder *,
                            const struct cost_entry *, enum cost_cause,
                            const struct cost_who *who);
void cost_set_breach_cb(cost_breach_cb *);

/* Recording.  cost_record() needs 'who' only to log the event: the caller
 * counts its keys, with cost_count_who(). */
void cost_record(struct cost_recorder *, const struct cost_entry *,
                 const uint64_t *counts, const struct cost_details *,
                 const struct cost_who *);
void cost_count(struct cost_recorder *, size_t class, size_t counter,
                uint64_t n);
void cost_count_who(struct cost_recorder *, size_t list,
                    const struct cost_who *, uint64_t ns, uint64_t n_lost);
void cost_tally_stop(struct cost_recorder *);

void cost_sample__(struct cost_recorder *, uint32_t interval);
void cost_tally__(struct cost_recorder *, uint32_t class, size_t row,
                  size_t number);

/* Returns true if 'recorder''s next event, which the caller records, is to
 * be split into stages (or timed, if its kind has rows), one in 'interval'.
 *
 * If 'interval' is 0, because accounting is off, the caller need not call
 * this, but may: it returns true now and then. */
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

/* Counts an event of 'recorder', whose kind has rows and the limit 'max', that
 * is neither timed nor has anything else to be recorded: one word is written,
 * which is found without reading more than the recorder if the event before it
 * was of the same 'class' and 'row'.  The event's class is 'class', the last
 * one if there are not so many.
 *
 * Does not count it if cost_tally_stop() has been called since the latest
 * event, and accounting is still off. */
static inline void
cost_tally(struct cost_recorder *recorder, uint32_t class, size_t row,
           size_t number, size_t max)
{
    struct cost_data *data = ovsrcu_get(struct cost_data *, &recorder->data);

    if (OVS_LIKELY(recorder->tally_class == class
                   && recorder->tally_row == row
                   && number <= max && data != &cost_no_data)) {
        cost_tally_increase(recorder->tally, number);
    } else if (OVS_LIKELY(cost_enabled(recorder->kind->config))) {
        cost_tally__(recorder, class, row, number);
    }
}

#endif /* cost-recorder.h */
