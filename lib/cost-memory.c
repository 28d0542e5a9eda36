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

#include <config.h>

#include "cost-memory.h"

#include <string.h>

#include "openvswitch/compiler.h"
#include "openvswitch/list.h"
#include "openvswitch/thread.h"
#include "ovs-thread.h"
#include "util.h"

/* Slabs have this size, and are aligned to it.  They come from blocks of
 * several, because alignment wastes as much as it is, for each allocation. */
#define SLAB_SIZE 16384
#define SLABS_PER_BLOCK 16

/* Objects' sizes are multiples of UNIT.  One that is larger than MAX_SHARED
 * has a slab of its own.  All do for AddressSanitizer, which can't look into
 * slabs. */
#define UNIT 16
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define MAX_SHARED 0
#else
#define MAX_SHARED 2048
#endif

/* Objects that are free. */
struct object {
    struct object *next;
};

/* Memory that slabs are made of. */
struct block {
    struct ovs_list list_node;          /* In 'blocks', if any is free. */
    char *slabs;
    uint32_t free;                      /* 1-bits are slabs that are free. */
};
#define ALL_FREE ((UINT32_C(1) << SLABS_PER_BLOCK) - 1)

struct slab {
    struct ovs_list list_node;          /* In 'heap->slabs', unless full. */
    struct heap *heap;                  /* NULL if there is one object... */
    struct block *block;                /* ...and no block. */
    struct object *free;                /* Freed, of the first 'n_cut'. */
    size_t size;                        /* Bytes an object. */
    size_t n_cut;                       /* Objects that have been used. */
    size_t n_used;                      /* Objects in use. */
};

/* The first object of a slab is here. */
#define SLAB_HEADER ROUND_UP(sizeof(struct slab), CACHE_LINE_SIZE)

/* A thread's slabs. */
struct heap {
    struct ovs_list list_node;          /* In 'idle_heaps', or unused. */
    struct ovs_list slabs[MAX_SHARED / UNIT + 1];   /* By their size, in UNITs:
                                                     * those with room. */
};

static struct ovs_mutex mutex = OVS_MUTEX_INITIALIZER;

/* Those with a slab that is free. */
static struct ovs_list blocks OVS_GUARDED_BY(mutex)
    = OVS_LIST_INITIALIZER(&blocks);

/* Those of threads that have exited, for new ones. */
static struct ovs_list idle_heaps OVS_GUARDED_BY(mutex)
    = OVS_LIST_INITIALIZER(&idle_heaps);

static pthread_key_t heap_key;

/* Bytes of the objects that are in use. */
static atomic_uint64_t n_bytes = 0;

/* Adds 'bytes', which may be negative, to 'n_bytes'. */
static void
count_bytes(int64_t bytes)
{
    uint64_t orig;

    atomic_add_relaxed(&n_bytes, (uint64_t) bytes, &orig);
}

/* Returns how many bytes there are that cost_zalloc() has returned and that
 * have not been freed, each object rounded up to a multiple of 16. */
uint64_t
cost_memory_used(void)
{
    uint64_t bytes;

    atomic_read_relaxed(&n_bytes, &bytes);
    return bytes;
}

/* Called when the thread that 'heap_' is of exits. */
static void
heap_release(void *heap_)
    OVS_EXCLUDED(mutex)
{
    struct heap *heap = heap_;

    ovs_mutex_lock(&mutex);
    ovs_list_push_back(&idle_heaps, &heap->list_node);
    ovs_mutex_unlock(&mutex);
}

/* Returns the calling thread's heap.  This does not use keys of ovs-thread.h,
 * which have a lock that is held while other locks are taken when a thread
 * exits. */
static struct heap *
heap_get(void)
    OVS_EXCLUDED(mutex)
{
    static struct ovsthread_once once = OVSTHREAD_ONCE_INITIALIZER;
    struct heap *heap;

    if (ovsthread_once_start(&once)) {
        xpthread_key_create(&heap_key, heap_release);
        ovsthread_once_done(&once);
    }
    heap = pthread_getspecific(heap_key);
    if (heap) {
        return heap;
    }

    ovs_mutex_lock(&mutex);
    if (!ovs_list_is_empty(&idle_heaps)) {
        heap = CONTAINER_OF(ovs_list_pop_front(&idle_heaps), struct heap,
                            list_node);
    }
    ovs_mutex_unlock(&mutex);
    if (!heap) {
        heap = xmalloc(sizeof *heap);
        for (size_t i = 0; i < ARRAY_SIZE(heap->slabs); i++) {
            ovs_list_init(&heap->slabs[i]);
        }
    }
    xpthread_setspecific(heap_key, heap);
    return heap;
}

/* Returns how many objects 'slab' has room for. */
static size_t
slab_capacity(const struct slab *slab)
{
    return slab->heap ? (SLAB_SIZE - SLAB_HEADER) / slab->size : 1;
}

static void
slab_init(struct slab *slab, struct heap *heap, struct block *block,
          size_t size)
{
    slab->heap = heap;
    slab->block = block;
    slab->free = NULL;
    slab->size = size;
    slab->n_cut = slab->n_used = 0;
}

/* Returns a new slab of 'heap' for objects of 'size'. */
static struct slab *
slab_create(struct heap *heap, size_t size)
    OVS_REQUIRES(mutex)
{
    struct block *block;
    struct slab *slab;
    int i;

    if (ovs_list_is_empty(&blocks)) {
        block = xmalloc(sizeof *block);
        block->slabs = xmalloc_size_align(SLABS_PER_BLOCK * SLAB_SIZE,
                                          SLAB_SIZE);
        block->free = ALL_FREE;
        ovs_list_push_front(&blocks, &block->list_node);
    } else {
        block = CONTAINER_OF(ovs_list_front(&blocks), struct block, list_node);
    }

    i = raw_ctz(block->free);
    block->free &= ~(UINT32_C(1) << i);
    if (!block->free) {
        ovs_list_remove(&block->list_node);
    }
    slab = ALIGNED_CAST(struct slab *, block->slabs + i * SLAB_SIZE);
    slab_init(slab, heap, block, size);
    return slab;
}

/* Frees 'slab', which no object is in. */
static void
slab_destroy(struct slab *slab)
    OVS_REQUIRES(mutex)
{
    struct block *block = slab->block;

    if (!block->free) {
        ovs_list_push_front(&blocks, &block->list_node);
    }
    block->free |= (UINT32_C(1)
                    << ((char *) slab - block->slabs) / SLAB_SIZE);
    if (block->free == ALL_FREE) {
        ovs_list_remove(&block->list_node);
        free_size_align(block->slabs);
        free(block);
    }
}

/* Returns an object of 'slab', which has room. */
static struct object *
slab_take(struct slab *slab)
{
    struct object *object = slab->free;

    if (object) {
        slab->free = object->next;
    } else {
        object = ALIGNED_CAST(struct object *,
                              (char *) slab + SLAB_HEADER
                              + slab->n_cut++ * slab->size);
    }
    slab->n_used++;
    return object;
}

/* Returns 'size' bytes of memory, zeroed, which are counted.  It is aligned to
 * cache lines, and shares none, if 'size' is a multiple of CACHE_LINE_SIZE. */
void *
cost_zalloc(size_t size)
{
    struct object *object;
    struct slab *slab;

    size = ROUND_UP(MAX(size, 1), UNIT);
    if (size > MAX_SHARED) {
        slab = xmalloc_size_align(SLAB_HEADER + size, SLAB_SIZE);
        slab_init(slab, NULL, NULL, size);
        object = slab_take(slab);
    } else {
        struct heap *heap = heap_get();
        struct ovs_list *slabs = &heap->slabs[size / UNIT];

        ovs_mutex_lock(&mutex);
        if (ovs_list_is_empty(slabs)) {
            slab = slab_create(heap, size);
            ovs_list_push_front(slabs, &slab->list_node);
        } else {
            slab = CONTAINER_OF(ovs_list_front(slabs), struct slab, list_node);
        }
        object = slab_take(slab);
        if (slab->n_used == slab_capacity(slab)) {
            ovs_list_remove(&slab->list_node);
        }
        ovs_mutex_unlock(&mutex);
    }
    count_bytes(size);
    return memset(object, 0, size);
}

/* Frees 'p', which cost_zalloc() has returned, or NULL. */
void
cost_free(void *p)
{
    struct object *object = p;
    struct slab *slab;

    if (!p) {
        return;
    }
    slab = (struct slab *) ROUND_DOWN((uintptr_t) p, SLAB_SIZE);
    count_bytes(-(int64_t) slab->size);
    if (!slab->heap) {
        free_size_align(slab);
        return;
    }

    ovs_mutex_lock(&mutex);
    if (slab->n_used == slab_capacity(slab)) {
        ovs_list_push_front(&slab->heap->slabs[slab->size / UNIT],
                            &slab->list_node);
    }
    object->next = slab->free;
    slab->free = object;
    if (!--slab->n_used) {
        ovs_list_remove(&slab->list_node);
        slab_destroy(slab);
    }
    ovs_mutex_unlock(&mutex);
}
