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

#include "cost-history.h"

#include "openvswitch/dynamic-string.h"
#include "util.h"

/* The numbers that a thread had at 'tick' and until the next copy. */
struct copy {
    struct copy *next;                  /* The one before it. */
    uint64_t tick;
    size_t size;
    uint8_t data[];
};

/* Bytes of all copies. */
static atomic_uint64_t total_size = 0;

/* All copies of the numbers of a thread. */
struct cost_history {
    struct cost_history *next;
    const void *thread;                 /* NULL for "exited". */
    uint64_t end;                       /* Tick at which this is part of
                                         * "exited", or UINT64_MAX. */
    struct copy *copies;                /* The latest one first. */
};

/* Returns true if the numbers at 'tick' are known, 'latest' being the latest
 * tick. */
bool
cost_history_has(uint64_t tick, uint64_t latest)
{
    return (latest - tick < COST_TICKS_EACH
            || (tick % COST_TICKS_STEP == 0
                && latest - tick < COST_TICKS_MAX));
}

/* Returns how many bytes all copies take. */
uint64_t
cost_history_size(void)
{
    return cost_load(&total_size);
}

/* One walk over the numbers of a book writes them to 'out' or, if that is
 * NULL, subtracts what it reads from 'in'.  A number has 7 bits in each byte,
 * the lowest ones first.  Zeros are a 0 and the number of them. */

struct stream {
    struct ds *out;
    const uint8_t *in;
    uint64_t n_zeros;                   /* To be written, or just read. */
};

static void
put(struct stream *stream, uint64_t n)
{
    for (; n >= 0x80; n >>= 7) {
        ds_put_char(stream->out, n | 0x80);
    }
    ds_put_char(stream->out, n);
}

static uint64_t
get(struct stream *stream)
{
    uint64_t n = 0;

    for (int shift = 0;; shift += 7) {
        n |= (uint64_t) (*stream->in & 0x7f) << shift;
        if (!(*stream->in++ & 0x80)) {
            return n;
        }
    }
}

static void
put_zeros(struct stream *stream)
{
    if (stream->n_zeros) {
        put(stream, 0);
        put(stream, stream->n_zeros);
        stream->n_zeros = 0;
    }
}

/* Writes 'n' and returns 0, or returns what it reads. */
static uint64_t
walk(struct stream *stream, uint64_t n)
{
    if (!stream->out) {
        if (!stream->n_zeros) {
            n = get(stream);
            if (n) {
                return n;
            }
            stream->n_zeros = get(stream);
        }
        stream->n_zeros--;
    } else if (n) {
        put_zeros(stream);
        put(stream, n);
    } else {
        stream->n_zeros++;
    }
    return 0;
}

static void
walk_number(struct stream *stream, atomic_uint64_t *p)
{
    uint64_t n = cost_load(p);

    cost_store(p, n - walk(stream, n));
}

static void
walk_block(struct stream *stream, struct cost_block *block)
{
    walk_number(stream, &block->n_slow);
    walk_number(stream, &block->n_events);
    for (size_t i = 0; i < block->kind->n_counters; i++) {
        walk_number(stream, &cost_block_counters(block)[i]);
    }
    for (size_t i = 0; i < block->kind->n_stages; i++) {
        struct cost_hist *hist = &block->hists[i];

        walk_number(stream, &hist->sum);
        for (unsigned int b = 0; b < cost_hist_n_buckets(hist); b++) {
            uint64_t n = walk(stream, cost_hist_get(hist, b));

            if (n && cost_hist_has(hist, b)) {
                cost_hist_add_bucket(hist, b, -n);
            }
        }
    }
}

static void
walk_list(struct stream *stream, struct cost_sketch *keys)
{
    struct cost_sketch old = { .n = walk(stream, keys->n) };
    size_t n = stream->out ? keys->n : old.n;

    old.floor = walk(stream, keys->floor);
    old.other_ns = walk(stream, keys->other_ns);
    old.rows = xcalloc(n, sizeof *old.rows);
    for (size_t i = 0; i < n; i++) {
        struct cost_row *row = &old.rows[i];
        const struct cost_row *new = stream->out ? &keys->rows[i] : row;

        row->id = walk(stream, new->id);
        row->events = walk(stream, new->events);
        row->error = walk(stream, new->error);
        row->time_ns = walk(stream, new->time_ns);
        row->lost = walk(stream, new->lost);
    }
    if (!stream->out) {
        cost_sketch_subtract(keys, &old);
    }
    free(old.rows);
}

static void
walk_book(struct stream *stream, const struct cost_book *book)
{
    for (size_t i = 0; i < book->kind->n_classes; i++) {
        struct cost_block **block = &book->classes[i];

        if (walk(stream, *block != NULL) || (stream->out && *block)) {
            if (!*block) {
                *block = cost_block_create(book->kind);
            }
            walk_block(stream, *block);
        }
    }
    for (size_t i = 0; i < book->kind->n_lists; i++) {
        walk_list(stream, &book->keys[i]);
    }
}

/* Copies. */

static void
add_copy(struct cost_history *history, uint64_t tick, const struct ds *s)
{
    struct copy *copy = cost_alloc(sizeof *copy + s->length);
    uint64_t orig;

    atomic_add_relaxed(&total_size, sizeof *copy + s->length, &orig);
    copy->next = history->copies;
    copy->tick = tick;
    copy->size = s->length;
    memcpy(copy->data, s->string, s->length);
    history->copies = copy;
}

/* Frees '*copy', and puts the one before it in its place. */
static void
remove_copy(struct copy **copyp)
{
    struct copy *copy = *copyp;
    size_t size = sizeof *copy + copy->size;
    uint64_t orig;

    *copyp = copy->next;
    atomic_sub_relaxed(&total_size, size, &orig);
    cost_free(copy, size);
}

/* Removes the copies that are of no tick that is kept, 'oldest' or later. */
static void
prune(struct cost_history *history, uint64_t oldest, uint64_t latest)
{
    struct copy *copy = history->copies;

    while (copy->next) {
        uint64_t tick = MAX(copy->next->tick, oldest);

        while (tick < copy->tick && !cost_history_has(tick, latest)) {
            tick++;
        }
        if (tick < copy->tick) {
            copy = copy->next;
        } else {
            remove_copy(&copy->next);
        }
    }
}

/* Histories. */

/* Copies 'book', the numbers that 'thread', or NULL for "exited", has at
 * 'tick', to 'list', and frees copies that are only of ticks before
 * 'oldest'. */
void
cost_history_copy(struct cost_history **list, const void *thread,
                  uint64_t oldest, uint64_t tick,
                  const struct cost_book *book)
{
    struct ds s = DS_EMPTY_INITIALIZER;
    struct stream stream = { .out = &s };
    struct cost_history *h = *list;

    while (h && (h->thread != thread || h->end != UINT64_MAX)) {
        h = h->next;
    }
    if (!h) {
        if (cost_book_is_empty(book)) {
            return;
        }
        h = cost_alloc(sizeof *h);
        h->thread = thread;
        h->end = UINT64_MAX;
        h->next = *list;
        *list = h;
    }

    walk_book(&stream, book);
    put_zeros(&stream);
    if (!h->copies || h->copies->size != s.length
        || memcmp(h->copies->data, s.string, s.length)) {
        add_copy(h, tick, &s);
    }
    ds_destroy(&s);
    prune(h, oldest, tick);
}

/* Subtracts from 'book' what 'thread', or NULL for "exited", had at 'tick',
 * which was at 'tick_us', time of day. */
void
cost_history_subtract(const struct cost_history *list, const void *thread,
                      uint64_t tick, uint64_t tick_us, struct cost_book *book)
{
    const struct cost_kind *kind = book->kind;

    for (; list; list = list->next) {
        const struct copy *copy = list->copies;

        while (copy && copy->tick > tick) {
            copy = copy->next;
        }
        if (copy && list->thread == thread && tick < list->end) {
            struct stream stream = { .in = copy->data };

            walk_book(&stream, book);
        }
    }
    for (size_t i = 0; i < kind->n_classes; i++) {
        struct cost_block *block = book->classes[i];
        uint64_t any = block ? cost_block_events(block) : 0;

        for (size_t j = 0; block && j < kind->n_counters; j++) {
            any |= cost_block_counter(block, j);
        }
        if (!any) {
            cost_block_destroy(block);
            book->classes[i] = NULL;
            continue;
        }
        for (size_t j = 0; j < kind->n_stages; j++) {
            cost_hist_fit_extremes(&block->hists[j], tick_us);
        }
    }
}

/* 'thread' has exited, and copies of "exited" have its numbers from tick 'end'
 * on. */
void
cost_history_exit(struct cost_history *list, const void *thread, uint64_t end)
{
    for (; list; list = list->next) {
        if (list->thread == thread) {
            list->thread = NULL;
            list->end = MIN(list->end, end);
        }
    }
}

/* Moves all of 'src', which are of "exited", to 'dst', whose own copies have
 * their numbers from tick 'end' on. */
void
cost_history_move(struct cost_history **dst, struct cost_history **src,
                  uint64_t end)
{
    struct cost_history **last = src;

    cost_history_exit(*src, NULL, end);
    while (*last) {
        last = &(*last)->next;
    }
    *last = *dst;
    *dst = *src;
    *src = NULL;
}

/* Frees those of 'list' that end at tick 'end' or before. */
void
cost_history_expire(struct cost_history **list, uint64_t end)
{
    while (*list) {
        struct cost_history *h = *list;

        if (h->end <= end) {
            *list = h->next;
            while (h->copies) {
                remove_copy(&h->copies);
            }
            cost_free(h, sizeof *h);
        } else {
            list = &h->next;
        }
    }
}
