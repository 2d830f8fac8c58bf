/* Made by stingygen; do not edit. */
#include "stingy_gen.h"

#include <stdio.h>

static const struct stingy_object objects[] = {
	[STINGY_OBJ_request] = { .name = "request", .object_bytes = 328, .region = 0 }, /* size from analysis */
	[STINGY_OBJ_line] = { .name = "line", .object_bytes = 200, .region = 1 }, /* size from analysis */
	[STINGY_OBJ_field] = { .name = "field", .object_bytes = 72, .region = 2 }, /* size from analysis */
	[STINGY_OBJ_header] = { .name = "header", .object_bytes = 500, .region = 1 }, /* size from analysis */
	[STINGY_OBJ_tiny] = { .name = "tiny", .object_bytes = 9, .region = 3 }, /* size from analysis */
	[STINGY_OBJ_listing] = { .name = "listing", .object_bytes = 3000, .region = 4 }, /* size from analysis */
	[STINGY_OBJ_log_line] = { .name = "log_line", .object_bytes = 120, .region = 1 }, /* size from analysis */
};

static const struct stingy_region regions[] = {
	{ .name = "request", .offset_bytes = 4288, .slot_bytes = 384, .slots = 40 },
	{ .name = "line, header, log_line", .offset_bytes = 19648, .slot_bytes = 512, .slots = 40 },
	{ .name = "field", .offset_bytes = 40128, .slot_bytes = 128, .slots = 120 },
	{ .name = "tiny", .offset_bytes = 55488, .slot_bytes = 16, .slots = 40 },
	{ .name = "listing", .offset_bytes = 56128, .slot_bytes = 3008, .slots = 5 },
};

const struct stingy_map stingy_gen_map = {
	.version = STINGY_MAP_VERSION,
	.stack_bytes = 0,
	.globals_bytes = 4288,
	.low_bytes = 262144,
	.cache_bytes = 262144,
	.high_bytes = 33554432,
	.object_count = STINGY_OBJECTS,
	.region_count = 5,
	.objects = objects,
	.regions = regions,
};

static inline uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

uint32_t stingy_room(unsigned stage)
{
	uint32_t room = UINT32_MAX;
	switch (stage) {
	case STINGY_STAGE_accept:
		room = least(room, stingy_free_slots(0));
		room = least(room, stingy_free_slots(1));
		room = least(room, stingy_free_slots(2) / 3);
		room = least(room, stingy_free_slots(3));
		break;
	case STINGY_STAGE_parse:
		room = least(room, stingy_free_slots(1));
		room = least(room, stingy_free_slots(2) / 3);
		break;
	case STINGY_STAGE_a_list:
		room = least(room, stingy_free_slots(4));
		break;
	case STINGY_STAGE_send:
		room = least(room, stingy_free_slots(1));
		room = least(room, stingy_free_slots(3));
		break;
	case STINGY_STAGE_flush:
		room = least(room, stingy_free_slots(1));
		break;
	default:
		break; /* takes no slot */
	}
	return room;
}

static const uint16_t allocates_accept[] = { STINGY_OBJ_request, STINGY_ANY };
static const uint16_t allocates_parse[] = { STINGY_OBJ_line, STINGY_OBJ_field, STINGY_OBJ_field, STINGY_OBJ_field, STINGY_ANY };
static const uint16_t allocates_a_list[] = { STINGY_OBJ_listing, STINGY_ANY };
static const uint16_t allocates_send[] = { STINGY_OBJ_header, STINGY_OBJ_tiny, STINGY_ANY };
static const uint16_t allocates_flush[] = { STINGY_OBJ_log_line, STINGY_ANY };

const struct stingy_gen_stage stingy_gen_stages[STINGY_STAGES] = {
	[STINGY_STAGE_accept] = { "accept", allocates_accept, true },
	[STINGY_STAGE_parse] = { "parse", allocates_parse, false },
	[STINGY_STAGE_a_list] = { "a list", allocates_a_list, false },
	[STINGY_STAGE_send] = { "send", allocates_send, false },
	[STINGY_STAGE_flush] = { "flush", allocates_flush, false },
};

/* Before main, so that no allocation of the server comes earlier. */
__attribute__((constructor)) static void begin(void)
{
	int error = stingy_init(&stingy_gen_map, NULL);
	if (error)
		fprintf(stderr, "stingy: the memory map cannot be used (%d); malloc is\n", error);
}
