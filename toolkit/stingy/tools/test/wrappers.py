#!/usr/bin/env python3
"""Writes a server in C that allocates through every kind of wrapper, in every kind of macro, and checks
the properties that its callers expect of each block: zeroed, aligned, of the requested length, with the
text, or NULL. Each has a separate object.

wrappers.py > wrappers.c wrappers [N]     0: all is as expected. With N, the wrapper of that number is
asked for more than there is: exit code 4 if it returned NULL, else what it ends the program with

"""

# The name, the definition, a call for an object of a type, and the caller's expectation.
WRAPPERS = [
    ("malloc", None, "malloc({size})", ""),
    ("calloc", None, "calloc(1, {size})", "zeroed"),
    ("zalloc", """void *zalloc(size_t bytes)
{
	void *block = malloc(bytes);
	if (block)
		memset(block, 0, bytes);
	return block;
}""", "zalloc({size})", "zeroed"),
    ("xmalloc", """void *xmalloc(const size_t bytes)
{
	void *block;
	if ((block = malloc(bytes)) == NULL) {
		fprintf(stderr, "cannot allocate %zu bytes\\n", bytes);
		exit(3);
	}
	return block;
}""", "xmalloc({size})", ""),
    ("xzalloc", """static void *xzalloc(size_t bytes)
{
	allocations++;
	return memset(xmalloc(bytes), 0, bytes);
}""", "xzalloc({size})", "zeroed"),
    ("xcalloc", """static inline void *xcalloc(size_t count, size_t bytes)
{
	void *block = calloc(count, bytes);
	if (!block)
		die("calloc", count * bytes);
	return block;
}""", "xcalloc(1, {size})", "zeroed"),
    ("xrealloc", """PRIVATE void *xrealloc(void *old, size_t bytes)
{
	void *block = realloc(old, bytes);
	if (block == NULL) {
		free(old);
		die("realloc", bytes);
	}
	return block;
}""", "xrealloc(NULL, {size})", ""),
    ("aligned", """static void *aligned(size_t bytes)
{
	return aligned_alloc(64, (bytes + 63) / 64 * 64);
}""", "aligned({size})", "aligned"),
    ("counted", """static void *counted(size_t bytes)
{
	static size_t all;
	all += bytes;
	return all ? malloc(bytes) : NULL;
}""", "counted({size})", ""),
    ("by_macro", """#define GET(type, count) ((type *)malloc((count) * sizeof(type)))
static void *by_macro(size_t bytes)
{
	char *block = GET(char, bytes);
	return block ? memset(block, 0, bytes) : NULL;
}""", "by_macro({size})", "zeroed"),
]
# The name, the definition, and a use that assigns `left`.
MACROS = [
    ("plain", None, "{left} = {call_of_it}"),
    ("whole", "#define {name}(type) {call_of_type}", "{left} = {name}(struct {object})"),
    ("cast", "#define {name}(type) ((type *) {call_of_type})", "{left} = {name}(struct {object})"),
    ("alias", "#define {name} {wrapper}", "{left} = {call_by_alias}"),
    ("argument", None, "CHECKED({left} = {call_of_it})"),
    ("part", "#define {name}(c) ((c)->{object} = {call_of_it}, (c)->parts++)", "{name}(c)"),
]


def main():
    print("""/* Written by wrappers.py. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PRIVATE static
#define CHECKED(call) ((call) ? 0 : -1)

static unsigned allocations, faults;
static volatile size_t too_much = SIZE_MAX / 4;
void *xmalloc(size_t bytes);
static void *counted(size_t bytes);

static __attribute__((noreturn)) void die(const char *what, size_t bytes)
{
	fprintf(stderr, "%s: cannot allocate %zu bytes\\n", what, bytes);
	exit(5);
}
""")
    for _, definition, _, _ in WRAPPERS:
        if definition:
            print(definition + "\n")
    print("""static char *xstrdup(const char *text)
{
	size_t bytes = strlen(text) + 1;
	char *copy = xmalloc(bytes);
	return memcpy(copy, text, bytes);
}

static void xfree(void *block)
{
	if (block != NULL)
		free(block);
}
""")
    objects = []
    for number, (wrapper, _, call, expected) in enumerate(WRAPPERS):
        for macro, definition, use in MACROS:
            name = f"{wrapper}_{macro}"
            words = {
                "object": name, "left": f"c->{name}", "wrapper": wrapper, "name": name.upper(),
                "call_of_it": call.format(size=f"sizeof(struct {name})"), "call_of_type": call.format(size="sizeof(type)"),
            }
            words["call_by_alias"] = words["call_of_it"].replace(wrapper + "(", name.upper() + "(")
            if definition:
                print(definition.format(**words))
            objects.append((name, number, use.format(**words), expected))
    print("\nenum step { ALLOCATE, FREE };")
    for index, (name, _, _, _) in enumerate(objects):
        print(f"struct {name} {{ unsigned char bytes[{64 + index}]; }};")
    print("struct conn {\n\tenum step step;\n\tint parts;")
    for name, _, _, _ in objects:
        print(f"\tstruct {name} *{name};")
    for wrapper, _, _, _ in WRAPPERS:
        print(f"\tchar *text_{wrapper};")
    print("""	char *copy;
};

static void expect(int is_so, const char *object, const char *what)
{
	if (!is_so)
		faults++, printf("%s is not %s\\n", object, what);
}

static void expect_zeroed(const unsigned char *bytes, size_t count, const char *object)
{
	size_t i = 0;
	while (i < count && bytes[i] == 0)
		i++;
	expect(i == count, object, "zeroed");
}

static void conn_run(struct conn *c, size_t more)
{
	switch (c->step) {
	case ALLOCATE:""")
    for name, _, use, expected in objects:
        print(f"\t\t{use};" if not use.startswith("CHECKED") else f"\t\tif ({use})\n\t\t\treturn;")
        if expected == "zeroed":
            print(f'\t\texpect_zeroed(c->{name}->bytes, sizeof c->{name}->bytes, "{name}");')
        if expected == "aligned":
            print(f'\t\texpect((uintptr_t)c->{name} % 64 == 0, "{name}", "aligned");')
        print(f"\t\tmemset(c->{name}, 0xff, sizeof *c->{name});")
    for wrapper, _, call, expected in WRAPPERS:
        print(f"\t\tc->text_{wrapper} = {call.format(size='more')};")
        if expected == "zeroed":
            print(f'\t\texpect_zeroed((unsigned char *)c->text_{wrapper}, more, "text_{wrapper}");')
    print("""		c->text_xrealloc = xrealloc(c->text_xrealloc, more + 100);
		c->copy = xstrdup("a line of text");
		expect(strcmp(c->copy, "a line of text") == 0, "copy", "the text");
		c->step = FREE;
		break;
	case FREE:""")
    for name, number, _, _ in objects:
        print(f"\t\t{'xfree' if number % 2 else 'free'}(c->{name});")
    for wrapper, _, _, _ in WRAPPERS:
        print(f"\t\txfree(c->text_{wrapper});")
    print("""		xfree(c->copy);
		c->step = ALLOCATE;
		break;
	}
}

static int ask_for_too_much(struct conn *c, int wrapper, size_t bytes)
{
	switch (wrapper) {""")
    for number, (wrapper, _, call, _) in enumerate(WRAPPERS):
        print(f"\tcase {number}:\n\t\tc->text_{wrapper} = {call.format(size='bytes')};\n\t\treturn c->text_{wrapper} ? 6 : 4;")
    print("""	}
	return 7;
}

int main(int argc, char **argv)
{
	struct conn *c = calloc(1, sizeof *c);
	if (!c)
		return 2;
	if (argc > 1)
		return ask_for_too_much(c, atoi(argv[1]), too_much);
	for (size_t round = 0; round < 20; round++)
		conn_run(c, 20 + round);
	free(c);
	printf("%u blocks of xzalloc\\n", allocations);
	return faults ? 1 : 0;
}""")


main()
