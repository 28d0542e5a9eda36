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

#include "cost-book.h"

#include "timeval.h"
#include "util.h"

/* Tries of a reader to find that no word is being written.  After some, it
 * asks the writer for a copy, after others, it sleeps in between. */
enum { READ_ASK = 16, READ_SLEEP = 64, READ_MAX = 264 };
#define READ_SLEEP_NS 10000

const char *const cost_cause_names[] = {
    [COST_CAUSE_UNKNOWN] = "unknown",
    [COST_CAUSE_ON_CPU] = "on CPU",
    [COST_CAUSE_STARVED] = "starved",
    [COST_CAUSE_BLOCKED] = "blocked",
};

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

/* Sequence locks, of what one thread writes and others copy. */

static uint32_t
seq_read(const atomic_uint32_t *seq)
{
    uint32_t n;

    atomic_read_explicit(CONST_CAST(atomic_uint32_t *, seq), &n,
                         memory_order_acquire);
    return n;
}

/* Returns true if what has been copied since 'before' was read belongs
 * together. */
static bool
seq_is_same(const atomic_uint32_t *seq, uint32_t before)
{
    atomic_thread_fence(memory_order_acquire);
    return !(before & 1) && seq_read(seq) == before;
}

/* Copies 'n' words from 'src', which 'seq' guards, to 'dst'.  If 'take', makes
 * 'seq' COST_TAKEN, too.  Returns false if their writer seems to be stopped in
 * the middle of writing. */
bool
cost_seq_copy(const atomic_uint32_t *seq_, uint64_t *dst,
              const atomic_uint64_t *src, size_t n, bool take)
{
    atomic_uint32_t *seq = CONST_CAST(atomic_uint32_t *, seq_);

    for (int i = 0; i < READ_MAX; i++) {
        uint32_t before = seq_read(seq);

        for (size_t j = 0; j < n; j++) {
            dst[j] = cost_load(&src[j]);
        }
        if (seq_is_same(seq, before)
            && (!take || atomic_compare_exchange_strong(seq, &before,
                                                        COST_TAKEN))) {
            return true;
        }
        if (i >= READ_SLEEP) {
            xnanosleep_no_quiesce(READ_SLEEP_NS);
        }
    }
    return false;
}

/* Kinds. */

/* Returns the 'n' columns of 'old', with 'n_more' inserted after 'at' of
 * them.  They are there for good. */
static const struct cost_column *
insert_columns(const struct cost_column *old, size_t n, size_t at,
               const struct cost_column *more, size_t n_more)
{
    struct cost_column *new = xmalloc((n + n_more) * sizeof *new);

    memcpy(new, old, at * sizeof *new);
    memcpy(new + at, more, n_more * sizeof *new);
    memcpy(new + at + n_more, old + at, (n - at) * sizeof *new);
    return new;
}

/* Adds the stages of 'extension' to 'kind', before the last one, and its
 * counters, after the last one.  There must not be any account of 'kind'
 * yet. */
void
cost_kind_extend(struct cost_kind *kind, struct cost_extension *extension)
{
    extension->first_stage = cost_kind_total(kind);
    extension->first_counter = kind->n_counters;
    kind->stages = insert_columns(kind->stages, kind->n_stages,
                                  extension->first_stage,
                                  extension->stages, extension->n_stages);
    kind->counters = insert_columns(kind->counters, kind->n_counters,
                                    kind->n_counters, extension->counters,
                                    extension->n_counters);
    kind->n_stages += extension->n_stages;
    kind->n_counters += extension->n_counters;
}

/* Blocks. */

/* Initializes 'hists', COST_MAX_STAGES of them, with the ranges that 'block',
 * which may be NULL, has. */
static void
copy_ranges(struct cost_hist hists[], const struct cost_kind *kind,
            const struct cost_block *block)
{
    for (size_t i = 0; i < kind->n_stages; i++) {
        cost_hist_init(&hists[i], (kind->n_rows && i == kind->row_stage
                                   ? kind->row_limit : 0));
        if (block) {
            hists[i].first = block->hists[i].first;
            hists[i].n = block->hists[i].n;
        }
    }
}

/* Returns a new block of 'kind' with histograms like 'hists', from
 * copy_ranges(), and tallies for 'rows', a bit for each.  Its buckets are
 * 'wide' or not.  All numbers are 0. */
static struct cost_block *
block_create(const struct cost_kind *kind, struct cost_hist hists[],
             uint16_t rows, bool wide)
{
    struct cost_block *block;
    size_t size = 0;
    char *p;

    for (size_t i = 0; i < kind->n_stages; i++) {
        hists[i].wide = wide;
        size += cost_hist_size(&hists[i]);
    }
    size += (offsetof(struct cost_block, hists)
             + kind->n_stages * sizeof hists[0]
             + kind->n_counters * sizeof(uint64_t)
             + (count_1bits(rows) * (kind->row_limit + 1)
                * sizeof block->tallies[0]));

    block = cost_alloc(size);
    block->kind = kind;
    block->size = size;
    atomic_init(&block->seq, 0);
    atomic_init(&block->wanted, false);
    atomic_init(&block->copy, NULL);
    atomic_init(&block->n_slow, 0);
    atomic_init(&block->n_events, 0);
    memcpy(block->hists, hists, kind->n_stages * sizeof hists[0]);

    /* Wide buckets come first, for their alignment. */
    p = (char *) (cost_block_counters(block) + kind->n_counters);
    for (size_t i = 0; i < kind->n_stages; i++) {
        block->hists[i].buckets = p;
        p += cost_hist_size(&block->hists[i]);
    }
    block->rows = rows;
    block->tallies = (void *) p;
    return block;
}

/* Returns a new block of 'kind' for a thread to record into, which has memory
 * for no bucket yet. */
struct cost_block *
cost_block_create(const struct cost_kind *kind)
{
    struct cost_hist hists[COST_MAX_STAGES];

    copy_ranges(hists, kind, NULL);
    return block_create(kind, hists, 0, false);
}

/* Frees 'block', which may be NULL, and no thread may be using any more. */
void
cost_block_destroy(struct cost_block *block)
{
    if (block) {
        cost_block_destroy(atomic_exchange(&block->copy, NULL));
        cost_free(block, block->size);
    }
}

/* Adds 'src' to 'dst', which has memory for all that 'src' has.  Tallies are
 * added to those that 'dst' has, or if it has none, to its histogram and
 * counters. */
static void
block_add(struct cost_block *dst, const struct cost_block *src)
{
    const struct cost_kind *kind = dst->kind;

    cost_increase(&dst->n_slow, cost_load(&src->n_slow));
    cost_increase(&dst->n_events, cost_load(&src->n_events));
    for (size_t i = 0; i < kind->n_counters; i++) {
        cost_increase(&cost_block_counters(dst)[i],
                      cost_load(&cost_block_counters(src)[i]));
    }
    for (size_t i = 0; i < kind->n_stages; i++) {
        cost_hist_add(&dst->hists[i], &src->hists[i]);
    }
    for (size_t row = 0; row < kind->n_rows; row++) {
        const atomic_uint32_t *from = cost_block_tally(src, row);
        atomic_uint32_t *to = cost_block_tally(dst, row);

        for (size_t i = 0; from && i <= kind->row_limit; i++) {
            uint32_t n;

            atomic_read_relaxed(CONST_CAST(atomic_uint32_t *, &from[i]), &n);
            if (to) {
                atomic_store_relaxed(&to[i], n);
            } else {
                cost_increase(&dst->n_events, n);
                cost_increase(&cost_block_counters(dst)[row], n);
                cost_hist_add_number(&dst->hists[kind->row_stage], i, n);
            }
        }
    }
}

/* Return a copy of 'block', in the thread that writes it: one that has memory
 * for the values of 'stages', a bit for each, in 'entry', and tallies for
 * 'rows', a bit for each, too... */
struct cost_block *
cost_block_extend(const struct cost_block *block,
                  const struct cost_entry *entry, uint16_t stages,
                  uint16_t rows)
{
    struct cost_hist hists[COST_MAX_STAGES];
    struct cost_block *new;

    copy_ranges(hists, block->kind, block);
    for (; stages; stages = zero_rightmost_1bit(stages)) {
        size_t i = raw_ctz(stages);

        cost_hist_extend(&hists[i],
                         cost_hist_bucket_of(&hists[i], entry->stages[i]));
    }
    new = block_create(block->kind, hists, block->rows | rows,
                       block->hists[0].wide);
    block_add(new, block);
    return new;
}

/* ...or one whose buckets have 64 bits, and which has no tallies: a copy for a
 * book, or for a thread that has recorded much.  The numbers belong together
 * only if 'block' is not written meanwhile. */
struct cost_block *
cost_block_widen(const struct cost_block *block)
{
    const struct cost_kind *kind = block->kind;
    struct cost_hist hists[COST_MAX_STAGES];
    struct cost_block *new;

    copy_ranges(hists, kind, block);
    if (block->rows) {
        cost_hist_extend(&hists[kind->row_stage], 0);
    }
    new = block_create(kind, hists, 0, true);
    block_add(new, block);
    return new;
}

/* Returns a copy of 'block', which another thread may be writing, for a book,
 * all of it at one moment.  Only one thread at a time may call this.  Returns
 * NULL if the writer seems to be stopped in the middle of writing. */
struct cost_block *
cost_block_read(const struct cost_block *block_)
{
    struct cost_block *block = CONST_CAST(struct cost_block *, block_);
    uint32_t start = seq_read(&block->seq);

    for (int i = 0; i < READ_MAX; i++) {
        uint32_t before = seq_read(&block->seq);
        struct cost_block *copy = cost_block_widen(block);

        if (seq_is_same(&block->seq, before)) {
            return copy;
        }
        cost_block_destroy(copy);

        copy = atomic_exchange(&block->copy, NULL);
        if (copy) {
            uint32_t seq = seq_read(&copy->seq);

            /* It may be one that an earlier reader did not wait for. */
            if (seq - start < UINT32_MAX / 2) {
                return copy;
            }
            cost_block_destroy(copy);
        }
        if (i == READ_ASK) {
            atomic_store_relaxed(&block->wanted, true);
        } else if (i >= READ_SLEEP) {
            xnanosleep_no_quiesce(READ_SLEEP_NS);
        }
    }
    return NULL;
}

/* Makes a copy of 'block', in the thread that writes it, for a reader. */
void
cost_block_publish__(struct cost_block *block)
{
    struct cost_block *copy;

    atomic_store_relaxed(&block->wanted, false);
    copy = cost_block_widen(block);
    atomic_store_relaxed(&copy->seq, seq_read(&block->seq));
    cost_block_destroy(atomic_exchange(&block->copy, copy));
}

/* Returns the number of events in 'block', which is in a book. */
uint64_t
cost_block_events(const struct cost_block *block)
{
    return cost_load(&block->n_events);
}

uint64_t
cost_block_counter(const struct cost_block *block, size_t counter)
{
    return cost_load(&cost_block_counters(block)[counter]);
}

/* The slowest events.  Each is 'slow_size' words: those below, one for each
 * stage, and the details. */

enum {
    SLOW_EXCLUDED,
    SLOW_WHEN,                          /* 0 if it is unused. */
    SLOW_HEAD,                          /* Class, counter, known stages and
                                         * cause. */
    SLOW_STAGES
};

static size_t
slow_size(const struct cost_kind *kind)
{
    return SLOW_STAGES + kind->n_stages + kind->n_details;
}

static size_t
slowest_size(const struct cost_kind *kind)
{
    return (sizeof(struct cost_slowest)
            + kind->n_slowest * slow_size(kind) * sizeof(uint64_t));
}

/* Returns a place for the slowest events of a thread, which has none yet. */
struct cost_slowest *
cost_slowest_create(const struct cost_kind *kind)
{
    struct cost_slowest *slowest = cost_alloc(slowest_size(kind));

    slowest->kind = kind;
    return slowest;
}

/* Frees 'slowest', which may be NULL, and no thread may be using any more. */
void
cost_slowest_destroy(struct cost_slowest *slowest)
{
    if (slowest) {
        cost_free(slowest, slowest_size(slowest->kind));
    }
}

/* Chooses the event of 'slowest' to be replaced next: an unused place or, if
 * there is none, the fastest. */
static void
slowest_choose(struct cost_slowest *slowest)
{
    const struct cost_kind *kind = slowest->kind;
    uint64_t min_ns = UINT64_MAX;

    for (size_t i = 0; i < kind->n_slowest; i++) {
        atomic_uint64_t *w = &slowest->words[i * slow_size(kind)];
        uint64_t ns = 0;

        if (cost_load(&w[SLOW_WHEN])) {
            ns = cost_load(&w[SLOW_STAGES + cost_kind_total(kind)]);
        }

        if (ns < min_ns) {
            slowest->next = i;
            min_ns = ns;
        }
    }
    slowest->threshold_ns = min_ns;
}

/* Puts 'entry', unless it is too fast, among 'slowest', with 'cause' and
 * 'details', or NULL, in the thread that records.  Sets '*slow_ns' to the time
 * that an event must exceed from now on to be put here, at most 'log_ns'.
 * Returns true if 'entry' is there. */
bool
cost_slowest_insert(struct cost_slowest *slowest,
                    const struct cost_entry *entry, enum cost_cause cause,
                    const struct cost_details *details, uint64_t log_ns,
                    atomic_uint64_t *slow_ns)
{
    const struct cost_kind *kind = slowest->kind;
    uint64_t words[kind->n_details + 1];
    atomic_uint64_t *w;
    bool inserted = false;
    uint32_t seq;

    memset(words, 0, sizeof words);
    if (details && details->get) {
        details->get(words, details->aux, details->n);
    }

    /* A reader takes the events while none is written. */
    atomic_read_relaxed(&slowest->seq, &seq);
    if (seq == COST_TAKEN
        || !atomic_compare_exchange_strong(&slowest->seq, &seq, seq + 1)) {
        seq = 0;
        atomic_store_relaxed(&slowest->seq, 1);
        for (size_t i = 0; i < kind->n_slowest; i++) {
            cost_store(&slowest->words[i * slow_size(kind) + SLOW_WHEN], 0);
        }
        slowest->next = slowest->threshold_ns = 0;
    }
    atomic_thread_fence(memory_order_release);
    if (entry->stages[cost_kind_total(kind)] <= slowest->threshold_ns) {
        goto out;
    }

    w = &slowest->words[slowest->next * slow_size(kind)];
    cost_store(&w[SLOW_EXCLUDED], entry->excluded_ns);
    cost_store(&w[SLOW_WHEN], time_wall_usec());
    cost_store(&w[SLOW_HEAD], (uint64_t) cause << 56
                              | (uint64_t) entry->known << 40
                              | (uint64_t) entry->counter << 32
                              | entry->class);
    w += SLOW_STAGES;
    for (size_t i = 0; i < kind->n_stages; i++) {
        cost_store(&w[i], entry->known & (1u << i) ? entry->stages[i] : 0);
    }
    w += kind->n_stages;
    for (size_t i = 0; i < kind->n_details; i++) {
        cost_store(&w[i], words[i]);
    }
    slowest_choose(slowest);
    inserted = true;
out:
    cost_store(slow_ns, MIN(slowest->threshold_ns, log_ns));
    cost_seq_end(&slowest->seq, seq);
    return inserted;
}

/* As they are read. */

static size_t
slow_bytes(const struct cost_kind *kind)
{
    return (sizeof(struct cost_slow)
            + (kind->n_stages + kind->n_details) * sizeof(uint64_t));
}

static struct cost_slow *
slow_create(const struct cost_kind *kind)
{
    struct cost_slow *slow = cost_alloc(slow_bytes(kind));

    slow->details = &slow->stages[kind->n_stages];
    return slow;
}

static struct cost_slow *
slow_clone(const struct cost_kind *kind, const struct cost_slow *src)
{
    struct cost_slow *slow = slow_create(kind);
    uint64_t *details = slow->details;

    memcpy(slow, src, slow_bytes(kind));
    slow->details = details;
    return slow;
}

static void
slow_destroy(const struct cost_kind *kind, struct cost_slow *slow)
{
    cost_free(slow, slow_bytes(kind));
}

/* Books. */

/* Makes 'book' empty, for the thread 'name', or the empty string if it is to
 * be that of several.  The caller must free it with cost_book_uninit(). */
void
cost_book_init(struct cost_book *book, const struct cost_kind *kind,
               const char *name)
{
    book->kind = kind;
    ovs_strlcpy(book->name, name, sizeof book->name);
    book->classes = cost_alloc(kind->n_classes * sizeof *book->classes);
    book->keys = xcalloc(kind->n_lists, sizeof *book->keys);
    book->slowest = NULL;
    book->n_slowest = 0;
}

/* Frees what 'book' has. */
void
cost_book_uninit(struct cost_book *book)
{
    for (size_t i = 0; i < book->kind->n_classes; i++) {
        cost_block_destroy(book->classes[i]);
    }
    for (size_t i = 0; i < book->kind->n_lists; i++) {
        cost_sketch_uninit(&book->keys[i]);
    }
    for (size_t i = 0; i < book->n_slowest; i++) {
        slow_destroy(book->kind, book->slowest[i]);
    }
    free(book->slowest);
    free(book->keys);
    cost_free(book->classes, book->kind->n_classes * sizeof *book->classes);
}

/* Returns true if 'book' has nothing in it. */
bool
cost_book_is_empty(const struct cost_book *book)
{
    for (size_t i = 0; i < book->kind->n_classes; i++) {
        if (book->classes[i]) {
            return false;
        }
    }
    return true;
}

/* Adds 'src' to '*dst', both of which are in books.  '*dst' is created, or
 * replaced, if it has no memory for all that 'src' has. */
static void
book_add_block(struct cost_block **dst, const struct cost_block *src)
{
    const struct cost_kind *kind = src->kind;
    struct cost_hist hists[COST_MAX_STAGES];
    bool grow = false;

    if (!*dst) {
        *dst = cost_block_widen(src);
        return;
    }
    copy_ranges(hists, kind, *dst);
    for (size_t i = 0; i < kind->n_stages; i++) {
        const struct cost_hist *hist = &src->hists[i];

        for (int end = 0; hist->n && end < 2; end++) {
            unsigned int bucket = hist->first + (end ? hist->n - 1 : 0);

            if (!cost_hist_has(&hists[i], bucket)) {
                cost_hist_extend(&hists[i], bucket);
                grow = true;
            }
        }
    }
    if (grow) {
        struct cost_block *old = *dst;

        *dst = block_create(kind, hists, 0, true);
        block_add(*dst, old);
        cost_block_destroy(old);
    }
    block_add(*dst, src);
}

/* Slowest first; of equals, the one that ended first. */
static int
compare_slow(const void *a_, const void *b_)
{
    const struct cost_slow *a = *(const struct cost_slow *const *) a_;
    const struct cost_slow *b = *(const struct cost_slow *const *) b_;

    return (a->total_ns != b->total_ns ? (a->total_ns < b->total_ns ? 1 : -1)
            : a->when_us != b->when_us ? (a->when_us < b->when_us ? -1 : 1)
            : 0);
}

/* Returns a place for 'n' more of the slowest events in 'book'. */
static struct cost_slow **
book_grow_slowest(struct cost_book *book, size_t n)
{
    book->slowest = xrealloc(book->slowest,
                             (book->n_slowest + n) * sizeof *book->slowest);
    return &book->slowest[book->n_slowest];
}

/* Sorts 'book''s slowest events and keeps only the slowest of them, as many as
 * each thread keeps: of a larger number some might be missing. */
static void
book_trim_slowest(struct cost_book *book)
{
    if (book->n_slowest) {
        qsort(book->slowest, book->n_slowest, sizeof *book->slowest,
              compare_slow);
    }
    while (book->n_slowest > book->kind->n_slowest) {
        slow_destroy(book->kind, book->slowest[--book->n_slowest]);
    }
}

/* Adds 'src' to 'dst', which are of the same kind. */
void
cost_book_add(struct cost_book *dst, const struct cost_book *src)
{
    cost_book_add_since(dst, src, 0);
}

/* The same, but of the slowest events adds only those after 'tick'. */
void
cost_book_add_since(struct cost_book *dst, const struct cost_book *src,
                    uint64_t tick)
{
    const struct cost_kind *kind = dst->kind;
    struct cost_slow **slow;

    for (size_t i = 0; i < kind->n_classes; i++) {
        if (src->classes[i]) {
            book_add_block(&dst->classes[i], src->classes[i]);
        }
    }
    for (size_t i = 0; i < kind->n_lists; i++) {
        cost_sketch_add(&dst->keys[i], &src->keys[i], kind->lists[i].max);
    }

    slow = book_grow_slowest(dst, src->n_slowest);
    for (size_t i = 0; i < src->n_slowest; i++) {
        if (src->slowest[i]->tick > tick) {
            *slow++ = slow_clone(kind, src->slowest[i]);
            dst->n_slowest++;
        }
    }
    if (src->n_slowest) {
        book_trim_slowest(dst);
    }
}

/* Moves the slowest events of 'src', before 'tick', to 'dst', and keeps there
 * those that are among the slowest since a tick that is kept, or of all. */
void
cost_book_keep_slowest(struct cost_book *dst, struct cost_book *src,
                       uint64_t tick)
{
    struct cost_slow **new = book_grow_slowest(dst, src->n_slowest);
    size_t n = 0, n_max = dst->kind->n_slowest;

    for (size_t i = 0; i < src->n_slowest; i++) {
        src->slowest[i]->tick = tick;
        *new++ = src->slowest[i];
    }
    dst->n_slowest += src->n_slowest;
    if (!src->n_slowest) {
        return;
    }
    src->n_slowest = 0;
    qsort(dst->slowest, dst->n_slowest, sizeof *dst->slowest, compare_slow);
    for (size_t i = 0; i < dst->n_slowest; i++) {
        struct cost_slow *slow = dst->slowest[i];
        size_t n_later = 0;

        /* Those that are kept so far are slower. */
        if (tick - slow->tick >= COST_TICKS_EACH + COST_TICKS_STEP) {
            slow->tick = ROUND_UP(slow->tick, COST_TICKS_STEP);
        }
        for (size_t j = 0; j < n; j++) {
            n_later += dst->slowest[j]->tick >= slow->tick;
        }
        if (n < n_max
            || (n_later < n_max && tick - slow->tick < COST_TICKS_MAX)) {
            dst->slowest[n++] = slow;
        } else {
            slow_destroy(dst->kind, slow);
        }
    }
    dst->n_slowest = n;
}

/* Adds 'slowest', into which another thread may be recording, to 'book', which
 * is named after that thread, and takes them away from it if 'take'.  Returns
 * false if that thread seems to be stopped in the middle of it. */
bool
cost_book_read_slowest(struct cost_book *book, struct cost_slowest *slowest,
                       bool take)
{
    const struct cost_kind *kind = book->kind;
    size_t n = kind->n_slowest * slow_size(kind);
    uint64_t *words = xcalloc(n, sizeof *words);
    bool ok = (seq_read(&slowest->seq) == COST_TAKEN
               || cost_seq_copy(&slowest->seq, words, slowest->words, n,
                                take));
    struct cost_slow **slowp = book_grow_slowest(book, kind->n_slowest);

    for (size_t i = 0; ok && i < kind->n_slowest; i++) {
        const uint64_t *w = &words[i * slow_size(kind)];
        struct cost_slow *slow;

        if (!w[SLOW_WHEN]) {
            continue;
        }
        *slowp++ = slow = slow_create(kind);
        slow->excluded_ns = w[SLOW_EXCLUDED];
        slow->when_us = w[SLOW_WHEN];
        slow->class = w[SLOW_HEAD];
        slow->known = w[SLOW_HEAD] >> 40;
        slow->cause = w[SLOW_HEAD] >> 56;
        slow->tick = UINT64_MAX;
        w += SLOW_STAGES;
        memcpy(slow->stages, w, ((kind->n_stages + kind->n_details)
                                 * sizeof *w));
        slow->total_ns = w[cost_kind_total(kind)];
        ovs_strlcpy(slow->thread, book->name, sizeof slow->thread);
        book->n_slowest++;
    }
    free(words);
    book_trim_slowest(book);
    return ok;
}

/* Returns the sum of 'class' of 'book', or of all classes if that is
 * COST_ALL_CLASSES.  The caller must free it with cost_block_destroy(). */
struct cost_block *
cost_book_sum(const struct cost_book *book, size_t class)
{
    struct cost_block *sum = NULL;

    for (size_t i = 0; i < book->kind->n_classes; i++) {
        if (book->classes[i] && (class == COST_ALL_CLASSES || class == i)) {
            book_add_block(&sum, book->classes[i]);
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

    for (size_t i = 0; i < book->kind->n_classes; i++) {
        if (book->classes[i] && (class == COST_ALL_CLASSES || class == i)) {
            n += cost_block_events(book->classes[i]);
        }
    }
    return n;
}
