// A request's stage is the list that it is in; the configuration names lists and entries.
#include <stdlib.h>

struct connection { struct connection *next; char *input; };

static struct connection *reading, *writing, *waiting;

static void put(struct connection **list, struct connection *c)
{
	c->next = *list;
	*list = c;
}

static void read_connection(struct connection *c)
{
	c->input = malloc(2048);
	if (c->input)
		put(&writing, c);
	else
		put(&waiting, c);
}

static void write_connection(struct connection *c)
{
	free(c->input);
	put(&waiting, c);
}

static void wait_connection(struct connection *c)
{
	put(&reading, c);
}

static void accept_connection(void)
{
	struct connection *c = calloc(1, sizeof *c);
	put(&reading, c);
}

static void httpd_main(void)
{
	for (;;) {
		accept_connection();
		for (struct connection *c = reading; c; c = c->next)
			read_connection(c);
		for (struct connection *c = writing; c; c = c->next)
			write_connection(c);
		for (struct connection *c = waiting; c; c = c->next)
			wait_connection(c);
	}
}

int main(void) { httpd_main(); }
