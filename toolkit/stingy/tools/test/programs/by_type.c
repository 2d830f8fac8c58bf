// A call to which no known value flows may reach every function of its type, in the order of the program, not of addresses.
#include <dlfcn.h>
#include <stdlib.h>

enum state { FIRST, SECOND };

struct conn { enum state state; char *name; };

typedef void hook(struct conn *);

static void again(struct conn *c)
{
	((hook *)dlsym(0, c->name))(c);
}

#define HOOK(n) static void hook_##n(struct conn *c) { if (c->name[0] == n) again(c); }
HOOK(1) HOOK(2) HOOK(3) HOOK(4) HOOK(5) HOOK(6) HOOK(7) HOOK(8) HOOK(9) HOOK(10) HOOK(11) HOOK(12)

hook *const hooks[] = {hook_1, hook_2, hook_3, hook_4, hook_5, hook_6, hook_7, hook_8, hook_9, hook_10, hook_11, hook_12};

void step(struct conn *c)
{
	switch (c->state) {
	case FIRST:
		c->name = malloc(16);
		again(c);
		c->state = SECOND;
		break;
	case SECOND:
		free(c->name);
		c->state = FIRST;
		break;
	}
}
