/* SPDX-License-Identifier: Apache-2.0 */

#ifndef COST_REPORT_H
#define COST_REPORT_H 1

#include "cost-render.h"

/* Cost reports.
 * =============
 *
 * The commands PREFIX/cost-show and cost-clear for any kind of account;
 * cost/show, which has several reports in one reply (every request takes the
 * main thread some iterations of its loop); and cost/describe, which defines
 * the columns of all reports.
 *
 * The main thread parses the commands.  The worker (see unixctl-worker.h)
 * clears accounts; or it reads each account to sort them by their time, and
 * then reads one after the other again and adds it to the reply.  With
 * -slowest, it takes an account's slowest events just before the second
 * reading.  So a report takes some memory for each account, but memory for
 * numbers of only one account at a time. */

void cost_report_register(const struct cost_report *);

/* A command that is no PREFIX/cost-show, such as "cost/threads". */
struct cost_command {
    const char *name;
    const char *usage;                  /* Its options, -last or none. */
    bool kept;                          /* Has it the option -kept, too? */
    bool in_show;                       /* Is its JSON in that of cost/show?
                                         * There is one at most. */
    cost_report_more_cb *cb;
};

void cost_report_register_command(const struct cost_command *);
struct json *cost_report_json_header(const char *prefix, const char *command,
                                     struct cost_config *);

#endif /* cost-report.h */
