// Recursion and a stack that depends on the input: there is no bound, and the report says why.
#include <alloca.h>
#include <string.h>

enum phase { START, LIST, FINISH };

struct task { enum phase phase; int depth; };

void use(char *text);

static int descend(struct task *t, int level)
{
	char here[128];
	memset(here, level, sizeof here);
	use(here);
	return level > t->depth ? level : descend(t, level + 1) + here[0];
}

static void list(struct task *t)
{
	char *names = alloca((size_t)t->depth);
	use(names);
	if (descend(t, 0) > 3)
		t->phase = FINISH;
}

void run(struct task *t)
{
	switch (t->phase) {
	case START: t->phase = LIST; break;
	case LIST: list(t); break;
	case FINISH: t->phase = START; break;
	}
}
