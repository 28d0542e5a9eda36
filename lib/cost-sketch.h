/* SPDX-License-Identifier: Apache-2.0 */

#ifndef COST_SKETCH_H
#define COST_SKETCH_H 1

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ds;

/* Who events are for.
 * ===================
 *
 * Counts events by key, such as the port that a packet comes from, in a list
 * with a limited number of rows: the "Space-Saving" algorithm of Metwally,
 * Agrawal and El Abbadi (2005).  While there are not more keys than rows, no
 * event is missing.  After that, a new key takes over the row with the fewest
 * events, losses included, and that number of events, which is also the error:
 * the true number is lower by at most the error.  Times are always those of
 * the row's key alone.  A key that is not in the list has at most 'floor'
 * events, so any key with more than 1/N of events and losses is among N rows.
 *
 * Only sampled events are counted, each as often as the sample stands for.
 * Losses whose key is known are all counted.
 *
 * A thread counts in a 'struct cost_sketch' of its recorder, from which other
 * threads take the sketch, see cost-recorder.h.  Sums and differences are
 * sketches, too.
 *
 *
 * Thread-safety
 * =============
 *
 * A sketch is plain data, for one thread at a time. */

#define COST_MAX_LISTS 3                /* Of a kind. */
#define COST_TEXT_MAX 40                /* Including the null byte. */

/* The key that an event is counted for. */
struct cost_who {
    uint64_t id;                        /* Identifies the key in its list, 0 if
                                         * there is none.  May be a hash. */
    const char *name;
    const char *group;
    uint64_t numbers[2];                /* The name is formatted from these if
                                         * it is NULL, or else the group. */
};

/* A list of keys, part of 'struct cost_kind'. */
struct cost_list {
    const char *name;                   /* Of a key, such as "port". */
    size_t max;                         /* Rows. */
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

struct cost_sketch {
    struct cost_row *rows;              /* Sorted by 'id'. */
    size_t n;
    size_t allocated;
    uint64_t floor;                     /* Most events of a key without one. */
    uint64_t other_ns;                  /* Time of keys that have lost one. */
};

void cost_sketch_count(struct cost_sketch *, const struct cost_list *,
                       const struct cost_who *, uint64_t ns, uint64_t weight,
                       uint64_t n_lost);
void cost_sketch_add(struct cost_sketch *, const struct cost_sketch *,
                     size_t max);
void cost_sketch_subtract(struct cost_sketch *, const struct cost_sketch *old);
void cost_sketch_uninit(struct cost_sketch *);

void cost_copy_text(char *dst, size_t size, const char *);
void cost_put_name(struct ds *, const char *name, bool spaces);
void cost_row_init(struct cost_row *, const struct cost_list *,
                   const struct cost_who *);

#endif /* cost-sketch.h */
