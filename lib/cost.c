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

#include "cost-memory.h"
#include "coverage.h"
#include "openvswitch/vlog.h"
#include "simap.h"
#include "smap.h"
#include "sset.h"
#include "timeval.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(cost);

COVERAGE_DEFINE(cost_refused);

/* For a function that recording an event calls now and then: were it inlined,
 * recording would have to save registers for it each time. */
#if __GNUC__
#define COST_COLD __attribute__((__noinline__, __cold__))
#else
#define COST_COLD
#endif

/* A record in a 'struct cost_slowest': these words, followed by one for each
 * of the kind's stages but the last one, and its 'n_details' words. */
enum {
    SLOW_TOTAL,                         /* ns. */
    SLOW_WHEN,                          /* us since the Epoch, 0 if unused. */
    SLOW_EXCLUDED,                      /* ns. */
    SLOW_HEAD,                          /* See event_head(). */
    SLOW_N_FIXED
};

/* The slowest events of a recorder. */
struct cost_slowest {
    size_t n;                           /* Records. */
    atomic_uint64_t words[];
};

/* Words of a tally that follow those of its numbers. */
enum { TALLY_ABOVE, TALLY_SUM, TALLY_SUM_SQ, TALLY_MAX, TALLY_N_EXTRA };

struct cost_account {
    struct ovs_list list_node;          /* In 'accounts'. */
    const struct cost_kind *kind;
    char *name;
    char *datapath;                     /* Or NULL. */
    struct ovs_refcount ref_cnt;        /* Creator and readers. */

    struct ovs_mutex mutex;
    struct cost_recorder **recorders OVS_GUARDED;
    size_t n_recorders OVS_GUARDED;
    size_t allocated_recorders OVS_GUARDED;
    struct cost_snapshot *exited OVS_GUARDED;  /* Of recorders that are gone,
                                                * or NULL. */
    bool cleared OVS_GUARDED;
    long long int since_us OVS_GUARDED; /* Latest clear. */
    long long int since_ms OVS_GUARDED; /* Same, time_msec(). */
};

/* A kind that there is, or has been, an account of. */
struct known_kind {
    struct cost_sum deleted;            /* Of accounts that are destroyed. */
    long long int since_us;             /* When any account was cleared. */
};

/* Protects the list, and the kinds.  Recording never takes it. */
static struct ovs_mutex accounts_mutex = OVS_MUTEX_INITIALIZER;
static struct ovs_list accounts OVS_GUARDED_BY(accounts_mutex)
    = OVS_LIST_INITIALIZER(&accounts);
static struct known_kind *known_kinds OVS_GUARDED_BY(accounts_mutex);
static size_t n_known_kinds OVS_GUARDED_BY(accounts_mutex);
static size_t n_accounts OVS_GUARDED_BY(accounts_mutex);

/* Settings of all reports, and the latest configuration. */
static struct ovs_mutex config_mutex = OVS_MUTEX_INITIALIZER;
static struct ovs_list configs OVS_GUARDED_BY(config_mutex)
    = OVS_LIST_INITIALIZER(&configs);
static struct smap settings OVS_GUARDED_BY(config_mutex)
    = SMAP_INITIALIZER(&settings);

DEFINE_EXTERN_PER_THREAD_DATA(cost_thread, { NULL });

/* No event is of its class. */
#define NO_KEY UINT32_MAX
struct cost_data cost_no_data = { .latest_idx = NO_KEY };

/* In a recorder's 'pending', an event is two words, its total in ns and a head
 * that consists of the following, and a word with the ns, or value, of each
 * stage that is marked. */
enum { PENDING_MAX = 2 + COST_MAX_STAGES };

static uint64_t
event_head(uint32_t class, uint8_t counter, uint16_t marked)
{
    return (uint64_t) marked << 40 | (uint64_t) counter << 32 | class;
}

static uint32_t
head_class(uint64_t head)
{
    return head;
}

static uint8_t
head_counter(uint64_t head)
{
    return head >> 32;
}

static uint16_t
head_marked(uint64_t head)
{
    return head >> 40;
}

static size_t
slow_record_size(const struct cost_kind *kind)
{
    return SLOW_N_FIXED + kind->n_stages - 1 + kind->n_details;
}

/* Memory. */

static size_t
counters_size(const struct cost_kind *kind)
{
    return kind->n_counters * sizeof(atomic_uint64_t);
}

static size_t
tally_size(const struct cost_kind *kind)
{
    return ((kind->tally_layout->n_edges + TALLY_N_EXTRA)
            * sizeof(atomic_uint64_t));
}

static size_t
class_size(const struct cost_kind *kind)
{
    return (sizeof(struct cost_class)
            + ((kind->n_tally_rows + kind->n_stages)
               * sizeof(OVSRCU_TYPE(void *))));
}

static size_t
classes_size(size_t n)
{
    return (sizeof(struct cost_classes)
            + n * sizeof(OVSRCU_TYPE(struct cost_class *)));
}

static size_t
slowest_size(const struct cost_kind *kind, size_t n)
{
    return (sizeof(struct cost_slowest)
            + n * slow_record_size(kind) * sizeof(atomic_uint64_t));
}

static size_t
data_size(const struct cost_kind *kind)
{
    return ROUND_UP(sizeof(struct cost_data)
                    + kind->n_pending * sizeof(atomic_uint64_t),
                    CACHE_LINE_SIZE);
}

/* The parts of a class. */

static atomic_uint64_t *
class_tally(const struct cost_class *class, size_t row)
{
    return ovsrcu_get(void *, &class->parts[row]);
}

static struct cost_hist *
class_stage(const struct cost_kind *kind, const struct cost_class *class,
            size_t stage)
{
    return ovsrcu_get(void *, &class->parts[kind->n_tally_rows + stage]);
}

static struct cost_classes *
data_classes(const struct cost_data *data)
{
    return ovsrcu_get(struct cost_classes *, &data->classes);
}

static struct cost_class *
data_class(const struct cost_data *data, size_t i)
{
    return ovsrcu_get(struct cost_class *, &data_classes(data)->classes[i]);
}

static size_t
data_n_classes(const struct cost_data *data)
{
    const struct cost_classes *classes = data_classes(data);

    return classes ? classes->n : 0;
}

static void
cost_class_free(const struct cost_kind *kind, struct cost_class *class)
{
    if (!class) {
        return;
    }
    for (size_t i = 0; i < kind->n_tally_rows; i++) {
        cost_free(class_tally(class, i));
    }
    for (size_t i = 0; i < kind->n_stages; i++) {
        struct cost_hist *hist = class_stage(kind, class, i);

        if (hist) {
            cost_hist_uninit(hist);
            cost_free(hist);
        }
    }
    cost_free(ovsrcu_get(atomic_uint64_t *, &class->counters));
    cost_free(class);
}

/* Returns what 'recorder' has recorded, or NULL. */
static struct cost_data *
recorder_data(const struct cost_recorder *recorder)
{
    struct cost_data *data = ovsrcu_get(struct cost_data *, &recorder->data);

    return data != &cost_no_data ? data : NULL;
}

/* Frees 'data', which no thread can be using any more. */
static void
cost_data_free(struct cost_data *data)
{
    for (size_t i = 0; i < data_n_classes(data); i++) {
        cost_class_free(data->kind, data_class(data, i));
    }
    cost_free(data_classes(data));
    cost_free(ovsrcu_get(struct cost_slowest *, &data->slowest));
    cost_free(data);
}

/* Takes away from 'recorder' what it has recorded, if anything.  Its thread
 * may be about to add an event, which is gone, too. */
static void
cost_recorder_take_data(struct cost_recorder *recorder)
{
    struct cost_data *data = ovsrcu_get(struct cost_data *, &recorder->data);

    /* Only the recording thread makes it anything else. */
    while (data != &cost_no_data
           && !atomic_compare_exchange_strong(&recorder->data.p, &data,
                                              &cost_no_data)) {
        continue;
    }
    if (data != &cost_no_data) {
        ovsrcu_postpone(cost_data_free, data);
    }
}

/* Configuration. */

/* Returns the split interval that is configured as 'key', 'default_interval'
 * if none is. */
static uint32_t
get_interval(const char *key, uint32_t default_interval)
    OVS_REQUIRES(config_mutex)
{
    unsigned long long int interval;

    interval = smap_get_ullong(&settings, key, default_interval);
    if (interval < 1 || interval > COST_MAX_SPLIT_INTERVAL) {
        static struct vlog_rate_limit rl = VLOG_RATE_LIMIT_INIT(1, 5);

        VLOG_WARN_RL(&rl, "other_config:%s=%s is not between 1 and %d, "
                     "using %"PRIu32, key, smap_get_def(&settings, key, ""),
                     COST_MAX_SPLIT_INTERVAL, default_interval);
        interval = default_interval;
    }
    return interval;
}

/* Returns true if "cost-accounting" is true, or has 'report' in its list. */
static bool
is_enabled(const char *report)
    OVS_REQUIRES(config_mutex)
{
    const char *value = smap_get_def(&settings, "cost-accounting", "true");
    struct sset reports;
    bool enabled;

    if (!strcasecmp(value, "true") || !strcasecmp(value, "false")) {
        return !strcasecmp(value, "true");
    }
    sset_init(&reports);
    sset_from_delimited_string(&reports, value, ", ");
    enabled = sset_contains(&reports, report);
    sset_destroy(&reports);
    return enabled;
}

static void
cost_config_apply(struct cost_config *config)
    OVS_REQUIRES(config_mutex)
{
    char *key = xasprintf("cost-split-interval-%s", config->name);
    bool enabled = is_enabled(config->name);
    uint32_t interval = config->default_interval;

    if (smap_get(&settings, "cost-split-interval")) {
        interval = get_interval("cost-split-interval", interval);
    }
    interval = get_interval(key, interval);
    free(key);

    if (!enabled) {
        interval = 0;
    }
    if (config->refresh && enabled != cost_enabled(config)) {
        config->refresh();
    }
    if (config->apply) {
        config->apply(&settings, enabled);
    }
    if (interval != cost_split_interval(config)) {
        if (enabled) {
            VLOG_INFO("cost accounting of %s on, 1 in %"PRIu32" events split",
                      config->name, interval);
        } else {
            VLOG_INFO("cost accounting of %s off", config->name);
        }
    }
    atomic_store_explicit(&config->split_interval, interval,
                          memory_order_release);
}

/* Warns of names in "cost-accounting" that no report has. */
static void
check_reports(void)
    OVS_REQUIRES(config_mutex)
{
    const char *value = smap_get_def(&settings, "cost-accounting", "true");
    const struct cost_config *config;
    struct sset reports;
    const char *name;

    if (!strcasecmp(value, "true") || !strcasecmp(value, "false")) {
        return;
    }
    sset_init(&reports);
    sset_from_delimited_string(&reports, value, ", ");
    LIST_FOR_EACH (config, list_node, &configs) {
        sset_find_and_delete(&reports, config->name);
    }
    SSET_FOR_EACH (name, &reports) {
        VLOG_WARN("other_config:cost-accounting: no report \"%s\"", name);
    }
    sset_destroy(&reports);
}

/* Applies the settings whose names start with "cost-" from 'other_config', the
 * column in the Open_vSwitch table (see ovs-vswitchd.conf.db(5)).  Takes
 * effect with the next event of each thread. */
void
cost_configure(const struct smap *other_config)
{
    struct cost_config *config;
    struct smap_node *node;
    struct smap new;

    smap_init(&new);
    SMAP_FOR_EACH (node, other_config) {
        if (!strncmp(node->key, "cost-", 5)) {
            smap_add(&new, node->key, node->value);
        }
    }

    ovs_mutex_lock(&config_mutex);
    if (!smap_equal(&settings, &new)) {
        smap_destroy(&settings);
        smap_clone(&settings, &new);
        LIST_FOR_EACH (config, list_node, &configs) {
            cost_config_apply(config);
        }
        check_reports();
    }
    ovs_mutex_unlock(&config_mutex);
    smap_destroy(&new);
}

/* Makes the settings apply to 'config', which is static, if they do not
 * yet. */
void
cost_config_register(struct cost_config *config)
{
    const struct cost_config *other;

    ovs_mutex_lock(&config_mutex);
    LIST_FOR_EACH (other, list_node, &configs) {
        if (other == config) {
            goto out;
        }
    }
    ovs_list_push_back(&configs, &config->list_node);
    cost_config_apply(config);
out:
    ovs_mutex_unlock(&config_mutex);
}

/* Snapshots. */

/* Makes 'snap' empty, for 'thread', or the empty string if it is to be that of
 * several.  The caller must free it with cost_snapshot_uninit(). */
void
cost_snapshot_init(struct cost_snapshot *snap, const struct cost_kind *kind,
                   const char *thread)
{
    snap->kind = kind;
    ovs_strlcpy(snap->thread, thread, sizeof snap->thread);
    snap->classes = xcalloc(kind->n_classes, sizeof *snap->classes);
    snap->slowest = NULL;
    snap->n_slowest = 0;
}

static void
cost_snapshot_remove_class(struct cost_snapshot *snap, size_t idx)
{
    struct cost_class_snapshot *class = snap->classes[idx];

    if (class) {
        for (size_t i = 0; i < snap->kind->n_stages; i++) {
            free(class->stages[i]);
        }
        free(class);
        snap->classes[idx] = NULL;
    }
}

/* Frees what 'snap' has. */
void
cost_snapshot_uninit(struct cost_snapshot *snap)
{
    for (size_t i = 0; i < snap->kind->n_classes; i++) {
        cost_snapshot_remove_class(snap, i);
    }
    for (size_t i = 0; i < snap->n_slowest; i++) {
        free(snap->slowest[i].details);
    }
    free(snap->slowest);
    free(snap->classes);
}

static void
cost_snapshot_destroy(struct cost_snapshot *snap)
{
    if (snap) {
        cost_snapshot_uninit(snap);
        free(snap);
    }
}

static struct cost_class_snapshot *
cost_snapshot_get_class(struct cost_snapshot *snap, size_t class)
{
    if (!snap->classes[class]) {
        snap->classes[class] = xzalloc(sizeof *snap->classes[class]);
    }
    return snap->classes[class];
}

/* The layout of what 'stage' of events of 'kind' is counted in. */
static const struct cost_hist_layout *
stage_layout(const struct cost_kind *kind, size_t stage)
{
    return (kind->n_tally_rows && stage == kind->tally_stage
            ? kind->tally_layout : &cost_hist_exponential);
}

static struct cost_hist_snapshot *
cost_class_get_stage(const struct cost_kind *kind,
                     struct cost_class_snapshot *class, size_t stage)
{
    if (!class->stages[stage]) {
        class->stages[stage] = xmalloc(sizeof *class->stages[stage]);
        cost_hist_snapshot_init(class->stages[stage],
                                stage_layout(kind, stage));
    }
    return class->stages[stage];
}

/* Returns true if 'class' has nothing in it. */
static bool
cost_class_is_empty(const struct cost_kind *kind,
                    const struct cost_class_snapshot *class)
{
    if (class->n_events) {
        return false;
    }
    for (size_t i = 0; i < kind->n_counters; i++) {
        if (class->counters[i]) {
            return false;
        }
    }
    return true;
}

/* Returns true if 'snap' has nothing in it. */
bool
cost_snapshot_is_empty(const struct cost_snapshot *snap)
{
    for (size_t i = 0; i < snap->kind->n_classes; i++) {
        if (snap->classes[i]) {
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
    while (snap->n_slowest > snap->kind->n_slowest) {
        free(snap->slowest[--snap->n_slowest].details);
    }
}

/* Adds 'src' to 'dst', which are of the same kind. */
void
cost_snapshot_merge(struct cost_snapshot *dst, const struct cost_snapshot *src)
{
    const struct cost_kind *kind = dst->kind;

    for (size_t i = 0; i < kind->n_classes; i++) {
        const struct cost_class_snapshot *from = src->classes[i];
        struct cost_class_snapshot *to;

        if (!from) {
            continue;
        }
        to = cost_snapshot_get_class(dst, i);
        to->n_events += from->n_events;
        for (size_t j = 0; j < kind->n_stages; j++) {
            if (from->stages[j]) {
                cost_hist_snapshot_merge(cost_class_get_stage(kind, to, j),
                                         from->stages[j]);
            }
        }
        for (size_t j = 0; j < kind->n_counters; j++) {
            to->counters[j] += from->counters[j];
        }
    }

    if (src->n_slowest) {
        dst->slowest = xrealloc(dst->slowest,
                                ((dst->n_slowest + src->n_slowest)
                                 * sizeof *dst->slowest));
        for (size_t i = 0; i < src->n_slowest; i++) {
            struct cost_slow_event *event = &dst->slowest[dst->n_slowest++];

            *event = src->slowest[i];
            event->details = xmemdup(event->details,
                                     kind->n_details * sizeof *event->details);
        }
        cost_snapshot_trim_slowest(dst);
    }
}

/* Stores in 'hist' the times that 'stage' took in events of 'class', or of all
 * classes if that is COST_ALL_CLASSES. */
void
cost_snapshot_stage(const struct cost_snapshot *snap, size_t class,
                    size_t stage, struct cost_hist_snapshot *hist)
{
    bool empty = true;

    for (size_t i = 0; i < snap->kind->n_classes; i++) {
        if (snap->classes[i] && snap->classes[i]->stages[stage]
            && (class == COST_ALL_CLASSES || class == i)) {
            if (empty) {
                *hist = *snap->classes[i]->stages[stage];
                empty = false;
            } else {
                cost_hist_snapshot_merge(hist,
                                         snap->classes[i]->stages[stage]);
            }
        }
    }
    if (empty) {
        cost_hist_snapshot_init(hist, stage_layout(snap->kind, stage));
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
        if (snap->classes[i] && (class == COST_ALL_CLASSES || class == i)) {
            n += snap->classes[i]->counters[counter];
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
            n += snap->classes[i]->n_events;
        }
    }
    return n;
}

/* Reading what is recorded. */

/* Waits until 'data' is not being written and returns a value for
 * data_read_retry().  '*n_tries' counts the tries. */
static uint32_t
data_read_begin(struct cost_data *data, unsigned int *n_tries)
{
    for (;;) {
        uint32_t seq;

        /* The writer writes for less than a microsecond.  If it does not end
         * soon, it is not running. */
        (*n_tries)++;
        if (*n_tries % 64 == 0) {
            xnanosleep_no_quiesce(10000);
        }
        atomic_read_explicit(&data->seq, &seq, memory_order_acquire);
        if (!(seq & 1)) {
            return seq;
        }
    }
}

/* Returns true if 'data' was written since data_read_begin() returned 'seq',
 * so that what has been read from it must be read again.  Events that were
 * appended to those that are pending don't matter, nor do tallies. */
static bool
data_read_retry(struct cost_data *data, uint32_t seq)
{
    uint32_t now;

    atomic_thread_fence(memory_order_acquire);
    atomic_read_relaxed(&data->seq, &now);
    return now != seq;
}

/* Reads 'tally', whose events incremented counter 'row', into 'snap'. */
static void
tally_read(const struct cost_kind *kind, atomic_uint64_t *tally, size_t row,
           struct cost_class_snapshot *snap)
{
    struct cost_hist_snapshot *hist
        = cost_class_get_stage(kind, snap, kind->tally_stage);
    size_t n_edges = kind->tally_layout->n_edges;
    uint64_t extra[TALLY_N_EXTRA];
    uint64_t before = hist->count;

    for (size_t i = 0; i < n_edges; i++) {
        uint64_t n;

        atomic_read_relaxed(&tally[i], &n);
        cost_hist_snapshot_add(hist, i, n);
    }
    for (size_t i = 0; i < TALLY_N_EXTRA; i++) {
        atomic_read_relaxed(&tally[n_edges + i], &extra[i]);
    }
    if (extra[TALLY_ABOVE]) {
        struct cost_hist_snapshot above;

        cost_hist_snapshot_init(&above, kind->tally_layout);
        above.count = above.buckets[n_edges] = extra[TALLY_ABOVE];
        above.sum = extra[TALLY_SUM];
        above.sum_sq.u64.lo = extra[TALLY_SUM_SQ];
        above.min = n_edges;
        above.max = extra[TALLY_MAX];
        cost_hist_snapshot_merge(hist, &above);
    }
    snap->counters[row] += hist->count - before;
    snap->n_events += hist->count - before;
}

/* Adds those of the 'n' words of pending events that are of 'class' to
 * 'snap'. */
static void
add_pending(const struct cost_kind *kind, size_t class,
            const uint64_t *words, size_t n, struct cost_class_snapshot *snap)
{
    for (size_t i = 0; i < n;) {
        uint64_t total_ns = words[i++];
        uint64_t head = words[i++];
        uint16_t marked = head_marked(head);

        if (head_class(head) != class) {
            i += count_1bits(marked);
            continue;
        }
        snap->n_events++;
        cost_hist_snapshot_add(cost_class_get_stage(kind, snap,
                                                    kind->n_stages - 1),
                               total_ns, 1);
        if (head_counter(head) != COST_NO_COUNTER) {
            snap->counters[head_counter(head)]++;
        }
        for (; marked; marked = zero_rightmost_1bit(marked)) {
            cost_hist_snapshot_add(cost_class_get_stage(kind, snap,
                                                        raw_ctz(marked)),
                                   words[i++], 1);
        }
    }
}

/* Reads the counters and histograms of 'class', as they are at the moment,
 * into 'snap'. */
static void
class_read(const struct cost_kind *kind, const struct cost_class *class,
           struct cost_class_snapshot *snap)
{
    atomic_uint64_t *counters = ovsrcu_get(atomic_uint64_t *,
                                           &class->counters);

    snap->n_events = 0;
    memset(snap->counters, 0, sizeof snap->counters);
    for (size_t i = 0; counters && i < kind->n_counters; i++) {
        atomic_read_relaxed(&counters[i], &snap->counters[i]);
    }
    for (size_t i = 0; i < kind->n_stages; i++) {
        const struct cost_hist *hist = class_stage(kind, class, i);

        if (hist) {
            cost_hist_read(hist, cost_class_get_stage(kind, snap, i));
        } else if (snap->stages[i]) {
            cost_hist_snapshot_init(snap->stages[i], stage_layout(kind, i));
        }
    }
    for (size_t i = 0; i < kind->n_tally_rows; i++) {
        atomic_uint64_t *tally = class_tally(class, i);

        if (tally) {
            tally_read(kind, tally, i, snap);
        }
    }
    if (!kind->n_tally_rows && snap->stages[kind->n_stages - 1]) {
        snap->n_events = snap->stages[kind->n_stages - 1]->count;
    }
}

/* Adds what 'data' has of class 'idx' to 'snap', which has nothing of it. */
static void
data_read_class(struct cost_data *data, size_t idx, struct cost_snapshot *snap)
{
    const struct cost_kind *kind = data->kind;
    const struct cost_class *class = data_class(data, idx);
    uint64_t *pending = xmalloc(kind->n_pending * sizeof *pending);
    struct cost_class_snapshot *to;
    unsigned int n_tries = 0;
    uint32_t seq, n_pending;

    if (!class) {
        free(pending);
        return;
    }

    to = cost_snapshot_get_class(snap, idx);
    do {
        seq = data_read_begin(data, &n_tries);
        class_read(kind, class, to);
        atomic_read_explicit(&data->n_pending, &n_pending,
                             memory_order_acquire);
        for (size_t i = 0; i < n_pending; i++) {
            atomic_read_relaxed(&data->pending[i], &pending[i]);
        }
    } while (data_read_retry(data, seq));

    add_pending(kind, idx, pending, n_pending, to);
    free(pending);
    if (cost_class_is_empty(kind, to)) {
        cost_snapshot_remove_class(snap, idx);
    }
}

/* Adds the slowest events of 'data' to 'snap', which has none. */
static void
data_read_slowest(struct cost_data *data, struct cost_snapshot *snap)
{
    const struct cost_kind *kind = data->kind;
    size_t record_size = slow_record_size(kind);
    uint64_t *words = xmalloc(kind->n_slowest * record_size * sizeof *words);
    unsigned int n_tries = 0;
    uint32_t seq;
    size_t n;

    do {
        struct cost_slowest *slowest;

        seq = data_read_begin(data, &n_tries);
        slowest = ovsrcu_get(struct cost_slowest *, &data->slowest);
        n = slowest ? slowest->n : 0;
        for (size_t i = 0; i < n * record_size; i++) {
            atomic_read_relaxed(&slowest->words[i], &words[i]);
        }
    } while (data_read_retry(data, seq));

    if (n) {
        snap->slowest = xmalloc(n * sizeof *snap->slowest);
    }
    for (size_t i = 0; i < n; i++) {
        struct cost_slow_event *event = &snap->slowest[snap->n_slowest];
        const uint64_t *w = &words[i * record_size];

        if (!w[SLOW_WHEN]) {
            continue;
        }
        memset(event, 0, sizeof *event);
        event->total_ns = w[SLOW_TOTAL];
        event->excluded_ns = w[SLOW_EXCLUDED];
        event->when_us = w[SLOW_WHEN];
        event->class = head_class(w[SLOW_HEAD]);
        event->marked = head_marked(w[SLOW_HEAD]);
        w += SLOW_N_FIXED;
        memcpy(event->stages, w, (kind->n_stages - 1) * sizeof *event->stages);
        ovs_strlcpy(event->thread, snap->thread, sizeof event->thread);
        w += kind->n_stages - 1;
        event->details = xmemdup(w, kind->n_details * sizeof *event->details);
        snap->n_slowest++;
    }
    free(words);
    cost_snapshot_trim_slowest(snap);
}

/* Initializes 'snap' with what 'data', which may be NULL, has recorded of
 * 'thread', with the slowest events only if 'slowest'. */
static void
data_read(struct cost_data *data, const struct cost_kind *kind,
          const char *thread, bool slowest, struct cost_snapshot *snap)
{
    cost_snapshot_init(snap, kind, thread);
    if (data) {
        for (size_t i = 0; i < data_n_classes(data); i++) {
            data_read_class(data, i, snap);
        }
        if (slowest) {
            data_read_slowest(data, snap);
        }
    }
}

/* Accounts. */

static void
cost_sum_init(struct cost_sum *sum, const struct cost_kind *kind,
              long long int since_us)
{
    sum->kind = kind;
    sum->n_accounts = 0;
    sum->since_us = since_us;
    cost_snapshot_init(&sum->total, kind, "");
}

/* Returns what is known of 'kind', which remains valid while the lock is
 * held. */
static struct known_kind *
get_kind(const struct cost_kind *kind)
    OVS_REQUIRES(accounts_mutex)
{
    struct known_kind *known;

    for (size_t i = 0; i < n_known_kinds; i++) {
        if (known_kinds[i].deleted.kind == kind) {
            return &known_kinds[i];
        }
    }
    known_kinds = xrealloc(known_kinds,
                           (n_known_kinds + 1) * sizeof *known_kinds);
    known = &known_kinds[n_known_kinds++];
    known->since_us = time_wall_usec();
    cost_sum_init(&known->deleted, kind, known->since_us);
    return known;
}

/* Creates and returns a new account for events of 'kind', with 'name', which
 * should be unique among those of its kind in 'datapath', "TYPE@NAME".  That
 * is NULL if its object is in no datapath; an account of a kind with
 * 'typed_names' is for the datapath that it is named after.  Any thread may
 * call this. */
struct cost_account *
cost_account_create(const struct cost_kind *kind, const char *name,
                    const char *datapath)
{
    struct cost_account *account = cost_zalloc(sizeof *account);

    ovs_assert(kind->n_stages <= COST_MAX_STAGES);
    ovs_assert(kind->n_counters <= COST_MAX_COUNTERS);
    ovs_assert(kind->n_slowest <= COST_MAX_SLOWEST);
    ovs_assert(!kind->n_pending || kind->n_pending > PENDING_MAX);

    cost_clock_init();
    cost_config_register(kind->config);

    account->kind = kind;
    account->name = xstrdup(name);
    account->datapath = nullable_xstrdup(kind->typed_names ? name : datapath);
    ovs_refcount_init(&account->ref_cnt);
    ovs_mutex_init(&account->mutex);
    ovs_mutex_lock(&account->mutex);
    account->since_us = time_wall_usec();
    account->since_ms = time_msec();
    ovs_mutex_unlock(&account->mutex);

    ovs_mutex_lock(&accounts_mutex);
    ovs_list_push_back(&accounts, &account->list_node);
    n_accounts++;
    get_kind(kind);
    ovs_mutex_unlock(&accounts_mutex);
    return account;
}

static void
cost_account_unref(struct cost_account *account)
{
    if (ovs_refcount_unref(&account->ref_cnt) == 1) {
        ovs_mutex_lock(&account->mutex);
        cost_snapshot_destroy(account->exited);
        cost_free(account->recorders);
        ovs_mutex_unlock(&account->mutex);
        ovs_mutex_destroy(&account->mutex);
        free(account->datapath);
        free(account->name);
        cost_free(account);
    }
}

/* Adds 'src' to 'account''s numbers of recorders that are gone. */
static void
add_exited(struct cost_account *account, const struct cost_snapshot *src)
    OVS_REQUIRES(account->mutex)
{
    if (!account->exited) {
        account->exited = xmalloc(sizeof *account->exited);
        cost_snapshot_init(account->exited, account->kind, "exited");
    }
    cost_snapshot_merge(account->exited, src);
}

/* Makes 'recorder' one of 'account', after all others. */
static void
add_recorder(struct cost_account *account, struct cost_recorder *recorder)
    OVS_REQUIRES(account->mutex)
{
    if (account->n_recorders >= account->allocated_recorders) {
        size_t n = MAX(1, 2 * account->n_recorders);
        struct cost_recorder **new = cost_zalloc(n * sizeof *new);

        nullable_memcpy(new, account->recorders,
                        account->n_recorders * sizeof *new);
        cost_free(account->recorders);
        account->recorders = new;
        account->allocated_recorders = n;
    }
    account->recorders[account->n_recorders++] = recorder;
}

/* Moves what recorder 'idx' of 'account' has to its numbers of recorders that
 * are gone, and frees it. */
static void
remove_recorder(struct cost_account *account, size_t idx)
    OVS_REQUIRES(account->mutex)
{
    struct cost_recorder *recorder = account->recorders[idx];
    struct cost_data *data = recorder_data(recorder);

    if (data) {
        struct cost_snapshot snap;

        data_read(data, account->kind, recorder->thread, true, &snap);
        add_exited(account, &snap);
        cost_snapshot_uninit(&snap);
        cost_recorder_take_data(recorder);
    }
    account->n_recorders--;
    memmove(&account->recorders[idx], &account->recorders[idx + 1],
            (account->n_recorders - idx) * sizeof *account->recorders);
    cost_free(recorder);
}

static void
add_deleted(const struct cost_kind *kind, const struct cost_snapshot *snap)
    OVS_REQUIRES(accounts_mutex)
{
    struct cost_sum *deleted = &get_kind(kind)->deleted;

    deleted->n_accounts++;
    if (snap) {
        cost_snapshot_merge(&deleted->total, snap);
    }
}

/* Destroys 'account', which may be NULL, and those of its recorders that have
 * not been released.  No event of it may be recorded any more.  Any thread may
 * call this. */
void
cost_account_destroy(struct cost_account *account)
{
    if (!account) {
        return;
    }

    /* Readers get an account's numbers either from it or as deleted. */
    ovs_mutex_lock(&accounts_mutex);
    ovs_list_remove(&account->list_node);
    n_accounts--;
    ovs_mutex_lock(&account->mutex);
    while (account->n_recorders) {
        remove_recorder(account, account->n_recorders - 1);
    }
    add_deleted(account->kind, account->exited);
    ovs_mutex_unlock(&account->mutex);
    ovs_mutex_unlock(&accounts_mutex);
    cost_account_unref(account);
}

/* Returns the recorder of 'account' for the thread named 'thread', which is
 * created if there is none.  The caller owns it, and makes sure that one
 * thread at a time uses it, which may be any.  Any thread may call this. */
struct cost_recorder *
cost_recorder_get(struct cost_account *account, const char *thread)
{
    struct cost_recorder *recorder;

    ovs_mutex_lock(&account->mutex);
    for (size_t i = 0; i < account->n_recorders; i++) {
        recorder = account->recorders[i];
        if (!strncmp(recorder->thread, thread, sizeof recorder->thread - 1)) {
            goto out;
        }
    }

    recorder = cost_zalloc(ROUND_UP(sizeof *recorder, CACHE_LINE_SIZE));
    ovsrcu_init(&recorder->data, &cost_no_data);
    recorder->kind = account->kind;
    recorder->account = account;
    recorder->split_interval = cost_split_interval(account->kind->config);
    recorder->split_in = cost_split_gap(recorder->split_interval);
    recorder->tally_key = NO_KEY;
    ovs_strlcpy(recorder->thread, thread, sizeof recorder->thread);
    add_recorder(account, recorder);
out:
    ovs_mutex_unlock(&account->mutex);
    return recorder;
}

/* Releases 'recorder', which may be NULL and no thread may be using any more.
 * Its account keeps its numbers.  Any thread may call this. */
void
cost_recorder_release(struct cost_recorder *recorder)
{
    if (recorder) {
        struct cost_account *account = recorder->account;

        ovs_mutex_lock(&account->mutex);
        for (size_t i = 0; i < account->n_recorders; i++) {
            if (account->recorders[i] == recorder) {
                remove_recorder(account, i);
                break;
            }
        }
        ovs_mutex_unlock(&account->mutex);
    }
}

/* Returns true if 'account' is one of 'kinds' and named 'name', or that is
 * NULL. */
static bool
cost_account_matches(const struct cost_account *account,
                     const struct cost_kind *const kinds[], size_t n_kinds,
                     const char *name)
{
    for (size_t i = 0; i < n_kinds; i++) {
        if (account->kind == kinds[i]) {
            const char *at = (account->kind->typed_names
                              ? strchr(account->name, '@') : NULL);

            return (!name || !strcmp(name, account->name)
                    || (at && !strcmp(name, at + 1)));
        }
    }
    return false;
}

/* Makes the accounts of 'kinds' have what others have counted so far. */
static void
cost_refresh(const struct cost_kind *const kinds[], size_t n_kinds)
{
    for (size_t i = 0; i < n_kinds; i++) {
        if (kinds[i]->config->refresh
            && (!i || kinds[i]->config != kinds[i - 1]->config)) {
            kinds[i]->config->refresh();
        }
    }
}

static int
compare_accounts(const void *a_, const void *b_)
{
    const struct cost_account *const *a = a_, *const *b = b_;

    return strcmp((*a)->name, (*b)->name);
}

/* Stores in 'all' the accounts named 'name', or all accounts if 'name' is
 * NULL, whose kind is one of 'kinds', and, in that case, sums for each of
 * these.  An account of a kind with 'typed_names', "TYPE@NAME",
 * goes by the name of "NAME", too.  The caller must free it with
 * cost_accounts_put().
 *
 * An account that is destroyed afterwards can still be read, so that it is
 * counted exactly once. */
void
cost_accounts_get(const struct cost_kind *const kinds[], size_t n_kinds,
                  const char *name, struct cost_accounts *all)
{
    struct cost_account *account;

    cost_refresh(kinds, n_kinds);
    memset(all, 0, sizeof *all);
    ovs_mutex_lock(&accounts_mutex);
    all->accounts = xmalloc(n_accounts * sizeof *all->accounts);
    LIST_FOR_EACH (account, list_node, &accounts) {
        if (cost_account_matches(account, kinds, n_kinds, name)) {
            ovs_refcount_ref(&account->ref_cnt);
            all->accounts[all->n++] = account;
        }
    }
    all->n_kinds = name ? 0 : n_kinds;
    all->deleted = xmalloc(all->n_kinds * sizeof *all->deleted);
    all->totals = xmalloc(all->n_kinds * sizeof *all->totals);
    for (size_t i = 0; i < all->n_kinds; i++) {
        const struct known_kind *known = get_kind(kinds[i]);
        struct cost_sum *deleted = &all->deleted[i];

        cost_sum_init(&all->totals[i], kinds[i], known->since_us);
        cost_sum_init(deleted, kinds[i], known->deleted.since_us);
        deleted->n_accounts = known->deleted.n_accounts;
        cost_snapshot_merge(&deleted->total, &known->deleted.total);
    }
    ovs_mutex_unlock(&accounts_mutex);
    qsort(all->accounts, all->n, sizeof *all->accounts, compare_accounts);
}

/* Frees what 'all' has. */
void
cost_accounts_put(struct cost_accounts *all)
{
    for (size_t i = 0; i < all->n; i++) {
        cost_account_unref(all->accounts[i]);
    }
    free(all->accounts);
    for (size_t i = 0; i < all->n_kinds; i++) {
        cost_snapshot_uninit(&all->deleted[i].total);
        cost_snapshot_uninit(&all->totals[i].total);
    }
    free(all->deleted);
    free(all->totals);
}

const char *
cost_account_name(const struct cost_account *account)
{
    return account->name;
}

const struct cost_kind *
cost_account_kind(const struct cost_account *account)
{
    return account->kind;
}

/* What the recorders of an account had at one point in time. */
struct readable {
    struct cost_data *data;             /* Or NULL. */
    char thread[COST_THREAD_NAME_MAX];
};

/* Returns what can be read from 'account''s recorders, '*n' of them, until the
 * calling thread quiesces.  The caller must free it. */
static struct readable *
get_readable(struct cost_account *account, size_t *n)
    OVS_REQUIRES(account->mutex)
{
    struct readable *readable;

    *n = account->n_recorders;
    readable = xmalloc(*n * sizeof *readable);
    for (size_t i = 0; i < *n; i++) {
        const struct cost_recorder *recorder = account->recorders[i];
        struct readable *r = &readable[i];

        r->data = recorder_data(recorder);
        ovs_strlcpy(r->thread, recorder->thread, sizeof r->thread);
    }
    return readable;
}

/* Stores in 'summary' what 'class' adds up to at the moment. */
static void
class_summarize(const struct cost_kind *kind, const struct cost_class *class,
                struct cost_summary *summary)
{
    const struct cost_hist *total = class_stage(kind, class,
                                                kind->n_stages - 1);

    summary->n_events = summary->timed_ns = 0;
    if (total) {
        cost_hist_read_sum(total, &summary->n_events, &summary->timed_ns);
    }
    if (kind->n_tally_rows) {
        summary->n_events = 0;
    }
    for (size_t i = 0; i < kind->n_tally_rows; i++) {
        atomic_uint64_t *tally = class_tally(class, i);

        for (size_t j = 0; (tally
                            && j <= kind->tally_layout->n_edges + TALLY_ABOVE);
             j++) {
            uint64_t n;

            atomic_read_relaxed(&tally[j], &n);
            summary->n_events += n;
        }
    }
}

/* Adds what 'data' has of class 'idx' to 'summary'. */
static void
data_summarize_class(struct cost_data *data, size_t idx,
                     struct cost_summary *summary)
{
    const struct cost_class *class = data_class(data, idx);
    struct cost_summary class_summary;
    unsigned int n_tries = 0;
    uint32_t seq;

    if (!class) {
        return;
    }
    do {
        uint32_t n_pending;

        seq = data_read_begin(data, &n_tries);
        class_summarize(data->kind, class, &class_summary);
        atomic_read_explicit(&data->n_pending, &n_pending,
                             memory_order_acquire);
        for (size_t i = 0; i + 1 < n_pending;) {
            uint64_t total_ns, head;

            atomic_read_relaxed(&data->pending[i], &total_ns);
            atomic_read_relaxed(&data->pending[i + 1], &head);
            if (head_class(head) == idx) {
                class_summary.n_events++;
                class_summary.timed_ns += total_ns;
            }
            i += 2 + count_1bits(head_marked(head));
        }
    } while (data_read_retry(data, seq));

    summary->n_events += class_summary.n_events;
    summary->timed_ns += class_summary.timed_ns;
}

/* Stores in 'summary' what 'account' adds up to.  The calling thread must not
 * be quiescent.  Takes a few microseconds per thread that recorded. */
void
cost_account_summarize(struct cost_account *account,
                       struct cost_summary *summary)
{
    struct readable *readable;
    size_t n;

    summary->n_events = summary->timed_ns = 0;
    ovs_mutex_lock(&account->mutex);
    readable = get_readable(account, &n);
    if (account->exited) {
        struct cost_hist_snapshot total;

        cost_snapshot_stage(account->exited, COST_ALL_CLASSES,
                            account->kind->n_stages - 1, &total);
        summary->n_events = cost_snapshot_count(account->exited,
                                                COST_ALL_CLASSES);
        summary->timed_ns = total.sum;
    }
    ovs_mutex_unlock(&account->mutex);

    for (size_t i = 0; i < n; i++) {
        struct cost_data *data = readable[i].data;

        for (size_t j = 0; data && j < data_n_classes(data); j++) {
            data_summarize_class(data, j, summary);
        }
    }
    free(readable);
}

/* Adds up the threads of 'snap'. */
static void
add_threads(struct cost_account_snapshot *snap)
{
    const struct cost_snapshot *only = NULL;
    size_t n = 0;

    for (size_t i = 0; i < snap->n_threads; i++) {
        if (!cost_snapshot_is_empty(&snap->threads[i])) {
            only = &snap->threads[i];
            n++;
        }
    }
    snap->shared = n == 1;
    if (snap->shared) {
        snap->total = *only;
        snap->total.thread[0] = '\0';
        return;
    }
    cost_snapshot_init(&snap->total, snap->kind, "");
    for (size_t i = 0; i < snap->n_threads; i++) {
        cost_snapshot_merge(&snap->total, &snap->threads[i]);
    }
}

/* Reads 'account' into 'snap', with the slowest events only if 'slowest'.  The
 * caller must free it with cost_account_snapshot_uninit().  The calling thread
 * must not be quiescent.
 *
 * Takes no lock that recording takes, and holds the account's own only while
 * it looks for what there is to read. */
void
cost_account_read(struct cost_account *account, bool slowest,
                  struct cost_account_snapshot *snap)
{
    struct cost_snapshot *exited;
    struct readable *readable;
    size_t n;

    snap->kind = account->kind;
    snap->name = xstrdup(account->name);
    snap->datapath = nullable_xstrdup(account->datapath);

    ovs_mutex_lock(&account->mutex);
    readable = get_readable(account, &n);
    snap->threads = xmalloc((n + 1) * sizeof *snap->threads);
    snap->n_threads = n + 1;
    exited = &snap->threads[n];
    cost_snapshot_init(exited, account->kind, "exited");
    if (account->exited) {
        cost_snapshot_merge(exited, account->exited);
    }
    snap->cleared = account->cleared;
    snap->since_us = account->since_us;
    snap->elapsed_ms = time_msec() - account->since_ms;
    ovs_mutex_unlock(&account->mutex);

    for (size_t i = 0; i < n; i++) {
        data_read(readable[i].data, account->kind, readable[i].thread, slowest,
                  &snap->threads[i]);
    }
    free(readable);
    add_threads(snap);
}

/* Frees what 'snap' has. */
void
cost_account_snapshot_uninit(struct cost_account_snapshot *snap)
{
    for (size_t i = 0; i < snap->n_threads; i++) {
        cost_snapshot_uninit(&snap->threads[i]);
    }
    free(snap->threads);
    if (!snap->shared) {
        cost_snapshot_uninit(&snap->total);
    }
    free(snap->datapath);
    free(snap->name);
}

static void
cost_account_clear(struct cost_account *account)
{
    ovs_mutex_lock(&account->mutex);
    for (size_t i = 0; i < account->n_recorders; i++) {
        cost_recorder_take_data(account->recorders[i]);
    }
    cost_snapshot_destroy(account->exited);
    account->exited = NULL;
    account->cleared = true;
    account->since_us = time_wall_usec();
    account->since_ms = time_msec();
    ovs_mutex_unlock(&account->mutex);
}

/* Clears the accounts that cost_accounts_get() would get, and deleted ones.
 * Returns the number of accounts.  An event that is in progress counts when it
 * stops. */
size_t
cost_accounts_clear(const struct cost_kind *const kinds[], size_t n_kinds,
                    const char *name)
{
    struct cost_accounts all;
    long long int now_us;
    size_t n;

    cost_accounts_get(kinds, n_kinds, name, &all);
    n = all.n;
    for (size_t i = 0; i < n; i++) {
        cost_account_clear(all.accounts[i]);
    }

    now_us = time_wall_usec();
    ovs_mutex_lock(&accounts_mutex);
    for (size_t i = 0; i < n_kinds; i++) {
        struct known_kind *known = get_kind(kinds[i]);
        bool cleared = !name;

        if (!name) {
            cost_snapshot_uninit(&known->deleted.total);
            cost_sum_init(&known->deleted, kinds[i], now_us);
        }
        for (size_t j = 0; j < n && !cleared; j++) {
            cleared = all.accounts[j]->kind == kinds[i];
        }
        if (cleared) {
            known->since_us = MAX(now_us, known->since_us + 1);
        }
    }
    ovs_mutex_unlock(&accounts_mutex);
    cost_accounts_put(&all);
    return n;
}

/* Adds what accounting takes to 'usage', for "memory/show". */
void
cost_get_memory_usage(struct simap *usage)
{
    simap_increase(usage, "cost-kb",
                   MIN(DIV_ROUND_UP(cost_memory_used(), 1024), UINT_MAX));
    ovs_mutex_lock(&accounts_mutex);
    simap_increase(usage, "cost-accounts", n_accounts);
    ovs_mutex_unlock(&accounts_mutex);
}

/* Recording. */

/* Starts writing anything of 'data', which the calling thread records, but
 * more pending events or a tally. */
static void
data_write_begin(struct cost_data *data)
{
    uint32_t seq;

    atomic_read_relaxed(&data->seq, &seq);
    atomic_store_relaxed(&data->seq, seq + 1);
    atomic_thread_fence(memory_order_release);
}

static void
data_write_end(struct cost_data *data)
{
    uint32_t seq;

    atomic_read_relaxed(&data->seq, &seq);
    atomic_store_explicit(&data->seq, seq + 1, memory_order_release);
}

/* Returns how many events to go until one is split, at random, so that 1 in
 * 'interval' is. */
uint32_t
cost_split_gap(uint32_t interval)
{
    return (interval > 1 ? 1 + random_range(2 * interval - 1)
            : interval ? 1
            : UINT32_MAX);
}

/* Chooses the event of 'recorder' to be split after this one, which is split,
 * for 'interval', the configured one. */
void COST_COLD
cost_recorder_split__(struct cost_recorder *recorder, uint32_t interval)
{
    recorder->split_interval = interval;
    recorder->split_in = cost_split_gap(interval);
}

/* Makes place in 'data' for class 'idx'. */
static struct cost_classes *
data_grow_classes(struct cost_data *data, size_t idx)
{
    struct cost_classes *old = data_classes(data);
    size_t n_old = old ? old->n : 0;
    struct cost_classes *new;
    size_t n = idx + 1;

    new = cost_zalloc(classes_size(n));
    new->n = n;
    for (size_t i = 0; i < n; i++) {
        ovsrcu_init(&new->classes[i],
                    (i < n_old ? ovsrcu_get_protected(struct cost_class *,
                                                      &old->classes[i])
                     : NULL));
    }
    ovsrcu_set(&data->classes, new);
    if (old) {
        ovsrcu_postpone(cost_free, old);
    }
    return new;
}

/* Returns what 'data' has of class 'idx', which is created if necessary. */
static struct cost_class *
data_get_class(struct cost_data *data, size_t idx)
{
    const struct cost_kind *kind = data->kind;
    struct cost_classes *classes = data_classes(data);
    struct cost_class *class;

    ovs_assert(idx < kind->n_classes);
    if (idx >= data_n_classes(data)) {
        classes = data_grow_classes(data, idx);
    }
    class = ovsrcu_get_protected(struct cost_class *, &classes->classes[idx]);
    if (!class) {
        class = cost_zalloc(class_size(kind));
        ovsrcu_init(&class->counters, NULL);
        for (size_t i = 0; i < kind->n_tally_rows + kind->n_stages; i++) {
            ovsrcu_init(&class->parts[i], NULL);
        }
        ovsrcu_set(&classes->classes[idx], class);
    }
    return class;
}

/* Returns 'recorder''s data, which is created if necessary, after making
 * 'class' the latest one. */
static struct cost_data * COST_COLD
cost_recorder_prepare(struct cost_recorder *recorder, size_t class)
{
    const struct cost_kind *kind = recorder->kind;
    struct cost_data *data = recorder_data(recorder);

    if (!data) {
        data = cost_zalloc(data_size(kind));
        data->kind = kind;
        atomic_init(&data->seq, 0);
        atomic_init(&data->n_pending, 0);
        ovsrcu_init(&data->slowest, NULL);
        ovsrcu_init(&data->classes, NULL);
        for (size_t i = 0; i < kind->n_pending; i++) {
            atomic_init(&data->pending[i], 0);
        }
        data->latest = data_get_class(data, class);
        recorder->tally_key = NO_KEY;
        ovsrcu_set(&recorder->data, data);
    } else {
        data->latest = data_get_class(data, class);
    }
    data->latest_idx = class;
    return data;
}

/* Accounting of 'recorder' is off: makes cost_recorder_tally() ask whether it
 * still is, from the next event on. */
void
cost_recorder_idle(struct cost_recorder *recorder)
{
    recorder->tally_key = NO_KEY;
}

/* Returns 'n' atomic numbers that are 0, of memory that is counted. */
static atomic_uint64_t *
new_numbers(size_t size)
{
    atomic_uint64_t *numbers = cost_zalloc(size);

    for (size_t i = 0; i < size / sizeof *numbers; i++) {
        atomic_init(&numbers[i], 0);
    }
    return numbers;
}

/* Return a part of 'class', which is created if necessary. */

static atomic_uint64_t *
class_get_counters(const struct cost_kind *kind, struct cost_class *class)
{
    atomic_uint64_t *counters = ovsrcu_get_protected(atomic_uint64_t *,
                                                     &class->counters);

    if (OVS_UNLIKELY(!counters)) {
        counters = new_numbers(counters_size(kind));
        ovsrcu_set(&class->counters, counters);
    }
    return counters;
}

static atomic_uint64_t *
class_get_tally(const struct cost_kind *kind, struct cost_class *class,
                size_t row)
{
    atomic_uint64_t *tally = ovsrcu_get_protected(void *, &class->parts[row]);

    if (OVS_UNLIKELY(!tally)) {
        tally = new_numbers(tally_size(kind));
        ovsrcu_set(&class->parts[row], (void *) tally);
    }
    return tally;
}

static struct cost_hist *
class_get_stage(const struct cost_kind *kind, struct cost_class *class,
                size_t stage)
{
    size_t part = kind->n_tally_rows + stage;
    struct cost_hist *hist = ovsrcu_get_protected(void *, &class->parts[part]);

    if (OVS_UNLIKELY(!hist)) {
        hist = cost_zalloc(sizeof *hist);
        cost_hist_init(hist);
        ovsrcu_set(&class->parts[part], (void *) hist);
    }
    return hist;
}

/* Counts 'number' in 'row' of 'class''s tally.  If it is above all edges,
 * data_write_begin() must have been called. */
static void
class_add_tally(const struct cost_kind *kind, struct cost_class *class,
                size_t row, uint64_t number)
{
    atomic_uint64_t *tally = class_get_tally(kind, class, row);
    size_t n_edges = kind->tally_layout->n_edges;

    if (OVS_LIKELY(number < n_edges)) {
        cost_counter_add(&tally[number], 1);
    } else {
        uint64_t max;

        tally += n_edges;
        cost_counter_add(&tally[TALLY_ABOVE], 1);
        cost_counter_add(&tally[TALLY_SUM], number);
        cost_counter_add(&tally[TALLY_SUM_SQ], number * number);
        atomic_read_relaxed(&tally[TALLY_MAX], &max);
        atomic_store_relaxed(&tally[TALLY_MAX], MAX(max, number));
    }
}

/* Does what cost_recorder_tally() does when it is not as simple as that. */
void
cost_recorder_tally__(struct cost_recorder *recorder, uint32_t key, size_t row,
                      size_t number)
{
    struct cost_data *data = ovsrcu_get(struct cost_data *, &recorder->data);
    const struct cost_kind *kind = recorder->kind;
    size_t class = MIN(key, kind->n_classes - 1);

    if (OVS_UNLIKELY(data->latest_idx != class)) {
        data = cost_recorder_prepare(recorder, class);
    }
    if (OVS_LIKELY(number < kind->tally_layout->n_edges)) {
        class_add_tally(kind, data->latest, row, number);
    } else {
        data_write_begin(data);
        class_add_tally(kind, data->latest, row, number);
        data_write_end(data);
    }

    /* If accounting was off when the event began, cost_recorder_idle() is not
     * called again. */
    if (OVS_LIKELY(recorder->split_interval)) {
        recorder->tally_key = key;
        recorder->tally_row = row;
        recorder->tally = class_tally(data->latest, row);
    }
}

/* Adds the pending events of 'data' to its histograms and counters. */
static void COST_COLD
data_flush(struct cost_data *data)
{
    const struct cost_kind *kind = data->kind;
    size_t total = kind->n_stages - 1;
    atomic_uint64_t *counters = NULL;
    struct cost_class *class = NULL;
    struct cost_hist_batch batch;
    uint32_t class_idx = 0, n;

    data_write_begin(data);
    atomic_read_relaxed(&data->n_pending, &n);
    for (size_t i = 0; i < n;) {
        uint64_t total_ns, head;

        atomic_read_relaxed(&data->pending[i++], &total_ns);
        atomic_read_relaxed(&data->pending[i++], &head);

        if (!class || head_class(head) != class_idx) {
            if (class) {
                cost_hist_batch_end(&batch);
            }
            class_idx = head_class(head);
            class = data_get_class(data, class_idx);
            counters = class_get_counters(kind, class);
            cost_hist_batch_start(&batch,
                                  class_get_stage(kind, class, total));
        }

        cost_hist_batch_add(&batch, total_ns);
        if (head_counter(head) != COST_NO_COUNTER) {
            cost_counter_add(&counters[head_counter(head)], 1);
        }
        for (uint16_t marked = head_marked(head); OVS_UNLIKELY(marked);
             marked = zero_rightmost_1bit(marked)) {
            uint64_t stage;

            atomic_read_relaxed(&data->pending[i++], &stage);
            cost_hist_add(class_get_stage(kind, class, raw_ctz(marked)),
                          stage);
        }
    }
    if (class) {
        cost_hist_batch_end(&batch);
    }
    atomic_store_relaxed(&data->n_pending, 0);
    data_write_end(data);
}

/* Returns 'stage' of 'event' in ns, if it is a time, otherwise its value. */
static uint64_t
event_stage(const struct cost_event *event, size_t stage, uint16_t values)
{
    return (values & (1u << stage)
            ? event->stages[stage] : cost_clock_ns(event->stages[stage]));
}

/* Makes place in 'data' for more of the slowest events, if there may be more,
 * and chooses it for the next.  data_write_begin() must have been called. */
static struct cost_slowest *
data_grow_slowest(struct cost_data *data)
{
    struct cost_slowest *old, *new;
    const struct cost_kind *kind = data->kind;
    size_t n_old, n;

    old = ovsrcu_get_protected(struct cost_slowest *, &data->slowest);
    n_old = old ? old->n : 0;
    n = MIN(n_old ? 2 * n_old : 2, kind->n_slowest);
    if (n == n_old) {
        return old;
    }

    new = cost_zalloc(slowest_size(kind, n));
    new->n = n;
    for (size_t i = 0; i < n * slow_record_size(kind); i++) {
        uint64_t word = 0;

        if (i < n_old * slow_record_size(kind)) {
            atomic_read_relaxed(&old->words[i], &word);
        }
        atomic_init(&new->words[i], word);
    }
    ovsrcu_set(&data->slowest, new);
    if (old) {
        ovsrcu_postpone(cost_free, old);
    }
    data->slow_next = n_old;
    return new;
}

/* Chooses the record of 'slowest' to be replaced next: an unused one or, if
 * there are as many as there may be, the fastest. */
static void
data_choose_slowest(struct cost_data *data, struct cost_slowest *slowest)
{
    size_t record_size = slow_record_size(data->kind);
    uint64_t min_ns = UINT64_MAX;

    for (size_t i = 0; i < slowest->n; i++) {
        atomic_uint64_t *w = &slowest->words[i * record_size];
        uint64_t when, ns;

        atomic_read_relaxed(&w[SLOW_WHEN], &when);
        atomic_read_relaxed(&w[SLOW_TOTAL], &ns);
        if (!when) {
            data->slow_next = i;
            min_ns = 0;
            break;
        } else if (ns < min_ns) {
            data->slow_next = i;
            min_ns = ns;
        }
    }
    data->slow_threshold = (slowest->n < data->kind->n_slowest ? 0 : min_ns);
}

/* Puts 'event' of 'class', which took 'total_ns', among the slowest. */
static void COST_COLD
cost_record_slow(struct cost_data *data, const struct cost_event *event,
                 uint64_t total_ns, size_t class,
                 const struct cost_details *from)
{
    const struct cost_kind *kind = data->kind;
    uint64_t details[kind->n_details + 1];
    uint64_t when_us = time_wall_usec();
    struct cost_slowest *slowest;
    atomic_uint64_t *w;
    uint64_t when = 1;

    if (from && from->get) {
        from->get(details, from->aux, from->n);
    } else {
        memset(details, 0, sizeof details);
    }

    data_write_begin(data);
    slowest = ovsrcu_get_protected(struct cost_slowest *, &data->slowest);
    if (slowest) {
        w = &slowest->words[data->slow_next * slow_record_size(kind)];
        atomic_read_relaxed(&w[SLOW_WHEN], &when);
    }
    if (when) {
        slowest = data_grow_slowest(data);
    }

    w = &slowest->words[data->slow_next * slow_record_size(kind)];
    atomic_store_relaxed(&w[SLOW_TOTAL], total_ns);
    atomic_store_relaxed(&w[SLOW_WHEN], when_us);
    atomic_store_relaxed(&w[SLOW_EXCLUDED], cost_clock_ns(event->excluded));
    atomic_store_relaxed(&w[SLOW_HEAD],
                         event_head(class, event->counter, event->marked));
    w += SLOW_N_FIXED;
    for (size_t i = 0; i < kind->n_stages - 1; i++) {
        atomic_store_relaxed(&w[i], (event->marked & (1u << i)
                                     ? event_stage(event, i, kind->values)
                                     : 0));
    }
    w += kind->n_stages - 1;
    for (size_t i = 0; i < kind->n_details; i++) {
        atomic_store_relaxed(&w[i], details[i]);
    }
    data_choose_slowest(data, slowest);
    data_write_end(data);
}

/* Adds all of 'event' to 'class' of 'data' at once. */
static void
data_add_event(struct cost_data *data, struct cost_class *class,
               const struct cost_event *event)
{
    const struct cost_kind *kind = data->kind;
    uint16_t marked = event->marked;

    data_write_begin(data);
    if (kind->n_tally_rows && event->counter < kind->n_tally_rows) {
        class_add_tally(kind, class, event->counter,
                        event->stages[kind->tally_stage]);
        marked &= ~(1u << kind->tally_stage);
    } else if (event->counter != COST_NO_COUNTER) {
        cost_counter_add(&class_get_counters(kind, class)[event->counter], 1);
    }
    for (size_t i = 0; event->counts && i < kind->n_counters; i++) {
        if (event->counts[i]) {
            cost_counter_add(&class_get_counters(kind, class)[i],
                             event->counts[i]);
        }
    }
    if (event->total != COST_NOT_TIMED) {
        cost_hist_add(class_get_stage(kind, class, kind->n_stages - 1),
                      cost_clock_ns(event->total));
    }
    for (; marked; marked = zero_rightmost_1bit(marked)) {
        size_t stage = raw_ctz(marked);

        cost_hist_add(class_get_stage(kind, class, stage),
                      event_stage(event, stage, kind->values));
    }
    data_write_end(data);
}

/* Records 'event' of 'class' in 'recorder', all of it at once.  Should it be
 * among the slowest, gets 'details', which may be NULL, too.
 *
 * The stages that 'event' has are recorded: whether it is to be split is
 * decided with cost_recorder_split() when it starts.
 *
 * If kind->n_pending is nonzero, this costs some 10 ns, or 25 ns for an event
 * that is split; otherwise some 10 ns for each stage.  An event that is among
 * the slowest so far, or the first of its class in this thread, takes some 100
 * ns longer. */
void
cost_record(struct cost_recorder *recorder, size_t class,
            const struct cost_event *event, const struct cost_details *details)
{
    struct cost_data *data = ovsrcu_get(struct cost_data *, &recorder->data);
    const struct cost_kind *kind = recorder->kind;
    uint64_t total_ns;

    if (OVS_UNLIKELY(data->latest_idx != class)) {
        data = cost_recorder_prepare(recorder, class);
    }

    total_ns = (OVS_LIKELY(event->total != COST_NOT_TIMED)
                ? cost_clock_ns(event->total) : 0);
    if (OVS_LIKELY(kind->n_pending) && !event->counts) {
        uint32_t n;

        atomic_read_relaxed(&data->n_pending, &n);
        atomic_store_relaxed(&data->pending[n++], total_ns);
        atomic_store_relaxed(&data->pending[n++],
                             event_head(class, event->counter,
                                        event->marked));
        for (uint16_t marked = event->marked; OVS_UNLIKELY(marked);
             marked = zero_rightmost_1bit(marked)) {
            atomic_store_relaxed(&data->pending[n++],
                                 event_stage(event, raw_ctz(marked),
                                             kind->values));
        }
        atomic_store_explicit(&data->n_pending, n, memory_order_release);
        if (OVS_UNLIKELY(n > kind->n_pending - PENDING_MAX)) {
            data_flush(data);
        }
    } else {
        data_add_event(data, data->latest, event);
    }

    if (OVS_UNLIKELY(total_ns > data->slow_threshold) && kind->n_slowest) {
        cost_record_slow(data, event, total_ns, class, details);
    }
}

/* Adds 'n' to 'recorder''s 'counter' for 'class', for something that happened
 * outside of an event. */
void
cost_count(struct cost_recorder *recorder, size_t class, size_t counter,
           uint64_t n)
{
    if (n && cost_enabled(recorder->kind->config)) {
        struct cost_data *data = cost_recorder_prepare(recorder, class);
        atomic_uint64_t *counters;

        data_write_begin(data);
        counters = class_get_counters(data->kind, data->latest);
        cost_counter_add(&counters[counter], n);
        data_write_end(data);
    }
}

/* Timers. */

/* A mark or count has met a timer that it is not for. */
void COST_COLD
cost_timer_refuse__(void)
{
    COVERAGE_INC(cost_refused);
}

/* Returns the time, in ticks, for 'timer''s event. */
static uint64_t
cost_timer_now(const struct cost_timer *timer)
{
    return cost_clock_now(timer->recorder->kind->name);
}

/* Does what cost_timer_mark() does for a 'timer' whose event is split. */
void COST_COLD
cost_timer_mark__(struct cost_timer *timer, const struct cost_kind *kind,
                  size_t stage)
{
    if (OVS_LIKELY(timer->recorder->kind->name == kind->name)) {
        uint64_t now = cost_timer_now(timer);

        cost_event_add(&timer->event, stage,
                       cost_clock_between(timer->last, now));
        timer->last = now;
    } else {
        cost_timer_refuse__();
    }
}

/* Takes 'ticks' off the event of 'timer'. */
static void
exclude(struct cost_timer *timer, uint64_t ticks)
{
    if (timer && timer->recorder) {
        timer->event.excluded += ticks;
        timer->start += ticks;
        if (timer->split) {
            timer->last += ticks;
        }
    }
}

/* Takes 'ticks', which an event without a timer took, off the calling
 * thread's innermost timer's event, if there is one. */
void
cost_timer_exclude(uint64_t ticks)
{
    exclude(cost_thread_get()->timer, ticks);
}

/* Ends 'timer''s event, which was left open, 'now', or at the present time if
 * that is 0. */
void
cost_timer_end__(struct cost_timer *timer, uint64_t now)
{
    if (!now) {
        now = cost_timer_now(timer);
    }
    if (OVS_UNLIKELY(timer->outer)) {
        exclude(timer->outer, cost_clock_between(timer->begin, now));
    }
    if (OVS_UNLIKELY(timer->split)) {
        cost_event_add(&timer->event, timer->stage,
                       cost_clock_between(timer->last, now));
    }
    timer->open = false;
    timer->event.total = cost_clock_between(timer->start, now);
    cost_record(timer->recorder, timer->class, &timer->event, &timer->details);
}

/* Does what cost_timer_cancel() does while accounting is on. */
void
cost_timer_cancel__(struct cost_timer *timer)
{
    struct cost_thread *thread = cost_thread_get();

    ovs_assert(thread->timer == timer);
    thread->timer = timer->outer;
    if (timer->outer) {
        exclude(timer->outer,
                cost_clock_between(timer->begin, cost_timer_now(timer)));
    }
}
