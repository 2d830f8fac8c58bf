# Included by the Makefiles of C rooms, here and in testbed/: compiler options and sanitizer builds. It has no targets.
CC ?= gcc
CFLAGS ?= -O2 -g
BUILD ?= build
WARN = -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes
SANITIZED = -std=c11 -O1 -g1 -fno-omit-frame-pointer
ADDRESS = address,undefined

# `yes` if the compiler, or another one (links SANITIZERS,COMPILER), can link with the sanitizers. Without their libraries, sanitizer
# builds are left out and their tests are skipped.
links = $(shell t=$$(mktemp) && echo 'int main(void) { return 0; }' | $(or $(2),$(CC)) -fsanitize=$(1) -o $$t -x c - 2>/dev/null && echo yes; rm -f $$t)
HAS_ADDRESS = $(call links,$(ADDRESS))
HAS_THREAD = $(call links,thread)

# $(eval $(call sanitizer,NAME,SANITIZERS,OBJECTS)) builds $(BUILD)/NAME/*.o from src/*.c, and $(BUILD)/NAME/test_X from test/X.c and
# OBJECTS. HEADERS is set before.
define sanitizer
$(BUILD)/$(1):
	mkdir -p $$@
$(BUILD)/$(1)/%.o: src/%.c $(HEADERS) | $(BUILD)/$(1)
	$$(CC) $$(SANITIZED) -fsanitize=$(2) -c -o $$@ $$<
$(BUILD)/$(1)/test_%: test/%.c $(3:%=$(BUILD)/$(1)/%)
	$$(CC) $$(SANITIZED) -fsanitize=$(2) -o $$@ $$^ -pthread
endef
