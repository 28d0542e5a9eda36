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

#include <config.h>

#include "cost-histogram.h"

#include <float.h>
#include <math.h>

#include "cost-memory.h"

/* floor(1e9 * 2**(SUB / 8) * 2**33), the eight edges of a doubling, in
 * nanoseconds, as fixed-point numbers with 33 fractional bits. */
#define EDGE_0 UINT64_C(0x7735940000000000)
#define EDGE_1 UINT64_C(0x81ffa7a9549ca6e3)
#define EDGE_2 UINT64_C(0x8dc3b8960164a7d9)
#define EDGE_3 UINT64_C(0x9a9867054d512391)
#define EDGE_4 UINT64_C(0xa8965f74bf065071)
#define EDGE_5 UINT64_C(0xb7d88a12d0dd9ea0)
#define EDGE_6 UINT64_C(0xc87c3e7d03cdbec3)
#define EDGE_7 UINT64_C(0xdaa17c2cd19555db)

/* The edges of the doublings that start at 2**EXP seconds. */
#define EDGES1(EXP) \
    EDGE_0 >> (33 - (EXP)), EDGE_1 >> (33 - (EXP)), \
    EDGE_2 >> (33 - (EXP)), EDGE_3 >> (33 - (EXP)), \
    EDGE_4 >> (33 - (EXP)), EDGE_5 >> (33 - (EXP)), \
    EDGE_6 >> (33 - (EXP)), EDGE_7 >> (33 - (EXP))
#define EDGES6(EXP) \
    EDGES1(EXP), EDGES1((EXP) + 1), EDGES1((EXP) + 2), \
    EDGES1((EXP) + 3), EDGES1((EXP) + 4), EDGES1((EXP) + 5)

const uint64_t cost_hist_edges[COST_HIST_N_EDGES] = {
    EDGES6(-30), EDGES6(-24), EDGES6(-18), EDGES6(-12), EDGES6(-6), EDGES6(0),
    EDGE_0 >> (33 - COST_HIST_MAX_EXP),
};

const struct cost_hist_layout cost_hist_exponential = {
    .edges = cost_hist_edges,
    .n_edges = COST_HIST_N_EDGES,
};

/* The window of a histogram that is empty. */
static struct cost_hist_window no_window;

/* Frees 'window' when no thread can be reading it any more. */
static void
window_free(struct cost_hist_window *window)
{
    if (window != &no_window) {
        ovsrcu_postpone(cost_free, window);
    }
}

/* Makes 'hist' empty. */
void
cost_hist_init(struct cost_hist *hist)
{
    for (size_t i = 0; i < COST_HIST_N_WINDOWS; i++) {
        ovsrcu_init(&hist->windows[i], &no_window);
    }
    atomic_init(&hist->sum, 0);
    atomic_init(&hist->sum_sq_lo, 0);
    atomic_init(&hist->sum_sq_hi, 0);
    atomic_init(&hist->min, UINT64_MAX);
    atomic_init(&hist->max, 0);
}

/* Frees what 'hist' has, which no thread may be writing any more. */
void
cost_hist_uninit(struct cost_hist *hist)
{
    for (size_t i = 0; i < COST_HIST_N_WINDOWS; i++) {
        window_free(ovsrcu_get_protected(struct cost_hist_window *,
                                         &hist->windows[i]));
    }
}

/* Makes windows[idx] of 'hist' wide enough for 'bucket', too, and returns
 * it. */
struct cost_hist_window *
cost_hist_widen__(struct cost_hist *hist, size_t idx, unsigned int bucket)
{
    struct cost_hist_window *old, *window;
    unsigned int first = ROUND_DOWN(bucket, COST_HIST_CHUNK);
    unsigned int end = MIN(first + COST_HIST_CHUNK, COST_HIST_N_BUCKETS);

    old = ovsrcu_get_protected(struct cost_hist_window *,
                               &hist->windows[idx]);
    if (old->n) {
        first = MIN(first, old->first);
        end = MAX(end, old->first + old->n);
    }

    window = cost_zalloc(sizeof *window
                         + (end - first) * sizeof window->buckets[0]);
    window->first = first;
    window->n = end - first;
    for (unsigned int i = 0; i < window->n; i++) {
        unsigned int old_i = first + i - old->first;
        uint32_t n = 0;

        if (old_i < old->n) {
            atomic_read_relaxed(&old->buckets[old_i], &n);
        }
        atomic_init(&window->buckets[i], n);
    }
    ovsrcu_set(&hist->windows[idx], window);
    window_free(old);
    return window;
}

/* Counts in 'hist' that 'bucket' has reached 2**32 once more. */
void
cost_hist_carry__(struct cost_hist *hist, unsigned int bucket)
{
    cost_hist_increment(hist, COST_HIST_HIGH, bucket);
}

/* Returns what bucket 'i' of windows[idx], 'window', stands for. */
static uint64_t
window_get(const struct cost_hist_window *window_, size_t idx, size_t i)
{
    struct cost_hist_window *window = CONST_CAST(struct cost_hist_window *,
                                                 window_);
    uint32_t n;

    atomic_read_relaxed(&window->buckets[i], &n);
    return (uint64_t) n << (idx == COST_HIST_HIGH ? 32 : 0);
}

/* Adds 'n' to '*sum', modulo 2**128. */
static void
add_u128(ovs_u128 *sum, ovs_u128 n)
{
    sum->u64.lo += n.u64.lo;
    sum->u64.hi += n.u64.hi + (sum->u64.lo < n.u64.lo);
}

/* Makes 'snap' empty. */
void
cost_hist_snapshot_init(struct cost_hist_snapshot *snap,
                        const struct cost_hist_layout *layout)
{
    ovs_assert(layout->n_edges < ARRAY_SIZE(snap->buckets));
    memset(snap, 0, sizeof *snap);
    snap->layout = layout;
    snap->min = UINT64_MAX;
}

/* Copies 'hist' to 'snap'.  See the thread-safety section in the header for
 * what a thread other than the writer gets. */
void
cost_hist_read(const struct cost_hist *hist_, struct cost_hist_snapshot *snap)
{
    struct cost_hist *hist = CONST_CAST(struct cost_hist *, hist_);

    cost_hist_snapshot_init(snap, &cost_hist_exponential);
    atomic_read_relaxed(&hist->sum, &snap->sum);
    atomic_read_relaxed(&hist->sum_sq_lo, &snap->sum_sq.u64.lo);
    atomic_read_relaxed(&hist->sum_sq_hi, &snap->sum_sq.u64.hi);
    atomic_read_relaxed(&hist->min, &snap->min);
    atomic_read_relaxed(&hist->max, &snap->max);
    for (size_t idx = 0; idx < COST_HIST_N_WINDOWS; idx++) {
        const struct cost_hist_window *window
            = ovsrcu_get(struct cost_hist_window *, &hist->windows[idx]);

        for (size_t i = 0; i < window->n; i++) {
            uint64_t n = window_get(window, idx, i);

            snap->buckets[window->first + i] += n;
            snap->count += n;
        }
    }
}

/* Stores in '*count' and '*sum' how many durations 'hist' has, and what they
 * add up to: what cost_hist_read() does, without the rest. */
void
cost_hist_read_sum(const struct cost_hist *hist_, uint64_t *count,
                   uint64_t *sum)
{
    struct cost_hist *hist = CONST_CAST(struct cost_hist *, hist_);

    *count = 0;
    atomic_read_relaxed(&hist->sum, sum);
    for (size_t idx = 0; idx < COST_HIST_N_WINDOWS; idx++) {
        const struct cost_hist_window *window
            = ovsrcu_get(struct cost_hist_window *, &hist->windows[idx]);

        for (size_t i = 0; i < window->n; i++) {
            *count += window_get(window, idx, i);
        }
    }
}

/* Returns the bucket of 'snap' that 'number', in ns if it is of durations,
 * falls into. */
size_t
cost_hist_snapshot_bucket(const struct cost_hist_snapshot *snap,
                          uint64_t number)
{
    return (snap->layout->linear
            ? MIN(number, snap->layout->n_edges)
            : cost_hist_bucket(number));
}

/* Records 'n' times 'number', in ns if 'snap' is of durations. */
void
cost_hist_snapshot_add(struct cost_hist_snapshot *snap, uint64_t number,
                       uint64_t n)
{
    ovs_u128 sq = cost_hist_square(number);

    if (!n) {
        return;
    }
    snap->count += n;
    snap->sum += n * number;
    for (uint64_t left = n; left; left >>= 1) {
        if (left & 1) {
            add_u128(&snap->sum_sq, sq);
        }
        add_u128(&sq, sq);
    }
    snap->min = MIN(snap->min, number);
    snap->max = MAX(snap->max, number);
    snap->buckets[cost_hist_snapshot_bucket(snap, number)] += n;
}

/* Adds 'src' to 'dst', which must have the same layout.  Merging is
 * associative and commutative. */
void
cost_hist_snapshot_merge(struct cost_hist_snapshot *dst,
                         const struct cost_hist_snapshot *src)
{
    size_t last;

    ovs_assert(dst->layout == src->layout);
    if (!src->count) {
        return;
    }

    dst->count += src->count;
    dst->sum += src->sum;
    add_u128(&dst->sum_sq, src->sum_sq);
    dst->min = MIN(dst->min, src->min);
    dst->max = MAX(dst->max, src->max);
    last = cost_hist_snapshot_bucket(src, src->max);
    for (size_t i = cost_hist_snapshot_bucket(src, src->min); i <= last; i++) {
        dst->buckets[i] += src->buckets[i];
    }
}

/* Returns the mean of the durations in 'snap', or 0 if there are none. */
double
cost_hist_snapshot_mean(const struct cost_hist_snapshot *snap)
{
    return snap->count ? (double) snap->sum / snap->count : 0;
}

/* Returns the standard deviation of the durations in 'snap' around their mean
 * (that of a whole population, not the estimate from a sample), or 0 if there
 * are none. */
double
cost_hist_snapshot_stddev(const struct cost_hist_snapshot *snap)
{
    if (!snap->count) {
        return 0;
    }

    long double sum_sq = (ldexpl(snap->sum_sq.u64.hi, 64)
                          + snap->sum_sq.u64.lo);
    long double mean = (long double) snap->sum / snap->count;
    long double variance = sum_sq / snap->count - mean * mean;

    return variance > 0 ? sqrt(variance) : 0;
}

/* Returns the duration that a duration in bucket 'b' is taken for: the
 * geometric mean of the bucket's edges, within what a whole number of
 * nanoseconds in the bucket can be. */
static double
bucket_representative(unsigned int b)
{
    double width = exp2(1.0 / (1 << COST_HIST_SCALE));
    double upper = cost_hist_edges[b];
    double lower = cost_hist_edges[b - 1] + 1.0;
    double mid = 1e9 * exp2((double) b / (1 << COST_HIST_SCALE)
                            + COST_HIST_MIN_EXP) / sqrt(width);

    return MIN(MAX(mid, lower), upper);
}

/* Returns the bucket of 'snap', which is not empty, that has the duration that
 * 'percent' percent of the durations do not exceed, by the nearest-rank
 * method.  If that is the longest of them, returns the last one. */
static unsigned int
percentile_bucket(const struct cost_hist_snapshot *snap, double percent)
{
    uint64_t rank, seen = 0;
    unsigned int b;

    /* 'percent' and 99.9 / 100 are not exact in binary: without the correction
     * the product can be a hair above a whole number. */
    rank = ceil(percent / 100 * snap->count * (1 - 4 * DBL_EPSILON));
    if (rank >= snap->count) {
        return snap->layout->n_edges;
    }
    for (b = cost_hist_snapshot_bucket(snap, snap->min);
         b < snap->layout->n_edges; b++) {
        seen += snap->buckets[b];
        if (seen >= MAX(rank, 1)) {
            break;
        }
    }
    return b;
}

/* Returns a duration that 'percent' percent of the durations in 'snap' do not
 * exceed, 0 < percent <= 100, by the nearest-rank method, or 0 if there are
 * none.  The result is off by at most 4.5%, and never outside of minimum and
 * maximum. */
double
cost_hist_snapshot_percentile(const struct cost_hist_snapshot *snap,
                              double percent)
{
    unsigned int b = snap->count ? percentile_bucket(snap, percent) : 0;

    if (b == 0) {
        return 0;
    } else if (b == snap->layout->n_edges) {
        return snap->max;
    } else {
        double value = bucket_representative(b);

        return MIN(MAX(value, snap->min), snap->max);
    }
}

/* Does the same for a histogram of whole numbers, such as flows in a round:
 * returns the highest number in the bucket, so that the result is exact in a
 * linear layout and up to 11, and otherwise too high by at most 9.1%. */
uint64_t
cost_hist_snapshot_percentile_number(const struct cost_hist_snapshot *snap,
                                     double percent)
{
    unsigned int b = snap->count ? percentile_bucket(snap, percent) : 0;

    return (b == 0 ? 0
            : b == snap->layout->n_edges ? snap->max
            : MIN(snap->layout->edges[b], snap->max));
}
