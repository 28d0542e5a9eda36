/* SPDX-License-Identifier: Apache-2.0 */

#ifndef COST_SKETCH_H
#define COST_SKETCH_H 1

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "cost-histogram.h"
#include "ovs-rcu.h"

struct ds;

/* Who events are for.
 * ===================
 *
 * Counts events by key, such as the port that a packet comes from, in a list
 * with a limited number of rows: the "Space-Saving" algorithm of Metwally,
 * Agrawal and El Abbadi (2005).  While there are not more keys than rows, no
 * event is missing.  After that, a new key takes over the row that has the
 * fewest events, with its number of events, which is also the error: the true
 * number is at most as much lower.  Times are always those of the row's key
 * alone.  A key that is not in the list has at most 'floor' events, so that
 * any key with more than 1/N of the events is among N rows.
 *
 * Only events that are sampled are counted, each of them as many times as the
 * sample stands for.  Losses are all counted.
 *
 * A thread counts in a 'struct cost_keys'.  A 'struct cost_sketch' is a copy,
 * or a sum of copies, or a difference of two.
 *
 *
 * Thread-safety
 * =============
 *
 * One thread writes 'struct cost_keys', without a lock.  Any other that is not
 * quiescent may copy it at the same time.  A row's key never changes: what
 * replaces it is a new row.  Numbers are relaxed, as in cost-book.h. */

#define COST_MAX_LISTS 3                /* Of a kind. */
#define COST_TEXT_MAX 40                /* Including the null byte. */

/* The key that an event is counted for. */
struct cost_who {
    uint64_t id;                        /* Never two keys in one list. */
    const char *name;
    const char *group;
    uint64_t numbers[2];                /* What is NULL of the above is
                                         * formatted from these. */
};

/* A list of keys, part of 'struct cost_kind'. */
struct cost_list {
    const char *name;                   /* Of a key, such as "port". */
    size_t max;                         /* Rows, a power of 2. */
    bool classes;                       /* Are the keys classes, more specific
                                         * ones than the event has? */
    void (*format)(const uint64_t numbers[2], struct ds *);  /* Or NULL. */
};

/* What is known of a key. */
struct cost_row {
    uint64_t id;
    uint64_t events;
    uint64_t error;
    uint64_t n_samples;                 /* That 'events' - 'error' are from. */
    uint64_t time_ns;                   /* Of 'events' - 'error'. */
    uint64_t max_ns;                    /* Of the samples, UINT64_MAX if it is
                                         * not known. */
    uint64_t lost;                      /* Not among 'events'. */
    char name[COST_TEXT_MAX];
    char group[COST_TEXT_MAX];
};

/* A row that a thread counts in. */
struct cost_key {
    uint16_t next;                      /* Row of the same hash, plus 1. */
    atomic_uint64_t events;
    atomic_uint64_t n_samples;
    atomic_uint64_t time_ns;
    atomic_uint64_t max_ns;
    atomic_uint64_t lost;
    struct cost_row row;                /* Its numbers do not change. */
};

/* All of them. */
struct cost_keys {
    size_t size;                        /* Of 'rows', a power of 2. */
    size_t max;
    size_t next;                        /* To be looked at by find_fewest(). */
    uint16_t *heads;                    /* First row of each hash, plus 1. */
    atomic_uint64_t n;                  /* Of 'rows' that are used. */
    atomic_uint64_t floor;
    atomic_uint64_t other_ns;
    OVSRCU_TYPE(struct cost_key *) rows[];
};

/* Rows of a book. */
struct cost_sketch {
    struct cost_row *rows;              /* Sorted by 'id'. */
    size_t n;
    size_t allocated;
    uint64_t floor;                     /* Most events of a key without one. */
    uint64_t other_ns;                  /* Time of keys that have lost one. */
};

struct cost_keys *cost_keys_grow(const struct cost_keys *, size_t max);
void cost_keys_free(struct cost_keys *);
void cost_keys_destroy(struct cost_keys *);
bool cost_keys_count(struct cost_keys *, const struct cost_list *,
                     const struct cost_who *, uint64_t ns, uint64_t weight,
                     uint64_t n_lost);

void cost_sketch_read(struct cost_sketch *, const struct cost_keys *,
                      size_t max);
void cost_sketch_add(struct cost_sketch *, const struct cost_sketch *,
                     size_t max);
void cost_sketch_subtract(struct cost_sketch *, const struct cost_sketch *old);
void cost_sketch_uninit(struct cost_sketch *);

void cost_copy_text(char dst[COST_TEXT_MAX], const char *);
void cost_put_name(struct ds *, const char *name, bool spaces);
void cost_row_init(struct cost_row *, const struct cost_list *,
                   const struct cost_who *);

#endif /* cost-sketch.h */
