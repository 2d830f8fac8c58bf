// Functions that check the state on the way: guards choose no code, and the work of helpers belongs to the stage that calls them.
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum state { FREE, READING, SENDING, PAUSING, LINGERING, RETRYING };

struct conn { enum state state; int fd, wants_linger, timer; char buffer[500]; };

static struct conn conns[64];

static void del_event(int fd)
{
	shutdown(fd, SHUT_RD);
}

static void really_clear(struct conn *c)
{
	if (c->state != PAUSING)
		del_event(c->fd);
	close(c->fd);
	memset(c, 0, sizeof *c); // FREE
}

// Its edges are those of the stages that call it: SENDING -> FREE, SENDING -> LINGERING.
static void clear(struct conn *c)
{
	if (c->state == LINGERING)
		c->timer = 0;
	if (c->wants_linger) {
		if (c->state != PAUSING)
			del_event(c->fd);
		c->state = LINGERING;
	} else
		really_clear(c);
}

// Chooses by the state, but for the stage that calls it: PAUSING -> SENDING, and FREE from each.
static void timeout(struct conn *c)
{
	switch (c->state) {
	case PAUSING:
		c->timer = 1;
		break;
	case SENDING:
		c->timer = 2;
		del_event(c->fd);
		break;
	default:
		break;
	}
	c->state = FREE;
}

static void handle_read(struct conn *c)
{
	if (recv(c->fd, c->buffer, sizeof c->buffer, 0) <= 0)
		clear(c);
	else
		c->state = SENDING;
}

static void handle_send(struct conn *c)
{
	ssize_t sent = send(c->fd, c->buffer, sizeof c->buffer, 0);
	if (sent == 0)
		c->state = RETRYING;
	else if (sent < 0)
		c->state = PAUSING;
	else
		clear(c);
}

static void handle_pause(struct conn *c)
{
	if (c->timer > 10)
		timeout(c);
	else
		c->state = SENDING;
}

static void reset(struct conn *c)
{
	bzero(c, sizeof *c);
}

static void handle_linger(struct conn *c)
{
	if (recv(c->fd, c->buffer, sizeof c->buffer, 0) <= 0)
		really_clear(c);
	else if (c->timer)
		reset(c);
}

// Sets the state to that of a constant, or of a literal.
static void handle_retry(struct conn *c)
{
	static const struct conn pausing = {.state = PAUSING, .timer = 1};
	extern const struct conn unknown;
	if (c->timer == 0)
		*c = pausing;
	else if (c->timer == 1)
		*c = unknown; // to an unknown state
	else
		*c = (struct conn){.wants_linger = 0};
}

int main(void)
{
	for (;;) {
		int fd = accept(0, 0, 0);
		for (int i = 0; i < 64; i++) {
			struct conn *c = &conns[i];
			if (c->state == FREE) {
				c->fd = fd;
				c->state = READING;
				break;
			}
		}
		for (int i = 0; i < 64; i++) {
			struct conn *c = &conns[i];
			switch (c->state) {
			case READING: handle_read(c); break;
			case SENDING: handle_send(c); break;
			case PAUSING: handle_pause(c); break;
			case LINGERING: handle_linger(c); break;
			case RETRYING: handle_retry(c); break;
			default: break;
			}
		}
	}
}
