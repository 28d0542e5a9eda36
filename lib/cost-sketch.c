/* SPDX-License-Identifier: Apache-2.0 */

#include <config.h>

#include "cost-sketch.h"

#include "cost-book.h"
#include "openvswitch/dynamic-string.h"
#include "util.h"

#define MIN_ROWS 16

/* Keys. */

/* Returns where the first row with the hash of 'id' is. */
static uint16_t *
find_head(struct cost_keys *keys, uint64_t id)
{
    return &keys->heads[(id * UINT64_C(0x9e3779b97f4a7c15) >> 32)
                        & (keys->size - 1)];
}

static struct cost_key *
get_key(const struct cost_keys *keys, size_t row)
{
    return ovsrcu_get(struct cost_key *, &keys->rows[row]);
}

/* Puts 'key' into 'row' of 'keys'. */
static void
link_key(struct cost_keys *keys, size_t row, struct cost_key *key)
{
    uint16_t *head = find_head(keys, key->row.id);

    key->next = *head;
    *head = row + 1;
    ovsrcu_set(&keys->rows[row], key);
}

static size_t
keys_size(size_t n)
{
    return (sizeof(struct cost_keys)
            + n * (sizeof(struct cost_key *) + sizeof(uint16_t)));
}

/* Returns a new list for a thread to count in, which has the rows of 'old',
 * unless that is NULL, and room for more, 'max' at most. */
struct cost_keys *
cost_keys_grow(const struct cost_keys *old, size_t max)
{
    size_t n = old ? cost_load(&old->n) : 0;
    size_t size = MIN(old ? 2 * old->size : MIN_ROWS, max);
    struct cost_keys *keys = cost_alloc(keys_size(size));

    keys->size = size;
    keys->max = max;
    keys->heads = (uint16_t *) &keys->rows[size];
    for (size_t i = 0; i < n; i++) {
        link_key(keys, i, get_key(old, i));
    }
    cost_store(&keys->n, n);
    return keys;
}

/* Frees 'keys', but not its rows, when no thread uses it any more. */
void
cost_keys_free(struct cost_keys *keys)
{
    cost_free(keys, keys_size(keys->size));
}

static void
key_free(struct cost_key *key)
{
    cost_free(key, sizeof *key);
}

/* Frees 'keys', which may be NULL, and its rows, which no thread may be using
 * any more. */
void
cost_keys_destroy(struct cost_keys *keys)
{
    if (keys) {
        for (size_t i = 0; i < cost_load(&keys->n); i++) {
            key_free(get_key(keys, i));
        }
        cost_keys_free(keys);
    }
}

static uint64_t
key_events(const struct cost_key *key)
{
    return cost_load(&key->events) + cost_load(&key->lost);
}

/* Returns the row of 'keys', which is full, with the fewest events.  All have
 * as many as the one that was returned last, or more, so that rows that were
 * passed by need not be looked at again until no other has as few: on average,
 * this takes a few steps, of any sequence of keys. */
static size_t
find_fewest(struct cost_keys *keys)
{
    uint64_t fewest = UINT64_MAX;
    size_t found = 0;

    for (size_t i = 0; i < keys->size && fewest > cost_load(&keys->floor);
         i++) {
        size_t row = (keys->next + i) & (keys->size - 1);
        uint64_t events = key_events(get_key(keys, row));

        if (events < fewest) {
            fewest = events;
            found = row;
        }
    }
    keys->next = found + 1;
    return found;
}

/* Copies 'src' to 'dst'.  If it does not fit, "..." replaces the rest, without
 * cutting a UTF-8 character. */
void
cost_copy_text(char dst[COST_TEXT_MAX], const char *src)
{
    size_t len = strlen(src);

    if (len >= COST_TEXT_MAX) {
        len = COST_TEXT_MAX - sizeof "...";
        while (len && (src[len] & 0xc0) == 0x80) {
            len--;
        }
        memcpy(dst, src, len);
        src = "...";
        dst += len;
        len = strlen(src);
    }
    memcpy(dst, src, len + 1);
}

/* Appends 'name', which a user may have chosen, to the text 's'.  A name that
 * has control characters, quotes, backslashes or, unless 'spaces' are usual,
 * spaces, is quoted, so that it can't look like something else. */
void
cost_put_name(struct ds *s, const char *name, bool spaces)
{
    bool quote = false;

    for (const unsigned char *p = (const unsigned char *) name; *p; p++) {
        /* The second byte of control characters in UTF-8 is below 0xa0. */
        quote |= (*p < ' ' || *p == 0x7f || *p == '"' || *p == '\\'
                  || (*p == ' ' && !spaces) || (*p == 0xc2 && p[1] < 0xa0));
    }
    if (quote) {
        ds_put_char(s, '"');
        ds_put_printable(s, name, strlen(name));
        ds_put_char(s, '"');
    } else {
        ds_put_cstr(s, name);
    }
}

/* Makes 'row' one of 'who', a key of 'list', without events. */
void
cost_row_init(struct cost_row *row, const struct cost_list *list,
              const struct cost_who *who)
{
    struct ds s = DS_EMPTY_INITIALIZER;

    if (list->format) {
        list->format(who->numbers, &s);
    }
    memset(row, 0, sizeof *row);
    row->id = who->id;
    cost_copy_text(row->name, who->name ? who->name : ds_cstr(&s));
    cost_copy_text(row->group, (who->group ? who->group
                                : who->name ? ds_cstr(&s) : ""));
    ds_destroy(&s);
}

/* Returns a new key for 'who', which has none yet. */
static struct cost_key *
insert_key(struct cost_keys *keys, const struct cost_list *list,
           const struct cost_who *who)
{
    struct cost_key *key = cost_alloc(sizeof *key);
    size_t n = cost_load(&keys->n);
    size_t row = n;

    cost_row_init(&key->row, list, who);
    if (n == keys->size) {
        struct cost_key *old;
        uint16_t *p;

        row = find_fewest(keys);
        old = get_key(keys, row);
        p = find_head(keys, old->row.id);
        while (*p != row + 1) {
            p = &get_key(keys, *p - 1)->next;
        }
        *p = old->next;
        key->row.error = key_events(old);
        cost_store(&key->events, key->row.error);
        cost_store(&keys->floor, key->row.error);
        cost_increase(&keys->other_ns, cost_load(&old->time_ns));
        ovsrcu_postpone(key_free, old);
    }
    link_key(keys, row, key);
    if (row == n) {
        atomic_store_explicit(&keys->n, n + 1, memory_order_release);
    }
    return key;
}

/* Counts a sample of 'who' that took 'ns' and stands for 'weight' events, or,
 * if 'n_lost' is nonzero, as many lost ones, in 'keys', which are of 'list'.
 * Returns false if that has to grow first. */
bool
cost_keys_count(struct cost_keys *keys, const struct cost_list *list,
                const struct cost_who *who, uint64_t ns, uint64_t weight,
                uint64_t n_lost)
{
    struct cost_key *key = NULL;

    for (size_t row = *find_head(keys, who->id); row; row = key->next) {
        key = get_key(keys, row - 1);
        if (key->row.id == who->id) {
            break;
        }
    }
    if (!key || key->row.id != who->id) {
        if (cost_load(&keys->n) == keys->size && keys->size < keys->max) {
            return false;
        }
        key = insert_key(keys, list, who);
    }

    if (n_lost) {
        cost_increase(&key->lost, n_lost);
    } else {
        cost_increase(&key->events, weight);
        cost_increase(&key->n_samples, 1);
        cost_increase(&key->time_ns, ns * weight);
        cost_store(&key->max_ns, MAX(cost_load(&key->max_ns), ns));
    }
    return true;
}

/* Sketches. */

static int
compare_ids(const void *a_, const void *b_)
{
    const struct cost_row *a = a_, *b = b_;

    return (a->id != b->id ? (a->id < b->id ? -1 : 1)
            : a->events != b->events ? (a->events < b->events ? 1 : -1)
            : 0);
}

/* Most events first. */
static int
compare_events(const void *a_, const void *b_)
{
    const struct cost_row *a = a_, *b = b_;
    uint64_t n_a = a->events + a->lost, n_b = b->events + b->lost;

    return n_a != n_b ? (n_a < n_b ? 1 : -1) : 0;
}

static void
sketch_sort(struct cost_sketch *sketch,
            int (*compare)(const void *, const void *))
{
    if (sketch->n) {
        qsort(sketch->rows, sketch->n, sizeof *sketch->rows, compare);
    }
}

/* Frees what 'sketch' has. */
void
cost_sketch_uninit(struct cost_sketch *sketch)
{
    cost_free(sketch->rows, sketch->allocated * sizeof *sketch->rows);
}

/* Adds 'keys', in which another thread may be counting, to 'sketch', of which
 * the 'max' rows with most events stay. */
void
cost_sketch_read(struct cost_sketch *sketch, const struct cost_keys *keys,
                 size_t max)
{
    struct cost_sketch copy;
    size_t n_unique = 0;
    uint64_t n;

    atomic_read_explicit(CONST_CAST(atomic_uint64_t *, &keys->n), &n,
                         memory_order_acquire);
    copy = (struct cost_sketch) {
        .rows = cost_alloc(n * sizeof *copy.rows),
        .n = n,
        .allocated = n,
        .floor = cost_load(&keys->floor),
        .other_ns = cost_load(&keys->other_ns),
    };
    for (size_t i = 0; i < n; i++) {
        const struct cost_key *key = get_key(keys, i);
        struct cost_row *row = &copy.rows[i];

        *row = key->row;
        row->events = cost_load(&key->events);
        row->n_samples = cost_load(&key->n_samples);
        row->time_ns = cost_load(&key->time_ns);
        row->max_ns = cost_load(&key->max_ns);
        row->lost = cost_load(&key->lost);
    }

    /* A key that lost its row, and got another, may have been seen twice. */
    sketch_sort(&copy, compare_ids);
    for (size_t i = 0; i < n; i++) {
        if (!i || copy.rows[i].id != copy.rows[n_unique - 1].id) {
            copy.rows[n_unique++] = copy.rows[i];
        }
    }
    copy.n = n_unique;
    cost_sketch_add(sketch, &copy, max);
    cost_sketch_uninit(&copy);
}

/* Adds 'src' to 'dst', of which the 'max' rows with most events stay. */
void
cost_sketch_add(struct cost_sketch *dst, const struct cost_sketch *src,
                size_t max)
{
    struct cost_sketch sum = {
        .rows = cost_alloc((dst->n + src->n) * sizeof *sum.rows),
        .allocated = dst->n + src->n,
        .floor = dst->floor + src->floor,
        .other_ns = dst->other_ns + src->other_ns,
    };
    size_t i = 0, j = 0;

    while (i < dst->n || j < src->n) {
        const struct cost_row *a = i < dst->n ? &dst->rows[i] : NULL;
        const struct cost_row *b = j < src->n ? &src->rows[j] : NULL;
        struct cost_row *row = &sum.rows[sum.n++];

        if (a && b && a->id == b->id) {
            *row = *a;
            row->events += b->events;
            row->error += b->error;
            row->n_samples += b->n_samples;
            row->time_ns += b->time_ns;
            row->max_ns = MAX(row->max_ns, b->max_ns);
            row->lost += b->lost;
            i++;
            j++;
        } else {
            bool first = a && (!b || a->id < b->id);
            uint64_t floor = first ? src->floor : dst->floor;

            *row = first ? *a : *b;
            row->events += floor;
            row->error += floor;
            i += first;
            j += !first;
        }
    }
    if (sum.n > max) {
        sketch_sort(&sum, compare_events);
        sum.floor = MAX(sum.floor, sum.rows[max].events + sum.rows[max].lost);
        while (sum.n > max) {
            sum.other_ns += sum.rows[--sum.n].time_ns;
        }
        sketch_sort(&sum, compare_ids);
    }
    cost_sketch_uninit(dst);
    *dst = sum;
}

static void
decrease(uint64_t *n, uint64_t old)
{
    *n -= MIN(*n, old);
}

/* Makes 'sketch' what has been counted since it was 'old'.  What a key may
 * have, and its error, never decrease; the error only increases when the key
 * gets a row again.  So the differences are a bound and its error, too, and
 * exact for a key that has kept its row.  A maximum that was there before need
 * not be one of the difference: it becomes UINT64_MAX. */
void
cost_sketch_subtract(struct cost_sketch *sketch, const struct cost_sketch *old)
{
    size_t n = 0;

    for (size_t i = 0, j = 0; i < sketch->n; i++) {
        struct cost_row row = sketch->rows[i];
        struct cost_row none = { .events = old->floor, .error = old->floor };
        const struct cost_row *before = &none;
        uint64_t known;

        while (j < old->n && old->rows[j].id < row.id) {
            j++;
        }
        if (j < old->n && old->rows[j].id == row.id) {
            before = &old->rows[j];
        }
        known = row.events - row.error;
        decrease(&row.events, before->events);
        decrease(&row.error, before->error);
        row.error = MIN(row.error, row.events);
        decrease(&row.n_samples, before->n_samples);
        decrease(&row.time_ns, before->time_ns);
        row.max_ns = (!row.events ? 0
                      : row.max_ns > before->max_ns ? row.max_ns : UINT64_MAX);
        decrease(&row.lost, before->lost);
        if (before == &none && known > row.events) {
            /* Its numbers are also those of a row that 'old' has lost. */
            row.n_samples *= (double) row.events / known;
            row.time_ns *= (double) row.events / known;
            row.max_ns = UINT64_MAX;
        }
        if (row.events || row.lost) {
            sketch->rows[n++] = row;
        }
    }
    sketch->n = n;
    decrease(&sketch->floor, old->floor);
    decrease(&sketch->other_ns, old->other_ns);
}
