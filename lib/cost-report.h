/* SPDX-License-Identifier: Apache-2.0 */

#ifndef COST_REPORT_H
#define COST_REPORT_H 1

#include "cost-render.h"

struct unixctl_worker_reply;

/* Cost reports.
 * =============
 *
 * The commands PREFIX/cost-show and cost-clear for any kind of account;
 * cost/show, which has several reports in one reply (every request takes the
 * main thread some iterations of its loop); and cost/describe, which defines
 * the columns of all reports.
 *
 * The main thread parses the commands, and looks up the names of ports when
 * the worker asks it to.  The worker (see unixctl-worker.h) reads one account
 * after the other and adds it to the reply.  It has read each of them before,
 * to put those first that took most time.  So a report takes some memory for
 * each account, but memory for numbers of only one account at a time. */

void cost_report_register(const struct cost_report *);

/* Adds to the reply of cost/show that of the command that is about no account:
 * there is one at most. */
void cost_report_add_reply(cost_report_more_cb *);

/* For other commands. */
void cost_report_put_more(struct unixctl_worker_reply *, cost_report_more_cb *,
                          int last_s);
char *cost_report_parse_last(const char *arg, int *seconds);
struct json *cost_report_json_header(const char *prefix, const char *command,
                                     struct cost_config *);

#endif /* cost-report.h */
