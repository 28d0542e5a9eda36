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

#ifndef COST_SKETCH_H
#define COST_SKETCH_H 1

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "cost-histogram.h"

struct ds;

/* Who events are for.
 * ===================
 *
 * Counts events by key, such as the port that a packet comes from, in a list
 * with a limited number of rows: the "Space-Saving" algorithm of Metwally,
 * Agrawal and El Abbadi (2005).  While there are not more keys than rows, all
 * numbers are exact.  After that, a new key takes over the row that has the
 * fewest events, with its number of events, which is also the error: the true
 * number is at most as much lower.  Times are always those of the row's key
 * alone.  A key that is not in the list has at most 'floor' events, so that
 * any key with more than 1/N of the events is among N rows.
 *
 * A thread counts in a 'struct cost_keys'.  A 'struct cost_sketch' is a copy,
 * or a sum of copies, or a difference of two, in which 'max_ns' is still that
 * of all the time.
 *
 *
 * Thread-safety
 * =============
 *
 * One thread writes 'struct cost_keys', without a lock.  Any other may copy it
 * at the same time, and gets each row as it was at one moment. */

#define COST_MAX_LISTS 2                /* Of a kind. */
#define COST_TEXT_MAX 40                /* Including the null byte. */

/* The key that an event is counted for. */
struct cost_who {
    uint64_t id;                        /* Never two keys in one list. */
    const char *name;
    const char *group;                  /* NULL to have it formatted. */
    uint64_t numbers[2];                /* To format it. */
};

/* A list of keys, part of 'struct cost_kind'. */
struct cost_list {
    const char *name;                   /* Of a key, such as "port". */
    size_t max;                         /* Rows, a power of 2. */
    bool sampled;                       /* Only of events that are split? */
    size_t shared;                      /* Counter of losses whose keys are not
                                         * known, or 0. */
    void (*format_group)(const uint64_t numbers[2], struct ds *);
};

/* What is known of a key. */
struct cost_row {
    uint64_t id;
    uint64_t events;
    uint64_t error;
    uint64_t time_ns;                   /* Of 'events' - 'error'. */
    uint64_t max_ns;
    uint64_t lost;                      /* Not among 'events'. */
    uint64_t shared;                    /* Other losses, estimated; 0 but in a
                                         * top list. */
    char name[COST_TEXT_MAX];
    char group[COST_TEXT_MAX];
};
/* It in words, 64 bits each. */
enum {
    COST_ROW_ID, COST_ROW_EVENTS, COST_ROW_ERROR, COST_ROW_TIME, COST_ROW_MAX,
    COST_ROW_LOST,
};
#define COST_ROW_WORDS (sizeof(struct cost_row) / sizeof(uint64_t))

/* One that a thread counts for. */
struct cost_key {
    atomic_uint32_t seq;                /* Odd while 'words' are written. */

    /* Used by the writer only: numbers of rows plus 1, or 0. */
    uint16_t first;                     /* Whose hash is this row's number. */
    uint16_t next;                      /* Of the same hash. */

    atomic_uint64_t words[COST_ROW_WORDS];
};

/* All of them. */
struct cost_keys {
    size_t size;                        /* Of 'rows', a power of 2. */
    size_t max;
    size_t next;                        /* To be looked at by find_fewest(). */
    atomic_uint64_t n;                  /* Of them that are used. */
    atomic_uint64_t floor;
    atomic_uint64_t other_ns;
    struct cost_key rows[];
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
void cost_keys_destroy(struct cost_keys *);
bool cost_keys_count(struct cost_keys *, const struct cost_list *,
                     const struct cost_who *, uint64_t ns, uint64_t n_lost);

bool cost_sketch_read(struct cost_sketch *, const struct cost_keys *);
void cost_sketch_add(struct cost_sketch *, const struct cost_sketch *,
                     size_t max);
void cost_sketch_subtract(struct cost_sketch *, const struct cost_sketch *old);
void cost_sketch_uninit(struct cost_sketch *);

/* Starts writing what 'seq' guards, in the only thread that does.  Returns a
 * value for cost_seq_end(). */
static inline uint32_t
cost_seq_begin(atomic_uint32_t *seq)
{
    uint32_t n;

    atomic_read_relaxed(seq, &n);
    atomic_store_relaxed(seq, n + 1);
    atomic_thread_fence(memory_order_release);
    return n;
}

static inline void
cost_seq_end(atomic_uint32_t *seq, uint32_t n)
{
    atomic_store_explicit(seq, n + 2, memory_order_release);
}

/* Returns where the first row with the hash of 'id' is. */
static inline uint16_t *
cost_keys_head(struct cost_keys *keys, uint64_t id)
{
    return &keys->rows[(id * UINT64_C(0x9e3779b97f4a7c15) >> 32)
                       & (keys->size - 1)].first;
}

/* Returns the row of 'id', or NULL if it has none. */
static inline struct cost_key *
cost_keys_find(struct cost_keys *keys, uint64_t id)
{
    uint16_t row = *cost_keys_head(keys, id);

    while (OVS_LIKELY(row)) {
        struct cost_key *key = &keys->rows[row - 1];

        if (OVS_LIKELY(cost_load(&key->words[COST_ROW_ID]) == id)) {
            return key;
        }
        row = key->next;
    }
    return NULL;
}

/* Counts an event that took 'ns' for 'key'. */
static inline void
cost_key_count(struct cost_key *key, uint64_t ns)
{
    uint32_t seq = cost_seq_begin(&key->seq);

    cost_increase(&key->words[COST_ROW_EVENTS], 1);
    cost_increase(&key->words[COST_ROW_TIME], ns);
    if (OVS_UNLIKELY(ns > cost_load(&key->words[COST_ROW_MAX]))) {
        cost_store(&key->words[COST_ROW_MAX], ns);
    }
    cost_seq_end(&key->seq, seq);
}

void cost_copy_text(char dst[COST_TEXT_MAX], const char *);
void cost_put_name(struct ds *, const char *name, bool spaces);
void cost_row_init(struct cost_row *, const struct cost_list *,
                   const struct cost_who *);

#endif /* cost-sketch.h */
