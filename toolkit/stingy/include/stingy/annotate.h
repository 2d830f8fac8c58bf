/* Annotations that tell memwalk and stingify what a server's functions, structures and fields mean, so that they need
 * not guess.
 *
 * The constructs are those of Bhatia, Consel and Lawall (2006), Figures 2 and 3: functions that queue a request at a
 * stage, that run a stage, the scheduler, allocation and release. Each is equivalent to the key of the same name in
 * stingy.toml; a server that must not be edited uses that file alone.
 *
 * Only Clang sees them, and they do not change its code: an annotation is in the syntax tree and makes no instruction.
 * Every other compiler sees nothing. They follow a declaration, before its semicolon or body:
 *
 *     void add_tux_atom(tux_req_t *req, atom_func_t *atom) STINGY_QUEUE_STAGE(0, 1);
 *     void *tux_malloc(int size) STINGY_MALLOC(0);
 *     struct STINGY_REQUEST tux_req { enum state state STINGY_STATE; char log_line[256] STINGY_COLD; };
 *
 * Arguments count from 0. C has no attributes on a function's definition with a body: annotate a declaration
 * before it. */
#ifndef STINGY_ANNOTATE_H
#define STINGY_ANNOTATE_H

#if defined(__clang__) && defined(__has_attribute)
#if __has_attribute(annotate)
#define STINGY_ANNOTATION_(text) __attribute__((annotate("stingy:" text)))
#endif
#endif
#ifndef STINGY_ANNOTATION_
#define STINGY_ANNOTATION_(text)
#endif

/* QueueStage: the function queues the request (argument `request`) to be run at the stage (argument `stage`: a number,
 * an enumerator or a function). Assigning a field marked STINGY_STATE does the same without a function. */
#define STINGY_QUEUE_STAGE(request, stage) STINGY_ANNOTATION_("queue_stage request=" #request " stage=" #stage)

/* ScheduleStage: the function runs the stage (argument `stage`) for the request (argument `request`). */
#define STINGY_SCHEDULE_STAGE(request, stage) STINGY_ANNOTATION_("schedule_stage request=" #request " stage=" #stage)

/* Scheduler: the function is the event loop. */
#define STINGY_SCHEDULER STINGY_ANNOTATION_("scheduler")

/* The function is a stage of this name (a plain word, no quotes). For stages without a number or a field in the code.
 * */
#define STINGY_STAGE(name) STINGY_ANNOTATION_("stage name=" #name)

/* Malloc: returns a block of (argument `size`) bytes. _COUNT: of `count` blocks of `size` bytes each. _OBJECT: of one
 * object of the type whose pointer is returned; the function has no size, as kmalloc_req of TUX. */
#define STINGY_MALLOC(size) STINGY_ANNOTATION_("malloc size=" #size)
#define STINGY_MALLOC_COUNT(size, count) STINGY_ANNOTATION_("malloc size=" #size " count=" #count)
#define STINGY_MALLOC_OBJECT STINGY_ANNOTATION_("malloc object")

/* The function changes the size of the block (argument `pointer`) to (argument `size`) bytes and returns it. */
#define STINGY_REALLOC(pointer, size) STINGY_ANNOTATION_("malloc pointer=" #pointer " size=" #size)

/* Free: releases the block that argument `pointer` points to. */
#define STINGY_FREE(pointer) STINGY_ANNOTATION_("free pointer=" #pointer)

/* On a structure: one object of it represents one request or connection. */
#define STINGY_REQUEST STINGY_ANNOTATION_("request")

/* On a field of that structure: its value is the request's current stage. */
#define STINGY_STATE STINGY_ANNOTATION_("state")

/* On a field: rarely accessed, whatever the analysis counts. */
#define STINGY_COLD STINGY_ANNOTATION_("cold")

/* On the declaration of a function from outside of the program: it calls its argument `function`, during the call
 * (qsort), or later from the event loop (event_set). */
#define STINGY_CALLS(function) STINGY_ANNOTATION_("callback function=" #function)
#define STINGY_CALLS_LATER(function) STINGY_ANNOTATION_("callback later function=" #function)

#endif
