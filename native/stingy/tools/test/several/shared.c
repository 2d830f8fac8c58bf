#include "shared.h"
#include <stdlib.h>
#include <string.h>

char *copy_line(const char *line) {
    return strdup(line);
}

void free_line(char *line) {
    free(line);
}
