/* Made by stingygen; do not edit. */
#include "stingy_gen.h"

#include <stdio.h>

static const struct stingy_object objects[] = {
	[STINGY_OBJ_conn] = { .name = "conn", .object_bytes = 264, .region = 0 }, /* size from analysis */
	[STINGY_OBJ_request_line] = { .name = "request_line", .object_bytes = 128, .region = 1 }, /* size from configuration */
	[STINGY_OBJ_headers] = { .name = "headers", .object_bytes = 384, .region = 2 }, /* size from configuration */
	[STINGY_OBJ_file_chunk] = { .name = "file_chunk", .object_bytes = 4096, .region = 3 }, /* size from analysis */
};

static const struct stingy_region regions[] = {
	{ .name = "conn", .offset_bytes = 2048, .slot_bytes = 320, .slots = 105 },
	{ .name = "request_line", .offset_bytes = 35648, .slot_bytes = 128, .slots = 105 },
	{ .name = "headers", .offset_bytes = 49088, .slot_bytes = 384, .slots = 105 },
	{ .name = "file_chunk", .offset_bytes = 89408, .slot_bytes = 4096, .slots = 105 },
};

const struct stingy_map stingy_gen_map = {
	.version = STINGY_MAP_VERSION,
	.stack_bytes = 0,
	.globals_bytes = 2048,
	.low_bytes = 262144,
	.cache_bytes = 524288,
	.high_bytes = 33554432,
	.object_count = STINGY_OBJECTS,
	.region_count = 4,
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
	case STINGY_STAGE_accept_conn:
		room = least(room, stingy_free_slots(0));
		room = least(room, stingy_free_slots(1));
		room = least(room, stingy_free_slots(2));
		room = least(room, stingy_free_slots(3));
		break;
	case STINGY_STAGE_READ_REQUEST:
		room = least(room, stingy_free_slots(1));
		room = least(room, stingy_free_slots(2));
		break;
	case STINGY_STAGE_SEND_BODY:
		room = least(room, stingy_free_slots(3));
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
}
