/* Text for reports. A signal handler may write it, too, so text to a descriptor uses no stdio and allocates no
 * memory. */
#include "slab.h"

#include <errno.h>
#include <unistd.h>

void text_flush(struct text *text) {
    if (text->file)
        fwrite(text->bytes, 1, text->used, text->file);
    for (size_t done = 0; !text->file && done < text->used;) {
        ssize_t n = write(text->fd, text->bytes + done, text->used - done);
        if (n < 0 && errno != EINTR)
            break;
        done += n < 0 ? 0 : (size_t)n;
    }
    text->used = 0;
}

void text_put(struct text *text, const char *words) {
    for (; *words; words++) {
        if (text->used == sizeof text->bytes)
            text_flush(text);
        text->bytes[text->used++] = *words;
    }
}

void text_number(struct text *text, const char *before, uint64_t number) {
    char digits[21], *at = digits + sizeof digits - 1;
    *at = 0;
    do
        *--at = (char)('0' + number % 10);
    while (number /= 10);
    text_put(text, before);
    text_put(text, at);
}
