/* SPDX-License-Identifier: Apache-2.0 */

#include <config.h>

#include "cost.h"

#include "cost-clock.h"
#include "ovs-thread.h"
#include "simap.h"
#include "timeval.h"
#include "util.h"

struct cost_account {
    struct ovs_list list_node;          /* In 'accounts'. */
    const struct cost_kind *kind;
    char *name;
    char *datapath;                     /* Or NULL. */
    struct ovs_refcount ref_cnt;        /* Of the creator and readers. */

    /* Held by whoever reads what recorders have, too. */
    struct ovs_mutex mutex;
    struct cost_recorder **recorders OVS_GUARDED;
    size_t n_recorders OVS_GUARDED;
    struct cost_book exited OVS_GUARDED;  /* Of recorders that are gone, and
                                           * the keys of all. */
    struct cost_slow **slowest OVS_GUARDED;  /* Of all. */
    size_t n_slowest OVS_GUARDED;
    uint64_t activity OVS_GUARDED;      /* Of recorders, at the latest tick,
                                         * minus that of recorders that have
                                         * gone since. */

    /* Used by the thread that makes ticks only. */
    uint64_t recent;                    /* Activity before the latest one. */
    bool copied;                        /* At the latest one? */

    uint64_t since_tick OVS_GUARDED;    /* The latest one at... */
    long long int since_us OVS_GUARDED; /* ...the latest clear. */
    long long int since_ms OVS_GUARDED; /* Same, time_msec(). */
};

/* A kind that there is, or has been, an account of. */
struct known_kind {
    const struct cost_kind *kind;
    struct cost_account *deleted;       /* Has, as "exited", the numbers of
                                         * accounts that were destroyed. */
    uint64_t n_deleted;                 /* Number of these. */
    long long int since_us;             /* When any account was cleared. */
};

/* Protects the list, and the kinds.  Recording never takes it. */
static struct ovs_mutex accounts_mutex = OVS_MUTEX_INITIALIZER;
static struct ovs_list accounts OVS_GUARDED_BY(accounts_mutex)
    = OVS_LIST_INITIALIZER(&accounts);
static struct known_kind *known_kinds OVS_GUARDED_BY(accounts_mutex);
static size_t n_known_kinds OVS_GUARDED_BY(accounts_mutex);

/* The latest tick.  Only the thread that makes ticks writes it. */
static struct cost_tick latest;
static atomic_uint64_t latest_tick = 0;

/* So many of the most active accounts of a kind, and so many of the recorders
 * of these, are copied at a tick. */
#define MAX_ACCOUNTS 256
#define MAX_RECORDERS 256

/* Accounts. */

/* Creates an account that nobody knows yet. */
static struct cost_account *
account_create(const struct cost_kind *kind, const char *name,
               const char *datapath)
{
    struct cost_account *account = cost_alloc(sizeof *account);

    account->kind = kind;
    account->name = xstrdup(name);
    account->datapath = nullable_xstrdup(kind->typed_names ? name : datapath);
    ovs_refcount_init(&account->ref_cnt);
    ovs_mutex_init(&account->mutex);
    ovs_mutex_lock(&account->mutex);
    cost_book_init(&account->exited, kind);
    account->since_tick = cost_load(&latest_tick);
    account->since_us = time_wall_usec();
    account->since_ms = time_msec();
    ovs_mutex_unlock(&account->mutex);
    return account;
}

/* Returns what is known of 'kind', which remains valid while the lock is
 * held. */
static struct known_kind *
get_kind(const struct cost_kind *kind)
    OVS_REQUIRES(accounts_mutex)
{
    struct known_kind *known;

    for (size_t i = 0; i < n_known_kinds; i++) {
        if (known_kinds[i].kind == kind) {
            return &known_kinds[i];
        }
    }
    known_kinds = xrealloc(known_kinds,
                           (n_known_kinds + 1) * sizeof *known_kinds);
    known = &known_kinds[n_known_kinds++];
    known->kind = kind;
    known->deleted = account_create(kind, "deleted", NULL);
    known->n_deleted = 0;
    known->since_us = time_wall_usec();
    return known;
}

/* Creates and returns a new account for events of 'kind', with 'name', which
 * should be unique among those of its kind in 'datapath', "TYPE@NAME".  That
 * is NULL if its object is in no datapath; an account of a kind with
 * 'typed_names' is for the datapath that it is named after. */
struct cost_account *
cost_account_create(const struct cost_kind *kind, const char *name,
                    const char *datapath)
{
    struct cost_account *account;

    ovs_assert(kind->n_stages <= COST_MAX_STAGES);
    ovs_assert(kind->n_counters <= COST_MAX_COUNTERS);
    ovs_assert(kind->n_lists <= COST_MAX_LISTS);
    ovs_assert(kind->n_slowest <= COST_MAX_SLOWEST);

    cost_clock_init();
    cost_config_register(kind->config);

    /* With the lock, so that the next tick copies it. */
    ovs_mutex_lock(&accounts_mutex);
    account = account_create(kind, name, datapath);
    ovs_list_push_back(&accounts, &account->list_node);
    get_kind(kind);
    ovs_mutex_unlock(&accounts_mutex);
    return account;
}

/* Drops what 'account' has of recorders that are gone, the slowest events, and
 * all copies. */
static void
account_drop(struct cost_account *account)
    OVS_REQUIRES(account->mutex)
{
    cost_book_uninit(&account->exited);
    cost_book_init(&account->exited, account->kind);
    account->activity = 0;
    while (account->n_slowest) {
        cost_slow_destroy(account->slowest[--account->n_slowest]);
    }
    cost_window_forget(account);
    cost_window_forget(&account->exited);
    for (size_t i = 0; i < account->n_recorders; i++) {
        cost_window_forget(account->recorders[i]);
    }
}

static void
account_unref(struct cost_account *account)
{
    if (ovs_refcount_unref(&account->ref_cnt) == 1) {
        ovs_mutex_lock(&account->mutex);
        account_drop(account);
        cost_book_uninit(&account->exited);
        free(account->recorders);
        free(account->slowest);
        ovs_mutex_unlock(&account->mutex);
        ovs_mutex_destroy(&account->mutex);
        free(account->datapath);
        free(account->name);
        cost_free(account, sizeof *account);
    }
}

/* Moves the slowest events that recorders of 'account' have to it, for 'tick',
 * the next one, and keeps those that are among the slowest since a tick that
 * is kept, or of all.  The calling thread must not be quiescent. */
static void
take_slowest(struct cost_account *account, uint64_t tick)
    OVS_REQUIRES(account->mutex)
{
    const struct cost_kind *kind = account->kind;
    size_t n_all = account->n_slowest, n = 0;
    struct cost_slow **all;

    for (size_t i = 0; i < account->n_recorders; i++) {
        struct cost_slow *slow
            = cost_recorder_take_slowest(account->recorders[i]);

        if (slow) {
            account->slowest = xrealloc(
                account->slowest, (n_all + kind->n_slowest) * sizeof *all);
        }
        for (; slow; slow = slow->next) {
            slow->tick = tick;
            account->slowest[n_all++] = slow;
        }
    }
    all = account->slowest;
    if (n_all) {
        qsort(all, n_all, sizeof *all, cost_slow_compare);
    }
    for (size_t i = 0; i < n_all; i++) {
        struct cost_slow *slow = all[i];
        /* A thread that exits may have begun before the last tick. */
        uint64_t age = tick - MIN(tick, slow->tick);
        size_t n_later = 0;

        /* Those that are kept so far are slower. */
        if (age > COST_TICKS_EACH + COST_TICKS_STEP) {
            slow->tick = ROUND_UP(slow->tick, COST_TICKS_STEP);
        }
        for (size_t j = 0; j < n; j++) {
            n_later += all[j]->tick >= slow->tick;
        }
        if (n < kind->n_slowest
            || (n_later < kind->n_slowest
                && age <= COST_TICKS_MAX)) {
            all[n++] = slow;
        } else {
            cost_slow_destroy(slow);
        }
    }
    account->n_slowest = n;
}

/* Makes cost_account_read() of 'account' have the latest of the slowest
 * events. */
void
cost_account_take_slowest(struct cost_account *account)
{
    ovs_mutex_lock(&account->mutex);
    take_slowest(account, cost_load(&latest_tick) + 1);
    ovs_mutex_unlock(&account->mutex);
}

/* Moves what recorder 'idx' of 'account', which no thread uses any more, has
 * to its numbers of recorders that are gone, and frees it. */
static void
remove_recorder(struct cost_account *account, size_t idx)
    OVS_REQUIRES(account->mutex)
{
    struct cost_recorder *recorder = account->recorders[idx];
    struct cost_book book;

    take_slowest(account, cost_load(&latest_tick) + 1);
    cost_recorder_take_keys(recorder, account->exited.keys);
    cost_book_init(&book, account->kind);
    cost_recorder_read(recorder, &book);
    cost_book_add(&account->exited, &book);
    account->activity -= cost_recorder_activity(recorder);
    cost_window_pass(recorder, &account->exited,
                     MAX(recorder->since_tick, account->since_tick), &book);
    cost_window_forget(recorder);
    cost_book_uninit(&book);

    account->n_recorders--;
    memmove(&account->recorders[idx], &account->recorders[idx + 1],
            (account->n_recorders - idx) * sizeof *account->recorders);
    cost_recorder_take_data(recorder);
    cost_free(recorder, sizeof *recorder);
}

/* Destroys all recorders of 'account', which no thread may be using any more.
 * The account keeps their numbers. */
void
cost_account_remove_recorders(struct cost_account *account)
{
    ovs_mutex_lock(&account->mutex);
    while (account->n_recorders) {
        remove_recorder(account, account->n_recorders - 1);
    }
    ovs_mutex_unlock(&account->mutex);
}

/* Destroys 'account', which may be NULL, and those of its recorders that have
 * not been destroyed.  No event of it may be recorded any more. */
void
cost_account_destroy(struct cost_account *account)
{
    struct cost_account *deleted;
    struct known_kind *known;

    if (!account) {
        return;
    }

    cost_account_remove_recorders(account);

    /* Readers get an account's numbers either from it or as deleted. */
    ovs_mutex_lock(&accounts_mutex);
    ovs_list_remove(&account->list_node);
    ovs_mutex_lock(&account->mutex);
    known = get_kind(account->kind);
    known->n_deleted++;
    deleted = known->deleted;
    ovs_mutex_lock(&deleted->mutex);
    cost_book_add(&deleted->exited, &account->exited);
    cost_window_pass(account, deleted, account->since_tick, &account->exited);
    ovs_mutex_unlock(&deleted->mutex);
    ovs_mutex_unlock(&account->mutex);
    account_unref(account);
    ovs_mutex_unlock(&accounts_mutex);
}

/* Creates and returns a recorder of 'account' for a thread that is called
 * 'thread', a name that another recorder may have, too.  The caller owns it.
 * Returns NULL if 'account' is NULL. */
struct cost_recorder *
cost_recorder_create(struct cost_account *account, const char *thread)
{
    struct cost_recorder *recorder;

    if (!account) {
        return NULL;
    }
    recorder = cost_recorder_alloc(account->kind, thread);
    recorder->account = account;
    ovs_mutex_lock(&account->mutex);
    recorder->since_tick = cost_load(&latest_tick);
    account->recorders = xrealloc(account->recorders,
                                  (account->n_recorders + 1)
                                  * sizeof *account->recorders);
    account->recorders[account->n_recorders++] = recorder;
    ovs_mutex_unlock(&account->mutex);
    return recorder;
}

/* Destroys 'recorder', which may be NULL and no thread may be using any more.
 * Its account keeps its numbers. */
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

/* Stores in 'all' the accounts named 'name', or all accounts if 'name' is
 * NULL, whose kind is one of 'kinds', and, in that case, sums for each of
 * these.  An account of a kind with 'typed_names', "TYPE@NAME", goes by the
 * name of "NAME", too.  'last_ms' 0 is all the time.  The caller must free it
 * with cost_accounts_put(). */
void
cost_accounts_get(const struct cost_kind *const kinds[], size_t n_kinds,
                  const char *name, long long int last_ms,
                  struct cost_accounts *all)
{
    struct cost_account *account;

    if (kinds[0]->config->refresh) {
        kinds[0]->config->refresh();
    }

    memset(all, 0, sizeof *all);
    ovs_mutex_lock(&accounts_mutex);
    if (last_ms) {
        cost_tick_find(last_ms, &all->from);
    }
    all->accounts = xmalloc(ovs_list_size(&accounts)
                            * sizeof *all->accounts);
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
        struct cost_sum *total = &all->totals[i];
        struct cost_reading reading;

        deleted->n_accounts = total->n_accounts = known->n_deleted;
        deleted->since_us = all->from.us;
        cost_book_init(&deleted->book, kinds[i]);
        cost_book_init(&total->book, kinds[i]);
        if (cost_account_read(known->deleted, &all->from, &reading)) {
            deleted->since_us = reading.since_us;
            cost_book_add(&deleted->book, &reading.total);
            cost_book_add(&total->book, &reading.total);
            cost_reading_uninit(&reading);
        }
        total->since_us = MAX(deleted->since_us, known->since_us);
    }
    ovs_mutex_unlock(&accounts_mutex);
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

/* Returns the owner of copies of thread 'i' of 'account': a recorder, or, if
 * there are not so many, that of all that are gone. */
static const void *
thread_owner(const struct cost_account *account, size_t i)
    OVS_REQUIRES(account->mutex)
{
    return (i < account->n_recorders ? (const void *) account->recorders[i]
            : &account->exited);
}

/* Adds the numbers of thread 'i' of 'account' to 'book'.  The keys of all
 * threads are among the numbers of the last one. */
static void
read_thread(struct cost_account *account, size_t i, struct cost_book *book)
    OVS_REQUIRES(account->mutex)
{
    if (i < account->n_recorders) {
        cost_recorder_take_keys(account->recorders[i], account->exited.keys);
        cost_recorder_read(account->recorders[i], book);
    } else {
        cost_book_add(book, &account->exited);
    }
}

/* Reads 'account' into 'reading', and only what happened since 'from', from
 * cost_accounts_get(), unless its number is 0, or the account is new or
 * cleared since.  If its numbers were not copied then, as it was not active,
 * reads what happened since a later tick.
 *
 * Returns true if successful: then the caller must free it with
 * cost_reading_uninit().  Returns false if there has been no such tick.
 *
 * The calling thread must not be quiescent.  The account must stay until
 * 'reading' is freed. */
bool
cost_account_read(struct cost_account *account, const struct cost_tick *from,
                  struct cost_reading *reading)
{
    const struct cost_kind *kind = account->kind;
    struct cost_tick tick = *from;
    size_t n;
    bool known;

    reading->kind = kind;
    reading->name = account->name;
    reading->datapath = account->datapath;
    cost_book_init(&reading->total, kind);

    ovs_mutex_lock(&account->mutex);
    n = account->n_recorders + 1;
    reading->threads = xmalloc(n * sizeof *reading->threads);
    for (size_t i = 0; i < n; i++) {
        struct cost_thread_book *thread = &reading->threads[i];

        cost_book_init(&thread->book, kind);
        read_thread(account, i, &thread->book);
        ovs_strlcpy(thread->name, (i < n - 1 ? account->recorders[i]->thread
                                   : "exited"), sizeof thread->name);
        cost_book_add(&reading->total, &thread->book);
    }

    known = account->since_tick >= tick.number;
    if (known) {
        tick.number = 0;
    } else {
        known = cost_window_subtract(account, true, &tick, &reading->total);
    }
    reading->n_threads = 0;
    for (size_t i = 0; i < n; i++) {
        struct cost_thread_book *thread = &reading->threads[i];
        uint64_t since_tick = i < n - 1 ? account->recorders[i]->since_tick
                                        : 0;

        if (since_tick >= tick.number
            || cost_window_subtract(thread_owner(account, i), false, &tick,
                                    &thread->book)) {
            reading->threads[reading->n_threads++] = *thread;
        } else {
            cost_book_uninit(&thread->book);
        }
    }

    reading->since_us = tick.number ? tick.us : account->since_us;
    reading->elapsed_ms = (time_msec()
                           - (tick.number ? tick.ms : account->since_ms));
    reading->slowest = xmalloc(kind->n_slowest * sizeof *reading->slowest);
    reading->n_slowest = 0;
    for (size_t i = 0; i < account->n_slowest; i++) {
        if (account->slowest[i]->tick > tick.number
            && reading->n_slowest < kind->n_slowest) {
            reading->slowest[reading->n_slowest++]
                = cost_slow_clone(account->slowest[i]);
        }
    }
    ovs_mutex_unlock(&account->mutex);
    if (!known) {
        cost_reading_uninit(reading);
    }
    return known;
}

/* So many times as active must an account be as one that has windows already
 * to be copied instead of that. */
#define LOYALTY 2

static int
compare_active(const void *a_, const void *b_)
{
    const struct cost_account *const *a = a_, *const *b = b_;
    uint64_t n_a = (*a)->recent * ((*a)->copied ? LOYALTY : 1);
    uint64_t n_b = (*b)->recent * ((*b)->copied ? LOYALTY : 1);

    return n_a != n_b ? (n_a < n_b ? 1 : -1) : *a < *b ? -1 : 1;
}

/* Finds out how much 'account' has recorded since this was last called, and
 * makes its recorders heed a new threshold of the log. */
static void
update_activity(struct cost_account *account)
{
    uint64_t activity = 0;

    ovs_mutex_lock(&account->mutex);
    for (size_t i = 0; i < account->n_recorders; i++) {
        activity += cost_recorder_activity(account->recorders[i]);
        cost_recorder_reset_threshold(account->recorders[i]);
    }
    account->recent = activity - account->activity;
    account->activity = activity;
    ovs_mutex_unlock(&account->mutex);
}

/* Copies the numbers of 'account', and of '*n_recorders' of its recorders at
 * most, from which those are taken, at 'tick'.  If it has recorded nothing
 * since the tick before, the numbers are those of that tick. */
static void
account_copy(struct cost_account *account, uint64_t tick, size_t *n_recorders)
{
    struct cost_book total;
    bool active;

    ovs_mutex_lock(&account->mutex);
    if (account->recent) {
        take_slowest(account, tick);
    }
    active = account->recent || !cost_window_repeat(account);
    cost_book_init(&total, account->kind);
    for (size_t i = 0; i <= account->n_recorders; i++) {
        const void *owner = thread_owner(account, i);
        bool copy = i == account->n_recorders || *n_recorders > 0;

        *n_recorders -= copy && i < account->n_recorders;
        if (active || (copy && !cost_window_repeat(owner))) {
            struct cost_book book;

            cost_book_init(&book, account->kind);
            read_thread(account, i, &book);
            cost_book_add(&total, &book);
            if (copy) {
                cost_window_copy(owner, &book);
            }
            cost_book_uninit(&book);
        }
    }
    if (active) {
        cost_window_copy(account, &total);
    }
    cost_book_uninit(&total);
    ovs_mutex_unlock(&account->mutex);
}

/* Copies the numbers of the most active accounts of 'kind' at 'tick'. */
static void
kind_copy(const struct cost_kind *kind, uint64_t tick)
{
    size_t n_recorders = MAX_RECORDERS;
    struct cost_accounts all;

    cost_accounts_get(&kind, 1, NULL, 0, &all);
    for (size_t i = 0; i < all.n; i++) {
        update_activity(all.accounts[i]);
        if (i % 64 == 0) {
            ovsrcu_quiesce();
        }
    }
    qsort(all.accounts, all.n, sizeof *all.accounts, compare_active);
    for (size_t i = 0; i < all.n; i++) {
        struct cost_account *account = all.accounts[i];

        account->copied = i < MAX_ACCOUNTS;
        if (account->copied) {
            account_copy(account, tick, &n_recorders);
            ovsrcu_quiesce();
        }
    }
    cost_accounts_put(&all);
}

/* Copies the most active accounts if the latest copy is some seconds old.
 * Always the same thread must call this, which must not be quiescent. */
void
cost_accounts_copy(void)
{
    uint64_t tick = latest.number + 1;

    if (latest.number && time_msec() - latest.ms < COST_TICK_MS) {
        return;
    }
    ovs_mutex_lock(&accounts_mutex);
    latest.number = tick;
    latest.ms = time_msec();
    latest.us = time_wall_usec();
    cost_tick_begin(&latest);
    cost_store(&latest_tick, tick);
    for (size_t i = 0; i < n_known_kinds; i++) {
        const struct cost_kind *kind = known_kinds[i].kind;
        struct cost_account *deleted = known_kinds[i].deleted;

        ovs_mutex_lock(&deleted->mutex);
        cost_window_copy(deleted, &deleted->exited);
        ovs_mutex_unlock(&deleted->mutex);
        ovs_mutex_unlock(&accounts_mutex);
        kind_copy(kind, tick);
        ovs_mutex_lock(&accounts_mutex);
    }
    ovs_mutex_unlock(&accounts_mutex);
}

/* Frees what 'reading' has. */
void
cost_reading_uninit(struct cost_reading *reading)
{
    for (size_t i = 0; i < reading->n_threads; i++) {
        cost_book_uninit(&reading->threads[i].book);
    }
    free(reading->threads);
    for (size_t i = 0; i < reading->n_slowest; i++) {
        cost_slow_destroy(reading->slowest[i]);
    }
    free(reading->slowest);
    cost_book_uninit(&reading->total);
}

static void
account_clear(struct cost_account *account)
    OVS_REQUIRES(accounts_mutex)
{
    struct known_kind *known = get_kind(account->kind);

    ovs_mutex_lock(&account->mutex);
    for (size_t i = 0; i < account->n_recorders; i++) {
        cost_recorder_take_data(account->recorders[i]);
    }
    account_drop(account);
    account->since_tick = cost_load(&latest_tick);
    account->since_us = MAX(time_wall_usec(), account->since_us + 1);
    account->since_ms = time_msec();
    known->since_us = MAX(account->since_us, known->since_us + 1);
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
    size_t n;

    cost_accounts_get(kinds, n_kinds, name, 0, &all);
    n = all.n;
    ovs_mutex_lock(&accounts_mutex);
    for (size_t i = 0; i < n; i++) {
        account_clear(all.accounts[i]);
    }
    for (size_t i = 0; i < all.n_kinds; i++) {
        struct known_kind *known = get_kind(kinds[i]);

        account_clear(known->deleted);
        known->n_deleted = 0;
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
    simap_increase(usage, "cost-accounts", ovs_list_size(&accounts));
    ovs_mutex_unlock(&accounts_mutex);
}
