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

/* Tests of the memory that recording takes: "ovstest test-cost-memory". */

#include <config.h>
#undef NDEBUG

#include "cost-memory.h"

#include <stdio.h>
#include <string.h>

#include "ovs-thread.h"
#include "ovstest.h"
#include "random.h"
#include "util.h"

#define N_OBJECTS 20000
#define N_THREADS 4
#define N_CHANGES 200000

struct object {
    unsigned char *p;
    size_t size;
    unsigned char fill;
};

/* Replaces 'object', if there is one, by one of a random size, after making
 * sure that nobody else has written to the former. */
static void
replace(struct object *object)
{
    static const size_t sizes[] = { 1, 16, 17, 36, 64, 100, 192, 2048, 2049,
                                    5000, 40000 };

    for (size_t i = 0; object->p && i < object->size; i++) {
        ovs_assert(object->p[i] == object->fill);
    }
    cost_free(object->p);

    object->size = sizes[random_range(ARRAY_SIZE(sizes)
                                      - (random_range(50) ? 3 : 0))];
    object->fill = random_range(256);
    object->p = cost_zalloc(object->size);
    ovs_assert(!((uintptr_t) object->p % 16));
    ovs_assert(object->size % CACHE_LINE_SIZE
               || !((uintptr_t) object->p % CACHE_LINE_SIZE));
    ovs_assert(is_all_zeros(object->p, object->size));
    memset(object->p, object->fill, object->size);
}

/* A thread that makes and frees objects, and leaves some. */
static void *
change(void *objects_)
{
    struct object *objects = objects_;

    for (size_t i = 0; i < N_CHANGES; i++) {
        replace(&objects[random_range(N_OBJECTS / N_THREADS)]);
    }
    return NULL;
}

static void
test_cost_memory_main(int argc OVS_UNUSED, char *argv[])
{
    struct object *objects = xcalloc(N_OBJECTS, sizeof *objects);
    pthread_t threads[N_THREADS];
    uint64_t expected;

    set_program_name(argv[0]);
    random_set_seed(1);
    cost_free(NULL);
    ovs_assert(!cost_memory_used());

    /* Threads that come after others have exited change what these left. */
    for (size_t round = 0; round < 3; round++) {
        for (size_t i = 0; i < N_THREADS; i++) {
            threads[i] = ovs_thread_create(
                "changer", change, &objects[i * (N_OBJECTS / N_THREADS)]);
        }
        for (size_t i = 0; i < N_THREADS; i++) {
            xpthread_join(threads[i], NULL);
        }

        expected = 0;
        for (size_t i = 0; i < N_OBJECTS; i++) {
            if (objects[i].p) {
                expected += ROUND_UP(objects[i].size, 16);
            }
        }
        ovs_assert(expected && cost_memory_used() == expected);
    }

    for (size_t i = 0; i < N_OBJECTS; i++) {
        cost_free(objects[i].p);
    }
    ovs_assert(!cost_memory_used());
    free(objects);
    printf("ok\n");
}

OVSTEST_REGISTER("test-cost-memory", test_cost_memory_main);
