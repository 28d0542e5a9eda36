/* SPDX-License-Identifier: Apache-2.0 */

#ifndef COST_CONFIG_H
#define COST_CONFIG_H 1

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "cost-sketch.h"
#include "openvswitch/list.h"
#include "ovs-atomic.h"

struct cost_span;
struct ds;
struct smap;

/* What is measured, and its settings.
 * ===================================
 *
 * A 'struct cost_kind' describes a kind of events, such as upcalls.  An event
 * has a class, is split into stages, and increments counters.  Each stage and
 * each counter is a column of a list, such as UPCALL_COST_STAGES in
 * lib/upcall-cost.h, of which COST_ENUM and COST_STAGES make all else.
 *
 * Reports have settings, which several kinds may share: whether the report is
 * on, the sample interval, and the threshold for the log.
 *
 *
 * Thread-safety
 * =============
 *
 * Any thread may call these functions, except that only one may call
 * cost_log(). */

#define COST_MAX_STAGES 16              /* Fits in cost_entry's 'known'. */
#define COST_MAX_COUNTERS 24
#define COST_MAX_SLOWEST 16             /* Of a thread, or of an account in a
                                         * window. */
#define COST_NAME_MAX 16                /* Including the null byte. */
#define COST_NO_COUNTER UINT8_MAX
#define COST_ALL_CLASSES SIZE_MAX

/* A stage or a counter. */
struct cost_column {
    const char *name;
    const char *unit;                   /* Of a stage that is no time but a
                                         * number, otherwise NULL.  Of a
                                         * counter, the group that it is shown
                                         * in. */
    unsigned int flags;                 /* Of a stage, COST_* below. */
    const char *help;                   /* Definition, a sentence or two. */
};

/* A stage that is shown only if it is there. */
#define COST_OPTIONAL   (1u << 0)
/* A stage that is not part of the whole event or, if it is optional, repeats
 * others. */
#define COST_APART      (1u << 1)
/* A stage that is recorded whether or not the event is sampled. */
#define COST_ALWAYS     (1u << 2)

#define COST_ENUM(ID, NAME, UNIT, FLAGS, HELP) ID,
#define COST_COLUMN(ID, NAME, UNIT, FLAGS, HELP) \
    [ID] = { NAME, UNIT, FLAGS, HELP },
#define COST_ONE(ID, NAME, UNIT, FLAGS, HELP) + 1

/* Initializers for the stages, and for the counters, of a kind. */
#define COST_STAGES(COLUMNS) \
    .stages = (const struct cost_column[]) { COLUMNS(COST_COLUMN) }, \
    .n_stages = COLUMNS(COST_ONE)
#define COST_COUNTERS(COLUMNS) \
    .counters = (const struct cost_column[]) { COLUMNS(COST_COLUMN) }, \
    .n_counters = COLUMNS(COST_ONE)

/* Why an event was slow: what its thread did for at least half of its time. */
enum cost_cause {
    COST_CAUSE_UNKNOWN,
    COST_CAUSE_ON_CPU,
    COST_CAUSE_STARVED,                 /* It waited for a CPU. */
    COST_CAUSE_BLOCKED,
};
extern const char *const cost_cause_names[];

/* Settings of one report, see cost_configure(). */
struct cost_config {
    const char *name;                   /* Of the report, such as "upcall". */
    uint32_t default_interval;          /* For 'sample_interval'. */

    /* Applies further settings: those of 'other_config', the column in the
     * Open_vSwitch table, that start with "cost-".  Or NULL.  Code that
     * extends a report replaces it, and calls the one before. */
    void (*apply)(const struct smap *other_config);

    /* Counts, with cost_count(), what somebody else, such as the kernel, has
     * counted since this was last called.  Any thread calls it before accounts
     * are read or cleared and before accounting is switched on or off.  Or
     * NULL. */
    void (*refresh)(void);

    atomic_uint32_t sample_interval;    /* 0 if accounting is off. */
    atomic_uint64_t log_ns;             /* Events that take longer are counted
                                         * in 'n_slow', and the slowest of a
                                         * second is logged, unless it is 0.  A
                                         * change takes effect with the next
                                         * tick at the latest. */
    struct cost_breach *breach;         /* The slowest one since cost_log()
                                         * logged one, or NULL. */
    struct ovs_list list_node;          /* Of all settings. */
};

#define COST_CONFIG_INITIALIZER(NAME, INTERVAL)                 \
    { .name = NAME, .default_interval = INTERVAL,               \
      .sample_interval = INTERVAL }

#define COST_DEFAULT_SAMPLE_INTERVAL 16
#define COST_MAX_SAMPLE_INTERVAL 65536

/* What is measured.  Static, and constant once there are accounts. */
struct cost_kind {
    const char *event;                  /* Such as "upcall".  Kinds with the
                                         * same pointer share cost_lap(),
                                         * cost_outcome() and
                                         * cost_span_current(). */
    struct cost_config *config;

    /* In order.  The last stage is the whole event. */
    const struct cost_column *stages;
    size_t n_stages;
    const struct cost_column *counters;
    size_t n_counters;
    bool exact;                         /* Are all events split? */
    size_t n_reasons;                   /* If nonzero, only events that are
                                         * sampled are timed, and each event
                                         * increments one of so many counters,
                                         * the first ones. */

    /* Classes of events. */
    size_t n_classes;
    void (*format_class)(size_t class, struct ds *);

    /* Lists of keys, of events that are sampled. */
    const struct cost_list *lists;
    size_t n_lists;                     /* At most COST_MAX_LISTS. */

    /* The slowest events. */
    size_t n_slowest;                   /* Kept per thread until its account
                                         * takes them, and then per account,
                                         * for each window. */
    size_t n_details;                   /* 64-bit words of details of each,
                                         * zeros until get_details() is called
                                         * with the event's span. */
    void (*get_details)(const struct cost_span *, uint64_t *details);

    bool typed_names;                   /* Is an account's name
                                         * "TYPE@NAME"? */
};

void cost_configure(const struct smap *other_config);
void cost_config_register(struct cost_config *);
void cost_log(void);

/* Returns the stage of 'kind' that is the whole event. */
static inline size_t
cost_kind_total(const struct cost_kind *kind)
{
    return kind->n_stages - 1;
}

static inline bool
cost_stage_is_number(const struct cost_kind *kind, size_t stage)
{
    return kind->stages[stage].unit != NULL;
}

/* Returns true if 'stage' is known only of events that are sampled. */
static inline bool
cost_stage_is_sampled(const struct cost_kind *kind, size_t stage)
{
    return (!kind->exact
            && (kind->n_reasons
                || (stage != cost_kind_total(kind)
                    && !(kind->stages[stage].flags & COST_ALWAYS))));
}

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

#endif /* cost-config.h */
