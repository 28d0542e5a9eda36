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

#ifndef COST_REPORT_H
#define COST_REPORT_H 1

#include "cost.h"

struct ds;
struct json;

/* Cost reports.
 * =============
 *
 * This is the reporting layer of lib/cost.h: the commands PREFIX/cost-show,
 * PREFIX/cost-clear and PREFIX/cost-slowest, in text and JSON, for any kind of
 * account; cost/show, which has several reports in one reply (every request
 * takes the main thread some iterations of its loop); and cost/describe, which
 * has the columns of all reports.
 *
 * The main thread only parses the commands.  The worker (see
 * unixctl-worker.h) reads one account after the other and adds it to the
 * reply.  So a report takes some memory for each account that there is, but
 * that of numbers only for one.
 *
 * python/ovs/cost/schema-1.json is the schema of what is in JSON. */

/* What the commands report.  Static.  The worker calls the functions. */
struct cost_report {
    const char *prefix;                 /* Of commands, such as "upcall". */
    const char *object;                 /* What an account stands for, such as
                                         * "datapath". */
    const struct cost_kind *const *kinds;
    size_t n_kinds;                     /* At least one.  All of them have the
                                         * same 'config'. */

    const char *class_help;             /* Describes all classes. */

    /* Appends the details of a slow event of 'account' to a text and adds them
     * to a JSON object. */
    void (*put_details)(const char *account, const uint64_t *details,
                        struct ds *, struct json *);

    /* The same with what follows from the numbers of 'block', of one thread,
     * or of all if 'thread' is empty.  May be NULL. */
    void (*put_derived)(const struct cost_block *block, const char *thread,
                        struct ds *, struct json *);

    /* Adds to a reply in JSON, an object.  May be NULL. */
    void (*state_to_json)(struct json *);

    /* What cost/show has besides: the reply to another command, appended to a
     * text and returned in JSON.  May be NULL. */
    struct json *(*more)(struct ds *);
};

void cost_report_register(const struct cost_report *);

/* For other commands, and for functions in 'struct cost_report'. */
void cost_report_put_integer(struct json *object, const char *name,
                             uint64_t n);
void cost_report_put_derived(struct ds *, struct json *object,
                             const char *name, double value);
struct json *cost_report_json_header(const char *prefix, const char *command,
                                     struct cost_config *);

#endif /* cost-report.h */
