/* Macros around allocation: whole ones are replaced, bodies that free are changed, parts that allocate are refused. */
#ifdef SERVER_HAS_CONFIG
#include "config.h"
#endif
#include <stdlib.h>
#include <string.h>

#define NEW(type)         ((type *) malloc(sizeof(type)))
#define RELEASE(pointer)  do { free(pointer); (pointer) = NULL; } while (0)
#define DROP(pointer)     free(pointer)
#define CHECKED(call)     ((call) ? 0 : -1)
#define WITH_NAME(c)      ((c)->name = malloc(32), (c)->has_name = 1)

enum { START, WORK, STOP };

struct part { char bytes[100]; };
struct conn { int state; int has_name; char *name; struct part *part; char *line, *copy; char *text; };

void conn_run(struct conn *c, const char *input)
{
	switch (c->state) {
	case START:
		c->part = NEW(struct part);
		if (CHECKED(c->line = malloc(80)))
			return;
		c->copy  =  strndup( input,	40 );   /* odd spaces stay */
		c->text = malloc(	/* a comment */
			strlen(input)
			+ 1);
		WITH_NAME(c);
		c->state = WORK;
		break;
	case WORK:
		RELEASE(c->line); RELEASE(c->text);
		DROP(/* of strndup */ c->copy // not of strdup
		     );
		c->state = STOP;
		break;
	case STOP:
		free (c->part), c->part = NULL;
		free(c->name);
		free(c);
		break;
	}
}

struct conn *conn_new(void)
{
	struct conn *c = calloc(1, sizeof(struct conn));
	c->state = START;
	return c;
}
