// Tests the code that all programs share.
#include "shared.h"

int main(void) {
    free_line(copy_line("x"));
    return 0;
}
