/* SPDX-License-Identifier: Apache-2.0 */

#ifndef COST_HISTOGRAM_H
#define COST_HISTOGRAM_H 1

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "ovs-atomic.h"
#include "ovs-rcu.h"
#include "util.h"

/* Histogram of durations or numbers.
 * ==================================
 *
 * Counts durations, in nanoseconds, in buckets whose edges are those of an
 * OTLP exponential histogram (and of a Prometheus native histogram) at scale
 * 3, in seconds: eight buckets per doubling, each including its upper edge.
 * All histograms have the same edges, so counts merge exactly across threads,
 * hosts and versions, and can be exported without rebinning.
 *
 *    bucket                        holds                      OTLP index
 *    ---------------------------   ------------------------   -----------
 *    0                             0 ns                       zero count
 *    b in 1...COST_HIST_N_EDGES-1  (edge[b-1], edge[b]]       b - 241
 *    COST_HIST_N_EDGES             above 64 s                 none
 *
 * where edge[b] is 2**((b - 240) / 8) seconds.  Durations are whole
 * nanoseconds, so comparing with the edge rounded down to a nanosecond is
 * exact.
 *
 * The count is the sum of the buckets.  Sum, minimum and maximum are exact.
 * In a difference, minimum and maximum are those of the whole time or edges of
 * buckets, whichever is nearer.  A percentile is off by at most 4.5%, half of
 * a bucket's width; above 64 s, it is the maximum.
 *
 * Numbers, such as flows in a round, are counted in the same buckets.  Their
 * percentiles are exact up to 14, and above that too high, by at most 9.1%.
 *
 * A histogram has memory only for a range of buckets, which grows by half
 * doublings.  Buckets have 32 bits while that is enough, those of sums 64.
 *
 *
 * Thread-safety
 * =============
 *
 * One thread at a time may write, with relaxed stores.  Others that are not
 * quiescent (see ovs-rcu.h) may read at the same time, with relaxed loads: a
 * reader may see part of the latest value, such as its bucket without its sum,
 * and the rest next time. */

#define COST_HIST_SCALE 3                  /* log2 of buckets per doubling. */
#define COST_HIST_MIN_EXP -30              /* Lowest edge, 2**-30 s. */
#define COST_HIST_MAX_EXP 6                /* Highest edge, 2**6 s. */
#define COST_HIST_N_EDGES \
    (((COST_HIST_MAX_EXP - COST_HIST_MIN_EXP) << COST_HIST_SCALE) + 1)
#define COST_HIST_N_BUCKETS (COST_HIST_N_EDGES + 1)

/* Highest edge, in nanoseconds. */
#define COST_HIST_MAX_NS (UINT64_C(1000000000) << COST_HIST_MAX_EXP)

/* Upper edge, inclusive, of each bucket but the last one, in nanoseconds. */
extern const uint64_t cost_hist_edges[COST_HIST_N_EDGES];

/* The buckets that a histogram has memory for. */
struct cost_buckets {
    uint16_t first;
    uint16_t n;
    bool wide;                          /* Have 'counts' 64 bits? */
    atomic_uint64_t counts[];           /* Or 'n' atomic_uint32_t. */
};

struct cost_hist {
    atomic_uint64_t sum;                /* Modulo 2**64 (584 years). */
    atomic_uint64_t min;                /* UINT64_MAX if it is empty. */
    atomic_uint64_t max;
    OVSRCU_TYPE(struct cost_buckets *) buckets;  /* Never NULL. */
};

void cost_hist_init(struct cost_hist *);
void cost_hist_uninit(struct cost_hist *);
void cost_hist_grow(struct cost_hist *, uint64_t value);
void cost_hist_add(struct cost_hist *dst, const struct cost_hist *src);
void cost_hist_subtract(struct cost_hist *dst, const struct cost_hist *old);

size_t cost_hist_size(const struct cost_hist *);
bool cost_hist_range(const struct cost_hist *, unsigned int *first,
                     unsigned int *last);
uint64_t cost_hist_get(const struct cost_hist *, unsigned int bucket);
uint64_t cost_hist_count(const struct cost_hist *);
double cost_hist_percentile(const struct cost_hist *, double percent,
                            bool number);

/* Memory. */
void *cost_alloc(size_t size);
void cost_free(void *, size_t size);
uint64_t cost_memory_used(void);

/* Numbers that one thread writes. */

static inline uint64_t
cost_load(const atomic_uint64_t *p)
{
    uint64_t n;

    atomic_read_relaxed(CONST_CAST(atomic_uint64_t *, p), &n);
    return n;
}

static inline void
cost_store(atomic_uint64_t *p, uint64_t n)
{
    atomic_store_relaxed(p, n);
}

static inline void
cost_increase(atomic_uint64_t *p, uint64_t n)
{
    cost_store(p, cost_load(p) + n);
}

/* Returns the bucket that a duration of 'ns' nanoseconds falls into.
 *
 * The bucket is 240 + 8 * log2(ns / 1e9), rounded up.  With ns being
 * 2**e * (1 + f) and k the first three bits of f, 8 * log2(ns) is at least
 * 8 * e + k and at most 8 * e + k + 1.69, because log2(1 + f) is at most
 * f + 0.0861.  1e9 is 2**29.8974, so the bucket is one of 8 * e + k + 1, + 2
 * and + 3: two comparisons, without a search or a loop, tell which.
 *
 * 8 * e + k is what an IEEE 754 double starts with.  (Counting leading zeros
 * instead takes an instruction that, on x86-64, waits for whatever was in its
 * output register: recording took four times as long in a loop.) */
static inline unsigned int
cost_hist_bucket(uint64_t ns)
{
    const unsigned int exponent_bias = 1023;
    const unsigned int significand_bits = 52;
    unsigned int b;
    uint64_t bits;
    double value;

    if (OVS_UNLIKELY(ns - 1 >= COST_HIST_MAX_NS)) {
        return ns ? COST_HIST_N_EDGES : 0;
    }

    value = (int64_t) ns;
    memcpy(&bits, &value, sizeof bits);
    b = ((unsigned int) (bits >> (significand_bits - COST_HIST_SCALE))
         - (exponent_bias << COST_HIST_SCALE) + 1);
    b += ns > cost_hist_edges[b];
    b += ns > cost_hist_edges[b];
    return b;
}

/* Counts 'value'.  Stores in '*highest' whether it is the highest one so far.
 * Returns false, without doing anything, if this takes cost_hist_grow(). */
static inline bool
cost_hist_record(struct cost_hist *hist, uint64_t value, bool *highest)
{
    struct cost_buckets *buckets
        = ovsrcu_get_protected(struct cost_buckets *, &hist->buckets);
    size_t i = cost_hist_bucket(value) - buckets->first;

    if (OVS_UNLIKELY(i >= buckets->n)) {
        return false;
    } else if (OVS_LIKELY(!buckets->wide)) {
        atomic_uint32_t *p = (atomic_uint32_t *) buckets->counts + i;
        uint32_t n;

        atomic_read_relaxed(p, &n);
        if (OVS_UNLIKELY(n > INT32_MAX)) {
            return false;
        }
        atomic_store_relaxed(p, n + 1);
    } else {
        cost_increase(&buckets->counts[i], 1);
    }
    cost_increase(&hist->sum, value);
    if (OVS_UNLIKELY(value < cost_load(&hist->min))) {
        cost_store(&hist->min, value);
    }
    *highest = value > cost_load(&hist->max);
    if (OVS_UNLIKELY(*highest)) {
        cost_store(&hist->max, value);
    }
    return true;
}

#endif /* cost-histogram.h */
