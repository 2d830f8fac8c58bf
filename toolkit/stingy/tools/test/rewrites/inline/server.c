#include "buffer.h"
#include <stdio.h>

void read_config(FILE *file);

enum step { READ, WRITE };
struct conn { enum step step; char *line; struct buffer out; };

static void drive(struct conn *c)
{
	switch (c->step) {
	case READ:
		c->line = line_new();
		buffer_reserve(&c->out, 200);
		c->step = WRITE;
		break;
	case WRITE:
		free(c->line);
		free(c->out.at);
		free(c);
		break;
	}
}

int main(void)
{
	read_config(stdin);
	for (;;) {
		struct conn *c = malloc(sizeof *c);
		c->step = READ;
		drive(c);
		drive(c);
	}
}
