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

#include "cost-recorder.h"

#include "random.h"
#include "util.h"

/* For a function that recording an event calls now and then: were it inlined,
 * recording would have to save registers for it each time. */
#if __GNUC__
#define COST_COLD __attribute__((__noinline__, __cold__))
#else
#define COST_COLD
#endif

/* The most bursts of an output queue that go with one cost_sample(), twice. */
#define TALLIES 64

/* So many events that follow one of the slowest are split into stages, too:
 * what is slow seldom comes alone. */
#define N_WATCH 16

/* Finds out why an event was slow, or NULL. */
static cost_cause_cb *cause_cb;

/* Tells of events that are to be logged. */
static ATOMIC(cost_breach_cb *) breach_cb;

/* No event is of its class. */
#define NO_CLASS UINT32_MAX
struct cost_data cost_no_data = { .latest_class = NO_CLASS };

/* Data. */

static struct cost_classes *
data_classes(const struct cost_data *data)
{
    return ovsrcu_get(struct cost_classes *, &data->classes);
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
    free(classes);
    cost_slowest_destroy(ovsrcu_get(struct cost_slowest *, &data->slowest));
    for (size_t i = 0; i < COST_MAX_LISTS; i++) {
        cost_keys_destroy(ovsrcu_get(struct cost_keys *, &data->keys[i]));
    }
    cost_free(data, sizeof *data);
}

/* Takes away from 'recorder' what it has recorded, if anything.  Its thread
 * may be about to add an event, which is gone, too. */
void
cost_recorder_take_data(struct cost_recorder *recorder)
{
    struct cost_data *data = atomic_exchange(&recorder->data.p, &cost_no_data);

    if (data != &cost_no_data) {
        ovsrcu_postpone(data_destroy, data);
    }
}

/* Makes 'book' what 'recorder' has recorded, with the slowest events only if
 * 'slowest'.  Returns false if that can't be had now, because the recording
 * thread is stopped in the middle of it.  The calling thread must not be
 * quiescent. */
bool
cost_recorder_read(const struct cost_recorder *recorder, bool slowest,
                   struct cost_book *book)
{
    const struct cost_data *data = ovsrcu_get(struct cost_data *,
                                              &recorder->data);
    const struct cost_classes *classes;
    struct cost_slowest *from;

    cost_book_init(book, recorder->kind, recorder->thread);
    if (data == &cost_no_data) {
        return true;
    }
    classes = data_classes(data);
    for (size_t i = 0; i < classes->n; i++) {
        const struct cost_block *block = ovsrcu_get(struct cost_block *,
                                                    &classes->blocks[i]);

        if (block) {
            book->classes[i] = cost_block_read(block);
            if (!book->classes[i]) {
                return false;
            }
        }
    }
    for (size_t i = 0; i < recorder->kind->n_lists; i++) {
        const struct cost_keys *keys = ovsrcu_get(struct cost_keys *,
                                                  &data->keys[i]);

        if (keys && !cost_sketch_read(&book->keys[i], keys)) {
            return false;
        }
    }
    from = ovsrcu_get(struct cost_slowest *, &data->slowest);
    return !slowest || !from || cost_book_read_slowest(book, from, false);
}

/* Moves the slowest events of 'recorder' to 'book', which is named after its
 * thread, unless that is writing one. */
void
cost_recorder_take_slowest(struct cost_recorder *recorder,
                           struct cost_book *book)
{
    struct cost_data *data = ovsrcu_get(struct cost_data *, &recorder->data);
    struct cost_slowest *from = ovsrcu_get(struct cost_slowest *,
                                           &data->slowest);

    if (from && cost_book_read_slowest(book, from, true)) {
        cost_store(&data->slow_ns, 0);
    }
}

/* Recorders. */

/* Returns how many events to go until one is sampled, at random, so that 1 in
 * 'interval' is. */
static uint32_t
sample_gap(uint32_t interval)
{
    return (interval > 1 ? 1 + random_range(2 * interval - 1)
            : interval ? 1
            : UINT32_MAX);
}

/* Creates and returns a recorder of events of 'kind' for 'thread', which the
 * caller must free with cost_recorder_free(). */
struct cost_recorder *
cost_recorder_alloc(const struct cost_kind *kind, const char *thread)
{
    struct cost_recorder *recorder = cost_alloc(sizeof *recorder);

    ovsrcu_init(&recorder->data, &cost_no_data);
    recorder->kind = kind;
    recorder->sample_interval = cost_sample_interval(kind->config);
    recorder->sample_in = sample_gap(recorder->sample_interval);
    recorder->tally_class = NO_CLASS;
    ovs_strlcpy(recorder->thread, thread, sizeof recorder->thread);
    return recorder;
}

/* Frees 'recorder', which no thread uses any more. */
void
cost_recorder_free(struct cost_recorder *recorder)
{
    cost_recorder_take_data(recorder);
    cost_free(recorder, sizeof *recorder);
}

/* Recording. */

/* Chooses the event of 'recorder' to be sampled after this one, which is, for
 * 'interval', the configured one. */
void COST_COLD
cost_sample__(struct cost_recorder *recorder, uint32_t interval)
{
    recorder->sample_interval = interval;
    recorder->sample_in = sample_gap(interval);
}

/* Makes place in 'data' for class 'idx'. */
static struct cost_classes *
data_grow_classes(struct cost_data *data, size_t idx)
{
    struct cost_classes *old = data_classes(data);
    size_t n_old = old ? old->n : 0;
    struct cost_classes *new;

    new = xmalloc(sizeof *new + (idx + 1) * sizeof new->blocks[0]);
    new->n = idx + 1;
    for (size_t i = 0; i < new->n; i++) {
        ovsrcu_init(&new->blocks[i],
                    (i < n_old ? ovsrcu_get_protected(struct cost_block *,
                                                      &old->blocks[i])
                     : NULL));
    }
    ovsrcu_set(&data->classes, new);
    if (old) {
        ovsrcu_postpone(free, old);
    }
    return new;
}

/* Makes 'block' that of the class that was recorded last. */
static void
data_set_latest(struct cost_data *data, struct cost_block *block)
{
    ovsrcu_set(&data_classes(data)->blocks[data->latest_class], block);
    data->latest = block;
}

/* Returns 'recorder''s data, which is created, with no class, if there is
 * none. */
static struct cost_data *
recorder_data(struct cost_recorder *recorder)
{
    struct cost_data *data = ovsrcu_get(struct cost_data *, &recorder->data);

    if (OVS_UNLIKELY(data == &cost_no_data)) {
        data = cost_alloc(sizeof *data);
        data->latest_class = NO_CLASS;
        data_grow_classes(data, 0);
        recorder->tally_class = NO_CLASS;
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
        classes = data_grow_classes(data, class);
    }
    data->latest_class = class;
    data->latest = ovsrcu_get_protected(struct cost_block *,
                                        &classes->blocks[class]);
    if (!data->latest) {
        data_set_latest(data, cost_block_create(recorder->kind));
    }
    return data;
}

/* Makes 'new' the block of 'recorder''s latest class. */
static void COST_COLD
replace_latest(struct cost_recorder *recorder, struct cost_data *data,
               struct cost_block *new)
{
    ovsrcu_postpone(cost_block_destroy, data->latest);
    data_set_latest(data, new);
    recorder->tally_class = NO_CLASS;
}

/* Makes 'cb' find out why events are slow.  No thread may record yet. */
void
cost_set_cause_cb(cost_cause_cb *cb)
{
    cause_cb = cb;
}

/* Makes 'cb' know of events that are to be logged. */
void
cost_set_breach_cb(cost_breach_cb *cb)
{
    atomic_store_relaxed(&breach_cb, cb);
}

/* Returns why the event of 'entry', which has just ended, was slow. */
static enum cost_cause
get_cause(const struct cost_kind *kind, const struct cost_entry *entry)
{
    uint64_t event_ns = (entry->stages[cost_kind_total(kind)]
                         + entry->excluded_ns);
    uint64_t age_ns = event_ns;

    if (!cause_cb) {
        return COST_CAUSE_UNKNOWN;
    }
    for (size_t i = 0; i < kind->n_stages; i++) {
        if (kind->stages[i].flags & COST_APART && entry->known & (1u << i)
            && !cost_stage_is_number(kind, i)) {
            age_ns += entry->stages[i];
        }
    }
    return cause_cb(event_ns, age_ns);
}

/* Makes sure that no number of 32 bits in 'data' gets too large. */
static void COST_COLD
widen_all(struct cost_recorder *recorder, struct cost_data *data)
{
    struct cost_classes *classes = data_classes(data);
    uint32_t class = data->latest_class;

    for (size_t i = 0; i < classes->n; i++) {
        data->latest_class = i;
        data->latest = ovsrcu_get_protected(struct cost_block *,
                                            &classes->blocks[i]);
        if (data->latest) {
            replace_latest(recorder, data, cost_block_widen(data->latest));
        }
    }
    data->n_max = 0;
    recorder_prepare(recorder, class);
}

/* Puts 'entry' among the slowest of 'recorder', and counts it as slow if it is
 * to be logged. */
static void COST_COLD
record_slow(struct cost_recorder *recorder, struct cost_data *data,
            const struct cost_entry *entry, const struct cost_details *details,
            const struct cost_who *who)
{
    uint64_t total_ns = entry->stages[cost_kind_total(recorder->kind)];
    uint64_t log_ns = cost_load(&recorder->kind->config->log_ns);
    enum cost_cause cause = get_cause(recorder->kind, entry);
    struct cost_entry slow = *entry;
    struct cost_slowest *slowest
        = ovsrcu_get_protected(struct cost_slowest *, &data->slowest);

    slow.known |= entry->watched;
    if (log_ns && total_ns > log_ns) {
        struct cost_block *block = data->latest;
        uint32_t seq = cost_seq_begin(&block->seq);
        cost_breach_cb *cb;

        cost_increase(&block->n_slow, 1);
        cost_block_end(block, seq);
        atomic_read_relaxed(&breach_cb, &cb);
        if (cb) {
            cb(recorder, &slow, cause, who);
        }
    }
    if (!slowest) {
        slowest = cost_slowest_create(recorder->kind);
        ovsrcu_set(&data->slowest, slowest);
    }
    if (cost_slowest_insert(slowest, &slow, cause, details,
                            log_ns ? log_ns : UINT64_MAX, &data->slow_ns)) {
        recorder->n_watch = N_WATCH;
    }
}

/* Makes sure that the tallies have room for all that may be counted until the
 * next event that is sampled.  Returns the bit of 'row' if the latest class
 * has no tally for it, otherwise 0. */
static uint16_t
prepare_tally(struct cost_recorder *recorder, struct cost_data *data,
              size_t row)
{
    data->n_max += TALLIES * recorder->sample_interval;
    if (OVS_UNLIKELY(data->n_max > INT32_MAX)) {
        widen_all(recorder, data);
    }
    return ~data->latest->rows & (1u << row);
}

/* Returns the bucket of 'stage' that its value in 'entry' falls into, and sets
 * the bit of 'stage' in '*missing' if 'block' has no memory for it. */
static unsigned int
find_bucket(const struct cost_block *block, const struct cost_entry *entry,
            size_t stage, uint16_t *missing)
{
    const struct cost_hist *hist = &block->hists[stage];
    unsigned int bucket = cost_hist_bucket_of(hist, entry->stages[stage]);

    if (OVS_UNLIKELY(!cost_hist_has(hist, bucket))) {
        *missing |= 1u << stage;
    }
    return bucket;
}

/* Records 'entry' in 'recorder', all of it at once, and adds 'counts', which
 * may be NULL, to the counters.  Should it be among the slowest, gets
 * 'details', which may be NULL, too.  Should it be logged, tells of 'who', see
 * cost_breach_cb.
 *
 * Costs some 10 ns, and some 10 ns for each stage that is known.  An event
 * that is among the slowest so far, or the first of its class in this thread,
 * or the first of a doubling of times, takes some 100 ns longer. */
void
cost_record(struct cost_recorder *recorder, const struct cost_entry *entry,
            const uint64_t *counts, const struct cost_details *details,
            const struct cost_who *who)
{
    struct cost_data *data = ovsrcu_get(struct cost_data *, &recorder->data);
    const struct cost_kind *kind = recorder->kind;
    size_t total = cost_kind_total(kind);
    uint16_t stages = entry->known & ~(1u << total);
    bool timed = stages != entry->known;
    uint16_t missing = 0, rows = 0;
    uint16_t buckets[COST_MAX_STAGES];
    unsigned int total_bucket = 0;
    atomic_uint64_t *counters;
    struct cost_block *block;
    bool tally = false;
    uint32_t seq;
    uint64_t n;

    if (OVS_UNLIKELY(data->latest_class != entry->class)) {
        data = recorder_prepare(recorder, entry->class);
    }
    if (OVS_UNLIKELY(kind->n_rows) && entry->counter < kind->n_rows
        && entry->known & (1u << kind->row_stage)
        && entry->stages[kind->row_stage] <= kind->row_limit) {
        tally = true;
        rows = prepare_tally(recorder, data, entry->counter);
        stages &= ~(1u << kind->row_stage);
    }
    if (timed) {
        total_bucket = find_bucket(data->latest, entry, total, &missing);
    }
    for (uint16_t left = stages; OVS_UNLIKELY(left);
         left = zero_rightmost_1bit(left)) {
        size_t stage = raw_ctz(left);

        buckets[stage] = find_bucket(data->latest, entry, stage, &missing);
    }
    if (OVS_UNLIKELY(missing | rows)) {
        replace_latest(recorder, data,
                       cost_block_extend(data->latest, entry, missing, rows));
    }

    block = data->latest;
    counters = cost_block_counters(block);
    n = cost_load(&block->n_events);
    seq = cost_seq_begin(&block->seq);
    if (OVS_UNLIKELY(tally)) {
        cost_tally_increase(cost_block_tally(block, entry->counter),
                            entry->stages[kind->row_stage]);
    } else {
        cost_store(&block->n_events, ++n);
        if (entry->counter != COST_NO_COUNTER) {
            cost_increase(&counters[entry->counter], 1);
        }
    }
    for (size_t i = 0; OVS_UNLIKELY(counts) && i < kind->n_counters; i++) {
        if (counts[i]) {
            cost_increase(&counters[i], counts[i]);
        }
    }
    if (timed) {
        cost_hist_record(&block->hists[total], total_bucket,
                         entry->stages[total]);
    }
    for (; OVS_UNLIKELY(stages); stages = zero_rightmost_1bit(stages)) {
        size_t stage = raw_ctz(stages);

        cost_hist_record(&block->hists[stage], buckets[stage],
                         entry->stages[stage]);
    }
    cost_block_end(block, seq);

    if (OVS_UNLIKELY(n > INT32_MAX) && !block->hists[0].wide) {
        widen_all(recorder, data);
    }
    if (timed && OVS_UNLIKELY(entry->stages[total] > cost_load(&data->slow_ns))
        && kind->n_slowest) {
        record_slow(recorder, data, entry, details, who);
    }
}

/* Adds 'n' to 'recorder''s 'counter' for 'class', for something that happened
 * outside of an event. */
void
cost_count(struct cost_recorder *recorder, size_t class, size_t counter,
           uint64_t n)
{
    if (n && cost_enabled(recorder->kind->config)) {
        struct cost_block *block = recorder_prepare(recorder, class)->latest;
        uint32_t seq = cost_seq_begin(&block->seq);

        cost_increase(&cost_block_counters(block)[counter], n);
        cost_block_end(block, seq);
    }
}

/* Does what cost_count_who() does when it is not as simple as that. */
static void COST_COLD
count_who(struct cost_recorder *recorder, size_t list,
          const struct cost_who *who, uint64_t ns, uint64_t n_lost)
{
    const struct cost_list *l = &recorder->kind->lists[list];
    struct cost_data *data = recorder_data(recorder);
    struct cost_keys *keys = ovsrcu_get_protected(struct cost_keys *,
                                                  &data->keys[list]);

    if (OVS_UNLIKELY(!keys || !cost_keys_count(keys, l, who, ns, n_lost))) {
        struct cost_keys *new = cost_keys_grow(keys, l->max);

        cost_keys_count(new, l, who, ns, n_lost);
        ovsrcu_set(&data->keys[list], new);
        if (keys) {
            ovsrcu_postpone(cost_keys_destroy, keys);
        }
    }
}

/* Counts, in 'list', an event of 'recorder' that took 'ns' for 'who', or, if
 * 'n_lost' is nonzero, as many lost ones. */
void
cost_count_who(struct cost_recorder *recorder, size_t list,
               const struct cost_who *who, uint64_t ns, uint64_t n_lost)
{
    struct cost_data *data = ovsrcu_get(struct cost_data *, &recorder->data);
    struct cost_keys *keys = ovsrcu_get_protected(struct cost_keys *,
                                                  &data->keys[list]);
    struct cost_key *key = keys ? cost_keys_find(keys, who->id) : NULL;

    if (OVS_LIKELY(key && !n_lost)) {
        cost_key_count(key, ns);
    } else {
        count_who(recorder, list, who, ns, n_lost);
    }
}

/* Accounting of 'recorder' is off: makes cost_tally() ask whether it still is,
 * from the next event on. */
void
cost_tally_stop(struct cost_recorder *recorder)
{
    recorder->tally_class = NO_CLASS;
}

/* Does what cost_tally() does when it is not as simple as that. */
void
cost_tally__(struct cost_recorder *recorder, uint32_t class_, size_t row,
             size_t number)
{
    const struct cost_kind *kind = recorder->kind;
    size_t class = MIN(class_, kind->n_classes - 1);
    struct cost_data *data;

    if (OVS_UNLIKELY(number > kind->row_limit)) {
        struct cost_entry entry;

        cost_entry_init(&entry, class);
        entry.counter = row;
        cost_entry_add(&entry, kind->row_stage, number);
        cost_record(recorder, &entry, NULL, NULL, NULL);
        return;
    }

    data = ovsrcu_get(struct cost_data *, &recorder->data);
    if (OVS_UNLIKELY(data->latest_class != class)) {
        data = recorder_prepare(recorder, class);
    }
    if (OVS_UNLIKELY(!cost_block_tally(data->latest, row))) {
        replace_latest(recorder, data,
                       cost_block_extend(data->latest, NULL, 0, 1u << row));
    }
    recorder->tally = cost_block_tally(data->latest, row);
    cost_tally_increase(recorder->tally, number);

    /* If accounting was off when the event began, cost_tally_stop() is not
     * called again. */
    recorder->tally_class = recorder->sample_interval ? class_ : NO_CLASS;
    recorder->tally_row = row;
}
