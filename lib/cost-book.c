/* SPDX-License-Identifier: Apache-2.0 */

#include <config.h>

#include "cost-book.h"

#include "timeval.h"
#include "util.h"

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

/* Blocks. */

/* Initializes 'ranges', COST_MAX_STAGES of them, with those that 'block',
 * which may be NULL, has memory for. */
static void
get_ranges(struct cost_hist ranges[], const struct cost_kind *kind,
           const struct cost_block *block)
{
    for (size_t i = 0; i < kind->n_stages; i++) {
        cost_hist_init(&ranges[i]);
        if (block) {
            ranges[i].first = block->hists[i].first;
            ranges[i].n = block->hists[i].n;
        }
    }
}

/* Returns a new block of 'kind' with histograms like 'ranges', from
 * get_ranges(), whose buckets are 'wide' or not.  All numbers are 0. */
static struct cost_block *
block_create(const struct cost_kind *kind, struct cost_hist ranges[],
             bool wide)
{
    size_t size = (offsetof(struct cost_block, counters)
                   + kind->n_counters * sizeof(uint64_t));
    struct cost_block *block;
    char *buckets;

    for (size_t i = 0; i < kind->n_stages; i++) {
        ranges[i].wide = wide;
        size += sizeof ranges[i] + cost_hist_size(&ranges[i]);
    }

    block = cost_alloc(size);
    block->kind = kind;
    block->size = size;
    block->hists = (void *) &block->counters[kind->n_counters];
    block->total = &block->hists[cost_kind_total(kind)];
    memcpy(block->hists, ranges, kind->n_stages * sizeof ranges[0]);
    buckets = (void *) &block->hists[kind->n_stages];
    for (size_t i = 0; i < kind->n_stages; i++) {
        block->hists[i].buckets = buckets;
        buckets += cost_hist_size(&ranges[i]);
    }
    return block;
}

/* Returns a new block of 'kind' for a thread to record into, which has memory
 * for no bucket yet. */
struct cost_block *
cost_block_create(const struct cost_kind *kind)
{
    struct cost_hist ranges[COST_MAX_STAGES];

    get_ranges(ranges, kind, NULL);
    return block_create(kind, ranges, false);
}

/* Frees 'block', which may be NULL, and no thread may be using any more. */
void
cost_block_destroy(struct cost_block *block)
{
    if (block) {
        cost_free(block, block->size);
    }
}

/* Adds 'src' to 'dst', which has memory for all that 'src' has. */
static void
block_add(struct cost_block *dst, const struct cost_block *src)
{
    cost_increase(&dst->n_untimed, cost_load(&src->n_untimed));
    cost_increase(&dst->n_slow, cost_load(&src->n_slow));
    for (size_t i = 0; i < src->kind->n_counters; i++) {
        cost_increase(&dst->counters[i], cost_load(&src->counters[i]));
    }
    if (cost_hist_max(src->total) > cost_hist_max(dst->total)) {
        cost_store(&dst->max_us, cost_load(&src->max_us));
    }
    for (size_t i = 0; i < src->kind->n_stages; i++) {
        cost_hist_add(&dst->hists[i], &src->hists[i]);
    }
}

/* Returns a copy of 'block', in the thread that writes it, that has memory for
 * the values of 'stages', a bit for each, in 'entry', too, and, if 'wide',
 * buckets of 64 bits. */
struct cost_block *
cost_block_extend(const struct cost_block *block,
                  const struct cost_entry *entry, uint16_t stages, bool wide)
{
    struct cost_hist ranges[COST_MAX_STAGES];
    struct cost_block *new;

    get_ranges(ranges, block->kind, block);
    for (; stages; stages = zero_rightmost_1bit(stages)) {
        size_t i = raw_ctz(stages);

        cost_hist_extend(&ranges[i], cost_hist_bucket(entry->stages[i]));
    }
    new = block_create(block->kind, ranges, wide || block->total->wide);
    block_add(new, block);
    return new;
}

/* Returns the number of events in 'block'. */
uint64_t
cost_block_events(const struct cost_block *block)
{
    const struct cost_kind *kind = block->kind;
    uint64_t n = 0;

    if (!kind->n_reasons) {
        return (cost_load(&block->n_untimed)
                + cost_hist_count(block->total));
    }
    for (size_t i = 0; i < kind->n_reasons; i++) {
        n += cost_load(&block->counters[i]);
    }
    return n;
}

uint64_t
cost_block_counter(const struct cost_block *block, size_t counter)
{
    return cost_load(&block->counters[counter]);
}

/* Books. */

/* Makes 'book' empty.  The caller must free it with cost_book_uninit(). */
void
cost_book_init(struct cost_book *book, const struct cost_kind *kind)
{
    book->kind = kind;
    book->classes = NULL;
    book->n_classes = 0;
    book->keys = (kind->n_lists
                  ? cost_alloc(kind->n_lists * sizeof *book->keys) : NULL);
}

/* Frees what 'book' has. */
void
cost_book_uninit(struct cost_book *book)
{
    for (size_t i = 0; i < book->n_classes; i++) {
        cost_block_destroy(book->classes[i]);
    }
    cost_free(book->classes, book->n_classes * sizeof *book->classes);
    for (size_t i = 0; i < book->kind->n_lists; i++) {
        cost_sketch_uninit(&book->keys[i]);
    }
    cost_free(book->keys, book->kind->n_lists * sizeof *book->keys);
}

/* Returns true if 'book' has nothing in it. */
bool
cost_book_is_empty(const struct cost_book *book)
{
    for (size_t i = 0; i < book->n_classes; i++) {
        if (book->classes[i]) {
            return false;
        }
    }
    return true;
}

/* Returns how many bytes 'book' takes. */
size_t
cost_book_size(const struct cost_book *book)
{
    size_t size = book->n_classes * sizeof *book->classes;

    for (size_t i = 0; i < book->n_classes; i++) {
        size += book->classes[i] ? book->classes[i]->size : 0;
    }
    for (size_t i = 0; i < book->kind->n_lists; i++) {
        size += book->keys[i].allocated * sizeof *book->keys[i].rows;
    }
    return size;
}

/* Adds 'src' to '*dst', which is in a book.  '*dst' is created, or replaced,
 * if it has no memory for all that 'src' has. */
static void
add_block(struct cost_block **dst, const struct cost_block *src)
{
    const struct cost_kind *kind = src->kind;
    struct cost_hist ranges[COST_MAX_STAGES];
    bool grow = !*dst;

    get_ranges(ranges, kind, *dst);
    for (size_t i = 0; i < kind->n_stages; i++) {
        const struct cost_hist *hist = &src->hists[i];

        for (int end = 0; hist->n && end < 2; end++) {
            unsigned int bucket = hist->first + (end ? hist->n - 1 : 0);

            if (!cost_hist_has(&ranges[i], bucket)) {
                cost_hist_extend(&ranges[i], bucket);
                grow = true;
            }
        }
    }
    if (grow) {
        struct cost_block *old = *dst;

        *dst = block_create(kind, ranges, true);
        if (old) {
            block_add(*dst, old);
            cost_block_destroy(old);
        }
    }
    block_add(*dst, src);
}

/* Adds 'block', into which another thread may be recording, to 'class' of
 * 'book'. */
void
cost_book_add_block(struct cost_book *book, size_t class,
                    const struct cost_block *block)
{
    if (class >= book->n_classes) {
        struct cost_block **new = cost_alloc((class + 1) * sizeof *new);

        if (book->n_classes) {
            memcpy(new, book->classes, book->n_classes * sizeof *new);
        }
        cost_free(book->classes, book->n_classes * sizeof *new);
        book->classes = new;
        book->n_classes = class + 1;
    }
    add_block(&book->classes[class], block);
}

/* Adds 'src' to 'dst', which are of the same kind. */
void
cost_book_add(struct cost_book *dst, const struct cost_book *src)
{
    for (size_t i = 0; i < src->n_classes; i++) {
        if (src->classes[i]) {
            cost_book_add_block(dst, i, src->classes[i]);
        }
    }
    for (size_t i = 0; i < src->kind->n_lists; i++) {
        cost_sketch_add(&dst->keys[i], &src->keys[i], src->kind->lists[i].max);
    }
}

/* Subtracts 'old', which 'block' once was, at 'since_us', time of day.
 * Returns true if there is anything left. */
static bool
block_subtract(struct cost_block *block, const struct cost_block *old,
               uint64_t since_us)
{
    uint64_t any;

    cost_increase(&block->n_slow, -cost_load(&old->n_slow));
    cost_increase(&block->n_untimed, -cost_load(&old->n_untimed));
    any = cost_load(&block->n_untimed);
    for (size_t i = 0; i < block->kind->n_counters; i++) {
        cost_increase(&block->counters[i], -cost_load(&old->counters[i]));
        any |= cost_load(&block->counters[i]);
    }
    for (size_t i = 0; i < block->kind->n_stages; i++) {
        cost_hist_subtract(&block->hists[i], &old->hists[i]);
        any |= cost_hist_max(&block->hists[i]);
    }
    if (cost_load(&block->max_us) < since_us) {
        cost_store(&block->max_us, 0);
    }
    return any || cost_block_events(block);
}

/* Subtracts 'old' from 'book', which has had all that 'old' has, at
 * 'since_us', time of day. */
void
cost_book_subtract(struct cost_book *book, const struct cost_book *old,
                   uint64_t since_us)
{
    for (size_t i = 0; i < MIN(old->n_classes, book->n_classes); i++) {
        struct cost_block **block = &book->classes[i];

        if (old->classes[i] && *block
            && !block_subtract(*block, old->classes[i], since_us)) {
            cost_block_destroy(*block);
            *block = NULL;
        }
    }
    for (size_t i = 0; i < book->kind->n_lists; i++) {
        cost_sketch_subtract(&book->keys[i], &old->keys[i]);
    }
}

/* Returns the sum of 'class' of 'book', or of all classes if that is
 * COST_ALL_CLASSES.  The caller must free it with cost_block_destroy(). */
struct cost_block *
cost_book_sum(const struct cost_book *book, size_t class)
{
    struct cost_block *sum = NULL;

    for (size_t i = 0; i < book->n_classes; i++) {
        if (book->classes[i] && (class == COST_ALL_CLASSES || class == i)) {
            add_block(&sum, book->classes[i]);
        }
    }
    return sum ? sum : cost_block_create(book->kind);
}

/* Returns the number of events of 'class' in 'book', or of all classes if that
 * is COST_ALL_CLASSES. */
uint64_t
cost_book_events(const struct cost_book *book, size_t class)
{
    uint64_t n = 0;

    for (size_t i = 0; i < book->n_classes; i++) {
        if (book->classes[i] && (class == COST_ALL_CLASSES || class == i)) {
            n += cost_block_events(book->classes[i]);
        }
    }
    return n;
}

/* The slowest events. */

/* Stands for that of a thread that has recorded none. */
struct cost_slowest cost_no_slowest = { .n = 0 };

static size_t
slow_size(const struct cost_kind *kind)
{
    return (sizeof(struct cost_slow)
            + (kind->n_stages + kind->n_details) * sizeof(uint64_t));
}

struct cost_slow *
cost_slow_clone(const struct cost_kind *kind, const struct cost_slow *src)
{
    struct cost_slow *slow = cost_alloc(slow_size(kind));

    memcpy(slow, src, slow_size(kind));
    return slow;
}

void
cost_slow_destroy(const struct cost_kind *kind, struct cost_slow *slow)
{
    cost_free(slow, slow_size(kind));
}

/* Compares pointers to events, for qsort(): the slowest one first; of equals,
 * the one that ended first. */
int
cost_slow_compare(const void *a_, const void *b_)
{
    const struct cost_slow *a = *(const struct cost_slow *const *) a_;
    const struct cost_slow *b = *(const struct cost_slow *const *) b_;

    return (a->total_ns != b->total_ns ? (a->total_ns < b->total_ns ? 1 : -1)
            : a->when_us != b->when_us ? (a->when_us < b->when_us ? -1 : 1)
            : 0);
}

static size_t
slowest_size(const struct cost_kind *kind)
{
    return (sizeof(struct cost_slowest)
            + kind->n_slowest * sizeof(struct cost_slow *));
}

/* Returns an empty list for the slowest events of a thread. */
struct cost_slowest *
cost_slowest_create(const struct cost_kind *kind)
{
    struct cost_slowest *slowest = cost_alloc(slowest_size(kind));

    slowest->kind = kind;
    return slowest;
}

/* Frees 'slowest', which may be &cost_no_slowest, and no thread may be using
 * any more. */
void
cost_slowest_destroy(struct cost_slowest *slowest)
{
    if (slowest != &cost_no_slowest) {
        for (size_t i = 0; i < slowest->n; i++) {
            cost_slow_destroy(slowest->kind, slowest->slow[i]);
        }
        cost_free(slowest, slowest_size(slowest->kind));
    }
}

/* Returns the time that an event has to exceed to get into 'slowest'. */
static uint64_t
slowest_min(const struct cost_slowest *slowest)
{
    return (slowest->n < slowest->kind->n_slowest ? 0
            : slowest->n ? slowest->slow[slowest->n - 1]->total_ns
            : UINT64_MAX);
}

/* Puts 'entry', of 'thread', unless it is too fast, among 'slowest', with
 * 'cause' and the details of 'span', or NULL, in the thread that records.  No
 * event that takes longer than 'log_ns' is too fast to be seen next time.
 * Returns true if 'entry' is there. */
bool
cost_slowest_insert(struct cost_slowest *slowest, const char *thread,
                    const struct cost_entry *entry, enum cost_cause cause,
                    const struct cost_span *span, uint64_t log_ns)
{
    const struct cost_kind *kind = slowest->kind;
    uint64_t total_ns = entry->stages[cost_kind_total(kind)];
    bool inserted = total_ns > slowest_min(slowest);

    if (inserted) {
        struct cost_slow *slow;
        size_t place;

        if (slowest->n < kind->n_slowest) {
            slow = cost_alloc(slow_size(kind));
            ovs_strlcpy(slow->thread, thread, sizeof slow->thread);
            slowest->slow[slowest->n++] = slow;
        } else {
            slow = slowest->slow[slowest->n - 1];
        }
        slow->total_ns = total_ns;
        slow->excluded_ns = entry->excluded_ns;
        slow->when_us = time_wall_usec();
        slow->cause = cause;
        slow->class = entry->class;
        slow->known = entry->known;
        for (size_t i = 0; i < kind->n_stages; i++) {
            slow->stages[i] = (entry->known & (1u << i)
                               ? entry->stages[i] : 0);
        }
        memset(&slow->stages[kind->n_stages], 0,
               kind->n_details * sizeof slow->stages[0]);
        if (span && kind->get_details) {
            kind->get_details(span, &slow->stages[kind->n_stages]);
        }
        for (place = slowest->n - 1;
             place && total_ns > slowest->slow[place - 1]->total_ns;
             place--) {
            slowest->slow[place] = slowest->slow[place - 1];
        }
        slowest->slow[place] = slow;
    }
    slowest->threshold_ns = MIN(slowest_min(slowest), log_ns);
    return inserted;
}
