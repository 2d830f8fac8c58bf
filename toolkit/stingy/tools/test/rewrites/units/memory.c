#include "memory.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned long blocks;

void *get(size_t bytes)
{
	void *block = raw_get(bytes);
	if (!block) {
		fputs("no memory\n", stderr);
		exit(1);
	}
	blocks++;
	return memset(block, 0, bytes);
}

char *get_text(const char *text, size_t most)
{
	size_t bytes = strnlen(text, most);
	char *copy = get(bytes + 1);
	memcpy(copy, text, bytes);
	return copy;
}

void put(void *block)
{
	blocks -= block != NULL;
	free(block);
}
