#ifndef GLOBALS_H
#define GLOBALS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { GLOBALS = 6 };
struct global {
    const char *name;
    const void *at;
    size_t bytes;
};
void globals_of_overlay(struct global out[GLOBALS]);
/* What they were set to is what they are; changes those that are not constant. */
bool are_globals_whole(void);

#endif
