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

#ifndef COST_BOOK_H
#define COST_BOOK_H 1

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "cost-histogram.h"
#include "cost-sketch.h"
#include "ovs-atomic.h"

struct cost_config;
struct ds;

/* Numbers about events.
 * =====================
 *
 * A 'struct cost_kind' describes a kind of events, such as upcalls.  An event
 * has a class, is split into stages, and increments counters.  Each stage and
 * each counter is a column, declared in one line:
 *
 *     #define FOO_STAGES(COLUMN)                                           \
 *         COLUMN(FOO_PARSE, "parse", NULL, 0, "Parsing the packet.")       \
 *         COLUMN(FOO_PORTS, "ports", "ports", 0, "Ports it is sent to.")   \
 *         COLUMN(FOO_TOTAL, "total", NULL, 0, "The whole foo.")
 *
 *     enum foo_stage { FOO_STAGES(COST_ENUM) };
 *     static const struct cost_kind foo_kind = {
 *         COST_STAGES(FOO_STAGES),
 *         ...
 *     };
 *
 * An event in words is a 'struct cost_entry'.  The numbers of all events of a
 * class are a 'struct cost_block': counters, and a histogram for each stage.
 * Blocks of several classes, the keys that events were counted for, and the
 * slowest events, are a 'struct cost_book'.
 * A thread records into blocks of its recorder, see cost-recorder.h.  A book
 * is always a copy or a sum of such blocks: of one thread, of threads that are
 * gone, or of all of them.
 *
 *
 * Thread-safety
 * =============
 *
 * A block in a book is plain data.  The numbers of one that a thread records
 * into are written by this thread alone, which waits for nobody.  Any thread
 * that is not quiescent (see ovs-rcu.h) may copy such a block with
 * cost_block_read(), but only one at a time, as the account's lock makes sure.
 * It gets every event either whole or not at all. */

#define COST_MAX_STAGES 16              /* Fits in cost_entry's 'known'. */
#define COST_MAX_COUNTERS 24
#define COST_MAX_ROWS 4
#define COST_MAX_SLOWEST 16             /* Of a thread, kept at most. */
#define COST_NAME_MAX 16                /* Including the null byte. */
#define COST_NO_COUNTER UINT8_MAX
#define COST_ALL_CLASSES SIZE_MAX

/* Ticks, see lib/cost-history.h, of which numbers are kept: so many of the
 * latest, and one in so many of those that are not older than so many. */
#define COST_TICKS_EACH 8
#define COST_TICKS_STEP 6
#define COST_TICKS_MAX 102

/* A stage or a counter. */
struct cost_column {
    const char *name;
    const char *unit;                   /* Of a stage that is no time but a
                                         * number, otherwise NULL.  Of a
                                         * counter, the group that it is shown
                                         * in. */
    unsigned int flags;                 /* COST_* below. */
    const char *help;                   /* Definition, a sentence or two. */
};

/* A stage that is shown only if it is there. */
#define COST_OPTIONAL   (1u << 0)
/* A stage that is not part of the whole event. */
#define COST_APART      (1u << 1)
/* A stage that is known of all events. */
#define COST_EXACT      (1u << 2)
/* A counter of what was lost, in general not among the events. */
#define COST_LOST       (1u << 3)
/* A counter that is not shown. */
#define COST_HIDDEN     (1u << 4)

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

/* What is measured.  Static, and constant once there are accounts. */
struct cost_kind {
    const char *event;                  /* Such as "upcall".  Kinds whose
                                         * names are the same string share
                                         * cost_lap() and cost_outcome(). */
    struct cost_config *config;

    /* In order.  The last stage is the whole event. */
    const struct cost_column *stages;
    size_t n_stages;
    const struct cost_column *counters;
    size_t n_counters;
    bool exact;                         /* Are all events split? */

    /* If nonzero, events are not all timed, but each of them increments one of
     * the first 'n_rows' counters and has a number, which is stage
     * 'row_stage', up to 'row_limit'.  Both are exact, see cost_tally();
     * cost_record() counts events that are timed in the same tally. */
    size_t n_rows;
    size_t row_stage;
    uint16_t row_limit;

    /* Classes of events. */
    size_t n_classes;
    void (*format_class)(size_t class, struct ds *);

    /* Lists of keys. */
    const struct cost_list *lists;
    size_t n_lists;                     /* At most COST_MAX_LISTS. */

    /* The slowest events. */
    size_t n_slowest;                   /* Kept per thread. */
    size_t n_details;                   /* 64-bit words of details of each. */

    bool typed_names;                   /* Is an account's name
                                         * "TYPE@NAME"? */
};

/* What somebody else finds out about events of a kind. */
struct cost_extension {
    const struct cost_column *stages;
    size_t n_stages;
    const struct cost_column *counters;
    size_t n_counters;

    /* Filled in: numbers of the first ones in the kind. */
    size_t first_stage;
    size_t first_counter;
};

/* An event that has been measured. */
struct cost_entry {
    uint64_t excluded_ns;               /* Of events within it. */
    uint64_t when_us;                   /* Time of day it ended, us since the
                                         * Epoch, if it is one of the
                                         * slowest. */
    uint32_t class;
    uint16_t known;                     /* A bit for each stage that is. */
    uint16_t watched;                   /* Same, of further ones, which are
                                         * for the slowest events only. */
    uint8_t counter;                    /* To increment or COST_NO_COUNTER. */
    uint64_t stages[COST_MAX_STAGES];   /* ns or number, of those 'known'. */
};

/* Fills in the details of a slow event, kind->n_details words.  'aux' and 'n'
 * are what was given when the event ended. */
typedef void cost_details_cb(uint64_t *details, const void *aux, size_t n);

/* Where the details of an event come from. */
struct cost_details {
    cost_details_cb *get;               /* Or NULL. */
    const void *aux;
    size_t n;
};

/* The numbers of a class.  Counters and buckets follow in the same piece of
 * memory. */
struct cost_block {
    const struct cost_kind *kind;
    uint32_t size;                      /* Bytes. */

    /* If a thread records into it. */
    atomic_uint32_t seq;                /* Odd while it is written, but for
                                         * tallies. */
    atomic_bool wanted;                 /* Does a reader want 'copy'? */
    ATOMIC(struct cost_block *) copy;   /* Made by the writer, or NULL. */
    uint16_t rows;                      /* A bit for each row with a tally. */
    atomic_uint32_t *tallies;           /* kind->row_limit + 1 counts for each
                                         * of these. */

    atomic_uint64_t n_slow;             /* Above 'log_ns' of the settings. */
    atomic_uint64_t n_events;           /* But those in tallies; of a book,
                                         * all. */
    struct cost_hist hists[];           /* kind->n_stages. */
};

/* A reader has taken the slowest events.  The writer empties them before it
 * writes the next one. */
#define COST_TAKEN UINT32_MAX

/* The slowest events of a thread. */
struct cost_slowest {
    const struct cost_kind *kind;
    atomic_uint32_t seq;                /* Odd while it is written, or
                                         * COST_TAKEN. */
    uint64_t threshold_ns;              /* An event that takes longer belongs
                                         * here... */
    size_t next;                        /* ...in place of this one. */
    atomic_uint64_t words[];
};

/* One of them, as it is read.  Accounts keep many: each has memory only for
 * the stages of its kind, and details, which follow them. */
struct cost_slow {
    uint64_t excluded_ns;               /* As in struct cost_entry. */
    uint64_t when_us;
    uint64_t tick;                      /* The first one after it that is
                                         * kept, UINT64_MAX before that. */
    uint64_t total_ns;
    uint64_t *details;                  /* kind->n_details. */
    enum cost_cause cause;
    uint32_t class;
    uint16_t known;
    char thread[COST_NAME_MAX];
    uint64_t stages[];                  /* kind->n_stages. */
};

/* What one thread or several have recorded. */
struct cost_book {
    const struct cost_kind *kind;
    char name[COST_NAME_MAX];           /* Of the thread, empty if several. */
    struct cost_block **classes;        /* kind->n_classes, each NULL if
                                         * empty. */
    struct cost_sketch *keys;           /* kind->n_lists. */
    struct cost_slow **slowest;         /* Slowest first. */
    size_t n_slowest;
};

/* Returns the counters of 'block', kind->n_counters. */
static inline atomic_uint64_t *
cost_block_counters(const struct cost_block *block)
{
    return (atomic_uint64_t *) &block->hists[block->kind->n_stages];
}

/* Returns the tally of 'block' for 'row', or NULL. */
static inline atomic_uint32_t *
cost_block_tally(const struct cost_block *block, size_t row)
{
    return (block->rows & (1u << row)
            ? &block->tallies[count_1bits(block->rows & ((1u << row) - 1))
                              * (block->kind->row_limit + 1)]
            : NULL);
}

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
    return (kind->n_rows ? stage != kind->row_stage
            : !kind->exact && stage != cost_kind_total(kind)
              && !(kind->stages[stage].flags & COST_EXACT));
}

/* Kinds. */
void cost_kind_extend(struct cost_kind *, struct cost_extension *);

/* Blocks. */
struct cost_block *cost_block_create(const struct cost_kind *);
struct cost_block *cost_block_extend(const struct cost_block *,
                                     const struct cost_entry *,
                                     uint16_t stages, uint16_t rows);
struct cost_block *cost_block_widen(const struct cost_block *);
struct cost_block *cost_block_read(const struct cost_block *);
void cost_block_destroy(struct cost_block *);
uint64_t cost_block_events(const struct cost_block *);
uint64_t cost_block_counter(const struct cost_block *, size_t counter);

/* The slowest. */
struct cost_slowest *cost_slowest_create(const struct cost_kind *);
void cost_slowest_destroy(struct cost_slowest *);
bool cost_slowest_insert(struct cost_slowest *, const struct cost_entry *,
                         enum cost_cause, const struct cost_details *,
                         uint64_t log_ns, atomic_uint64_t *slow_ns);

/* Books. */
void cost_book_init(struct cost_book *, const struct cost_kind *,
                    const char *name);
void cost_book_uninit(struct cost_book *);
void cost_book_add(struct cost_book *, const struct cost_book *);
void cost_book_add_since(struct cost_book *, const struct cost_book *,
                         uint64_t tick);
void cost_book_keep_slowest(struct cost_book *dst, struct cost_book *src,
                            uint64_t tick);
bool cost_book_read_slowest(struct cost_book *, struct cost_slowest *,
                            bool take);
bool cost_book_is_empty(const struct cost_book *);
struct cost_block *cost_book_sum(const struct cost_book *, size_t class);
uint64_t cost_book_events(const struct cost_book *, size_t class);

void cost_block_publish__(struct cost_block *);
bool cost_seq_copy(const atomic_uint32_t *seq, uint64_t *dst,
                   const atomic_uint64_t *src, size_t n, bool take);

/* Memory. */
void *cost_alloc(size_t size);
void cost_free(void *, size_t size);
uint64_t cost_memory_used(void);

/* Ends writing 'block', for which cost_seq_begin() returned 'seq', and makes a
 * copy of it if a reader wants one, which has not found a moment in which it
 * is not written. */
static inline void
cost_block_end(struct cost_block *block, uint32_t seq)
{
    bool wanted;

    cost_seq_end(&block->seq, seq);
    atomic_read_relaxed(&block->wanted, &wanted);
    if (OVS_UNLIKELY(wanted)) {
        cost_block_publish__(block);
    }
}

/* Makes 'entry' one of 'class' of which nothing is known. */
static inline void
cost_entry_init(struct cost_entry *entry, size_t class)
{
    entry->excluded_ns = 0;
    entry->class = class;
    entry->known = entry->watched = 0;
    entry->counter = COST_NO_COUNTER;
}

/* Counts 'number' in 'tally'. */
static inline void
cost_tally_increase(atomic_uint32_t *tally, size_t number)
{
    uint32_t n;

    atomic_read_relaxed(&tally[number], &n);
    atomic_store_relaxed(&tally[number], n + 1);
}

/* Adds 'n', nanoseconds or a number, to 'stage' of 'entry'. */
static inline void
cost_entry_add(struct cost_entry *entry, size_t stage, uint64_t n)
{
    if (entry->known & (1u << stage)) {
        entry->stages[stage] += n;
    } else {
        entry->stages[stage] = n;
        entry->known |= 1u << stage;
    }
}

#endif /* cost-book.h */
