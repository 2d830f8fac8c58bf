#include "shared.h"

int only_clients_need_this(void);

void log_line(const char *line) {
    free_line(copy_line(line));
}

int main(void) {
    log_line("hello");
    return only_clients_need_this();
}
