/* A function that frees text frees a structure, too, and one that grows text gets one: their calls take any block, though the text itself
 * stays with malloc. */
#include <stdio.h>
#include <stdlib.h>

enum step { READ, WRITE };
struct part { int kind; char text[50]; };
struct conn { enum step step; struct part *part; char *line; size_t room; };

static void release(char *text) { free(text); }
static char *grow(char *text, size_t bytes) { char *larger = realloc(text, bytes); return larger ? larger : text; }

void drive(struct conn *c)
{
	switch (c->step) {
	case READ:
		c->part = malloc(sizeof(struct part));
		c->room = 80;
		c->line = malloc(c->room);
		if (getline(&c->line, &c->room, stdin) < 0) {
			free(c->part);
			return;
		}
		c->line = grow(c->line, 200);
		c->part = (struct part *)grow((char *)c->part, sizeof(struct part) + 100);
		c->step = WRITE;
		break;
	case WRITE:
		release((char *)c->part);
		release(c->line);
		free(c);
		break;
	}
}

void accept_conn(void)
{
	struct conn *c = malloc(sizeof(struct conn));
	if (!c)
		return;
	c->step = READ;
	drive(c);
}
