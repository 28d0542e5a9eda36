/* SPDX-License-Identifier: Apache-2.0 */

#include <config.h>

#include "cost-window.h"

#include "hash.h"
#include "openvswitch/hmap.h"
#include "ovs-thread.h"
#include "timeval.h"
#include "util.h"

/* Numbers that an owner had, at one tick or, if they did not change, at
 * several. */
struct numbers {
    size_t n_refs;
    struct cost_book book;
};

/* What an owner had at a tick. */
struct copy {
    struct hmap_node hmap_node;
    const void *owner;
    struct numbers *numbers;
};

/* Bytes of a copy, in a cache line of its own, and of what malloc() adds. */
#define COPY_SIZE (2 * CACHE_LINE_SIZE)

/* A tick that is kept. */
struct slot {
    struct cost_tick tick;
    struct hmap copies;
};

static struct ovs_mutex mutex = OVS_MUTEX_INITIALIZER;

/* The latest one is last. */
static struct slot slots[COST_TICKS_MAX] OVS_GUARDED_BY(mutex);
static size_t n_slots OVS_GUARDED_BY(mutex);
static size_t total_size OVS_GUARDED_BY(mutex);

/* Copies. */

static void
copy_destroy(struct slot *slot, struct copy *copy)
    OVS_REQUIRES(mutex)
{
    struct numbers *numbers = copy->numbers;

    if (!--numbers->n_refs) {
        total_size -= sizeof *numbers + cost_book_size(&numbers->book);
        cost_book_uninit(&numbers->book);
        cost_free(numbers, sizeof *numbers);
    }
    total_size -= COPY_SIZE;
    hmap_remove(&slot->copies, &copy->hmap_node);
    cost_free(copy, sizeof *copy);
}

/* Returns a copy of 'owner' in 'slot', or NULL if there is none. */
static struct copy *
find_copy(const struct slot *slot, const void *owner)
    OVS_REQUIRES(mutex)
{
    struct copy *copy;

    HMAP_FOR_EACH_WITH_HASH (copy, hmap_node, hash_pointer(owner, 0),
                             &slot->copies) {
        if (copy->owner == owner) {
            return copy;
        }
    }
    return NULL;
}

/* Makes 'numbers' those of 'owner' in 'slot'. */
static void
copy_create(struct slot *slot, const void *owner, struct numbers *numbers)
    OVS_REQUIRES(mutex)
{
    struct copy *copy = cost_alloc(sizeof *copy);
    struct copy *old = find_copy(slot, owner);

    copy->owner = owner;
    copy->numbers = numbers;
    numbers->n_refs++;
    total_size += COPY_SIZE;
    hmap_insert(&slot->copies, &copy->hmap_node, hash_pointer(owner, 0));
    if (old) {
        copy_destroy(slot, old);
    }
}

/* Ticks. */

static void
remove_slot(size_t i)
    OVS_REQUIRES(mutex)
{
    struct copy *copy;

    HMAP_FOR_EACH_SAFE (copy, hmap_node, &slots[i].copies) {
        copy_destroy(&slots[i], copy);
    }
    hmap_destroy(&slots[i].copies);
    n_slots--;
    for (; i < n_slots; i++) {
        slots[i] = slots[i + 1];
        hmap_moved(&slots[i].copies);
    }
}

/* Makes 'tick' the latest one, to which cost_window_copy() applies. */
void
cost_tick_begin(const struct cost_tick *tick)
{
    ovs_mutex_lock(&mutex);
    for (size_t i = n_slots; i-- > 0;) {
        uint64_t n = slots[i].tick.number, age = tick->number - n;

        if (age >= COST_TICKS_MAX
            || (age >= COST_TICKS_EACH && n % COST_TICKS_STEP)) {
            remove_slot(i);
        }
    }
    while (n_slots && total_size > COST_WINDOW_MAX) {
        remove_slot(0);
    }
    slots[n_slots].tick = *tick;
    hmap_init(&slots[n_slots].copies);
    n_slots++;
    ovs_mutex_unlock(&mutex);
}

/* Makes '*tick' the latest one at least 'last_ms' ago, or, if none is so old
 * any more for the sake of memory, the oldest one.  Leaves it alone if there
 * has not been any so long ago. */
void
cost_tick_find(long long int last_ms, struct cost_tick *tick)
{
    long long int now = time_msec();

    ovs_mutex_lock(&mutex);
    for (size_t i = n_slots; i-- > 0;) {
        if (now - slots[i].tick.ms >= last_ms
            || (!i && slots[i].tick.number >= COST_TICKS_EACH)) {
            *tick = slots[i].tick;
            break;
        }
    }
    ovs_mutex_unlock(&mutex);
}

/* Windows. */

/* Makes 'book' the copy of 'owner' in 'slot', or, if 'add', adds it to the
 * one that is there. */
static void
set_copy(struct slot *slot, const void *owner, const struct cost_book *book,
         bool add)
    OVS_REQUIRES(mutex)
{
    struct numbers *numbers = cost_alloc(sizeof *numbers);
    struct copy *copy = find_copy(slot, owner);

    cost_book_init(&numbers->book, book->kind);
    cost_book_add(&numbers->book, book);
    if (copy && add) {
        cost_book_add(&numbers->book, &copy->numbers->book);
    }
    total_size += sizeof *numbers + cost_book_size(&numbers->book);
    copy_create(slot, owner, numbers);
}

/* Copies 'book', the numbers that 'owner' has at the latest tick.  They have
 * what it has got from others since the tick began. */
void
cost_window_copy(const void *owner, const struct cost_book *book)
{
    ovs_mutex_lock(&mutex);
    set_copy(&slots[n_slots - 1], owner, book, false);
    ovs_mutex_unlock(&mutex);
}

/* 'owner' still has the numbers of the tick before the latest one.  Returns
 * false if there is no copy of these. */
bool
cost_window_repeat(const void *owner)
{
    struct copy *copy = NULL;

    ovs_mutex_lock(&mutex);
    if (n_slots > 1) {
        copy = find_copy(&slots[n_slots - 2], owner);
        if (copy) {
            copy_create(&slots[n_slots - 1], owner, copy->numbers);
        }
    }
    ovs_mutex_unlock(&mutex);
    return copy != NULL;
}

/* Subtracts from 'book' what 'owner' had at '*from'.  If there is no copy of
 * that, then if 'later', changes '*from' to the first tick after it of which
 * there is one.  Returns false if there is no such copy. */
bool
cost_window_subtract(const void *owner, bool later, struct cost_tick *from,
                     struct cost_book *book)
{
    struct copy *copy = NULL;

    ovs_mutex_lock(&mutex);
    for (size_t i = 0; i < n_slots && !copy; i++) {
        const struct cost_tick *tick = &slots[i].tick;

        if (tick->number == from->number
            || (later && tick->number > from->number)) {
            copy = find_copy(&slots[i], owner);
            if (copy) {
                cost_book_subtract(book, &copy->numbers->book, tick->us);
                *from = *tick;
            }
        }
    }
    ovs_mutex_unlock(&mutex);
    return copy != NULL;
}

/* 'owner', which is going, has left the numbers 'book' to 'heir': adds the
 * copies of 'owner' to those of 'heir'.  Where there is no copy of a tick
 * after 'since_tick', when it began, takes 'book' for it: its numbers are in
 * no window. */
void
cost_window_pass(const void *owner, const void *heir, uint64_t since_tick,
                 const struct cost_book *book)
{
    ovs_mutex_lock(&mutex);
    for (size_t i = 0; i < n_slots; i++) {
        const struct copy *left = find_copy(&slots[i], owner);

        if (left || slots[i].tick.number > since_tick) {
            set_copy(&slots[i], heir, left ? &left->numbers->book : book,
                     true);
        }
    }
    ovs_mutex_unlock(&mutex);
}

/* Frees all copies of 'owner'. */
void
cost_window_forget(const void *owner)
{
    ovs_mutex_lock(&mutex);
    for (size_t i = 0; i < n_slots; i++) {
        struct copy *copy = find_copy(&slots[i], owner);

        if (copy) {
            copy_destroy(&slots[i], copy);
        }
    }
    ovs_mutex_unlock(&mutex);
}
