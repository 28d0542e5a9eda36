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

#ifndef COST_HISTOGRAM_H
#define COST_HISTOGRAM_H 1

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "openvswitch/types.h"
#include "ovs-atomic.h"
#include "ovs-rcu.h"
#include "util.h"

/* Histogram of durations.
 * =======================
 *
 * Counts durations, in nanoseconds, in buckets whose edges are those of an
 * OTLP exponential histogram (and of a Prometheus native histogram) at scale
 * 3, in seconds: eight buckets per doubling, a bucket's upper edge belongs to
 * it.  All histograms have the same edges, so that counts merge exactly across
 * threads, hosts and versions, and can be exported without binning them again.
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
 * Count, sum, sum of squares, minimum and maximum are exact.  A percentile is
 * off by at most 4.5%, half of a bucket's width.
 *
 * A histogram that is being written takes memory only for a window of buckets
 * around those that are in use, which grows as necessary.  The buckets of a
 * window have 32 bits, and what they carry is counted in another window, so
 * that counts are exact up to 2**64 - 1.
 *
 * Numbers, such as flows in a round, may be counted in the same buckets.
 * Small ones, such as packets in a burst, have a bucket each: such a histogram
 * exists only as a snapshot, of a 'linear' layout.
 *
 *
 * Thread-safety
 * =============
 *
 * The general rules are:
 *
 *    - Only a single thread may safely call cost_hist_add() or
 *      cost_hist_batch_*() on a given histogram at any given time.
 *
 *    - Any number of threads may call cost_hist_read() in parallel with that
 *      thread, from when the histogram has been initialized until they
 *      quiesce after cost_hist_uninit() (see ovs-rcu.h).  Every number that
 *      they read is one that was stored, but the numbers belong together only
 *      if the caller makes sure that the writer was not in the middle of
 *      cost_hist_add(), as lib/cost.c does.
 */

#define COST_HIST_SCALE 3                  /* log2 of buckets per doubling. */
#define COST_HIST_MIN_EXP -30              /* Lowest edge, 2**-30 s. */
#define COST_HIST_MAX_EXP 6                /* Highest edge, 2**6 s. */
#define COST_HIST_N_EDGES \
    (((COST_HIST_MAX_EXP - COST_HIST_MIN_EXP) << COST_HIST_SCALE) + 1)
#define COST_HIST_N_BUCKETS (COST_HIST_N_EDGES + 1)

/* Highest edge, in nanoseconds. */
#define COST_HIST_MAX_NS (UINT64_C(1000000000) << COST_HIST_MAX_EXP)

/* OTLP index of bucket 1. */
#define COST_HIST_OTLP_OFFSET \
    (COST_HIST_MIN_EXP * (1 << COST_HIST_SCALE))

/* Upper edge, inclusive, of each bucket but the last one, in nanoseconds. */
extern const uint64_t cost_hist_edges[COST_HIST_N_EDGES];

/* Where a histogram's buckets lie: bucket B holds what is above edge B - 1, up
 * to and including edge B, the last one what is above all edges. */
struct cost_hist_layout {
    const uint64_t *edges;
    unsigned int n_edges;
    bool linear;                        /* Edge B is B: a bucket a number. */
};
extern const struct cost_hist_layout cost_hist_exponential;

/* The buckets in use of a histogram that is being written. */
struct cost_hist_window {
    uint16_t first;                     /* Bucket. */
    uint16_t n;
    atomic_uint32_t buckets[];          /* 'n' buckets. */
};

/* Buckets by which a window grows. */
#define COST_HIST_CHUNK 8

/* A histogram's windows: bits of its buckets. */
enum {
    COST_HIST_LOW,                      /* 0 to 31. */
    COST_HIST_HIGH,                     /* 32 to 63. */
    COST_HIST_N_WINDOWS
};

/* A histogram that is being written. */
struct cost_hist {
    OVSRCU_TYPE(struct cost_hist_window *) windows[COST_HIST_N_WINDOWS];
    atomic_uint64_t sum;                /* ns. */
    atomic_uint64_t sum_sq_lo;          /* ns * ns, 128 bits. */
    atomic_uint64_t sum_sq_hi;
    atomic_uint64_t min;                /* ns, UINT64_MAX if empty. */
    atomic_uint64_t max;                /* ns. */
};

/* Durations being recorded in one histogram: adding several in a batch costs
 * less than adding each alone. */
struct cost_hist_batch {
    struct cost_hist *hist;
    uint64_t sum;
    ovs_u128 sum_sq;
    uint64_t min;
    uint64_t max;
};

/* A copy of one histogram, or of several merged.  Plain data. */
struct cost_hist_snapshot {
    const struct cost_hist_layout *layout;
    uint64_t count;                     /* Sum of 'buckets'. */
    uint64_t sum;
    ovs_u128 sum_sq;
    uint64_t min;                       /* UINT64_MAX if 'count' is 0. */
    uint64_t max;
    uint64_t buckets[COST_HIST_N_BUCKETS];  /* layout->n_edges + 1 used. */
};

/* Recording. */
void cost_hist_init(struct cost_hist *);
void cost_hist_uninit(struct cost_hist *);
static inline void cost_hist_add(struct cost_hist *, uint64_t ns);
static inline void cost_hist_batch_start(struct cost_hist_batch *,
                                         struct cost_hist *);
static inline void cost_hist_batch_add(struct cost_hist_batch *, uint64_t ns);
static inline void cost_hist_batch_end(const struct cost_hist_batch *);
static inline unsigned int cost_hist_bucket(uint64_t ns);

struct cost_hist_window *cost_hist_widen__(struct cost_hist *, size_t window,
                                           unsigned int bucket);
void cost_hist_carry__(struct cost_hist *, unsigned int bucket);

/* Reading and merging. */
void cost_hist_snapshot_init(struct cost_hist_snapshot *,
                             const struct cost_hist_layout *);
void cost_hist_read(const struct cost_hist *, struct cost_hist_snapshot *);
void cost_hist_read_sum(const struct cost_hist *, uint64_t *count,
                        uint64_t *sum);
size_t cost_hist_snapshot_bucket(const struct cost_hist_snapshot *,
                                 uint64_t number);
void cost_hist_snapshot_add(struct cost_hist_snapshot *, uint64_t number,
                            uint64_t n);
void cost_hist_snapshot_merge(struct cost_hist_snapshot *,
                              const struct cost_hist_snapshot *);

/* Statistics, in nanoseconds. */
double cost_hist_snapshot_mean(const struct cost_hist_snapshot *);
double cost_hist_snapshot_stddev(const struct cost_hist_snapshot *);
double cost_hist_snapshot_percentile(const struct cost_hist_snapshot *,
                                     double percent);
uint64_t cost_hist_snapshot_percentile_number(
    const struct cost_hist_snapshot *, double percent);

/* Adds 'n' to '*counter', which has a single writer. */
static inline void
cost_counter_add(atomic_uint64_t *counter, uint64_t n)
{
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
    /* Compilers make three instructions or four of what is below. */
    asm("addq %1,%0" : "+m" (*counter) : "er" (n));
#else
    uint64_t value;

    atomic_read_relaxed(counter, &value);
    atomic_store_relaxed(counter, value + n);
#endif
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

/* Returns the square of 'ns', modulo 2**128. */
static inline ovs_u128
cost_hist_square(uint64_t ns)
{
    ovs_u128 sq = OVS_U128_ZERO;

    if (OVS_LIKELY(ns <= UINT32_MAX)) {
        sq.u64.lo = ns * ns;
    } else {
        uint64_t a = ns >> 32, b = ns & UINT32_MAX;

        sq.u64.lo = b * b + (a * b << 33);
        sq.u64.hi = a * a + (a * b >> 31) + (sq.u64.lo < b * b);
    }
    return sq;
}

/* Increments 'bucket' in windows[idx] of 'hist'. */
static inline void
cost_hist_increment(struct cost_hist *hist, size_t idx, unsigned int bucket)
{
    struct cost_hist_window *window;
    atomic_uint32_t *counter;
    uint32_t n;

    window = ovsrcu_get_protected(struct cost_hist_window *,
                                  &hist->windows[idx]);
    if (OVS_UNLIKELY(bucket - window->first >= window->n)) {
        window = cost_hist_widen__(hist, idx, bucket);
    }
    counter = &window->buckets[bucket - window->first];
    atomic_read_relaxed(counter, &n);
    atomic_store_relaxed(counter, ++n);
    if (OVS_UNLIKELY(!n)) {
        cost_hist_carry__(hist, bucket);
    }
}

/* Makes 'batch' ready to record durations in 'hist'. */
static inline void
cost_hist_batch_start(struct cost_hist_batch *batch, struct cost_hist *hist)
{
    batch->hist = hist;
    batch->sum = 0;
    batch->sum_sq = OVS_U128_ZERO;
    batch->min = UINT64_MAX;
    batch->max = 0;
}

/* Records a duration of 'ns' nanoseconds.  Any value is fine. */
static inline void
cost_hist_batch_add(struct cost_hist_batch *batch, uint64_t ns)
{
    ovs_u128 sq = cost_hist_square(ns);

    cost_hist_increment(batch->hist, COST_HIST_LOW, cost_hist_bucket(ns));
    batch->sum += ns;
    batch->sum_sq.u64.lo += sq.u64.lo;
    batch->sum_sq.u64.hi += sq.u64.hi + (batch->sum_sq.u64.lo < sq.u64.lo);
    batch->min = MIN(batch->min, ns);
    batch->max = MAX(batch->max, ns);
}

/* Ends 'batch': only now its histogram has all of it. */
static inline void
cost_hist_batch_end(const struct cost_hist_batch *batch)
{
    struct cost_hist *hist = batch->hist;
    uint64_t hi, lo, min, max;

    cost_counter_add(&hist->sum, batch->sum);
    atomic_read_relaxed(&hist->sum_sq_lo, &lo);
    lo += batch->sum_sq.u64.lo;
    atomic_store_relaxed(&hist->sum_sq_lo, lo);
    hi = batch->sum_sq.u64.hi + (lo < batch->sum_sq.u64.lo);
    if (OVS_UNLIKELY(hi)) {
        cost_counter_add(&hist->sum_sq_hi, hi);
    }

    atomic_read_relaxed(&hist->min, &min);
    if (OVS_UNLIKELY(batch->min < min)) {
        atomic_store_relaxed(&hist->min, batch->min);
    }
    atomic_read_relaxed(&hist->max, &max);
    if (OVS_UNLIKELY(batch->max > max)) {
        atomic_store_relaxed(&hist->max, batch->max);
    }
}

/* Records a duration of 'ns' nanoseconds in 'hist'.  Costs a few nanoseconds
 * and takes no lock; allocates memory when it is outside of the window.
 *
 * Any value of 'ns' is fine.  The sum is modulo 2**64 ns (584 years). */
static inline void
cost_hist_add(struct cost_hist *hist, uint64_t ns)
{
    struct cost_hist_batch batch;

    cost_hist_batch_start(&batch, hist);
    cost_hist_batch_add(&batch, ns);
    cost_hist_batch_end(&batch);
}

#endif /* cost-histogram.h */
