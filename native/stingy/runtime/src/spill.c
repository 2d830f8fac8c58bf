/* The high slab: where blocks go that found no place in the cache slab. Size classes of powers of two, cut off a range that
 * is touched only as far as it was needed; behind it, malloc. */
#include "slab.h"

#include <stdlib.h>

/* Before every block of the high slab. 16 bytes, so that blocks are aligned as malloc's. */
struct spill_header {
	uint32_t size_class, is_live;
	uint64_t object;
};
_Static_assert(sizeof(struct spill_header) == 16, "keeps blocks aligned");
enum { SPILL_LIVE = 0x57a9e1, SPILL_DEAD = 0xdead };

static size_t class_bytes(unsigned size_class)
{
	return (size_t)SPILL_SMALLEST << size_class;
}

static struct spill_header *header_of(const void *block)
{
	return (struct spill_header *)((char *)(uintptr_t)block - sizeof(struct spill_header));
}

void *spill_take(struct slab *slab, unsigned object, size_t bytes)
{
	unsigned size_class = 0;
	while (size_class < SPILL_CLASSES && class_bytes(size_class) - sizeof(struct spill_header) < bytes)
		size_class++;
	struct spill_header *header = NULL;
	if (size_class < SPILL_CLASSES) {
		header = slab->spill_free[size_class];
		if (header) {
			SLAB_UNPOISON(header + 1, sizeof(void *));
			slab->spill_free[size_class] = *(void **)(header + 1);
		} else if ((size_t)(slab->high_end - slab->high_next) >= class_bytes(size_class)) {
			header = (struct spill_header *)slab->high_next;
			slab->high_next += class_bytes(size_class);
		}
	}
	if (!header) {
		count(&slab->objects[object].spilled_malloc);
		return malloc(bytes);
	}
	*header = (struct spill_header){ size_class, SPILL_LIVE, object };
	spill_resized(header + 1, bytes);
	return header + 1;
}

static struct spill_header *live_header(const void *block)
{
	struct spill_header *header = header_of(block);
	if (header->is_live == SPILL_DEAD)
		stingy_die("was freed before", STINGY_ANY, block);
	if (header->is_live != SPILL_LIVE || header->size_class >= SPILL_CLASSES)
		stingy_die("is not the beginning of a block", STINGY_ANY, block);
	return header;
}

void spill_give(struct slab *slab, void *block)
{
	struct spill_header *header = live_header(block);
	header->is_live = SPILL_DEAD;
	SLAB_UNPOISON(block, sizeof(void *));
	*(void **)block = slab->spill_free[header->size_class];
	slab->spill_free[header->size_class] = header;
	SLAB_POISON(block, class_bytes(header->size_class) - sizeof *header);
}

size_t spill_bytes(const void *block)
{
	return class_bytes(live_header(block)->size_class) - sizeof(struct spill_header);
}

void spill_resized(void *block, size_t bytes)
{
	SLAB_POISON(block, class_bytes(header_of(block)->size_class) - sizeof(struct spill_header));
	SLAB_UNPOISON(block, bytes);
}
