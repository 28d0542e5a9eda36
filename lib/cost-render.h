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

#ifndef COST_RENDER_H
#define COST_RENDER_H 1

#include "cost.h"

struct ds;
struct json;

/* Numbers as text and as JSON.
 * ============================
 *
 * What a reading has, see lib/cost.h, in the form in which the commands of
 * lib/cost-report.h show it.  python/ovs/cost/schema-1.json is the schema of
 * what is in JSON. */

/* Returns the reply to another command in JSON, and appends it to a text. */
typedef struct json *cost_report_more_cb(struct ds *);

/* What PREFIX/cost-top can add up events by. */
enum cost_by {
    COST_BY_KEY,                        /* Rows of a list. */
    COST_BY_GROUP,                      /* Their groups. */
    COST_BY_CLASS,
    COST_BY_THREAD,
    COST_BY_ACCOUNT,
};
struct cost_top {
    const char *what;                   /* Such as "port". */
    enum cost_by by;
    size_t list;                        /* COST_BY_KEY or COST_BY_GROUP. */
    const char *group;                  /* What the group of a key is, or NULL
                                         * if it is a part of the name. */
    bool own_name;                      /* Is the name one of OVS, not the
                                         * group?  It may have spaces. */
    const struct cost_kind *kind;       /* Of events, or NULL if all are. */
};

/* What the commands report.  Static.  The worker calls the functions. */
struct cost_report {
    const char *prefix;                 /* Of commands, such as "upcall". */
    const char *object;                 /* What an account stands for, such as
                                         * "datapath". */
    const struct cost_kind *const *kinds;
    size_t n_kinds;                     /* At least one.  All of them have the
                                         * same 'config'. */

    const char *class_help;             /* Describes all classes. */

    const struct cost_top *tops;        /* The first one is the default. */
    size_t n_tops;

    /* Appends the details of a slow event of 'account' to a text and adds them
     * to a JSON object. */
    void (*put_details)(const char *account, const uint64_t *details,
                        struct ds *, struct json *);

    /* The same with the packet among the details.  NULL if there is none. */
    void (*put_packet)(const uint64_t *details, struct ds *, struct json *);

    /* The same with what follows from the numbers of 'block'.  May be
     * NULL. */
    void (*put_derived)(const struct cost_block *block, struct ds *,
                        struct json *);

    /* What cost/show has besides.  May be NULL. */
    cost_report_more_cb *more;
};

/* What is shown of an account. */
struct cost_view {
    bool slowest;                       /* The slowest events, or numbers? */
    size_t n_slowest;
    bool all;                           /* Also what has no events? */
    bool histograms;
    bool packets;                       /* Of the slowest events. */
    bool threads;
    size_t class;                       /* Or COST_ALL_CLASSES. */
    int last_s;                         /* Of the last seconds, or of all the
                                         * time if that is 0. */
};

void cost_render_account(struct ds *, bool json, const struct cost_report *,
                         const struct cost_view *,
                         const struct cost_reading *);
void cost_render_deleted(struct ds *, const struct cost_report *,
                         const struct cost_view *, const struct cost_sum *);
struct json *cost_render_sums(const struct cost_report *,
                              const struct cost_view *,
                              const struct cost_sum *, size_t n, bool all);
void cost_top_add(struct cost_sketch *, const struct cost_top *,
                  const struct cost_book *, const char *name);
void cost_render_top(struct ds *, struct json *, const struct cost_top *,
                     const struct cost_sketch *, size_t skip, size_t n);
struct json *cost_render_kinds(const struct cost_report *);

/* Parts of them, for functions in 'struct cost_report', too. */
void cost_put_count(struct ds *, uint64_t n);
void cost_put_plural(struct ds *, uint64_t n, const char *noun);
void cost_put_derived(struct ds *, struct json *object, const char *name,
                      double value);
void cost_put_integer(struct json *object, const char *name, uint64_t n);
void cost_put_string(struct json *object, const char *name, char *);
char *cost_class_name(const struct cost_kind *, size_t class);
struct json *cost_serialized(struct ds *);

#endif /* cost-render.h */
