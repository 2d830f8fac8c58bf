// Blocks that one call allocates and frees never wait with a request, so they are not part of its state. Similar blocks are.
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum state { READING, SENDING, DONE };

struct word { struct word *next; char *text; };
struct conn { enum state state; int fd; char *url, *path, *header; struct word *words; char bytes[16]; };

void later(void (*)(void *), void *); // from outside: it keeps its argument

static void die(const char *why)
{
	perror(why);
	exit(1);
}

// Allocates through an argument, and ends the program on failure.
static int xasprintf(char **into, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	int length = vasprintf(into, format, arguments);
	va_end(arguments);
	if (length < 0)
		die("no memory");
	return length;
}

static void note(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
}

// Returns a block to its caller.
static char *decode(const char *url)
{
	char *plain = malloc(strlen(url) + 1);
	if (plain == NULL)
		die("no memory");
	size_t length = 0;
	for (; *url; url++)
		plain[length++] = *url == '+' ? ' ' : *url;
	plain[length] = 0;
	return plain;
}

static void forget(char *text)
{
	note("%s is not needed any more\n", text);
	free(text);
}

static void first_line(FILE *file)
{
	char *line = NULL;
	size_t size = 0;
	if (getline(&line, &size, file) > 0)
		note("%s", line);
	free(line);
}

static void fired(void *what)
{
	free(what);
}

static void read_request(struct conn *c)
{
	char *buffer = malloc(4096); // a temporary block
	ssize_t n = recv(c->fd, buffer, 4095, 0);
	if (n <= 0) {
		free(buffer);
		c->state = DONE;
		return;
	}
	buffer[n] = 0;
	c->url = strdup(buffer); // a request's block
	free(buffer);
	char *plain = decode(c->url); // a temporary block, made by another function
	struct word *list = NULL;
	for (char *at = strtok(plain, "/"); at; at = strtok(NULL, "/")) {
		struct word *word = calloc(1, sizeof *word); // held by the request
		word->text = strdup(at); // held by the request, too
		word->next = c->words;
		c->words = word;
		list = word;
	}
	xasprintf(&c->path, "/srv/%s", plain); // a request's block, through an argument
	free(plain);
	if (list == NULL)
		c->state = DONE;
	else
		c->state = SENDING;
}

static void send_file(struct conn *c)
{
	char *log = NULL;
	asprintf(&log, "%s %s", c->url, c->path); // a temporary block, through an argument
	forget(log);
	char *twice = malloc(100); // a temporary block that is resized
	twice = realloc(twice, 200);
	twice[0] = 0;
	free(twice);
	FILE *file = fopen(c->path, "r");
	first_line(file);
	fclose(file);
	int *wait = malloc(sizeof(int)); // not a temporary block, because it is passed on
	*wait = c->fd;
	later(fired, wait);
	char *note = malloc(24); // not a temporary block, because the request contains its address
	if (c->fd < 0)
		free(note);
	else
		memcpy(c->bytes, &note, sizeof note);
	xasprintf(&c->header, "HTTP/1.0 200 OK\r\n");
	c->state = DONE;
}

static void finish(struct conn *c)
{
	for (struct word *word = c->words, *next; word; word = next) {
		next = word->next;
		free(word->text);
		free(word);
	}
	char *note;
	memcpy(&note, c->bytes, sizeof note);
	free(note);
	free(c->url);
	free(c->path);
	free(c->header);
	close(c->fd);
	free(c);
}

void handle(struct conn *c)
{
	switch (c->state) {
	case READING:
		read_request(c);
		break;
	case SENDING:
		send_file(c);
		break;
	case DONE:
		finish(c);
		break;
	}
}

struct conn *begin(int fd)
{
	struct conn *c = calloc(1, sizeof *c);
	c->fd = fd;
	c->state = READING;
	return c;
}
