#include "buffer.h"
#include <stdio.h>

int options;

void read_config(FILE *file)
{
	struct buffer *b = malloc(sizeof *b);
	char *line = line_new();
	buffer_reserve(b, 100);
	while (b->at && fgets(b->at, 100, file))
		options++;
	free(line);
	free(b->at);
	free(b);
}
