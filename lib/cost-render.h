/* SPDX-License-Identifier: Apache-2.0 */

#ifndef COST_RENDER_H
#define COST_RENDER_H 1

#include "cost.h"

struct ds;
struct json;

/* Numbers as JSON and as text.
 * ============================
 *
 * Appends a reading, see lib/cost.h, to a string as JSON.  Its numbers are not
 * 'struct json', which takes some allocations for each: a reply may have tens
 * of thousands of numbers, and a program may request one every second.  For a
 * text, the string of one account is parsed, and cost_render_account() walks
 * over the result, in the order of a kind's stages and counters.
 * Documentation/topics/cost-json.rst describes the JSON, and
 * python/ovs/cost/schema-2.json is its schema. */

struct cost_view;

/* Returns the reply to a 'struct cost_command' in JSON, and appends the text
 * to a string.  Returns NULL after an error, whose message is appended. */
typedef struct json *cost_report_more_cb(const struct cost_view *,
                                         struct ds *);

/* What the commands report.  Static.  The worker calls the functions. */
struct cost_report {
    const char *prefix;                 /* Of commands, such as "upcall". */
    const char *object;                 /* What an account stands for, such as
                                         * "datapath". */
    const struct cost_kind *const *kinds;
    size_t n_kinds;                     /* At least one.  All of them have the
                                         * same 'config'. */
    const char *class_help;             /* Describes all classes. */

    /* Adds the details of a slow event of 'account' to an object, with the
     * packet if that is among them and wanted. */
    void (*put_details)(const char *account, const uint64_t *details,
                        bool packet, struct json *);

    /* What cost/show has besides.  May be NULL. */
    cost_report_more_cb *more;
};

/* What is shown. */
struct cost_view {
    bool json;
    bool histograms;
    bool threads;                       /* All numbers of each thread? */
    bool top;                           /* Who events are for, in sums. */
    bool packets;                       /* Of the slowest events. */
    size_t n_slowest;                   /* Of each account. */
    size_t class;                       /* Or COST_ALL_CLASSES. */
    int last_s;                         /* Of the last seconds, or of all the
                                         * time if that is 0. */
    unsigned int kept;                  /* Number of cost/flight's copy, or 0
                                         * for the rings. */
};

/* JSON. */
void cost_json_begin(struct ds *, const char *name);
void cost_json_put(struct ds *, const char *name, uint64_t);
void cost_put_account(struct ds *, const struct cost_report *,
                      const struct cost_view *, const struct cost_reading *);
void cost_put_sum(struct ds *, const struct cost_view *,
                  const struct cost_sum *, uint64_t elapsed_ms);

void cost_put_integer(struct json *object, const char *name, uint64_t n);
void cost_put_string(struct json *object, const char *name, char *);
struct json *cost_put_object(struct json *object, const char *name);
struct json *cost_put_array(struct json *object, const char *name);
struct json *cost_add_object(struct json *array);
char *cost_class_name(const struct cost_kind *, size_t class);

/* Text. */
void cost_render_account(struct ds *, const struct cost_view *,
                         const struct cost_kind *, const struct json *);
void cost_render_top(struct ds *, const struct cost_kind *,
                     const struct json *sum, size_t n);
void cost_render_deleted(struct ds *, const char *object,
                         const struct cost_kind *, const struct json *sum);

#endif /* cost-render.h */
