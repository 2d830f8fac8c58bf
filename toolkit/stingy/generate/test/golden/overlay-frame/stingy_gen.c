/* Made by stingygen; do not edit. */
#include "stingy_gen.h"

#include <stdio.h>

static const struct stingy_object objects[] = {
	[STINGY_OBJ_request] = { .name = "request", .object_bytes = 328, .place_bytes = 384, .region = 0, .place = 0, .places = 1, .is_request = true }, /* size from analysis */
	[STINGY_OBJ_line] = { .name = "line", .object_bytes = 200, .place_bytes = 256, .region = 0, .place = 1, .places = 1 }, /* size from analysis */
	[STINGY_OBJ_field] = { .name = "field", .object_bytes = 72, .place_bytes = 128, .region = 0, .place = 2, .places = 3 }, /* size from analysis */
	[STINGY_OBJ_header] = { .name = "header", .object_bytes = 500, .place_bytes = 512, .region = 0, .place = 5, .places = 1 }, /* size from analysis */
	[STINGY_OBJ_tiny] = { .name = "tiny", .object_bytes = 9, .place_bytes = 16, .region = 0, .place = 6, .places = 1 }, /* size from analysis */
	[STINGY_OBJ_listing] = { .name = "listing", .object_bytes = 3000, .place_bytes = 3008, .region = 0, .place = 7, .places = 1 }, /* size from analysis */
	[STINGY_OBJ_log_line] = { .name = "log_line", .object_bytes = 120, .place_bytes = 128, .region = 0, .place = 8, .places = 1 }, /* size from analysis */
};

static const struct stingy_region regions[] = {
	{ .name = "frames", .offset_bytes = 0, .slot_bytes = 3968, .slots = 132 },
};

static const struct stingy_place places[] = {
	{ .offset_bytes = 0, .overlaps = UINT64_C(0x1) },
	{ .offset_bytes = 384, .overlaps = UINT64_C(0x182) },
	{ .offset_bytes = 640, .overlaps = UINT64_C(0x84) },
	{ .offset_bytes = 768, .overlaps = UINT64_C(0x88) },
	{ .offset_bytes = 896, .overlaps = UINT64_C(0x90) },
	{ .offset_bytes = 3392, .overlaps = UINT64_C(0x20) },
	{ .offset_bytes = 3904, .overlaps = UINT64_C(0x40) },
	{ .offset_bytes = 384, .overlaps = UINT64_C(0x19e) },
	{ .offset_bytes = 384, .overlaps = UINT64_C(0x182) },
};

const struct stingy_map stingy_gen_map = {
	.version = STINGY_MAP_VERSION,
	.layout = STINGY_FRAME,
	.stack_bytes = 0,
	.globals_bytes = 0,
	.low_bytes = 262144,
	.cache_bytes = 524288,
	.high_bytes = 33554432,
	.object_count = STINGY_OBJECTS,
	.region_count = 1,
	.place_count = 9,
	.objects = objects,
	.regions = regions,
	.places = places,
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
