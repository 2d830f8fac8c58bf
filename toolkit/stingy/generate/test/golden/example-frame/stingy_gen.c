/* Made by stingygen; do not edit. */
#include "stingy_gen.h"

#include <stdio.h>

static const struct stingy_object objects[] = {
	[STINGY_OBJ_conn] = { .name = "conn", .object_bytes = 264, .place_bytes = 320, .region = 0, .place = 0, .places = 1, .is_request = true }, /* size from analysis */
	[STINGY_OBJ_request_line] = { .name = "request_line", .object_bytes = 128, .place_bytes = 128, .region = 0, .place = 1, .places = 1 }, /* size from configuration */
	[STINGY_OBJ_headers] = { .name = "headers", .object_bytes = 384, .place_bytes = 384, .region = 0, .place = 2, .places = 1 }, /* size from configuration */
	[STINGY_OBJ_file_chunk] = { .name = "file_chunk", .object_bytes = 4096, .place_bytes = 4096, .region = 0, .place = 3, .places = 1 }, /* size from analysis */
};

static const struct stingy_region regions[] = {
	{ .name = "frames", .offset_bytes = 16384, .slot_bytes = 4928, .slots = 103 },
};

static const struct stingy_place places[] = {
	{ .offset_bytes = 0, .overlaps = UINT64_C(0x1) },
	{ .offset_bytes = 4800, .overlaps = UINT64_C(0x2) },
	{ .offset_bytes = 4416, .overlaps = UINT64_C(0x4) },
	{ .offset_bytes = 320, .overlaps = UINT64_C(0x8) },
};

/* From stingy_globals.ld; NULL where the program was linked without. */
extern char stingy_globals_begin[] __attribute__((weak)), stingy_globals_end[] __attribute__((weak));

const struct stingy_map stingy_gen_map = {
	.version = STINGY_MAP_VERSION,
	.layout = STINGY_FRAME,
	.stack_bytes = 12288,
	.globals_bytes = 4096,
	.globals = stingy_globals_begin,
	.globals_end = stingy_globals_end,
	.low_bytes = 262144,
	.cache_bytes = 524288,
	.high_bytes = 33554432,
	.object_count = STINGY_OBJECTS,
	.region_count = 1,
	.place_count = 4,
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
	case STINGY_STAGE_accept_conn:
		room = least(room, stingy_free_slots(0));
		break;
	default:
		break; /* takes no slot */
	}
	return room;
}

static const uint16_t allocates_accept_conn[] = { STINGY_OBJ_conn, STINGY_ANY };
static const uint16_t allocates_READ_REQUEST[] = { STINGY_OBJ_request_line, STINGY_OBJ_headers, STINGY_ANY };
static const uint16_t allocates_SEND_BODY[] = { STINGY_OBJ_file_chunk, STINGY_ANY };

const struct stingy_gen_stage stingy_gen_stages[STINGY_STAGES] = {
	[STINGY_STAGE_accept_conn] = { "accept_conn", allocates_accept_conn, true },
	[STINGY_STAGE_READ_REQUEST] = { "READ_REQUEST", allocates_READ_REQUEST, false },
	[STINGY_STAGE_SEND_BODY] = { "SEND_BODY", allocates_SEND_BODY, false },
};

/* Before main, so that no allocation of the server comes earlier. */
__attribute__((constructor)) static void begin(void)
{
	int error = stingy_init(&stingy_gen_map, NULL);
	if (error)
		fprintf(stderr, "stingy: the memory map cannot be used (%d); malloc is\n", error);
	if (!stingy_gen_map.globals)
		fputs("stingy: the globals are where the compiler put them: link with -Wl,-T,stingy_globals.ld\n", stderr);
}
