/* SPDX-License-Identifier: Apache-2.0 */

#ifndef COST_BOOK_H
#define COST_BOOK_H 1

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "cost-config.h"
#include "cost-histogram.h"
#include "ovs-atomic.h"

/* Numbers about events.
 * =====================
 *
 * A 'struct cost_entry' describes one event.  A 'struct cost_block' has the
 * numbers of all events of a class: counters, and a histogram for each stage.
 * A 'struct cost_book' has the blocks of several classes, and the keys that
 * events were counted for.  A thread records into the blocks of its recorder,
 * see cost-recorder.h.  A book is always a copy, a sum or a difference of such
 * blocks.
 *
 * A 'struct cost_slow' is one of the slowest events.
 *
 *
 * Thread-safety
 * =============
 *
 * Books and lists of the slowest events are plain data.  A block is written by
 * the thread that records into it, and may be added to a book meanwhile: see
 * lib/cost.h. */

/* An event that has been measured. */
struct cost_entry {
    uint64_t excluded_ns;               /* Of events within it. */
    uint64_t after_ns;                  /* Between its end and its recording,
                                         * if a COST_APART stage comes last. */
    uint32_t class;
    uint16_t known;                     /* A bit for each stage that is. */
    uint8_t counter;                    /* To increment or COST_NO_COUNTER. */
    bool watched;                       /* Split only because a slow one came
                                         * before?  Then its sampled stages are
                                         * in no histogram, and keys not
                                         * counted. */
    uint64_t stages[COST_MAX_STAGES];   /* ns or number, of those 'known'. */
};

/* The numbers of a class.  Histograms follow the counters in the same piece of
 * memory. */
struct cost_block {
    const struct cost_kind *kind;
    struct cost_hist *hists;            /* kind->n_stages, the last one of
                                         * which is also... */
    struct cost_hist *total;
    atomic_uint64_t n_untimed;          /* Events whose time is not known, but
                                         * not all if kind->n_reasons. */
    atomic_uint64_t n_slow;             /* Above 'log_ns' of the settings. */
    atomic_uint64_t max_us;             /* Time of day when the longest event
                                         * ended, us since the Epoch, or 0 if
                                         * it is not known. */
    atomic_uint64_t counters[];         /* kind->n_counters. */
};

/* What one thread or several have recorded. */
struct cost_book {
    const struct cost_kind *kind;
    struct cost_block **classes;        /* Each NULL if empty. */
    size_t n_classes;                   /* At most kind->n_classes. */
    struct cost_sketch *keys;           /* kind->n_lists. */
};

/* One of the slowest events. */
struct cost_slow {
    const struct cost_kind *kind;
    struct cost_slow *next;             /* In the list of a recorder: the one
                                         * that took longer, or NULL. */
    uint64_t total_ns;
    uint64_t excluded_ns;               /* As in struct cost_entry. */
    uint64_t when_us;                   /* Time of day when it ended. */
    uint64_t tick;                      /* The sampler's first one that is kept
                                         * after the account took it. */
    enum cost_cause cause;
    uint32_t class;
    uint16_t known;
    char thread[COST_NAME_MAX];
    uint64_t stages[];                  /* kind->n_stages, and then
                                         * kind->n_details. */
};

/* Blocks. */
struct cost_block *cost_block_create(const struct cost_kind *);
void cost_block_destroy(struct cost_block *);
uint64_t cost_block_events(const struct cost_block *);

/* Books. */
void cost_book_init(struct cost_book *, const struct cost_kind *);
void cost_book_uninit(struct cost_book *);
void cost_book_add_block(struct cost_book *, size_t class,
                         const struct cost_block *);
void cost_book_add(struct cost_book *, const struct cost_book *);
void cost_book_subtract(struct cost_book *, const struct cost_book *old,
                        uint64_t since_us);
bool cost_book_is_empty(const struct cost_book *);
size_t cost_book_size(const struct cost_book *);
struct cost_block *cost_book_sum(const struct cost_book *, size_t class);
uint64_t cost_book_events(const struct cost_book *, size_t class);

/* The slowest. */
struct cost_slow *cost_slow_create(const struct cost_kind *);
struct cost_slow *cost_slow_clone(const struct cost_slow *);
void cost_slow_destroy(struct cost_slow *);
int cost_slow_compare(const void *, const void *);

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
