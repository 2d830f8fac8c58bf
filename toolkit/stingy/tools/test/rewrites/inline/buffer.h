#ifndef BUFFER_H
#define BUFFER_H
#include <stdlib.h>
struct buffer { size_t length; char *at; };
/* All files that include this have the same text. */
static inline void buffer_reserve(struct buffer *b, size_t bytes)
{
	b->at = malloc(bytes);
	b->length = bytes;
}
static inline char *line_new(void)
{
	char *line = malloc(64);
	if (line)
		line[0] = 0;
	return line;
}
#endif
