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

/* Memory. */

/* Bytes of all that was allocated here, with what malloc() adds. */
static atomic_uint64_t memory_used = 0;

/* Returns how many bytes a piece of 'size' takes: in most C libraries,
 * malloc() needs a word for itself, and returns multiples of two words. */
static size_t
footprint(size_t size)
{
    return ROUND_UP(MAX(size, CACHE_LINE_SIZE) + sizeof(size_t),
                    2 * sizeof(size_t));
}

/* Returns how many bytes accounting takes. */
uint64_t
cost_memory_used(void)
{
    return cost_load(&memory_used);
}

/* Returns 'size' bytes of zeros, which the caller must free with cost_free().
 * What fits in a cache line gets one of its own: one thread creates recorders
 * of this size for others.  Anything larger is created by the thread that
 * writes it. */
void *
cost_alloc(size_t size)
{
    uint64_t orig;

    atomic_add_relaxed(&memory_used, footprint(size), &orig);
    return size > CACHE_LINE_SIZE ? xzalloc(size) : xzalloc_cacheline(size);
}

/* Frees 'p', unless it is NULL, which has 'size' bytes. */
void
cost_free(void *p, size_t size)
{
    uint64_t orig;

    if (!p) {
        return;
    }
    atomic_sub_relaxed(&memory_used, footprint(size), &orig);
    if (size > CACHE_LINE_SIZE) {
        free(p);
    } else {
        free_cacheline(p);
    }
}

/* Histograms. */

/* Buckets by which a histogram's range grows: those of half a doubling. */
#define CHUNK 4

/* Those of an empty histogram. */
static struct cost_buckets no_buckets;

static struct cost_buckets *
get_buckets(const struct cost_hist *hist)
{
    return ovsrcu_get(struct cost_buckets *, &hist->buckets);
}

static size_t
buckets_size(size_t n, bool wide)
{
    return (sizeof(struct cost_buckets)
            + n * (wide ? sizeof(uint64_t) : sizeof(uint32_t)));
}

static void
buckets_free(struct cost_buckets *buckets)
{
    cost_free(buckets, buckets_size(buckets->n, buckets->wide));
}

static uint64_t
get_count(const struct cost_buckets *buckets, size_t i)
{
    uint32_t n;

    if (buckets->wide) {
        return cost_load(&buckets->counts[i]);
    }
    atomic_read_relaxed((atomic_uint32_t *) buckets->counts + i, &n);
    return n;
}

/* Adds 'n' times the counts of 'src' to 'dst', which has memory for them. */
static void
add_counts(struct cost_buckets *dst, const struct cost_buckets *src,
           uint64_t n)
{
    ovs_assert(!src->n || (src->first >= dst->first
                           && src->first + src->n <= dst->first + dst->n));
    for (size_t i = 0; i < src->n; i++) {
        size_t j = src->first - dst->first + i;
        uint64_t count = get_count(dst, j) + n * get_count(src, i);

        if (dst->wide) {
            cost_store(&dst->counts[j], count);
        } else {
            atomic_store_relaxed((atomic_uint32_t *) dst->counts + j,
                                 (uint32_t) count);
        }
    }
}

/* Makes 'hist' empty, without any memory for buckets. */
void
cost_hist_init(struct cost_hist *hist)
{
    atomic_init(&hist->sum, 0);
    atomic_init(&hist->min, UINT64_MAX);
    atomic_init(&hist->max, 0);
    ovsrcu_init(&hist->buckets, &no_buckets);
}

/* Frees what 'hist' has, which no thread may be using any more. */
void
cost_hist_uninit(struct cost_hist *hist)
{
    if (cost_hist_size(hist)) {
        buckets_free(get_buckets(hist));
    }
}

/* Gives 'hist' memory for the buckets from 'first' to 'last', of 64 bits if
 * 'wide', in the thread that writes it. */
static void
extend(struct cost_hist *hist, unsigned int first, unsigned int last,
       bool wide)
{
    struct cost_buckets *old = get_buckets(hist), *new;
    unsigned int begin = ROUND_DOWN(first, CHUNK);
    unsigned int end = MIN(ROUND_DOWN(last, CHUNK) + CHUNK,
                           COST_HIST_N_BUCKETS);

    if (old->n) {
        begin = MIN(begin, old->first);
        end = MAX(end, old->first + old->n);
    }
    wide |= old->wide;
    if (end - begin == old->n && wide == old->wide) {
        return;
    }
    new = cost_alloc(buckets_size(end - begin, wide));
    new->first = begin;
    new->n = end - begin;
    new->wide = wide;
    add_counts(new, old, 1);
    ovsrcu_set(&hist->buckets, new);
    if (old->n) {
        ovsrcu_postpone(buckets_free, old);
    }
}

/* Makes cost_hist_record() count 'value', in the thread that writes 'hist'. */
void
cost_hist_grow(struct cost_hist *hist, uint64_t value)
{
    unsigned int bucket = cost_hist_bucket(value);

    extend(hist, bucket, bucket, cost_hist_get(hist, bucket) > INT32_MAX);
}

/* Returns how many bytes the buckets of 'hist' take. */
size_t
cost_hist_size(const struct cost_hist *hist)
{
    const struct cost_buckets *buckets = get_buckets(hist);

    return buckets->n ? buckets_size(buckets->n, buckets->wide) : 0;
}

/* Returns the count of 'bucket'. */
uint64_t
cost_hist_get(const struct cost_hist *hist, unsigned int bucket)
{
    const struct cost_buckets *buckets = get_buckets(hist);
    size_t i = bucket - buckets->first;

    return i < buckets->n ? get_count(buckets, i) : 0;
}

/* Stores in '*first' and '*last' the lowest and the highest bucket that has
 * counted something.  Returns false if none has. */
bool
cost_hist_range(const struct cost_hist *hist, unsigned int *first,
                unsigned int *last)
{
    const struct cost_buckets *buckets = get_buckets(hist);
    bool any = false;

    for (size_t i = 0; i < buckets->n; i++) {
        if (get_count(buckets, i)) {
            *last = buckets->first + i;
            *first = any ? *first : *last;
            any = true;
        }
    }
    return any;
}

/* Adds 'src' to 'dst', whose buckets get 64 bits. */
void
cost_hist_add(struct cost_hist *dst, const struct cost_hist *src)
{
    const struct cost_buckets *buckets = get_buckets(src);

    if (buckets->n) {
        extend(dst, buckets->first, buckets->first + buckets->n - 1, true);
        add_counts(get_buckets(dst), buckets, 1);
    }
    cost_increase(&dst->sum, cost_load(&src->sum));
    cost_store(&dst->min, MIN(cost_load(&dst->min), cost_load(&src->min)));
    cost_store(&dst->max, MAX(cost_load(&dst->max), cost_load(&src->max)));
}

/* Subtracts 'old', which 'hist' once was, from 'hist'.  Minimum and maximum
 * become the edges of the buckets in which there is anything, if these say
 * more. */
void
cost_hist_subtract(struct cost_hist *hist, const struct cost_hist *old)
{
    unsigned int first, last;

    cost_increase(&hist->sum, -cost_load(&old->sum));
    add_counts(get_buckets(hist), get_buckets(old), -1);
    if (!cost_hist_range(hist, &first, &last)) {
        cost_store(&hist->min, UINT64_MAX);
        cost_store(&hist->max, 0);
        return;
    }
    if (first) {
        cost_store(&hist->min, MAX(cost_load(&hist->min),
                                   cost_hist_edges[first - 1] + 1));
    }
    if (last < COST_HIST_N_EDGES) {
        cost_store(&hist->max, MIN(cost_load(&hist->max),
                                   cost_hist_edges[last]));
    }
}

uint64_t
cost_hist_count(const struct cost_hist *hist)
{
    const struct cost_buckets *buckets = get_buckets(hist);
    uint64_t count = 0;

    for (size_t i = 0; i < buckets->n; i++) {
        count += get_count(buckets, i);
    }
    return count;
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
 * is off by at most 4.5%, or above 64 s the maximum, and never outside of
 * minimum and maximum.
 *
 * If 'number', 'hist' is of whole numbers: returns the highest number in the
 * bucket, so that the result is exact up to 14, and otherwise too high by at
 * most 9.1%. */
double
cost_hist_percentile(const struct cost_hist *hist, double percent,
                     bool number)
{
    uint64_t count = cost_hist_count(hist);
    uint64_t max = cost_load(&hist->max);
    unsigned int b = 0;
    uint64_t rank, seen;
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
    for (seen = cost_hist_get(hist, 0);
         seen < MAX(rank, 1) && b < COST_HIST_N_EDGES;
         seen += cost_hist_get(hist, b)) {
        b++;
    }
    if (b == 0 || b == COST_HIST_N_EDGES) {
        return b ? max : 0;
    }
    value = number ? cost_hist_edges[b] : bucket_representative(b);
    return MIN(MAX(value, cost_load(&hist->min)), max);
}
