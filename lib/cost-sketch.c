/* SPDX-License-Identifier: Apache-2.0 */

#include <config.h>

#include "cost-sketch.h"

#include "cost-histogram.h"
#include "openvswitch/dynamic-string.h"
#include "util.h"

/* Rows that a sketch has memory for at first. */
#define MIN_ROWS 4

/* Names. */

/* Copies 'src' to 'dst', which has 'size' bytes.  If it does not fit, "..."
 * replaces the rest, without cutting a UTF-8 character. */
void
cost_copy_text(char *dst, size_t size, const char *src)
{
    size_t len = strlen(src);

    if (len >= size) {
        len = size - sizeof "...";
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
    cost_copy_text(row->name, sizeof row->name,
                   who->name ? who->name : ds_cstr(&s));
    cost_copy_text(row->group, sizeof row->group,
                   (who->group ? who->group : who->name ? ds_cstr(&s) : ""));
    ds_destroy(&s);
}

/* Sketches. */

/* Returns the place of the row with the fewest events in 'sketch'. */
static size_t
find_fewest(const struct cost_sketch *sketch)
{
    uint64_t fewest = UINT64_MAX;
    size_t found = 0;

    for (size_t i = 0; i < sketch->n; i++) {
        uint64_t events = sketch->rows[i].events + sketch->rows[i].lost;

        if (events < fewest) {
            fewest = events;
            found = i;
        }
    }
    return found;
}

/* Makes 'sketch' have memory for another row. */
static void
sketch_grow(struct cost_sketch *sketch, size_t max)
{
    size_t n = MIN(MAX(2 * sketch->n, MIN_ROWS), max);
    struct cost_row *rows = cost_alloc(n * sizeof *rows);

    nullable_memcpy(rows, sketch->rows, sketch->n * sizeof *rows);
    cost_sketch_uninit(sketch);
    sketch->rows = rows;
    sketch->allocated = n;
}

/* Returns a new row, at 'place' in 'sketch', for 'who', a key of 'list'. */
static struct cost_row *
insert_row(struct cost_sketch *sketch, size_t place,
           const struct cost_list *list, const struct cost_who *who)
{
    struct cost_row *row;
    uint64_t error = 0;

    if (sketch->n == list->max) {
        size_t fewest = find_fewest(sketch);

        row = &sketch->rows[fewest];
        error = sketch->floor = row->events + row->lost;
        sketch->other_ns += row->time_ns;
        sketch->n--;
        memmove(row, row + 1, (sketch->n - fewest) * sizeof *row);
        place -= fewest < place;
    } else if (sketch->n == sketch->allocated) {
        sketch_grow(sketch, list->max);
    }
    row = &sketch->rows[place];
    memmove(row + 1, row, (sketch->n - place) * sizeof *row);
    sketch->n++;
    cost_row_init(row, list, who);
    row->events = row->error = error;
    return row;
}

/* Counts in 'sketch', which has keys of 'list', a sample of 'who' that took
 * 'ns' and stands for 'weight' events, or, if 'n_lost' is nonzero, as many
 * lost ones. */
void
cost_sketch_count(struct cost_sketch *sketch, const struct cost_list *list,
                  const struct cost_who *who, uint64_t ns, uint64_t weight,
                  uint64_t n_lost)
{
    size_t place = 0, end = sketch->n;
    struct cost_row *row;

    while (place < end) {
        size_t middle = (place + end) / 2;

        if (sketch->rows[middle].id < who->id) {
            place = middle + 1;
        } else {
            end = middle;
        }
    }
    row = (place < sketch->n && sketch->rows[place].id == who->id
           ? &sketch->rows[place] : insert_row(sketch, place, list, who));
    if (n_lost) {
        row->lost += n_lost;
    } else {
        row->events += weight;
        row->n_samples++;
        row->time_ns += ns * weight;
        row->max_ns = MAX(row->max_ns, ns);
    }
}

static int
compare_ids(const void *a_, const void *b_)
{
    const struct cost_row *a = a_, *b = b_;

    return a->id < b->id ? -1 : a->id > b->id;
}

/* Most events first. */
static int
compare_events(const void *a_, const void *b_)
{
    const struct cost_row *a = a_, *b = b_;
    uint64_t n_a = a->events + a->lost, n_b = b->events + b->lost;

    return n_a != n_b ? (n_a < n_b ? 1 : -1) : 0;
}

/* Frees what 'sketch' has. */
void
cost_sketch_uninit(struct cost_sketch *sketch)
{
    cost_free(sketch->rows, sketch->allocated * sizeof *sketch->rows);
}

/* Adds 'src' to 'dst', of which the 'max' rows with most events stay. */
void
cost_sketch_add(struct cost_sketch *dst, const struct cost_sketch *src,
                size_t max)
{
    size_t n = dst->n + src->n;
    struct cost_sketch sum = {
        .rows = n ? cost_alloc(n * sizeof *sum.rows) : NULL,
        .allocated = n,
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
        qsort(sum.rows, sum.n, sizeof *sum.rows, compare_events);
        sum.floor = MAX(sum.floor, sum.rows[max].events + sum.rows[max].lost);
        while (sum.n > max) {
            sum.other_ns += sum.rows[--sum.n].time_ns;
        }
        qsort(sum.rows, sum.n, sizeof *sum.rows, compare_ids);
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
