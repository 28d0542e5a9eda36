/* SPDX-License-Identifier: Apache-2.0 */

/* Tests of lists of keys: "ovstest test-cost-sketch". */

#include <config.h>
#undef NDEBUG
#include "cost-sketch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cost-histogram.h"
#include "openvswitch/dynamic-string.h"
#include "ovstest.h"
#include "util.h"

enum {
    N_KEYS = 100000, N_EVENTS = 1000000, N_ROWS = 128, N_THREADS = 4,
    EVENT_NS = 10,
};

static void
format(const uint64_t numbers[2], struct ds *s)
{
    ds_put_format(s, "%"PRIu64"-%"PRIu64, numbers[0], numbers[1]);
}

static const struct cost_list list = {
    .max = N_ROWS, .format = format,
};

/* How often each key has been counted. */
static uint64_t truth[N_KEYS];

/* Counts a sample of 'key' that took 'ns' and stands for 'weight' events, or
 * 'n_lost' lost ones, in 'keys'. */
static void
count_sample(struct cost_sketch *keys, uint64_t key, uint64_t ns,
             uint64_t weight, uint64_t n_lost)
{
    struct cost_who who = {
        .id = key + 1, .name = "key", .numbers = { key, key + 1 },
    };

    cost_sketch_count(keys, &list, &who, ns, weight, n_lost);
}

/* Counts an event of 'key' that took 'ns', or 'n_lost' lost ones. */
static void
count(struct cost_sketch *keys, uint64_t key, uint64_t ns, uint64_t n_lost)
{
    count_sample(keys, key, ns, 1, n_lost);
}

/* Makes 'sketch' a copy of 'keys'. */
static void
read_keys(struct cost_sketch *sketch, const struct cost_sketch *keys)
{
    memset(sketch, 0, sizeof *sketch);
    cost_sketch_add(sketch, keys, N_ROWS);
}

static const struct cost_row *
find(const struct cost_sketch *sketch, uint64_t key)
{
    const struct cost_row *found = NULL;

    for (size_t i = 0; i < sketch->n; i++) {
        ovs_assert(!i || sketch->rows[i - 1].id < sketch->rows[i].id);
        if (sketch->rows[i].id == key + 1) {
            found = &sketch->rows[i];
        }
    }
    return found;
}

static void
check_row(const struct cost_sketch *sketch, uint64_t key, uint64_t events,
          uint64_t time_ns, uint64_t max_ns, uint64_t lost)
{
    const struct cost_row *row = find(sketch, key);
    struct ds s = DS_EMPTY_INITIALIZER;

    ds_put_format(&s, "%"PRIu64"-%"PRIu64, key, key + 1);
    ovs_assert(row && row->events == events && !row->error
               && row->time_ns == time_ns && row->max_ns == max_ns
               && row->lost == lost && !strcmp(row->name, "key")
               && !strcmp(row->group, ds_cstr(&s)));
    ds_destroy(&s);
}

/* Fewer keys than rows: all is exact. */
static void
check_exact(void)
{
    uint64_t used = cost_memory_used();
    struct cost_sketch sum = { .n = 0 }, old, new;
    struct cost_sketch keys = { .n = 0 };

    for (int i = 1; i <= 100; i++) {
        for (int j = 0; j < i; j++) {
            count(&keys, i, 1 + j, 0);
        }
    }
    read_keys(&old, &keys);
    count(&keys, 100, 1000, 0);
    count(&keys, 7, 0, 5);
    count(&keys, 101, 3, 0);
    read_keys(&new, &keys);
    ovs_assert(new.n == 101 && !new.floor && !new.other_ns);
    for (int i = 1; i < 100; i++) {
        check_row(&new, i, i, i * (i + 1) / 2, i, i == 7 ? 5 : 0);
    }
    check_row(&new, 100, 101, 6050, 1000, 0);

    cost_sketch_add(&sum, &old, N_ROWS);
    cost_sketch_add(&sum, &new, N_ROWS);
    ovs_assert(sum.n == 101 && !sum.floor);
    check_row(&sum, 7, 14, 56, 7, 5);
    check_row(&sum, 100, 201, 11100, 1000, 0);
    check_row(&sum, 101, 1, 3, 3, 0);

    cost_sketch_subtract(&new, &old);
    ovs_assert(new.n == 3 && !new.floor);
    check_row(&new, 7, 0, 0, 0, 5);
    check_row(&new, 100, 1, 1000, 1000, 0);
    check_row(&new, 101, 1, 3, 3, 0);

    ovs_assert(cost_memory_used() > used + 204 * sizeof(struct cost_row));
    cost_sketch_uninit(&sum);
    cost_sketch_uninit(&old);
    cost_sketch_uninit(&new);
    cost_sketch_uninit(&keys);
    ovs_assert(cost_memory_used() == used);
}

/* Checks that the bounds in 'sketch', from 'n' events, hold. */
static void
check_bounds(const struct cost_sketch *sketch, uint64_t n)
{
    size_t n_found = 0;

    ovs_assert(sketch->n <= N_ROWS);
    for (uint64_t key = 0; key < N_KEYS; key++) {
        const struct cost_row *row = NULL;

        if (n_found < sketch->n && sketch->rows[n_found].id == key + 1) {
            row = &sketch->rows[n_found++];
        }
        if (row) {
            ovs_assert(truth[key] <= row->events);
            ovs_assert(truth[key] >= row->events - row->error);
        } else {
            ovs_assert(truth[key] <= sketch->floor);
            ovs_assert(truth[key] <= n / N_ROWS);
        }
    }
    ovs_assert(n_found == sketch->n);
}

/* Returns the next number of a sequence that is always the same. */
static uint32_t
next_random(void)
{
    static uint64_t x;

    x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return x >> 32;
}

/* Many more keys than rows, all alike, or the Kth as frequent as 1/K. */
static void
check_stream(bool zipf)
{
    struct cost_sketch threads[N_THREADS] = { { .n = 0 } };
    struct cost_sketch old, new, keys = { .n = 0 }, sum = { .n = 0 };
    uint64_t n = 0, time_ns = 0;

    memset(truth, 0, sizeof truth);
    for (int i = 0; i < N_EVENTS; i++) {
        double u = next_random() / 4294967296.0;
        uint64_t key = zipf ? exp(u * log(N_KEYS)) - 1 : u * N_KEYS;

        if (i == N_EVENTS / 2) {
            read_keys(&old, &keys);
            check_bounds(&old, i);
        }
        truth[key]++;
        count(&keys, key, EVENT_NS, 0);
        count(&threads[i % N_THREADS], key, EVENT_NS, 0);
    }

    /* One thread: the rows share all events. */
    read_keys(&new, &keys);
    check_bounds(&new, N_EVENTS);
    for (size_t i = 0; i < new.n; i++) {
        const struct cost_row *row = &new.rows[i];

        ovs_assert(row->time_ns == EVENT_NS * (row->events - row->error));
        n += row->events;
        time_ns += row->time_ns;
    }
    ovs_assert(n == N_EVENTS);
    ovs_assert(time_ns + new.other_ns == EVENT_NS * (uint64_t) N_EVENTS);
    if (zipf) {
        ovs_assert(find(&new, 0) && !find(&new, 0)->error);
    }

    /* Several threads. */
    for (int i = 0; i < N_THREADS; i++) {
        cost_sketch_add(&sum, &threads[i], N_ROWS);
        cost_sketch_uninit(&threads[i]);
    }
    check_bounds(&sum, N_EVENTS);
    time_ns = sum.other_ns;
    for (size_t i = 0; i < sum.n; i++) {
        time_ns += sum.rows[i].time_ns;
    }
    ovs_assert(time_ns == EVENT_NS * (uint64_t) N_EVENTS);

    /* A window.  Of the keys without a row, no more is known than before. */
    for (size_t i = 0; i < old.n; i++) {
        uint64_t key = old.rows[i].id - 1;

        ovs_assert(truth[key] >= old.rows[i].events - old.rows[i].error);
    }
    cost_sketch_subtract(&new, &old);
    if (zipf) {
        check_row(&new, 0, find(&new, 0)->events,
                  EVENT_NS * find(&new, 0)->events, UINT64_MAX, 0);
    }
    cost_sketch_uninit(&sum);
    cost_sketch_uninit(&old);
    cost_sketch_uninit(&new);
    cost_sketch_uninit(&keys);
}

/* What has been counted since. */
static void
check_window(void)
{
    struct cost_sketch keys = { .n = 0 };
    struct cost_sketch old, new;

    for (int i = 0; i < N_EVENTS; i++) {
        if (i == N_EVENTS / 2) {
            read_keys(&old, &keys);
            memset(truth, 0, sizeof truth);
        }

        /* Other keys are frequent in the second half. */
        double u = next_random() / 4294967296.0;
        uint64_t key = exp(u * log(N_KEYS)) - 1;

        key = i < N_EVENTS / 2 ? key : N_KEYS - 1 - key;
        truth[key]++;
        count(&keys, key, EVENT_NS, 0);
    }
    read_keys(&new, &keys);
    cost_sketch_subtract(&new, &old);
    check_bounds(&new, UINT64_MAX);
    ovs_assert(find(&new, N_KEYS - 1));
    cost_sketch_uninit(&old);
    cost_sketch_uninit(&new);
    cost_sketch_uninit(&keys);
}

/* A key that is in a sum of two threads, but was not in the old one, which had
 * no row for it, has the time of the window alone. */
static void
check_window_of_sum(void)
{
    struct cost_sketch keys[2] = { { .n = 0 }, { .n = 0 } }, sums[2];

    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 2; j++) {
            for (uint64_t key = 0; key < N_ROWS; key++) {
                for (int n = 0; n < 1000 + j && !i; n++) {
                    count(&keys[j], key + 1000 * j, EVENT_NS, 0);
                }
            }
            for (int n = 0; n < 5 && i; n++) {
                count(&keys[j], 1000 * j, EVENT_NS, 0);
            }
        }
        read_keys(&sums[i], &keys[0]);
        cost_sketch_add(&sums[i], &keys[1], N_ROWS);
    }
    cost_sketch_subtract(&sums[1], &sums[0]);
    for (uint64_t key = 0; key <= 1000; key += 1000) {
        const struct cost_row *row = find(&sums[1], key);

        ovs_assert(row && row->events == 5 && row->time_ns == 5 * EVENT_NS
                   && row->n_samples == 5);
    }
    for (int i = 0; i < 2; i++) {
        cost_sketch_uninit(&sums[i]);
        cost_sketch_uninit(&keys[i]);
    }
}

static void
check_text(void)
{
    char text[COST_TEXT_MAX];

    cost_copy_text(text, sizeof text, "short");
    ovs_assert(!strcmp(text, "short"));
    cost_copy_text(text, sizeof text,
                   "123456789012345678901234567890123456789");
    ovs_assert(!strcmp(text, "123456789012345678901234567890123456789"));
    cost_copy_text(text, sizeof text,
                   "1234567890123456789012345678901234567890");
    ovs_assert(!strcmp(text, "123456789012345678901234567890123456..."));
    cost_copy_text(text, sizeof text,
                   "12345678901234567890123456789012345\xc3\xa4 more");
    ovs_assert(!strcmp(text, "12345678901234567890123456789012345..."));
}

/* Samples count as many times as they stand for; losses count as they are. */
static void
check_weights(void)
{
    struct cost_sketch keys = { .n = 0 };
    struct cost_sketch old, new;

    count_sample(&keys, 1, 100, 16, 0);
    count_sample(&keys, 1, 50, 16, 0);
    count_sample(&keys, 2, 7, 64, 0);
    count_sample(&keys, 2, 0, 64, 3);
    read_keys(&old, &keys);
    check_row(&old, 1, 32, 2400, 100, 0);
    check_row(&old, 2, 64, 448, 7, 3);
    ovs_assert(find(&old, 1)->n_samples == 2 && find(&old, 2)->n_samples == 1);

    /* The interval may change. */
    count_sample(&keys, 1, 30, 1, 0);
    read_keys(&new, &keys);
    check_row(&new, 1, 33, 2430, 100, 0);
    cost_sketch_add(&old, &new, N_ROWS);
    check_row(&old, 1, 65, 4830, 100, 0);
    ovs_assert(find(&old, 1)->n_samples == 5);
    cost_sketch_uninit(&old);
    read_keys(&old, &keys);
    count_sample(&keys, 1, 20, 16, 0);
    cost_sketch_uninit(&new);
    read_keys(&new, &keys);
    cost_sketch_subtract(&new, &old);
    ovs_assert(new.n == 1 && find(&new, 1)->n_samples == 1);
    check_row(&new, 1, 16, 320, UINT64_MAX, 0);

    cost_sketch_uninit(&old);
    cost_sketch_uninit(&new);
    cost_sketch_uninit(&keys);
}

/* Samples of keys that have many rows' worth of competitors: whoever takes a
 * row over starts with its events, as an error, and without samples. */
static void
check_weighted_bounds(void)
{
    enum { WEIGHT = 16 };
    struct cost_sketch keys = { .n = 0 };
    struct cost_sketch sketch;
    uint64_t n = 0;

    memset(truth, 0, sizeof truth);
    for (int i = 0; i < N_EVENTS; i++) {
        double u = next_random() / 4294967296.0;
        uint64_t key = exp(u * log(N_KEYS)) - 1;

        truth[key] += WEIGHT;
        count_sample(&keys, key, EVENT_NS, WEIGHT, 0);
    }
    read_keys(&sketch, &keys);
    check_bounds(&sketch, (uint64_t) N_EVENTS * WEIGHT);
    for (size_t i = 0; i < sketch.n; i++) {
        const struct cost_row *row = &sketch.rows[i];

        ovs_assert(row->n_samples * WEIGHT == row->events - row->error);
        ovs_assert(row->time_ns == EVENT_NS * (row->events - row->error));
        n += row->events;
    }
    ovs_assert(n == (uint64_t) N_EVENTS * WEIGHT);
    cost_sketch_uninit(&sketch);
    cost_sketch_uninit(&keys);
}

static void
test_cost_sketch_main(int argc OVS_UNUSED, char *argv[])
{
    uint64_t used;

    set_program_name(argv[0]);
    used = cost_memory_used();
    check_exact();
    check_stream(true);
    check_stream(false);
    check_window();
    check_window_of_sum();
    check_text();
    check_weights();
    check_weighted_bounds();
    ovs_assert(cost_memory_used() == used);
    printf("ok\n");
}

OVSTEST_REGISTER("test-cost-sketch", test_cost_sketch_main);
