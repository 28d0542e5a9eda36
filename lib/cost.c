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

#include "cost-clock.h"
#include "openvswitch/vlog.h"
#include "ovs-thread.h"
#include "random.h"
#include "simap.h"
#include "smap.h"
#include "sset.h"
#include "timeval.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(cost);

/* For a function that recording an event calls now and then: were it inlined,
 * recording would have to save registers for it each time. */
#if __GNUC__
#define COST_COLD __attribute__((__noinline__, __cold__))
#else
#define COST_COLD
#endif

struct cost_account {
    struct ovs_list list_node;          /* In 'accounts'. */
    const struct cost_kind *kind;
    char *name;
    char *datapath;                     /* Or NULL. */
    struct ovs_refcount ref_cnt;        /* Creator and readers. */

    /* Held by whoever reads what recorders have, too. */
    struct ovs_mutex mutex;
    struct cost_recorder **recorders OVS_GUARDED;
    size_t n_recorders OVS_GUARDED;
    size_t allocated_recorders OVS_GUARDED;
    struct cost_book *exited OVS_GUARDED;  /* Of recorders that are gone, or
                                            * NULL. */
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

/* The most bursts of an output queue that go with one cost_sample(), twice. */
#define TALLIES 64

/* No event is of its class. */
#define NO_CLASS UINT32_MAX
struct cost_data cost_no_data = { .latest_class = NO_CLASS };

/* Configuration. */

/* Returns the sample interval that is configured as 'key', 'default_interval'
 * if none is. */
static uint32_t
get_interval(const char *key, uint32_t default_interval)
    OVS_REQUIRES(config_mutex)
{
    unsigned long long int interval;

    interval = smap_get_ullong(&settings, key, default_interval);
    if (interval < 1 || interval > COST_MAX_SAMPLE_INTERVAL) {
        static struct vlog_rate_limit rl = VLOG_RATE_LIMIT_INIT(1, 5);

        VLOG_WARN_RL(&rl, "other_config:%s=%s is not between 1 and %d, "
                     "using %"PRIu32, key, smap_get_def(&settings, key, ""),
                     COST_MAX_SAMPLE_INTERVAL, default_interval);
        interval = default_interval;
    }
    return interval;
}

/* Makes 'reports' the list of reports in "cost-accounting", empty if that is
 * no list.  Returns true if it is "true", which is the default: all are on. */
static bool
get_reports(struct sset *reports)
    OVS_REQUIRES(config_mutex)
{
    const char *value = smap_get_def(&settings, "cost-accounting", "true");
    bool all = !strcasecmp(value, "true");
    bool list = !all && strcasecmp(value, "false");

    sset_from_delimited_string(reports, list ? value : "", ", ");
    return all;
}

static void
cost_config_apply(struct cost_config *config)
    OVS_REQUIRES(config_mutex)
{
    char *key = xasprintf("cost-sample-interval-%s", config->name);
    uint32_t interval = config->default_interval;
    struct sset reports;
    bool enabled;

    enabled = get_reports(&reports) || sset_contains(&reports, config->name);
    sset_destroy(&reports);

    if (smap_get(&settings, "cost-sample-interval")) {
        interval = get_interval("cost-sample-interval", interval);
    }
    interval = enabled ? get_interval(key, interval) : 0;
    free(key);

    if (config->refresh && enabled != cost_enabled(config)) {
        config->refresh();
    }
    if (config->apply) {
        config->apply(&settings, enabled);
    }
    if (interval != cost_sample_interval(config)) {
        if (enabled) {
            VLOG_INFO("cost accounting of %s on, 1 in %"PRIu32" events "
                      "sampled", config->name, interval);
        } else {
            VLOG_INFO("cost accounting of %s off", config->name);
        }
    }
    atomic_store_explicit(&config->sample_interval, interval,
                          memory_order_release);
}

/* Applies the settings whose names start with "cost-" from 'other_config', the
 * column in the Open_vSwitch table (see ovs-vswitchd.conf.db(5)).  Takes
 * effect with the next event of each thread. */
void
cost_configure(const struct smap *other_config)
{
    struct cost_config *config;
    struct smap_node *node;
    struct sset reports;
    const char *name;
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
        get_reports(&reports);
        LIST_FOR_EACH (config, list_node, &configs) {
            cost_config_apply(config);
            sset_find_and_delete(&reports, config->name);
        }
        SSET_FOR_EACH (name, &reports) {
            VLOG_WARN("other_config:cost-accounting: no report \"%s\"", name);
        }
        sset_destroy(&reports);
    }
    ovs_mutex_unlock(&config_mutex);
    smap_destroy(&new);
}

/* Makes the settings apply to 'config', which is static, if they do not
 * yet. */
void
cost_config_register(struct cost_config *config)
{
    ovs_mutex_lock(&config_mutex);
    if (!config->list_node.next) {
        ovs_list_push_back(&configs, &config->list_node);
        cost_config_apply(config);
    }
    ovs_mutex_unlock(&config_mutex);
}

/* Data of recorders. */

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
    cost_free(data, sizeof *data);
}

/* Takes away from 'recorder' what it has recorded, if anything.  Its thread
 * may be about to add an event, which is gone, too. */
static void
recorder_take_data(struct cost_recorder *recorder)
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
static bool
recorder_read(const struct cost_recorder *recorder, bool slowest,
              struct cost_book *book)
{
    const struct cost_data *data = ovsrcu_get(struct cost_data *,
                                              &recorder->data);
    const struct cost_classes *classes;
    const struct cost_slowest *from;

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
    from = ovsrcu_get(struct cost_slowest *, &data->slowest);
    return !slowest || !from || cost_book_read_slowest(book, from);
}

/* Accounts. */

static void
sum_init(struct cost_sum *sum, const struct cost_kind *kind,
         long long int since_us)
{
    sum->n_accounts = 0;
    sum->since_us = since_us;
    cost_book_init(&sum->book, kind, "");
}

/* Returns what is known of 'kind', which remains valid while the lock is
 * held. */
static struct known_kind *
get_kind(const struct cost_kind *kind)
    OVS_REQUIRES(accounts_mutex)
{
    struct known_kind *known;

    for (size_t i = 0; i < n_known_kinds; i++) {
        if (known_kinds[i].deleted.book.kind == kind) {
            return &known_kinds[i];
        }
    }
    known_kinds = xrealloc(known_kinds,
                           (n_known_kinds + 1) * sizeof *known_kinds);
    known = &known_kinds[n_known_kinds++];
    known->since_us = time_wall_usec();
    sum_init(&known->deleted, kind, known->since_us);
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
    struct cost_account *account = cost_alloc(sizeof *account);

    ovs_assert(kind->n_stages <= COST_MAX_STAGES);
    ovs_assert(kind->n_counters <= COST_MAX_COUNTERS);
    ovs_assert(kind->n_rows <= COST_MAX_ROWS);
    ovs_assert(kind->n_slowest <= COST_MAX_SLOWEST);

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
account_drop_exited(struct cost_account *account)
    OVS_REQUIRES(account->mutex)
{
    if (account->exited) {
        cost_book_uninit(account->exited);
        free(account->exited);
        account->exited = NULL;
    }
}

static void
account_unref(struct cost_account *account)
{
    if (ovs_refcount_unref(&account->ref_cnt) == 1) {
        ovs_mutex_lock(&account->mutex);
        account_drop_exited(account);
        free(account->recorders);
        ovs_mutex_unlock(&account->mutex);
        ovs_mutex_destroy(&account->mutex);
        free(account->datapath);
        free(account->name);
        cost_free(account, sizeof *account);
    }
}

/* Moves what recorder 'idx' of 'account', which no thread uses any more, has
 * to its numbers of recorders that are gone, and frees it. */
static void
remove_recorder(struct cost_account *account, size_t idx)
    OVS_REQUIRES(account->mutex)
{
    struct cost_recorder *recorder = account->recorders[idx];
    struct cost_book book;

    if (!account->exited) {
        account->exited = xmalloc(sizeof *account->exited);
        cost_book_init(account->exited, account->kind, "exited");
    }
    recorder_read(recorder, true, &book);
    cost_book_add(account->exited, &book);
    cost_book_uninit(&book);
    recorder_take_data(recorder);

    account->n_recorders--;
    memmove(&account->recorders[idx], &account->recorders[idx + 1],
            (account->n_recorders - idx) * sizeof *account->recorders);
    cost_free(recorder, sizeof *recorder);
}

/* Destroys 'account', which may be NULL, and those of its recorders that have
 * not been destroyed.  No event of it may be recorded any more.  Any thread
 * may call this. */
void
cost_account_destroy(struct cost_account *account)
{
    struct cost_sum *deleted;

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
    deleted = &get_kind(account->kind)->deleted;
    deleted->n_accounts++;
    if (account->exited) {
        cost_book_add(&deleted->book, account->exited);
    }
    ovs_mutex_unlock(&account->mutex);
    ovs_mutex_unlock(&accounts_mutex);
    account_unref(account);
}

/* Returns how many events to go until one is sampled, at random, so that 1 in
 * 'interval' is. */
static uint32_t
sample_gap(uint32_t interval)
{
    return (interval > 1 ? 1 + random_range(2 * interval - 1)
            : interval ? 1
            : UINT32_MAX);
}

/* Creates and returns a recorder of 'account' for a thread that is called
 * 'thread', a name that another recorder may have, too.  The caller owns it,
 * and makes sure that one thread at a time uses it, which may be any.  Any
 * thread may call this. */
struct cost_recorder *
cost_recorder_create(struct cost_account *account, const char *thread)
{
    struct cost_recorder *recorder = cost_alloc(sizeof *recorder);

    ovsrcu_init(&recorder->data, &cost_no_data);
    recorder->kind = account->kind;
    recorder->account = account;
    recorder->sample_interval = cost_sample_interval(account->kind->config);
    recorder->sample_in = sample_gap(recorder->sample_interval);
    recorder->tally_class = NO_CLASS;
    ovs_strlcpy(recorder->thread, thread, sizeof recorder->thread);

    ovs_mutex_lock(&account->mutex);
    if (account->n_recorders >= account->allocated_recorders) {
        account->recorders = x2nrealloc(account->recorders,
                                        &account->allocated_recorders,
                                        sizeof *account->recorders);
    }
    account->recorders[account->n_recorders++] = recorder;
    ovs_mutex_unlock(&account->mutex);
    return recorder;
}

/* Destroys 'recorder', which may be NULL and no thread may be using any more.
 * Its account keeps its numbers.  Any thread may call this. */
void
cost_recorder_destroy(struct cost_recorder *recorder)
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

/* Reading. */

/* Returns true if 'account' is one of 'kinds' and named 'name', or that is
 * NULL. */
static bool
account_matches(const struct cost_account *account,
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

static int
compare_accounts(const void *a_, const void *b_)
{
    const struct cost_account *const *a = a_, *const *b = b_;

    return strcmp((*a)->name, (*b)->name);
}

/* Stores in 'all' the accounts named 'name', or all accounts if 'name' is
 * NULL, whose kind is one of 'kinds', and, in that case, sums for each of
 * these.  An account of a kind with 'typed_names', "TYPE@NAME", goes by the
 * name of "NAME", too.  The caller must free it with cost_accounts_put().
 *
 * An account that is destroyed afterwards can still be read, so that it is
 * counted exactly once. */
void
cost_accounts_get(const struct cost_kind *const kinds[], size_t n_kinds,
                  const char *name, struct cost_accounts *all)
{
    struct cost_account *account;

    if (kinds[0]->config->refresh) {
        kinds[0]->config->refresh();
    }

    memset(all, 0, sizeof *all);
    ovs_mutex_lock(&accounts_mutex);
    all->accounts = xmalloc(n_accounts * sizeof *all->accounts);
    LIST_FOR_EACH (account, list_node, &accounts) {
        if (account_matches(account, kinds, n_kinds, name)) {
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

        sum_init(&all->totals[i], kinds[i], known->since_us);
        sum_init(deleted, kinds[i], known->deleted.since_us);
        deleted->n_accounts = known->deleted.n_accounts;
        cost_book_add(&deleted->book, &known->deleted.book);
    }
    ovs_mutex_unlock(&accounts_mutex);
    qsort(all->accounts, all->n, sizeof *all->accounts, compare_accounts);
}

/* Frees what 'all' has. */
void
cost_accounts_put(struct cost_accounts *all)
{
    for (size_t i = 0; i < all->n; i++) {
        account_unref(all->accounts[i]);
    }
    free(all->accounts);
    for (size_t i = 0; i < all->n_kinds; i++) {
        cost_book_uninit(&all->deleted[i].book);
        cost_book_uninit(&all->totals[i].book);
    }
    free(all->deleted);
    free(all->totals);
}

const char *
cost_account_name(const struct cost_account *account)
{
    return account->name;
}

/* Reads 'account' into 'reading', with the slowest events only if 'slowest'.
 * Returns true if successful: then the caller must free it with
 * cost_reading_uninit().  Returns false if a thread that records is stopped in
 * the middle of it, for longer than some 2 ms.
 *
 * The calling thread must not be quiescent.  The account must stay until
 * 'reading' is freed. */
bool
cost_account_read(struct cost_account *account, bool slowest,
                  struct cost_reading *reading)
{
    bool ok = true;

    ovs_mutex_lock(&account->mutex);
    reading->kind = account->kind;
    reading->name = account->name;
    reading->datapath = account->datapath;
    reading->cleared = account->cleared;
    reading->since_us = account->since_us;
    reading->elapsed_ms = time_msec() - account->since_ms;
    reading->threads = xmalloc((account->n_recorders + 1)
                               * sizeof *reading->threads);
    cost_book_init(&reading->total, account->kind, "");
    reading->n_threads = 0;
    for (size_t i = 0; i < account->n_recorders && ok; i++) {
        ok = recorder_read(account->recorders[i], slowest,
                           &reading->threads[reading->n_threads++]);
    }
    if (ok) {
        struct cost_book *exited = &reading->threads[reading->n_threads++];

        cost_book_init(exited, account->kind, "exited");
        if (account->exited) {
            cost_book_add(exited, account->exited);
        }
    }
    ovs_mutex_unlock(&account->mutex);

    if (!ok) {
        cost_reading_uninit(reading);
        return false;
    }
    for (size_t i = 0; i < reading->n_threads; i++) {
        cost_book_add(&reading->total, &reading->threads[i]);
    }
    return true;
}

/* Frees what 'reading' has. */
void
cost_reading_uninit(struct cost_reading *reading)
{
    for (size_t i = 0; i < reading->n_threads; i++) {
        cost_book_uninit(&reading->threads[i]);
    }
    free(reading->threads);
    cost_book_uninit(&reading->total);
}

static void
account_clear(struct cost_account *account)
{
    ovs_mutex_lock(&account->mutex);
    for (size_t i = 0; i < account->n_recorders; i++) {
        recorder_take_data(account->recorders[i]);
    }
    account_drop_exited(account);
    account->cleared = true;
    account->since_us = MAX(time_wall_usec(), account->since_us + 1);
    account->since_ms = time_msec();
    ovs_mutex_unlock(&account->mutex);
}

/* Clears the accounts that cost_accounts_get() would get, and deleted ones.
 * Returns the number of accounts.  An event that is in progress counts when it
 * ends. */
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
        account_clear(all.accounts[i]);
    }

    now_us = time_wall_usec();
    ovs_mutex_lock(&accounts_mutex);
    for (size_t i = 0; i < n_kinds; i++) {
        struct known_kind *known = get_kind(kinds[i]);
        bool cleared = !name;

        if (!name) {
            cost_book_uninit(&known->deleted.book);
            sum_init(&known->deleted, kinds[i],
                     MAX(now_us, known->deleted.since_us + 1));
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

/* Returns 'recorder''s data, which is created if necessary, after making
 * 'class' the latest one. */
static struct cost_data * COST_COLD
recorder_prepare(struct cost_recorder *recorder, size_t class)
{
    struct cost_data *data = ovsrcu_get(struct cost_data *, &recorder->data);
    struct cost_classes *classes;
    bool new = data == &cost_no_data;

    if (new) {
        data = cost_alloc(sizeof *data);
        ovsrcu_init(&data->slowest, NULL);
        ovsrcu_init(&data->classes, NULL);
        recorder->tally_class = NO_CLASS;
    }
    classes = data_classes(data);
    if (!classes || class >= classes->n) {
        classes = data_grow_classes(data, class);
    }
    data->latest_class = class;
    data->latest = ovsrcu_get_protected(struct cost_block *,
                                        &classes->blocks[class]);
    if (!data->latest) {
        data_set_latest(data, cost_block_create(recorder->kind));
    }
    if (new) {
        ovsrcu_set(&recorder->data, data);
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

/* Puts 'entry' among the slowest of 'recorder'. */
static void COST_COLD
record_slow(struct cost_recorder *recorder, struct cost_data *data,
            const struct cost_entry *entry, const struct cost_details *details)
{
    struct cost_slowest *slowest
        = ovsrcu_get_protected(struct cost_slowest *, &data->slowest);

    if (!slowest) {
        slowest = cost_slowest_create(recorder->kind);
        ovsrcu_set(&data->slowest, slowest);
    }
    cost_slowest_insert(slowest, entry, details);
    data->slow_ns = slowest->threshold_ns;
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
 * 'details', which may be NULL, too.
 *
 * Costs some 10 ns, and some 10 ns for each stage that is known.  An event
 * that is among the slowest so far, or the first of its class in this thread,
 * or the first of a doubling of times, takes some 100 ns longer. */
void
cost_record(struct cost_recorder *recorder, const struct cost_entry *entry,
            const uint64_t *counts, const struct cost_details *details)
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
    if (timed && OVS_UNLIKELY(entry->stages[total] > data->slow_ns)
        && kind->n_slowest) {
        record_slow(recorder, data, entry, details);
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
        cost_record(recorder, &entry, NULL, NULL);
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
