/* SPDX-License-Identifier: Apache-2.0 */

#include <config.h>

#include "cost-book.h"

#include "util.h"

/* Blocks. */

static size_t
block_size(const struct cost_kind *kind)
{
    return (offsetof(struct cost_block, counters)
            + kind->n_counters * sizeof(uint64_t)
            + kind->n_stages * sizeof(struct cost_hist));
}

/* Returns a new block of 'kind'.  All numbers are 0. */
struct cost_block *
cost_block_create(const struct cost_kind *kind)
{
    struct cost_block *block = cost_alloc(block_size(kind));

    block->kind = kind;
    block->hists = (void *) &block->counters[kind->n_counters];
    block->total = &block->hists[cost_kind_total(kind)];
    for (size_t i = 0; i < kind->n_stages; i++) {
        cost_hist_init(&block->hists[i]);
    }
    return block;
}

/* Frees 'block', which may be NULL, and no thread may be using any more. */
void
cost_block_destroy(struct cost_block *block)
{
    if (block) {
        for (size_t i = 0; i < block->kind->n_stages; i++) {
            cost_hist_uninit(&block->hists[i]);
        }
        cost_free(block, block_size(block->kind));
    }
}

/* Adds 'src' to 'dst'. */
static void
block_add(struct cost_block *dst, const struct cost_block *src)
{
    cost_increase(&dst->n_untimed, cost_load(&src->n_untimed));
    cost_increase(&dst->n_slow, cost_load(&src->n_slow));
    for (size_t i = 0; i < src->kind->n_counters; i++) {
        cost_increase(&dst->counters[i], cost_load(&src->counters[i]));
    }
    if (cost_load(&src->total->max) > cost_load(&dst->total->max)) {
        cost_store(&dst->max_us, cost_load(&src->max_us));
    }
    for (size_t i = 0; i < src->kind->n_stages; i++) {
        cost_hist_add(&dst->hists[i], &src->hists[i]);
    }
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
        if (book->classes[i]) {
            size += block_size(book->kind);
            for (size_t j = 0; j < book->kind->n_stages; j++) {
                size += cost_hist_size(&book->classes[i]->hists[j]);
            }
        }
    }
    for (size_t i = 0; i < book->kind->n_lists; i++) {
        size += book->keys[i].allocated * sizeof *book->keys[i].rows;
    }
    return size;
}

/* Adds 'block', into which another thread may be recording, to 'class' of
 * 'book'. */
void
cost_book_add_block(struct cost_book *book, size_t class,
                    const struct cost_block *block)
{
    if (class >= book->n_classes) {
        struct cost_block **new = cost_alloc((class + 1) * sizeof *new);

        nullable_memcpy(new, book->classes, book->n_classes * sizeof *new);
        cost_free(book->classes, book->n_classes * sizeof *new);
        book->classes = new;
        book->n_classes = class + 1;
    }
    if (!book->classes[class]) {
        book->classes[class] = cost_block_create(book->kind);
    }
    block_add(book->classes[class], block);
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
        any |= cost_load(&block->hists[i].max);
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
    struct cost_block *sum = cost_block_create(book->kind);

    for (size_t i = 0; i < book->n_classes; i++) {
        if (book->classes[i] && (class == COST_ALL_CLASSES || class == i)) {
            block_add(sum, book->classes[i]);
        }
    }
    return sum;
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

static size_t
slow_size(const struct cost_kind *kind)
{
    return (sizeof(struct cost_slow)
            + (kind->n_stages + kind->n_details) * sizeof(uint64_t));
}

/* Returns a new event of 'kind', of which nothing is known. */
struct cost_slow *
cost_slow_create(const struct cost_kind *kind)
{
    struct cost_slow *slow = cost_alloc(slow_size(kind));

    slow->kind = kind;
    return slow;
}

struct cost_slow *
cost_slow_clone(const struct cost_slow *src)
{
    return memcpy(cost_slow_create(src->kind), src, slow_size(src->kind));
}

void
cost_slow_destroy(struct cost_slow *slow)
{
    cost_free(slow, slow_size(slow->kind));
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
