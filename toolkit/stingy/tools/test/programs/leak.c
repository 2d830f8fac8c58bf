// The error path omits a release that the other path has.
#include <stdlib.h>
#include <sys/socket.h>

enum step { READING, WRITING };

struct client { enum step step; int fd; char *line; char *answer; };

void client_run(struct client *c)
{
	switch (c->step) {
	case READING:
		c->line = malloc(256);
		if (recv(c->fd, c->line, 256, 0) < 0) {
			free(c); /* but not c->line */
			return;
		}
		c->step = WRITING;
		break;
	case WRITING:
		c->answer = malloc(100);
		send(c->fd, c->answer, 100, 0);
		free(c->answer);
		free(c->line);
		free(c);
		break;
	}
}

struct client *client_new(int fd)
{
	struct client *c = malloc(sizeof *c);
	c->fd = fd;
	c->line = c->answer = NULL;
	c->step = READING;
	return c;
}
