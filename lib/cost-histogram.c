/* SPDX-License-Identifier: Apache-2.0 */

#include <config.h>

#include "cost-histogram.h"

#include <float.h>
#include <math.h>

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

/* Makes 'hist' empty, without any memory for buckets. */
void
cost_hist_init(struct cost_hist *hist)
{
    atomic_init(&hist->sum, 0);
    atomic_init(&hist->min, UINT64_MAX);
    atomic_init(&hist->max, 0);
    hist->buckets = NULL;
    hist->first = hist->n = 0;
    hist->wide = false;
}

/* Extends the range of 'hist', which has no memory yet, so that 'bucket' is in
 * it. */
void
cost_hist_extend(struct cost_hist *hist, unsigned int bucket)
{
    unsigned int begin = ROUND_DOWN(bucket, COST_HIST_CHUNK);
    unsigned int end = MIN(begin + COST_HIST_CHUNK, COST_HIST_N_BUCKETS);

    if (hist->n) {
        begin = MIN(begin, hist->first);
        end = MAX(end, hist->first + hist->n);
    }
    hist->first = begin;
    hist->n = end - begin;
}

/* Returns how many bytes the buckets of 'hist' take. */
size_t
cost_hist_size(const struct cost_hist *hist)
{
    return hist->n * (hist->wide ? sizeof(uint64_t) : sizeof(uint32_t));
}

/* Returns the count of 'bucket'. */
uint64_t
cost_hist_get(const struct cost_hist *hist, unsigned int bucket)
{
    size_t i = bucket - hist->first;
    uint32_t n;

    if (!cost_hist_has(hist, bucket)) {
        return 0;
    } else if (hist->wide) {
        return cost_load((atomic_uint64_t *) hist->buckets + i);
    }
    atomic_read_relaxed((atomic_uint32_t *) hist->buckets + i, &n);
    return n;
}

/* Adds 'src' to 'dst', which has memory for all buckets that 'src' has. */
void
cost_hist_add(struct cost_hist *dst, const struct cost_hist *src)
{
    cost_increase(&dst->sum, cost_load(&src->sum));
    cost_store(&dst->min, MIN(cost_load(&dst->min), cost_load(&src->min)));
    cost_store(&dst->max, MAX(cost_load(&dst->max), cost_load(&src->max)));
    for (unsigned int i = 0; i < src->n; i++) {
        cost_hist_add_bucket(dst, src->first + i,
                             cost_hist_get(src, src->first + i));
    }
}

/* Subtracts 'old', which 'hist' once was, from 'hist'.  Minimum and maximum
 * become the edges of the buckets in which there is anything, if these say
 * more. */
void
cost_hist_subtract(struct cost_hist *hist, const struct cost_hist *old)
{
    unsigned int begin = hist->first, end = hist->first + hist->n;

    cost_increase(&hist->sum, -cost_load(&old->sum));
    for (unsigned int i = 0; i < old->n; i++) {
        cost_hist_add_bucket(hist, old->first + i,
                             -cost_hist_get(old, old->first + i));
    }

    while (begin < end && !cost_hist_get(hist, begin)) {
        begin++;
    }
    while (begin < end && !cost_hist_get(hist, end - 1)) {
        end--;
    }
    if (begin == end) {
        cost_store(&hist->min, UINT64_MAX);
        cost_store(&hist->max, 0);
        return;
    }
    if (begin) {
        cost_store(&hist->min, MAX(cost_hist_min(hist),
                                   cost_hist_edges[begin - 1] + 1));
    }
    if (end < COST_HIST_N_BUCKETS) {
        cost_store(&hist->max, MIN(cost_hist_max(hist),
                                   cost_hist_edges[end - 1]));
    }
}

uint64_t
cost_hist_count(const struct cost_hist *hist)
{
    uint64_t count = 0;

    for (unsigned int i = 0; i < hist->n; i++) {
        count += cost_hist_get(hist, hist->first + i);
    }
    return count;
}

uint64_t
cost_hist_sum(const struct cost_hist *hist)
{
    return cost_load(&hist->sum);
}

/* Returns the mean of 'hist', or 0 if it is empty. */
double
cost_hist_mean(const struct cost_hist *hist)
{
    uint64_t count = cost_hist_count(hist);
    double sum = cost_hist_sum(hist);

    return count ? sum / count : 0;
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

/* Returns a duration that 'percent' percent of those in 'hist' do not exceed,
 * 0 < percent <= 100, by the nearest-rank method, or 0 if there are none.  It
 * is off by at most 4.5%, and never outside of minimum and maximum.
 *
 * If 'number', 'hist' is of whole numbers: returns the highest number in the
 * bucket, so that the result is exact up to 11, and otherwise too high by at
 * most 9.1%. */
double
cost_hist_percentile(const struct cost_hist *hist, double percent,
                     bool number)
{
    uint64_t count = cost_hist_count(hist);
    uint64_t max = cost_hist_max(hist);
    uint64_t rank, seen = 0;
    unsigned int b, end;
    double value;

    if (!count) {
        return 0;
    }

    /* 'percent' and 99.9 / 100 are not exact in binary: without the correction
     * the product can be a hair above a whole number. */
    rank = ceil(percent / 100 * count * (1 - 4 * DBL_EPSILON));
    if (rank >= count) {
        return max;
    }
    end = hist->first + hist->n;
    for (b = hist->first; b < end; b++) {
        seen += cost_hist_get(hist, b);
        if (seen >= MAX(rank, 1)) {
            break;
        }
    }
    if (b == 0 || b + 1 >= COST_HIST_N_BUCKETS) {
        return b ? max : 0;
    }
    value = number ? cost_hist_edges[b] : bucket_representative(b);
    return MIN(MAX(value, cost_hist_min(hist)), max);
}
