/* SPDX-License-Identifier: Apache-2.0 */

#ifndef COST_H
#define COST_H 1

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "cost-recorder.h"
#include "cost-window.h"

struct simap;

/* Cost accounting: where a thread's time goes, exactly and always on.
 * ====================================================================
 *
 * A 'struct cost_account' holds the numbers of one object (such as a
 * datapath), in a 'struct cost_recorder' for each thread.  The owner of an
 * event's context (the PMD thread, its tx port, the handler) owns the
 * recorder, too, so nothing is ever searched for.  lib/cost-span.h times an
 * event and records it.
 *
 * Every event is counted.  Splitting one into stages takes a clock reading per
 * stage, so only one in 'sample_interval' events is split.  The gaps between
 * them are random, 1 to 2 * 'sample_interval' - 1 events: with fixed gaps, if
 * two sorts of events alternate (such as the upcalls before and after a
 * recirculation), one sort might never be split.  Kinds that are 'exact', such
 * as Netlink calls, have all events split.
 *
 * Events as short as a burst of packets are timed only if they are sampled.
 * The others are only counted, see cost_count_event().
 *
 * An event in progress when accounting is switched off is recorded, unless it
 * is an iteration of the main loop, an upcall that gets lost, or a burst that
 * is timed, is within another event, has drops or retries, fails, or goes to
 * another tx queue than the burst before.
 *
 *
 * Thread-safety
 * =============
 *
 * A recorder has a single writer at any time: its owner makes sure of that.
 * Recording never waits, except that a thread's first Netlink call of a family
 * creates a recorder, which takes locks.  It allocates memory for the first
 * event of a class, times of a new half doubling, slow events, new keys, and a
 * thread's ring of the flight recorder.  Neither the writer nor a reader may
 * be quiescent (see ovs-rcu.h).
 *
 * Any thread may read or clear an account while others record into it, with
 * relaxed loads: a reading may have part of an event that is recorded
 * meanwhile, such as its time without its counter, and may lack a list of the
 * slowest events or keys that its thread is adding to; the next reading has
 * the rest.  Sums are exact once no thread records.
 *
 * Locks are taken in this order: the lock of lib/netlink-cost.c; of the
 * configuration, under which cost_config's apply() runs, and sometimes
 * refresh(); one that these take, such as the lock of the flight recorder or
 * of sockets; of all accounts; of one account; of the deleted accounts of its
 * kind; of windows.  Otherwise, recording only tries locks: for an event that
 * is to be logged, for a cause, and for the flight recorder, see
 * lib/cost-flight.h.
 *
 * The numbers of a destroyed recorder move to a book named "exited".  The
 * numbers of a destroyed account, with those of its recorders, move to the
 * sums of deleted accounts, which cost_accounts_get() returns.  Keys move to
 * "exited" when the account is read or copied.  The slowest events move to the
 * account when it is copied, and in cost_account_take_slowest(), which readers
 * that want the latest ones call before cost_account_read().  Both move when a
 * recorder is destroyed, by its own thread or, for a PMD thread, by the main
 * thread.
 * Slowest events of deleted accounts are not shown.
 *
 * Clearing an account removes the data of its recorders, and empties "exited".
 * An event in progress counts for the new data; one that a thread is just
 * adding may be lost.  Clearing all accounts of a kind clears the sum of
 * deleted ones, too.  The flight recorder, cost/threads,
 * revalidator/cost-limit and an event that waits for cost_log() stay.
 *
 * The sampler, see lib/cost-threads.h, calls cost_log(), and
 * cost_accounts_copy() for the reports of the last minutes, see
 * lib/cost-window.h.  'last_ms' of cost_accounts_get() is rounded up to a tick
 * that is kept, by up to a minute.  If there was none so long ago, numbers are
 * of all the time.  They are of less than 'last_ms' if copies so old had to be
 * freed, or the account has none of that tick: see 'elapsed_ms'. */

/* Accounts.  Any thread may call these.  cost_account_remove_recorders()
 * destroys all recorders, which no thread may use any more: those of a tx
 * port, when it is reconfigured. */
struct cost_account *cost_account_create(const struct cost_kind *,
                                         const char *name,
                                         const char *datapath);
void cost_account_remove_recorders(struct cost_account *);
void cost_account_destroy(struct cost_account *);

/* Recorders.  Any thread may create one, or destroy one not in use. */
struct cost_recorder *cost_recorder_create(struct cost_account *,
                                           const char *thread);
void cost_recorder_destroy(struct cost_recorder *);

/* Reading. */

/* What a thread has recorded. */
struct cost_thread_book {
    char name[COST_NAME_MAX];
    struct cost_book book;
};

/* All that is known of an account. */
struct cost_reading {
    const struct cost_kind *kind;
    const char *name;
    const char *datapath;               /* That its object is in, or is, or
                                         * NULL. */
    long long int since_us;             /* Time of day of the latest clear, or
                                         * of its creation, us since the
                                         * Epoch. */
    long long int elapsed_ms;           /* Since then.  If only the last
                                         * minutes, say, were wanted, these two
                                         * are of the tick where they begin,
                                         * unless the clear was later. */
    struct cost_book total;
    struct cost_thread_book *threads;   /* The last one is "exited", with the
                                         * keys of all.  In a window, those
                                         * without a copy are left out. */
    size_t n_threads;
    struct cost_slow **slowest;         /* The slowest one first. */
    size_t n_slowest;
};

/* The sum of accounts of one kind. */
struct cost_sum {
    uint64_t n_accounts;
    long long int since_us;             /* Time of day when any of them was
                                         * cleared last, or the kind was first
                                         * used, or of 'from'. */
    struct cost_book book;
};

/* Accounts at one point in time.  Until cost_accounts_put(), one that is
 * destroyed can still be read, and counts once, as itself or as deleted. */
struct cost_accounts {
    struct cost_account **accounts;
    size_t n;
    struct cost_tick from;              /* Numbers are of the time since then,
                                         * unless its number is 0. */

    /* If all accounts were wanted, for each of 'n_kinds' kinds: the sum of
     * those that have been destroyed, and a copy, to which the caller adds
     * 'accounts'.  The 'since_us' of the copy is right for the result. */
    struct cost_sum *deleted;
    struct cost_sum *totals;
    size_t n_kinds;
};

void cost_accounts_get(const struct cost_kind *const kinds[], size_t n_kinds,
                       const char *name, long long int last_ms,
                       struct cost_accounts *);
void cost_accounts_put(struct cost_accounts *);
size_t cost_accounts_clear(const struct cost_kind *const kinds[],
                           size_t n_kinds, const char *name);
const char *cost_account_name(const struct cost_account *);
void cost_account_take_slowest(struct cost_account *);
/* Returns false, with nothing to free, if the account is older than 'from' and
 * has no copy of then or later. */
bool cost_account_read(struct cost_account *, const struct cost_tick *from,
                       struct cost_reading *);
void cost_accounts_copy(void);
void cost_reading_uninit(struct cost_reading *);

void cost_get_memory_usage(struct simap *usage);

#endif /* cost.h */
