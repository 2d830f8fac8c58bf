/* Keeps the requests that wait and the answers that are due. */
#include "truth.h"
#include <stdlib.h>

static void *larger(void *old, size_t count) {
    void *new = realloc(old, count * sizeof(struct request));
    if (!new)
        abort();
    return new;
}

void queue_arrive(struct queue *queue, uint64_t client, int64_t now_ns, int64_t connections) {
    if (queue->count == queue->room) {
        size_t room = queue->room ? 2 * queue->room : 64;
        struct request *ring = larger(NULL, room);
        for (size_t at = 0; at < queue->count; at++)
            ring[at] = queue->waiting[(queue->first + at) % queue->room];
        free(queue->waiting);
        queue->waiting = ring;
        queue->first = 0;
        queue->room = room;
    }
    queue->waiting[(queue->first + queue->count++) % queue->room] = (struct request){client, now_ns, connections};
}

static void swap(struct request *a, struct request *b) {
    struct request kept = *a;
    *a = *b;
    *b = kept;
}

static void put_end(struct queue *queue, struct request request) {
    if (queue->end_count == queue->end_room) {
        queue->end_room = queue->end_room ? 2 * queue->end_room : 64;
        queue->ends = larger(queue->ends, queue->end_room);
    }
    size_t at = queue->end_count++;
    queue->ends[at] = request;
    for (; at && queue->ends[at].ns < queue->ends[(at - 1) / 2].ns; at = (at - 1) / 2)
        swap(&queue->ends[at], &queue->ends[(at - 1) / 2]);
}

static struct request take_end(struct queue *queue) {
    struct request first = queue->ends[0];
    queue->ends[0] = queue->ends[--queue->end_count];
    for (size_t at = 0;;) {
        size_t least = at;
        for (size_t below = 2 * at + 1; below <= 2 * at + 2 && below < queue->end_count; below++)
            if (queue->ends[below].ns < queue->ends[least].ns)
                least = below;
        if (least == at)
            return first;
        swap(&queue->ends[at], &queue->ends[least]);
        at = least;
    }
}

/* Gives the law all requests that it can take up, at the time when it could take them up instead of the time of
   this call. */
static void take_up(struct queue *queue, int64_t now_ns) {
    while (queue->count && law_free_ns(&queue->law) <= now_ns) {
        struct request request = queue->waiting[queue->first];
        queue->first = (queue->first + 1) % queue->room;
        queue->count--;
        if (queue->is_here && !queue->is_here(request.client))
            continue;
        request.ns = law_end_ns(&queue->law, request.ns, request.connections);
        put_end(queue, request);
    }
}

int queue_take(struct queue *queue, int64_t now_ns, struct request *answered) {
    take_up(queue, now_ns);
    if (!queue->end_count || queue->ends[0].ns > now_ns)
        return 0;
    *answered = take_end(queue);
    return 1;
}

int64_t queue_next_ns(const struct queue *queue) {
    int64_t next_ns = queue->end_count ? queue->ends[0].ns : INT64_MAX;
    int64_t free_ns = queue->count ? law_free_ns(&queue->law) : INT64_MAX;
    return free_ns < next_ns ? free_ns : next_ns;
}

void queue_free(struct queue *queue) {
    free(queue->waiting);
    free(queue->ends);
}
