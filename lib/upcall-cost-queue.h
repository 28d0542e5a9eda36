/* SPDX-License-Identifier: Apache-2.0 */

#ifndef UPCALL_COST_QUEUE_H
#define UPCALL_COST_QUEUE_H 1

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* When the kernel put upcalls into a socket's queue.
 * ==================================================
 *
 * While other_config:cost-kernel-queue is true, a socket filter, which the
 * kernel runs just before it puts a message into the queue, writes the time,
 * the message's length and a hash of a part of it into a BPF ring buffer.  The
 * thread that receives the message looks for this record.  The filter never
 * changes or drops a message.
 *
 * The filter also runs for messages that the kernel drops right afterwards,
 * because the queue is full.  The record of such a message is an orphan, which
 * is dropped when later messages have been received, or the queue is empty.
 * The time of a message that can't be told apart from an orphan is not known.
 *
 * One thread at a time may use a queue.  A socket that several threads receive
 * from is not watched.  Call upcall_cost_queue_init() before any socket
 * exists. */

void upcall_cost_queue_init(void);

/* For tests.  See also 'struct upcall_cost_observer'. */
struct upcall_cost_queue *upcall_cost_queue_attach(int fd, char **error);
void upcall_cost_queue_detach(struct upcall_cost_queue *);

uint64_t upcall_cost_queue_received(struct upcall_cost_queue *,
                                    const void *msg, size_t len);
void upcall_cost_queue_overrun(struct upcall_cost_queue *);
size_t upcall_cost_queue_empty(struct upcall_cost_queue *);

#endif /* upcall-cost-queue.h */
