#ifndef MEMORY_H
#define MEMORY_H
#include <stddef.h>
/* Ends the program when there is no memory. */
void *get(size_t bytes) __attribute__((malloc, alloc_size(1)));
char *get_text(const char *text,
               size_t most); void put(void *block);
#define raw_get malloc
#define NEW(type) ((type *)get(sizeof(type)))
#endif
