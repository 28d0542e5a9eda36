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
#undef NDEBUG
#include <errno.h>

#include "fat-rwlock.h"
#include "ovs-thread.h"
#include "ovstest.h"
#include "util.h"

#define N_THREADS 4
#define N_LOCKS 20000

static struct fat_rwlock locks[N_LOCKS];
static struct ovs_barrier barrier;
static atomic_count n_busy = ATOMIC_COUNT_INIT(0);

/* Takes and releases each lock, which nobody has write-locked, for the first
 * time in this thread.  'barrier' makes all threads do so at the same time. */
static void *
reader_main(void *aux OVS_UNUSED)
{
    for (size_t i = 0; i < N_LOCKS; i++) {
        ovs_barrier_block(&barrier);
        if (fat_rwlock_tryrdlock(&locks[i])) {
            atomic_count_inc(&n_busy);
        } else {
            fat_rwlock_unlock(&locks[i]);
        }
    }
    return NULL;
}

/* Tries to take the first lock, which another thread has write-locked. */
static void *
busy_reader_main(void *aux OVS_UNUSED)
{
    ovs_assert(fat_rwlock_tryrdlock(&locks[0]) == EBUSY);
    ovs_assert(fat_rwlock_tryrdlock(&locks[0]) == EBUSY);
    return NULL;
}

static void
test_rwlock(int argc OVS_UNUSED, char *argv[] OVS_UNUSED)
{
    pthread_t threads[N_THREADS];

    ovs_barrier_init(&barrier, N_THREADS);
    for (size_t i = 0; i < N_LOCKS; i++) {
        fat_rwlock_init(&locks[i]);
    }
    for (size_t i = 0; i < N_THREADS; i++) {
        threads[i] = ovs_thread_create("reader", reader_main, NULL);
    }
    for (size_t i = 0; i < N_THREADS; i++) {
        xpthread_join(threads[i], NULL);
    }
    ovs_assert(!atomic_count_get(&n_busy));

    fat_rwlock_wrlock(&locks[0]);
    ovs_assert(fat_rwlock_tryrdlock(&locks[0]) == EBUSY);
    xpthread_join(ovs_thread_create("busy", busy_reader_main, NULL), NULL);
    fat_rwlock_unlock(&locks[0]);

    for (size_t i = 0; i < N_LOCKS; i++) {
        fat_rwlock_destroy(&locks[i]);
    }
    ovs_barrier_destroy(&barrier);
}

OVSTEST_REGISTER("test-rwlock", test_rwlock);
