#include "shared.h"
#include <stdlib.h>
#include <string.h>

#ifdef STATIC_LINES
static char kept[80];

char *copy_line(const char *line) {
    return strncpy(kept, line, sizeof kept - 1);
}

void free_line(char *line) {
    (void)line;
}
#else
char *copy_line(const char *line) {
    return strdup(line);
}

void free_line(char *line) {
    free(line);
}
#endif
