// A state that is a set of bits, in a growing array of connections; macros that consist of others keep their own names.
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define UNUSED (0)
#define IN_PROGRESS (1)
#define CONNECTED (2)
#define CLOSED_UP (4)
#define CLOSED_DOWN (8)
#define CLOSED (CLOSED_UP | CLOSED_DOWN)

typedef struct { int state, up, down; char pad[52]; } connection;

// One in the whole program, so it belongs to no request, whatever its name.
enum role { ALONE, ASKING, JOINING, FOLLOWING, LEADING, LEAVING };
static struct node { enum role state; } node;

static connection *conns;
static int count;

static char *copy(const char *text)
{
	size_t length = strlen(text) + 1;
	char *p = malloc(length);
	if (p == NULL)
		abort();
	return memcpy(p, text, length);
}

static void more(void)
{
	conns = realloc(conns, (count + 64) * sizeof(connection));
	memset(conns + count, 0, 64 * sizeof(connection));
	count += 64;
}

static void role(void)
{
	switch (node.state) {
	case ALONE: node.state = ASKING; break;
	case ASKING: node.state = JOINING; break;
	case JOINING: node.state = FOLLOWING; break;
	case FOLLOWING: node.state = LEADING; break;
	case LEADING: node.state = LEAVING; break;
	case LEAVING: node.state = ALONE; break;
	}
}

static void add(int fd)
{
	char *name = copy("new");
	if (count == 0)
		more();
	conns[0].up = fd;
	if (name[0])
		conns[0].state = IN_PROGRESS;
	else
		conns[0].state = CLOSED;
	free(name);
}

static void copy_up(connection *c)
{
	if (recv(c->up, c->pad, 1, 0) <= 0)
		c->state |= CLOSED_UP;
	if (send(c->down, c->pad, 1, 0) <= 0)
		c->state |= CLOSED_DOWN;
}

int main(void)
{
	for (;;) {
		role();
		add(accept(0, 0, 0));
		for (int i = 0; i < count; i++)
			switch (conns[i].state) {
			case IN_PROGRESS:
				conns[i].state = CONNECTED;
				break;
			case CONNECTED:
				copy_up(&conns[i]);
				break;
			case CLOSED:
				conns[i].state = UNUSED;
				break;
			}
	}
}
