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

#include "cost.h"

#include "cost-pmu.h"
#include "openvswitch/vlog.h"
#include "smap.h"
#include "timeval.h"

VLOG_DEFINE_THIS_MODULE(cost);

/* For a function that recording an event calls now and then: were it inlined,
 * recording would have to save registers for it each time. */
#if __GNUC__
#define COST_COLD __attribute__((__noinline__))
#else
#define COST_COLD
#endif

struct cost_config cost_config = { true, COST_DEFAULT_SPLIT_INTERVAL };

/* A record in the 'slowest' array of a recorder: these words, followed by the
 * kind's 'n_stages' and 'n_details' words. */
enum {
    SLOW_TOTAL,                         /* ns, 0 if the record is unused. */
    SLOW_WHEN,                          /* us since the Epoch. */
    SLOW_CLASS,
    SLOW_MARKED,                        /* A bit for each known stage. */
    SLOW_N_FIXED
};

/* States of a recorder.  Either its thread or its account goes first; the one
 * that goes second frees it. */
enum {
    RECORDER_IN_USE,                    /* By its thread. */
    RECORDER_EXITED,                    /* Its thread is gone. */
    RECORDER_ORPHANED                   /* Its account is gone. */
};

struct cost_account {
    /* Data of any other generation is to be ignored. */
    atomic_uint32_t generation;

    struct ovs_list list_node;          /* In 'accounts'. */
    const struct cost_kind *kind;
    char *name;
    struct ovs_refcount ref_cnt;        /* Creator and recorders. */

    /* New recorders.  Producers never wait. */
    struct mpsc_queue registered;

    /* Guarded by 'accounts_mutex'. */
    struct ovs_list recorders;          /* Taken from 'registered'. */
    struct cost_snapshot exited;        /* Of threads that are gone. */
    long long int since;                /* time_msec() of the last clear. */
};

/* Protects the list and what the accounts say it protects.  Recording never
 * takes it; a thread that records for the first time only tries to. */
static struct ovs_mutex accounts_mutex = OVS_MUTEX_INITIALIZER;
static struct ovs_list accounts OVS_GUARDED_BY(accounts_mutex)
    = OVS_LIST_INITIALIZER(&accounts);

DEFINE_EXTERN_PER_THREAD_DATA(cost_thread, { NULL, NULL, NULL });

/* Its destructor tells that a thread has exited. */
static ovsthread_key_t exit_key;

/* In a recorder's 'pending', an event is two words, its total in ns and a head
 * that consists of the following, and a word with the ns, or value, of each
 * stage that is marked. */
enum { PENDING_MAX = 2 + COST_MAX_STAGES };
BUILD_ASSERT_DECL(PENDING_MAX <= COST_N_PENDING);

static uint64_t
pending_head(uint32_t class, uint8_t counter, uint16_t marked)
{
    return (uint64_t) marked << 40 | (uint64_t) counter << 32 | class;
}

static uint32_t
pending_class(uint64_t head)
{
    return head;
}

static uint8_t
pending_counter(uint64_t head)
{
    return head >> 32;
}

static uint16_t
pending_marked(uint64_t head)
{
    return head >> 40;
}

static void cost_accounts_refresh(void) OVS_REQUIRES(accounts_mutex);
static void cost_account_unref(struct cost_account *);

static size_t
slow_record_size(const struct cost_kind *kind)
{
    return SLOW_N_FIXED + kind->n_stages + kind->n_details;
}

/* Configuration. */

/* Applies "cost-accounting", "cost-split-interval" and
 * "cost-hardware-counters" from 'other_config', the column in the Open_vSwitch
 * table (see ovs-vswitchd.conf.db(5)).  Takes effect with the next event of
 * each thread. */
void
cost_configure(const struct smap *other_config)
{
    bool enabled = smap_get_bool(other_config, "cost-accounting", true);
    long long int interval = smap_get_ullong(other_config,
                                             "cost-split-interval",
                                             COST_DEFAULT_SPLIT_INTERVAL);
    uint32_t old_interval;

    if (interval < 1 || interval > COST_MAX_SPLIT_INTERVAL) {
        static struct vlog_rate_limit rl = VLOG_RATE_LIMIT_INIT(1, 1);

        VLOG_WARN_RL(&rl, "other_config:cost-split-interval=%s is not "
                     "between 1 and %d, using %d",
                     smap_get_def(other_config, "cost-split-interval", ""),
                     COST_MAX_SPLIT_INTERVAL, COST_DEFAULT_SPLIT_INTERVAL);
        interval = COST_DEFAULT_SPLIT_INTERVAL;
    }

    atomic_read_relaxed(&cost_config.split_interval, &old_interval);
    if (enabled != cost_enabled() || interval != old_interval) {
        VLOG_INFO("cost accounting %s, stages of 1 in %lld events",
                  enabled ? "on" : "off", interval);
    }
    atomic_store_relaxed(&cost_config.split_interval, (uint32_t) interval);
    if (enabled != cost_enabled()) {
        ovs_mutex_lock(&accounts_mutex);
        cost_accounts_refresh();
        ovs_mutex_unlock(&accounts_mutex);
        atomic_store_relaxed(&cost_config.enabled, enabled);
    }
    cost_pmu_configure(enabled && smap_get_bool(other_config,
                                                "cost-hardware-counters",
                                                false));
}

/* Snapshots. */

static void
cost_snapshot_init(struct cost_snapshot *snap, const struct cost_kind *kind,
                   const char *thread)
{
    snap->kind = kind;
    snap->thread = nullable_xstrdup(thread);
    snap->classes = xcalloc(kind->n_classes, sizeof *snap->classes);
    snap->counters = xcalloc(kind->n_classes, sizeof *snap->counters);
    snap->slowest = NULL;
    snap->n_slowest = 0;
}

static void
cost_snapshot_remove_class(struct cost_snapshot *snap, size_t class)
{
    free(snap->classes[class]);
    snap->classes[class] = NULL;
    free(snap->counters[class]);
    snap->counters[class] = NULL;
}

static void
cost_snapshot_clear(struct cost_snapshot *snap)
{
    for (size_t i = 0; i < snap->kind->n_classes; i++) {
        cost_snapshot_remove_class(snap, i);
    }
    for (size_t i = 0; i < snap->n_slowest; i++) {
        free(snap->slowest[i].thread);
        free(snap->slowest[i].details);
    }
    free(snap->slowest);
    snap->slowest = NULL;
    snap->n_slowest = 0;
}

static void
cost_snapshot_uninit(struct cost_snapshot *snap)
{
    cost_snapshot_clear(snap);
    free(snap->thread);
    free(snap->classes);
    free(snap->counters);
}

static void
cost_snapshot_add_class(struct cost_snapshot *snap, size_t class)
{
    if (!snap->classes[class]) {
        const struct cost_kind *kind = snap->kind;

        snap->classes[class] = xmalloc(kind->n_stages
                                       * sizeof *snap->classes[class]);
        for (size_t i = 0; i < kind->n_stages; i++) {
            cost_hist_snapshot_init(&snap->classes[class][i]);
        }
        snap->counters[class] = xcalloc(kind->n_counters,
                                        sizeof *snap->counters[class]);
    }
}

/* Returns true if 'snap', which has 'class', has nothing in it. */
static bool
cost_snapshot_class_is_empty(const struct cost_snapshot *snap, size_t class)
{
    if (cost_snapshot_count(snap, class)) {
        return false;
    }
    for (size_t i = 0; i < snap->kind->n_counters; i++) {
        if (snap->counters[class][i]) {
            return false;
        }
    }
    return true;
}

/* Slowest first; of equals, the one that ended first. */
static int
compare_slow_events(const void *a_, const void *b_)
{
    const struct cost_slow_event *a = a_, *b = b_;

    return (a->total_ns != b->total_ns ? (a->total_ns < b->total_ns ? 1 : -1)
            : a->when_us != b->when_us ? (a->when_us < b->when_us ? -1 : 1)
            : 0);
}

/* Sorts 'snap''s slowest events and keeps only the slowest of them, as many as
 * each thread keeps: of a larger number some might be missing. */
static void
cost_snapshot_trim_slowest(struct cost_snapshot *snap)
{
    if (snap->n_slowest) {
        qsort(snap->slowest, snap->n_slowest, sizeof *snap->slowest,
              compare_slow_events);
    }
    while (snap->n_slowest > COST_N_SLOWEST) {
        snap->n_slowest--;
        free(snap->slowest[snap->n_slowest].thread);
        free(snap->slowest[snap->n_slowest].details);
    }
}

/* Adds 'src' to 'dst', which are of the same kind. */
static void
cost_snapshot_merge(struct cost_snapshot *dst, const struct cost_snapshot *src)
{
    const struct cost_kind *kind = dst->kind;

    for (size_t i = 0; i < kind->n_classes; i++) {
        if (src->classes[i]) {
            cost_snapshot_add_class(dst, i);
            for (size_t j = 0; j < kind->n_stages; j++) {
                cost_hist_snapshot_merge(&dst->classes[i][j],
                                         &src->classes[i][j]);
            }
            for (size_t j = 0; j < kind->n_counters; j++) {
                dst->counters[i][j] += src->counters[i][j];
            }
        }
    }

    dst->slowest = xrealloc(dst->slowest, ((dst->n_slowest + src->n_slowest)
                                           * sizeof *dst->slowest));
    for (size_t i = 0; i < src->n_slowest; i++) {
        struct cost_slow_event *event = &dst->slowest[dst->n_slowest++];

        *event = src->slowest[i];
        event->thread = xstrdup(event->thread);
        event->details = xmemdup(event->details,
                                 kind->n_details * sizeof *event->details);
    }
    cost_snapshot_trim_slowest(dst);
}

/* Stores in 'hist' the times that 'stage' took in events of 'class', or of all
 * classes if that is COST_ALL_CLASSES. */
void
cost_snapshot_stage(const struct cost_snapshot *snap, size_t class,
                    size_t stage, struct cost_hist_snapshot *hist)
{
    cost_hist_snapshot_init(hist);
    for (size_t i = 0; i < snap->kind->n_classes; i++) {
        if (snap->classes[i] && (class == COST_ALL_CLASSES || class == i)) {
            cost_hist_snapshot_merge(hist, &snap->classes[i][stage]);
        }
    }
}

/* Returns the value of 'counter' for events of 'class', or of all classes if
 * that is COST_ALL_CLASSES. */
uint64_t
cost_snapshot_counter(const struct cost_snapshot *snap, size_t class,
                      size_t counter)
{
    uint64_t n = 0;

    for (size_t i = 0; i < snap->kind->n_classes; i++) {
        if (snap->counters[i] && (class == COST_ALL_CLASSES || class == i)) {
            n += snap->counters[i][counter];
        }
    }
    return n;
}

/* Returns the number of events of 'class', or of all classes if that is
 * COST_ALL_CLASSES. */
uint64_t
cost_snapshot_count(const struct cost_snapshot *snap, size_t class)
{
    uint64_t n = 0;

    for (size_t i = 0; i < snap->kind->n_classes; i++) {
        if (snap->classes[i] && (class == COST_ALL_CLASSES || class == i)) {
            n += snap->classes[i][snap->kind->n_stages - 1].count;
        }
    }
    return n;
}

/* Reading recorders. */

/* Waits until 'recorder' is not being written and returns a value for
 * recorder_read_retry().  '*n_tries' counts the tries. */
static uint32_t
recorder_read_begin(struct cost_recorder *recorder, unsigned int *n_tries)
{
    for (;;) {
        uint32_t seq;

        /* The writer writes for less than a microsecond.  If it does not end
         * soon, it is not running. */
        (*n_tries)++;
        if (*n_tries % 64 == 0) {
            xnanosleep_no_quiesce(10000);
        }
        atomic_read_explicit(&recorder->seq, &seq, memory_order_acquire);
        if (!(seq & 1)) {
            return seq;
        }
    }
}

/* Returns true if 'recorder' was written since recorder_read_begin() returned
 * 'seq', so that what has been read from it must be read again.  Events that
 * were appended to those that are pending don't matter. */
static bool
recorder_read_retry(struct cost_recorder *recorder, uint32_t seq)
{
    uint32_t now;

    atomic_thread_fence(memory_order_acquire);
    atomic_read_relaxed(&recorder->seq, &now);
    return now != seq;
}

/* Adds those of the 'n' words of pending events that are of 'class' to
 * 'snap'. */
static void
cost_snapshot_add_pending(struct cost_snapshot *snap, size_t class,
                          const uint64_t *words, size_t n)
{
    struct cost_hist_snapshot *stages = snap->classes[class];
    size_t total = snap->kind->n_stages - 1;

    for (size_t i = 0; i < n;) {
        uint64_t total_ns = words[i++];
        uint64_t head = words[i++];
        uint16_t marked = pending_marked(head);

        if (pending_class(head) != class) {
            i += count_1bits(marked);
            continue;
        }
        cost_hist_snapshot_add(&stages[total], total_ns);
        if (pending_counter(head) != COST_NO_COUNTER) {
            snap->counters[class][pending_counter(head)]++;
        }
        for (; marked; marked = zero_rightmost_1bit(marked)) {
            cost_hist_snapshot_add(&stages[raw_ctz(marked)], words[i++]);
        }
    }
}

/* Adds what 'recorder' has of 'class' to 'snap', if it is of 'generation'. */
static void
cost_class_read(struct cost_recorder *recorder, size_t class_idx,
                uint32_t generation, struct cost_snapshot *snap)
{
    const struct cost_kind *kind = recorder->kind;
    uint32_t recorder_generation, seq, n_pending;
    uint64_t pending[COST_N_PENDING];
    struct cost_class *class;
    unsigned int n_tries = 0;

    atomic_read_explicit(&recorder->classes[class_idx], &class,
                         memory_order_acquire);
    if (!class) {
        return;
    }

    cost_snapshot_add_class(snap, class_idx);
    do {
        seq = recorder_read_begin(recorder, &n_tries);
        atomic_read_relaxed(&recorder->generation, &recorder_generation);
        for (size_t i = 0; i < kind->n_stages; i++) {
            cost_hist_read(&class->stages[i], &snap->classes[class_idx][i]);
        }
        for (size_t i = 0; i < kind->n_counters; i++) {
            atomic_read_relaxed(&class->counters[i],
                                &snap->counters[class_idx][i]);
        }
        atomic_read_explicit(&recorder->n_pending, &n_pending,
                             memory_order_acquire);
        for (size_t i = 0; i < n_pending; i++) {
            atomic_read_relaxed(&recorder->pending[i], &pending[i]);
        }
    } while (recorder_read_retry(recorder, seq));

    if (recorder_generation == generation) {
        cost_snapshot_add_pending(snap, class_idx, pending, n_pending);
    }
    if (recorder_generation != generation
        || cost_snapshot_class_is_empty(snap, class_idx)) {
        cost_snapshot_remove_class(snap, class_idx);
    }
}

/* Adds the slowest events of 'recorder' to 'snap', if they are of
 * 'generation'. */
static void
cost_slowest_read(struct cost_recorder *recorder, uint32_t generation,
                  struct cost_snapshot *snap)
{
    const struct cost_kind *kind = recorder->kind;
    size_t n_words = COST_N_SLOWEST * slow_record_size(kind);
    uint64_t *words = xmalloc(n_words * sizeof *words);
    uint32_t recorder_generation, seq;
    unsigned int n_tries = 0;

    do {
        seq = recorder_read_begin(recorder, &n_tries);
        atomic_read_relaxed(&recorder->generation, &recorder_generation);
        for (size_t i = 0; i < n_words; i++) {
            atomic_read_relaxed(&recorder->slowest[i], &words[i]);
        }
    } while (recorder_read_retry(recorder, seq));

    if (recorder_generation == generation) {
        snap->slowest = xmalloc(COST_N_SLOWEST * sizeof *snap->slowest);
        for (size_t i = 0; i < COST_N_SLOWEST; i++) {
            const uint64_t *w = &words[i * slow_record_size(kind)];
            struct cost_slow_event *event = &snap->slowest[snap->n_slowest];

            if (!w[SLOW_WHEN]) {
                continue;
            }
            memset(event, 0, sizeof *event);
            event->total_ns = w[SLOW_TOTAL];
            event->when_us = w[SLOW_WHEN];
            event->class = w[SLOW_CLASS];
            event->marked = w[SLOW_MARKED];
            memcpy(event->stages, &w[SLOW_N_FIXED],
                   kind->n_stages * sizeof *event->stages);
            event->thread = xstrdup(recorder->thread);
            event->details = xmemdup(&w[SLOW_N_FIXED + kind->n_stages],
                                     (kind->n_details
                                      * sizeof *event->details));
            snap->n_slowest++;
        }
        cost_snapshot_trim_slowest(snap);
    }
    free(words);
}

static void
cost_recorder_read(struct cost_recorder *recorder, struct cost_snapshot *snap)
{
    uint32_t generation;

    atomic_read_relaxed(&recorder->account->generation, &generation);
    cost_snapshot_init(snap, recorder->kind, recorder->thread);
    for (size_t i = 0; i < recorder->kind->n_classes; i++) {
        cost_class_read(recorder, i, generation, snap);
    }
    cost_slowest_read(recorder, generation, snap);
}

/* Recorders. */

static void
cost_recorder_free(struct cost_recorder *recorder)
{
    for (size_t i = 0; i < recorder->kind->n_classes; i++) {
        struct cost_class *class;

        atomic_read_relaxed(&recorder->classes[i], &class);
        free(class);
    }
    free(recorder->classes);
    free(recorder->slowest);
    free(recorder->thread);
    cost_account_unref(recorder->account);
    free_cacheline(recorder);
}

/* Called when a thread exits that has 'recorders'. */
static void
cost_thread_exit(void *recorders)
{
    struct cost_recorder *recorder = recorders;

    while (recorder) {
        struct cost_recorder *next = recorder->next;
        int state = RECORDER_IN_USE;

        if (!atomic_compare_exchange_strong(&recorder->state, &state,
                                            RECORDER_EXITED)) {
            cost_recorder_free(recorder);
        }
        recorder = next;
    }
}

/* Frees the calling thread's recorders whose account is gone. */
static void
cost_thread_free_orphans(struct cost_thread *thread)
{
    struct cost_recorder **prev = &thread->recorders;

    while (*prev) {
        struct cost_recorder *recorder = *prev;
        int state;

        atomic_read_explicit(&recorder->state, &state, memory_order_acquire);
        if (state == RECORDER_ORPHANED) {
            *prev = recorder->next;
            if (thread->latest == recorder) {
                thread->latest = NULL;
            }
            cost_recorder_free(recorder);
        } else {
            prev = &recorder->next;
        }
    }
}

/* Returns the calling thread's name without what makes it unique over time,
 * "pmd-c01" instead of "pmd-c01/id:9". */
static char *
thread_name(void)
{
    const char *name = get_subprogram_name();

    return name[0] ? xmemdup0(name, strcspn(name, "/")) : xstrdup("main");
}

/* Returns how many events to go until one is split, at random, so that 1 in
 * 'interval' is. */
uint32_t
cost_split_gap(uint32_t interval)
{
    return interval > 1 ? 1 + random_range(2 * interval - 1) : 1;
}

static struct cost_recorder *
cost_recorder_create(struct cost_account *account)
{
    struct cost_recorder *recorder = xzalloc_cacheline(sizeof *recorder);
    const struct cost_kind *kind = account->kind;

    ovs_refcount_ref(&account->ref_cnt);
    recorder->account = account;
    recorder->kind = kind;
    recorder->values = kind->values;
    recorder->latest_class = UINT32_MAX;
    atomic_read_relaxed(&cost_config.split_interval,
                        &recorder->split_interval);
    recorder->split_in = cost_split_gap(recorder->split_interval);
    atomic_init(&recorder->seq, 0);
    atomic_init(&recorder->generation, 0);
    atomic_init(&recorder->n_pending, 0);
    for (size_t i = 0; i < COST_N_PENDING; i++) {
        atomic_init(&recorder->pending[i], 0);
    }
    recorder->slowest = xmalloc(COST_N_SLOWEST * slow_record_size(kind)
                                * sizeof *recorder->slowest);
    recorder->classes = xmalloc(kind->n_classes * sizeof *recorder->classes);
    for (size_t i = 0; i < COST_N_SLOWEST * slow_record_size(kind); i++) {
        atomic_init(&recorder->slowest[i], 0);
    }
    for (size_t i = 0; i < kind->n_classes; i++) {
        atomic_init(&recorder->classes[i], NULL);
    }
    atomic_init(&recorder->state, RECORDER_IN_USE);
    recorder->thread = thread_name();
    return recorder;
}

/* Takes new recorders of 'account' from the queue, and replaces up to
 * 'max_exited' recorders of threads that are gone by what they recorded. */
static void
cost_account_collect(struct cost_account *account, size_t max_exited)
    OVS_REQUIRES(accounts_mutex)
{
    struct cost_recorder *recorder;
    struct mpsc_queue_node *node;

    /* A recorder whose thread is just inserting it is empty so far. */
    mpsc_queue_acquire(&account->registered);
    while (mpsc_queue_poll(&account->registered, &node) == MPSC_QUEUE_ITEM) {
        recorder = CONTAINER_OF(node, struct cost_recorder, queue_node);
        ovs_list_push_back(&account->recorders, &recorder->list_node);
    }
    mpsc_queue_release(&account->registered);

    LIST_FOR_EACH_SAFE (recorder, list_node, &account->recorders) {
        int state;

        atomic_read_explicit(&recorder->state, &state, memory_order_acquire);
        if (state == RECORDER_EXITED && max_exited) {
            struct cost_snapshot snap;

            max_exited--;
            cost_recorder_read(recorder, &snap);
            cost_snapshot_merge(&account->exited, &snap);
            cost_snapshot_uninit(&snap);

            ovs_list_remove(&recorder->list_node);
            cost_recorder_free(recorder);
        }
    }
}

/* Returns the calling thread's recorder for 'account'.  Creates it if
 * necessary. */
struct cost_recorder *
cost_recorder_get(struct cost_account *account)
{
    struct cost_thread *thread = cost_thread_get();
    struct cost_recorder *recorder;

    if (thread->latest && thread->latest->account == account) {
        return thread->latest;
    }
    for (recorder = thread->recorders; recorder; recorder = recorder->next) {
        if (recorder->account == account) {
            thread->latest = recorder;
            return recorder;
        }
    }

    cost_thread_free_orphans(thread);
    recorder = cost_recorder_create(account);
    recorder->next = thread->recorders;
    thread->recorders = thread->latest = recorder;
    ovsthread_setspecific(exit_key, recorder);
    mpsc_queue_insert(&account->registered, &recorder->queue_node);

    /* Threads that come and go must not pile up when nobody asks for a report.
     * The calling thread has better things to do, so as long as more go than
     * come is enough. */
    if (!ovs_mutex_trylock(&accounts_mutex)) {
        cost_account_collect(account, 2);
        ovs_mutex_unlock(&accounts_mutex);
    }
    return recorder;
}

/* Accounts. */

/* Creates and returns a new account for events of 'kind', with 'name', which
 * should be unique among those of its kind. */
struct cost_account *
cost_account_create(const struct cost_kind *kind, const char *name)
{
    static struct ovsthread_once once = OVSTHREAD_ONCE_INITIALIZER;
    struct cost_account *account = xzalloc(sizeof *account);

    ovs_assert(kind->n_stages <= COST_MAX_STAGES);
    ovs_assert(kind->n_counters <= COST_MAX_COUNTERS);

    cost_clock_init();
    if (ovsthread_once_start(&once)) {
        ovsthread_key_create(&exit_key, cost_thread_exit);
        ovsthread_once_done(&once);
    }

    account->kind = kind;
    account->name = xstrdup(name);
    ovs_refcount_init(&account->ref_cnt);
    atomic_init(&account->generation, 1);
    mpsc_queue_init(&account->registered);
    ovs_list_init(&account->recorders);
    cost_snapshot_init(&account->exited, kind, "exited");
    account->since = time_msec();

    ovs_mutex_lock(&accounts_mutex);
    ovs_list_push_back(&accounts, &account->list_node);
    ovs_mutex_unlock(&accounts_mutex);
    return account;
}

static void
cost_account_unref(struct cost_account *account)
{
    if (ovs_refcount_unref(&account->ref_cnt) == 1) {
        mpsc_queue_destroy(&account->registered);
        cost_snapshot_uninit(&account->exited);
        free(account->name);
        free(account);
    }
}

/* Destroys 'account', which may be NULL.  No event of it may be in progress or
 * start any more. */
void
cost_account_destroy(struct cost_account *account)
{
    struct cost_recorder *recorder;

    if (!account) {
        return;
    }

    ovs_mutex_lock(&accounts_mutex);
    ovs_list_remove(&account->list_node);
    cost_account_collect(account, SIZE_MAX);
    LIST_FOR_EACH_SAFE (recorder, list_node, &account->recorders) {
        int state = RECORDER_IN_USE;

        ovs_list_remove(&recorder->list_node);
        if (!atomic_compare_exchange_strong(&recorder->state, &state,
                                            RECORDER_ORPHANED)) {
            cost_recorder_free(recorder);
        }
    }
    ovs_mutex_unlock(&accounts_mutex);
    cost_account_unref(account);
}

/* Makes accounts have what others have counted so far. */
static void
cost_accounts_refresh(void)
{
    struct cost_account *account;

    LIST_FOR_EACH (account, list_node, &accounts) {
        if (account->kind->refresh) {
            account->kind->refresh();
        }
    }
}

static bool
cost_account_matches(const struct cost_account *account,
                     const struct cost_kind *const kinds[], size_t n_kinds,
                     const char *name)
{
    for (size_t i = 0; i < n_kinds; i++) {
        if (account->kind == kinds[i]) {
            const char *at = strchr(account->name, '@');

            return (!name || !strcmp(name, account->name)
                    || (at && !strcmp(name, at + 1)));
        }
    }
    return false;
}

static int
compare_account_snapshots(const void *a_, const void *b_)
{
    const struct cost_account_snapshot *a = a_, *b = b_;

    return strcmp(a->name, b->name);
}

/* Reads the accounts named 'name', or all accounts if 'name' is NULL, whose
 * kind is one of 'kinds'.  An account that is named "TYPE@NAME" goes by the
 * name of "NAME", too.  Returns their number and stores them in '*snaps',
 * sorted by name, which the caller must free with cost_accounts_free().
 *
 * Takes no lock that recording takes. */
size_t
cost_accounts_read(const struct cost_kind *const kinds[], size_t n_kinds,
                   const char *name, struct cost_account_snapshot **snaps)
{
    struct cost_account *account;
    size_t n = 0;

    *snaps = NULL;
    ovs_mutex_lock(&accounts_mutex);
    cost_accounts_refresh();
    LIST_FOR_EACH (account, list_node, &accounts) {
        struct cost_account_snapshot *snap;
        struct cost_recorder *recorder;

        if (!cost_account_matches(account, kinds, n_kinds, name)) {
            continue;
        }
        cost_account_collect(account, SIZE_MAX);

        *snaps = xrealloc(*snaps, (n + 1) * sizeof **snaps);
        snap = &(*snaps)[n++];
        snap->kind = account->kind;
        snap->name = xstrdup(account->name);
        snap->elapsed_ms = time_msec() - account->since;
        snap->threads = xmalloc((ovs_list_size(&account->recorders) + 1)
                                * sizeof *snap->threads);
        snap->n_threads = 0;
        LIST_FOR_EACH (recorder, list_node, &account->recorders) {
            cost_recorder_read(recorder, &snap->threads[snap->n_threads++]);
        }
        cost_snapshot_init(&snap->threads[snap->n_threads], account->kind,
                           account->exited.thread);
        cost_snapshot_merge(&snap->threads[snap->n_threads++],
                            &account->exited);

        cost_snapshot_init(&snap->total, account->kind, NULL);
        for (size_t i = 0; i < snap->n_threads; i++) {
            cost_snapshot_merge(&snap->total, &snap->threads[i]);
        }
    }
    ovs_mutex_unlock(&accounts_mutex);
    if (n) {
        qsort(*snaps, n, sizeof **snaps, compare_account_snapshots);
    }
    return n;
}

/* Frees the 'n' snapshots in 'snaps'. */
void
cost_accounts_free(struct cost_account_snapshot *snaps, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < snaps[i].n_threads; j++) {
            cost_snapshot_uninit(&snaps[i].threads[j]);
        }
        free(snaps[i].threads);
        cost_snapshot_uninit(&snaps[i].total);
        free(snaps[i].name);
    }
    free(snaps);
}

/* Clears the accounts that cost_accounts_read() would read.  Returns their
 * number.  An event that is in progress counts when it stops. */
size_t
cost_accounts_clear(const struct cost_kind *const kinds[], size_t n_kinds,
                    const char *name)
{
    struct cost_account *account;
    size_t n = 0;

    ovs_mutex_lock(&accounts_mutex);
    cost_accounts_refresh();
    LIST_FOR_EACH (account, list_node, &accounts) {
        uint32_t generation;

        if (!cost_account_matches(account, kinds, n_kinds, name)) {
            continue;
        }
        atomic_read_relaxed(&account->generation, &generation);
        generation++;
        atomic_store_relaxed(&account->generation,
                             generation ? generation : 1);
        cost_account_collect(account, SIZE_MAX);
        cost_snapshot_clear(&account->exited);
        account->since = time_msec();
        n++;
    }
    ovs_mutex_unlock(&accounts_mutex);
    return n;
}

/* Recording. */

/* Starts writing anything of 'recorder', which belongs to the calling thread,
 * but more pending events. */
static void
recorder_write_begin(struct cost_recorder *recorder)
{
    uint32_t seq;

    atomic_read_relaxed(&recorder->seq, &seq);
    atomic_store_relaxed(&recorder->seq, seq + 1);
    atomic_thread_fence(memory_order_release);
}

static void
recorder_write_end(struct cost_recorder *recorder)
{
    uint32_t seq;

    atomic_read_relaxed(&recorder->seq, &seq);
    atomic_store_explicit(&recorder->seq, seq + 1, memory_order_release);
}

static void
cost_class_clear(struct cost_class *class, const struct cost_kind *kind)
{
    for (size_t i = 0; i < kind->n_stages; i++) {
        cost_hist_clear(&class->stages[i]);
    }
    for (size_t i = 0; i < kind->n_counters; i++) {
        atomic_store_relaxed(&class->counters[i], 0);
    }
}

/* Forgets all that 'recorder' has, and starts with its account's present
 * generation. */
static void
cost_recorder_clear(struct cost_recorder *recorder)
{
    const struct cost_kind *kind = recorder->kind;
    uint32_t generation;

    recorder_write_begin(recorder);
    atomic_read_relaxed(&recorder->account->generation, &generation);
    atomic_store_relaxed(&recorder->generation, generation);
    atomic_store_relaxed(&recorder->n_pending, 0);
    for (size_t i = 0; i < kind->n_classes; i++) {
        struct cost_class *class;

        atomic_read_relaxed(&recorder->classes[i], &class);
        if (class) {
            cost_class_clear(class, kind);
        }
    }
    for (size_t i = 0; i < COST_N_SLOWEST; i++) {
        atomic_store_relaxed(&recorder->slowest[i * slow_record_size(kind)
                                                + SLOW_WHEN], 0);
    }
    recorder->slow_threshold = 0;
    recorder->slow_next = 0;
    recorder_write_end(recorder);
}

/* Returns what 'recorder' has of 'class_idx', which it creates if
 * necessary. */
static struct cost_class *
cost_class_get(struct cost_recorder *recorder, size_t class_idx)
{
    const struct cost_kind *kind = recorder->kind;
    struct cost_class *class;

    atomic_read_relaxed(&recorder->classes[class_idx], &class);
    if (!class) {
        class = xzalloc(sizeof *class
                        + kind->n_stages * sizeof class->stages[0]);
        cost_class_clear(class, kind);
        atomic_store_explicit(&recorder->classes[class_idx], class,
                              memory_order_release);
    }
    return class;
}

/* Returns true if all that 'recorder' has is of its account's generation. */
static bool
cost_recorder_is_current(struct cost_recorder *recorder)
{
    uint32_t generation, recorder_generation;

    atomic_read_relaxed(&recorder->account->generation, &generation);
    atomic_read_relaxed(&recorder->generation, &recorder_generation);
    return generation == recorder_generation;
}

/* Forgets all that 'recorder' has if it is of an earlier generation, and makes
 * sure that it has 'class'.  Returns the class. */
static struct cost_class * COST_COLD
cost_recorder_prepare(struct cost_recorder *recorder, size_t class)
{
    if (!cost_recorder_is_current(recorder)) {
        cost_recorder_clear(recorder);
    }
    recorder->latest_class = class;
    return cost_class_get(recorder, class);
}

/* Adds the pending events of 'recorder' to its histograms and counters. */
static void
cost_recorder_flush(struct cost_recorder *recorder)
{
    size_t total = recorder->kind->n_stages - 1;
    struct cost_hist_batch batch;
    struct cost_class *class = NULL;
    uint32_t class_idx = 0, n;

    recorder_write_begin(recorder);
    atomic_read_relaxed(&recorder->n_pending, &n);
    for (size_t i = 0; i < n;) {
        uint64_t total_ns, head;

        atomic_read_relaxed(&recorder->pending[i++], &total_ns);
        atomic_read_relaxed(&recorder->pending[i++], &head);

        if (!class || pending_class(head) != class_idx) {
            if (class) {
                cost_hist_batch_end(&batch);
            }
            class_idx = pending_class(head);
            atomic_read_relaxed(&recorder->classes[class_idx], &class);
            cost_hist_batch_start(&batch, &class->stages[total]);
        }

        cost_hist_batch_add(&batch, total_ns);
        if (pending_counter(head) != COST_NO_COUNTER) {
            cost_counter_add(&class->counters[pending_counter(head)], 1);
        }
        for (uint16_t marked = pending_marked(head); OVS_UNLIKELY(marked);
             marked = zero_rightmost_1bit(marked)) {
            uint64_t stage;

            atomic_read_relaxed(&recorder->pending[i++], &stage);
            cost_hist_add(&class->stages[raw_ctz(marked)], stage);
        }
    }
    if (class) {
        cost_hist_batch_end(&batch);
    }
    atomic_store_relaxed(&recorder->n_pending, 0);
    recorder_write_end(recorder);
}

/* Returns 'stage' of 'event' in ns, if it is a time, otherwise its value. */
static uint64_t
event_stage(const struct cost_event *event, size_t stage, uint16_t values)
{
    return (values & (1u << stage)
            ? event->stages[stage] : cost_clock_ns(event->stages[stage]));
}

/* Chooses the event of 'recorder' to be split after this one, which is split,
 * for 'interval', the configured one. */
void
cost_recorder_split__(struct cost_recorder *recorder, uint32_t interval)
{
    recorder->split_interval = interval;
    recorder->split_in = cost_split_gap(interval);
}

/* Puts 'event', which took 'total_ns', among the slowest of 'recorder', in
 * place of the fastest of them. */
static void
cost_record_slow(struct cost_recorder *recorder,
                 const struct cost_event *event, uint64_t total_ns,
                 size_t class, const struct cost_details *from)
{
    const struct cost_kind *kind = recorder->kind;
    size_t record_size = slow_record_size(kind);
    uint64_t details[kind->n_details + 1];
    uint64_t when_us = time_wall_usec();
    atomic_uint64_t *w;

    if (from->get) {
        from->get(details, from->aux, from->n);
    } else {
        memset(details, 0, sizeof details);
    }

    recorder_write_begin(recorder);
    w = &recorder->slowest[recorder->slow_next * record_size];
    atomic_store_relaxed(&w[SLOW_TOTAL], total_ns);
    atomic_store_relaxed(&w[SLOW_WHEN], when_us);
    atomic_store_relaxed(&w[SLOW_CLASS], class);
    atomic_store_relaxed(&w[SLOW_MARKED], event->marked);
    w += SLOW_N_FIXED;
    for (size_t i = 0; i < kind->n_stages; i++) {
        atomic_store_relaxed(&w[i], (event->marked & (1u << i)
                                     ? event_stage(event, i, kind->values)
                                     : 0));
    }
    w += kind->n_stages;
    for (size_t i = 0; i < kind->n_details; i++) {
        atomic_store_relaxed(&w[i], details[i]);
    }

    /* Find the record to replace next: an unused one or the fastest. */
    uint64_t min_ns = UINT64_MAX;

    for (size_t i = 0; i < COST_N_SLOWEST; i++) {
        uint64_t when, ns;

        w = &recorder->slowest[i * record_size];
        atomic_read_relaxed(&w[SLOW_WHEN], &when);
        atomic_read_relaxed(&w[SLOW_TOTAL], &ns);
        if (!when) {
            recorder->slow_next = i;
            min_ns = 0;
            break;
        } else if (ns < min_ns) {
            recorder->slow_next = i;
            min_ns = ns;
        }
    }
    recorder->slow_threshold = min_ns;
    recorder_write_end(recorder);
}

static void cost_record__(struct cost_recorder *, size_t class,
                          const struct cost_event *,
                          const struct cost_details *);

/* Does what cost_record__() does when 'recorder' is not ready for an event of
 * 'class'. */
static void COST_COLD
cost_record_first(struct cost_recorder *recorder, size_t class,
                  const struct cost_event *event,
                  const struct cost_details *details)
{
    cost_recorder_prepare(recorder, class);
    cost_record__(recorder, class, event, details);
}

/* Does what cost_record__() has to do now and then, after appending 'event' to
 * those that are pending. */
static void COST_COLD
cost_record_rest(struct cost_recorder *recorder, size_t class,
                 const struct cost_event *event,
                 const struct cost_details *details)
{
    uint64_t total_ns = cost_clock_ns(event->total);
    uint32_t n;

    atomic_read_relaxed(&recorder->n_pending, &n);
    if (n > COST_N_PENDING - PENDING_MAX) {
        cost_recorder_flush(recorder);
    }
    if (total_ns > recorder->slow_threshold) {
        cost_record_slow(recorder, event, total_ns, class, details);
    }
}

/* Records 'event' in 'recorder', which belongs to the calling thread. */
static void
cost_record__(struct cost_recorder *recorder, size_t class,
              const struct cost_event *event,
              const struct cost_details *details)
{
    uint64_t total_ns = cost_clock_ns(event->total);
    uint32_t n;

    if (OVS_UNLIKELY(class != recorder->latest_class
                     || !cost_recorder_is_current(recorder))) {
        cost_record_first(recorder, class, event, details);
        return;
    }

    atomic_read_relaxed(&recorder->n_pending, &n);
    atomic_store_relaxed(&recorder->pending[n++], total_ns);
    atomic_store_relaxed(&recorder->pending[n++],
                         pending_head(class, event->counter, event->marked));
    for (uint16_t marked = event->marked; OVS_UNLIKELY(marked);
         marked = zero_rightmost_1bit(marked)) {
        atomic_store_relaxed(&recorder->pending[n++],
                             event_stage(event, raw_ctz(marked),
                                         recorder->values));
    }
    atomic_store_explicit(&recorder->n_pending, n, memory_order_release);

    if (OVS_UNLIKELY(n > COST_N_PENDING - PENDING_MAX
                     || total_ns > recorder->slow_threshold)) {
        cost_record_rest(recorder, class, event, details);
    }
}

/* Takes the time of 'timer''s event, which ends 'now', off that of the
 * enclosing one. */
static void
cost_timer_exclude(const struct cost_timer *timer, uint64_t now)
{
    struct cost_timer *outer = timer->outer;

    if (OVS_UNLIKELY(outer && outer->recorder)) {
        outer->start += now - timer->begin;
        if (outer->split) {
            outer->last += now - timer->begin;
        }
    }
}

/* Ends 'timer''s event, which was left open, 'now'.
 *
 * This costs some 10 ns, or 25 ns for an event that is split.  An event that
 * is among the slowest so far, or the first of its class in this thread, takes
 * some 100 ns longer. */
void
cost_timer_end__(struct cost_timer *timer, uint64_t now)
{
    cost_timer_exclude(timer, now);
    if (OVS_UNLIKELY(timer->split)) {
        cost_timer_mark__(timer, timer->stage, now);
    }
    timer->open = false;
    timer->event.total = cost_clock_between(timer->start, now);
    cost_record__(timer->recorder, timer->class, &timer->event,
                  &timer->details);
}

/* Records 'event', which the caller has measured, in 'account' for 'class'.
 * Should it be among the slowest, gets 'details', too.  Removes those stages
 * from 'event' that are times, unless it is to be split or kind->always_split.
 *
 * If 'keep' is nonnull, '*keep' is initially NULL, used by the calling thread
 * only, and does not outlive 'account'.  It keeps the thread's recorder, which
 * would otherwise have to be searched for among those of all accounts that the
 * thread uses in turn. */
void
cost_record(struct cost_account *account, struct cost_recorder **keep,
            size_t class, struct cost_event *event,
            const struct cost_details *details)
{
    struct cost_recorder *recorder;

    if (!cost_enabled()) {
        return;
    }

    recorder = keep && *keep ? *keep : cost_recorder_get(account);
    if (keep) {
        *keep = recorder;
    }
    if (!recorder->kind->always_split && !cost_recorder_split(recorder)) {
        event->marked &= recorder->values;
    }
    cost_record__(recorder, class, event, details);
}

/* Does what cost_timer_cancel() does while accounting is on. */
void
cost_timer_cancel__(struct cost_timer *timer)
{
    struct cost_thread *thread = cost_thread_get();

    ovs_assert(thread->timer == timer);
    thread->timer = timer->outer;
    if (timer->outer) {
        cost_timer_exclude(timer, cost_timer_now(timer));
    }
}

/* Adds 'n' to the account's 'counter' for 'class', for something that happened
 * outside of an event. */
void
cost_count(struct cost_account *account, size_t class, size_t counter,
           uint64_t n)
{
    if (cost_enabled()) {
        struct cost_recorder *recorder = cost_recorder_get(account);
        struct cost_class *c = cost_recorder_prepare(recorder, class);

        recorder_write_begin(recorder);
        cost_counter_add(&c->counters[counter], n);
        recorder_write_end(recorder);
    }
}
