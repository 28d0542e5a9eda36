/* SPDX-License-Identifier: Apache-2.0 */

#include <config.h>

#include "cost-recorder.h"

#include "random.h"
#include "timeval.h"
#include "util.h"

/* So many events that follow one of the slowest are split into stages, too:
 * what is slow seldom comes alone. */
#define N_WATCH 16

enum cost_cause (*cost_get_cause)(uint64_t event_ns, uint64_t age_ns);

/* Tells of events that are to be logged. */
static ATOMIC(cost_breach_cb *) breach_cb;

/* No event is of its class. */
#define NO_CLASS UINT32_MAX

/* Stand for those of a recorder that has recorded nothing. */
static struct cost_classes no_classes;
static struct cost_data no_data = {
    .latest_class = NO_CLASS,
    .classes = OVSRCU_INITIALIZER(&no_classes),
};

/* Data. */

static struct cost_classes *
data_classes(const struct cost_data *data)
{
    return ovsrcu_get(struct cost_classes *, &data->classes);
}

static void
sketch_destroy(struct cost_sketch *sketch)
{
    if (sketch) {
        cost_sketch_uninit(sketch);
        cost_free(sketch, sizeof *sketch);
    }
}

/* Frees 'data', which no thread can be using any more. */
static void
data_destroy(struct cost_data *data)
{
    struct cost_classes *classes = data_classes(data);

    for (size_t i = 0; i < classes->n; i++) {
        cost_block_destroy(ovsrcu_get(struct cost_block *,
                                      &classes->blocks[i]));
    }
    if (classes->n) {
        free(classes);
    }
    for (struct cost_slow *slow = atomic_exchange(&data->slowest, NULL), *next;
         slow; slow = next) {
        next = slow->next;
        cost_slow_destroy(slow);
    }
    for (size_t i = 0; i < COST_MAX_LISTS; i++) {
        sketch_destroy(atomic_exchange(&data->keys[i], NULL));
    }
    cost_free(data, sizeof *data);
}

/* Takes away from 'recorder' what it has recorded, if anything.  Its thread
 * may be about to add an event, which is gone, too. */
void
cost_recorder_take_data(struct cost_recorder *recorder)
{
    struct cost_data *data = atomic_exchange(&recorder->data.p, &no_data);

    if (data != &no_data) {
        ovsrcu_postpone(data_destroy, data);
    }
}

/* Takes the list of the slowest events away from 'recorder', for the caller to
 * free.  Returns NULL if it is empty, or its thread is just adding an event.
 * The calling thread must not be quiescent. */
struct cost_slow *
cost_recorder_take_slowest(struct cost_recorder *recorder)
{
    struct cost_data *data = ovsrcu_get(struct cost_data *, &recorder->data);
    struct cost_slow *slowest = atomic_exchange(&data->slowest, NULL);

    cost_recorder_reset_threshold(recorder);
    return slowest;
}

/* Makes 'recorder' look at its next event, and then at the settings. */
void
cost_recorder_reset_threshold(struct cost_recorder *recorder)
{
    struct cost_data *data = ovsrcu_get(struct cost_data *, &recorder->data);

    cost_store(&data->threshold_ns, 0);
}

/* Moves the keys that 'recorder' has counted events for, but of a list that
 * its thread is just adding to, to 'keys', one sketch for each list.  The
 * calling thread must not be quiescent. */
void
cost_recorder_take_keys(struct cost_recorder *recorder,
                        struct cost_sketch *keys)
{
    struct cost_data *data = ovsrcu_get(struct cost_data *, &recorder->data);

    for (size_t i = 0; i < recorder->kind->n_lists; i++) {
        struct cost_sketch *sketch = atomic_exchange(&data->keys[i], NULL);

        if (sketch) {
            cost_sketch_add(&keys[i], sketch, recorder->kind->lists[i].max);
            sketch_destroy(sketch);
        }
    }
}

/* Adds what 'recorder' has recorded, but keys and the slowest events, to
 * 'book'.  The calling thread must not be quiescent. */
void
cost_recorder_read(const struct cost_recorder *recorder,
                   struct cost_book *book)
{
    const struct cost_data *data = ovsrcu_get(struct cost_data *,
                                              &recorder->data);
    const struct cost_classes *classes = data_classes(data);

    for (size_t i = 0; i < classes->n; i++) {
        const struct cost_block *block = ovsrcu_get(struct cost_block *,
                                                    &classes->blocks[i]);

        if (block) {
            cost_book_add_block(book, i, block);
        }
    }
}

/* Returns a number that increases with what 'recorder' records: the time of
 * its events, in ns, plus the sum of its counters.  The calling thread must
 * not be quiescent. */
uint64_t
cost_recorder_activity(const struct cost_recorder *recorder)
{
    const struct cost_data *data = ovsrcu_get(struct cost_data *,
                                              &recorder->data);
    const struct cost_classes *classes = data_classes(data);
    uint64_t sum = 0;

    for (size_t i = 0; i < classes->n; i++) {
        const struct cost_block *block = ovsrcu_get(struct cost_block *,
                                                    &classes->blocks[i]);

        if (block) {
            sum += cost_load(&block->total->sum);
            sum += cost_load(&block->n_untimed);
            for (size_t j = 0; j < recorder->kind->n_counters; j++) {
                sum += cost_load(&block->counters[j]);
            }
        }
    }
    return sum;
}

/* Recorders. */

/* Creates and returns a recorder of events of 'kind' for 'thread', which the
 * caller must free with cost_free(), without its data. */
struct cost_recorder *
cost_recorder_alloc(const struct cost_kind *kind, const char *thread)
{
    struct cost_recorder *recorder = cost_alloc(sizeof *recorder);

    ovsrcu_init(&recorder->data, &no_data);
    recorder->kind = kind;
    cost_sample__(recorder, cost_sample_interval(kind->config));
    ovs_strlcpy(recorder->thread, thread, sizeof recorder->thread);
    return recorder;
}

/* Recording. */

/* Chooses at random which event of 'recorder' is to be sampled next, so that 1
 * in 'interval', the configured one, is. */
void COST_COLD
cost_sample__(struct cost_recorder *recorder, uint32_t interval)
{
    recorder->sample_interval = interval;
    recorder->sample_in = (interval > 1 ? 1 + random_range(2 * interval - 1)
                           : interval ? 1
                           : UINT32_MAX);
}

/* Returns 'recorder''s data, which is created, with no class, if there is
 * none. */
static struct cost_data *
recorder_data(struct cost_recorder *recorder)
{
    struct cost_data *data = ovsrcu_get(struct cost_data *, &recorder->data);

    if (OVS_UNLIKELY(data == &no_data)) {
        data = cost_alloc(sizeof *data);
        data->latest_class = NO_CLASS;
        ovsrcu_init(&data->classes, &no_classes);
        ovsrcu_set(&recorder->data, data);
    }
    return data;
}

/* Returns 'recorder''s data after making 'class' the latest one. */
static struct cost_data * COST_COLD
recorder_prepare(struct cost_recorder *recorder, size_t class)
{
    struct cost_data *data = recorder_data(recorder);
    struct cost_classes *classes = data_classes(data);

    if (class >= classes->n) {
        struct cost_classes *new = xzalloc(
            sizeof *new + (class + 1) * sizeof new->blocks[0]);

        new->n = class + 1;
        memcpy(new->blocks, classes->blocks,
               classes->n * sizeof new->blocks[0]);
        ovsrcu_set(&data->classes, new);
        if (classes->n) {
            ovsrcu_postpone(free, classes);
        }
        classes = new;
    }
    data->latest_class = class;
    data->latest = ovsrcu_get_protected(struct cost_block *,
                                        &classes->blocks[class]);
    if (!data->latest) {
        data->latest = cost_block_create(recorder->kind);
        ovsrcu_set(&classes->blocks[class], data->latest);
    }
    return data;
}

/* Makes 'cb' know of events that are to be logged. */
void
cost_set_breach_cb(cost_breach_cb *cb)
{
    atomic_store_relaxed(&breach_cb, cb);
}

/* Puts 'entry', with 'cause' and the details of 'span', or NULL, into '*list'
 * of the slowest events of 'recorder', unless it is too fast.  Returns the
 * time that an event has to exceed to get there. */
static uint64_t
insert_slow(struct cost_recorder *recorder, struct cost_slow **list,
            const struct cost_entry *entry, enum cost_cause cause,
            const struct cost_span *span)
{
    const struct cost_kind *kind = recorder->kind;
    uint64_t total_ns = entry->stages[cost_kind_total(kind)];
    struct cost_slow **place = list, *slow;
    size_t n = 1;

    for (slow = *list; slow; slow = slow->next) {
        n++;
    }
    if (n <= kind->n_slowest) {
        slow = cost_slow_create(kind);
    } else if (*list && total_ns > (*list)->total_ns) {
        slow = *list;
        *list = slow->next;
    } else {
        return *list ? (*list)->total_ns : UINT64_MAX;
    }

    slow->total_ns = total_ns;
    slow->excluded_ns = entry->excluded_ns;
    slow->when_us = time_wall_usec() - entry->after_ns / 1000;
    slow->cause = cause;
    slow->class = entry->class;
    slow->known = entry->known;
    ovs_strlcpy(slow->thread, recorder->thread, sizeof slow->thread);
    for (size_t i = 0; i < kind->n_stages; i++) {
        slow->stages[i] = entry->known & (1u << i) ? entry->stages[i] : 0;
    }
    memset(&slow->stages[kind->n_stages], 0,
           kind->n_details * sizeof slow->stages[0]);
    if (span && kind->get_details) {
        kind->get_details(span, &slow->stages[kind->n_stages]);
    }
    while (*place && (*place)->total_ns < total_ns) {
        place = &(*place)->next;
    }
    slow->next = *place;
    *place = slow;
    recorder->n_watch = N_WATCH;
    return n < kind->n_slowest ? 0 : (*list)->total_ns;
}

/* Puts 'entry' among the slowest of 'recorder', and counts it as slow if it is
 * to be logged. */
static void COST_COLD
record_slow(struct cost_recorder *recorder, struct cost_data *data,
            const struct cost_entry *entry, const struct cost_span *span)
{
    const struct cost_kind *kind = recorder->kind;
    uint64_t total_ns = entry->stages[cost_kind_total(kind)];
    uint64_t event_ns = total_ns + entry->excluded_ns;
    uint64_t log_ns = cost_load(&kind->config->log_ns);
    enum cost_cause cause = COST_CAUSE_UNKNOWN;
    uint64_t age_ns = event_ns;
    struct cost_slow *slowest;
    uint64_t least_ns;

    /* Optional ones repeat parts of the total. */
    for (size_t i = 0; i < kind->n_stages; i++) {
        if (kind->stages[i].flags == COST_APART && entry->known & (1u << i)) {
            age_ns += entry->stages[i];
        }
    }
    if (cost_get_cause) {
        cause = cost_get_cause(event_ns, age_ns);
    }

    if (log_ns && total_ns > log_ns) {
        cost_breach_cb *cb;

        cost_increase(&data->latest->n_slow, 1);
        atomic_read_relaxed(&breach_cb, &cb);
        if (cb) {
            cb(recorder, entry, cause, span);
        }
    }

    slowest = atomic_exchange(&data->slowest, NULL);
    least_ns = insert_slow(recorder, &slowest, entry, cause, span);
    cost_store(&data->threshold_ns, log_ns ? MIN(least_ns, log_ns) : least_ns);
    atomic_store_explicit(&data->slowest, slowest, memory_order_release);
}

/* The longest event of 'block' ended 'after_ns' ago. */
void COST_COLD
cost_set_longest__(struct cost_block *block, uint64_t after_ns)
{
    cost_store(&block->max_us, time_wall_usec() - after_ns / 1000);
}

/* Records 'entry' in 'recorder', and adds 'counts', which may be NULL, to the
 * counters.  Should it be slow, 'span', which may be NULL, has its details and
 * keys.
 *
 * Costs some 10 ns, and some 10 ns for each stage that is known.  An event
 * that is among the slowest so far, or the first of its class in this thread,
 * or the first of half a doubling of times, takes some 100 ns longer. */
void
cost_record(struct cost_recorder *recorder, const struct cost_entry *entry,
            const uint64_t *counts, const struct cost_span *span)
{
    struct cost_data *data = ovsrcu_get(struct cost_data *, &recorder->data);
    const struct cost_kind *kind = recorder->kind;
    size_t total = cost_kind_total(kind);
    uint16_t known = entry->known;
    uint64_t total_ns = 0;
    struct cost_block *block;

    if (OVS_UNLIKELY(data->latest_class != entry->class)) {
        data = recorder_prepare(recorder, entry->class);
    }
    block = data->latest;

    if (OVS_UNLIKELY(entry->watched)) {
        for (size_t i = 0; i < total; i++) {
            if (cost_stage_is_sampled(kind, i)) {
                known &= ~(1u << i);
            }
        }
    }
    while (OVS_LIKELY(known)) {
        size_t stage = raw_ctz(known);
        uint64_t value = entry->stages[stage];
        bool highest;

        while (OVS_UNLIKELY(!cost_hist_record(&block->hists[stage], value,
                                              &highest))) {
            cost_hist_grow(&block->hists[stage], value);
        }
        if (OVS_UNLIKELY(highest) && stage == total) {
            cost_set_longest__(block, entry->after_ns);
        }
        known = zero_rightmost_1bit(known);
    }

    if (OVS_LIKELY(entry->known & (1u << total))) {
        total_ns = entry->stages[total];
    } else {
        cost_increase(&block->n_untimed, 1);
    }
    if (entry->counter != COST_NO_COUNTER) {
        cost_increase(&block->counters[entry->counter], 1);
    }
    for (size_t i = 0; OVS_UNLIKELY(counts) && i < kind->n_counters; i++) {
        cost_increase(&block->counters[i], counts[i]);
    }
    if (OVS_UNLIKELY(total_ns > cost_load(&data->threshold_ns))) {
        record_slow(recorder, data, entry, span);
    }
}

/* Adds 'n' to 'recorder''s 'counter' for 'class', for something that happened
 * outside of an event. */
void
cost_count(struct cost_recorder *recorder, size_t class, size_t counter,
           uint64_t n)
{
    if (n && cost_enabled(recorder->kind->config)) {
        struct cost_data *data = recorder_prepare(recorder, class);

        cost_increase(&data->latest->counters[counter], n);
    }
}

/* Counts, in 'list', an event of 'recorder' that is a sample and took 'ns' for
 * 'who', or, if 'n_lost' is nonzero, as many lost ones. */
void COST_COLD
cost_count_who(struct cost_recorder *recorder, size_t list,
               const struct cost_who *who, uint64_t ns, uint64_t n_lost)
{
    const struct cost_list *l = &recorder->kind->lists[list];
    uint64_t weight = recorder->kind->exact ? 1 : recorder->sample_interval;
    struct cost_data *data = recorder_data(recorder);
    struct cost_sketch *keys = atomic_exchange(&data->keys[list], NULL);

    if (!keys) {
        keys = cost_alloc(sizeof *keys);
    }
    cost_sketch_count(keys, l, who, ns, weight, n_lost);
    atomic_store_explicit(&data->keys[list], keys, memory_order_release);
}

/* Accounting of 'recorder' is off: makes cost_count_event() ask whether it
 * still is, from the next event on. */
void
cost_pause(struct cost_recorder *recorder)
{
    struct cost_data *data = ovsrcu_get(struct cost_data *, &recorder->data);

    if (data != &no_data) {
        data->latest_class = NO_CLASS;
    }
}

/* Does what cost_count_event() does when it is not as simple as that. */
void COST_COLD
cost_count_event__(struct cost_recorder *recorder, uint32_t class,
                   size_t reason, size_t counter, uint64_t n)
{
    if (cost_enabled(recorder->kind->config)) {
        struct cost_data *data = recorder_prepare(
            recorder, MIN(class, recorder->kind->n_classes - 1));

        cost_increase(&data->latest->counters[reason], 1);
        cost_increase(&data->latest->counters[counter], n);

        /* If accounting was off when the event began, cost_pause() is not
         * called again. */
        if (!recorder->sample_interval) {
            data->latest_class = NO_CLASS;
        }
    }
}
