/* Made by stingygen; do not edit. */
#include "stingy_gen.h"

#include <stdio.h>

static const struct stingy_object objects[] = {
	[STINGY_OBJ_tux_request] = { .name = "tux_request", .object_bytes = 288, .place_bytes = 320, .region = 0, .is_request = true }, /* size from analysis */
	[STINGY_OBJ_tux_request_body] = { .name = "tux_request_body", .object_bytes = 512, .place_bytes = 512, .region = 1 }, /* size from configuration */
	[STINGY_OBJ_tux_request_header] = { .name = "tux_request_header", .object_bytes = 512, .place_bytes = 512, .region = 2 }, /* size from configuration */
	[STINGY_OBJ_tux_request_host] = { .name = "tux_request_host", .object_bytes = 64, .place_bytes = 64, .region = 3 }, /* size from configuration */
	[STINGY_OBJ_tux_request_input] = { .name = "tux_request_input", .object_bytes = 1024, .place_bytes = 1024, .region = 4 }, /* size from configuration */
	[STINGY_OBJ_tux_request_location] = { .name = "tux_request_location", .object_bytes = 128, .place_bytes = 128, .region = 5 }, /* size from configuration */
	[STINGY_OBJ_tux_request_none_match] = { .name = "tux_request_none_match", .object_bytes = 64, .place_bytes = 64, .region = 6 }, /* size from configuration */
	[STINGY_OBJ_tux_request_path] = { .name = "tux_request_path", .object_bytes = 128, .place_bytes = 128, .region = 7 }, /* size from configuration */
	[STINGY_OBJ_tux_request_target] = { .name = "tux_request_target", .object_bytes = 64, .place_bytes = 64, .region = 8 }, /* size from configuration */
};

static const struct stingy_region regions[] = {
	{ .name = "tux_request", .offset_bytes = 0, .slot_bytes = 320, .slots = 238 },
	{ .name = "tux_request_body", .offset_bytes = 76160, .slot_bytes = 512, .slots = 32 },
	{ .name = "tux_request_header", .offset_bytes = 92544, .slot_bytes = 512, .slots = 238 },
	{ .name = "tux_request_host", .offset_bytes = 214400, .slot_bytes = 64, .slots = 238 },
	{ .name = "tux_request_input", .offset_bytes = 229632, .slot_bytes = 1024, .slots = 238 },
	{ .name = "tux_request_location", .offset_bytes = 473344, .slot_bytes = 128, .slots = 8 },
	{ .name = "tux_request_none_match", .offset_bytes = 474368, .slot_bytes = 64, .slots = 32 },
	{ .name = "tux_request_path", .offset_bytes = 476416, .slot_bytes = 128, .slots = 238 },
	{ .name = "tux_request_target", .offset_bytes = 506880, .slot_bytes = 64, .slots = 238 },
};

const struct stingy_map stingy_gen_map = {
	.version = STINGY_MAP_VERSION,
	.layout = STINGY_POOL,
	.stack_bytes = 0,
	.globals_bytes = 0,
	.low_bytes = 262144,
	.cache_bytes = 524288,
	.high_bytes = 33554432,
	.object_count = STINGY_OBJECTS,
	.region_count = 9,
	.place_count = 0,
	.objects = objects,
	.regions = regions,
	.places = NULL,
};

static inline uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

uint32_t stingy_room(unsigned stage)
{
	uint32_t room = UINT32_MAX;
	switch (stage) {
	case STINGY_STAGE_accept_requests:
		room = least(room, stingy_free_slots(0));
		room = least(room, stingy_free_slots(2));
		room = least(room, stingy_free_slots(3));
		room = least(room, stingy_free_slots(4));
		room = least(room, stingy_free_slots(7));
		room = least(room, stingy_free_slots(8));
		break;
	case STINGY_STAGE_parse_request:
		room = least(room, stingy_free_slots(1));
		room = least(room, stingy_free_slots(3));
		room = least(room, stingy_free_slots(4));
		room = least(room, stingy_free_slots(6));
		room = least(room, stingy_free_slots(8));
		break;
	case STINGY_STAGE_http_lookup_vhost:
		room = least(room, stingy_free_slots(1));
		room = least(room, stingy_free_slots(7));
		break;
	case STINGY_STAGE_http_send_header:
		room = least(room, stingy_free_slots(2));
		break;
	case STINGY_STAGE_http_process_message:
		room = least(room, stingy_free_slots(1));
		room = least(room, stingy_free_slots(5));
		break;
	case STINGY_STAGE_http_dirlist_head:
		room = least(room, stingy_free_slots(1));
		break;
	case STINGY_STAGE_list_directory:
		room = least(room, stingy_free_slots(1));
		break;
	case STINGY_STAGE_http_dirlist_tail:
		room = least(room, stingy_free_slots(1));
		break;
	default:
		break; /* takes no slot */
	}
	return room;
}

static const uint16_t allocates_accept_requests[] = { STINGY_OBJ_tux_request, STINGY_ANY };
static const uint16_t allocates_parse_request[] = { STINGY_OBJ_tux_request_body, STINGY_OBJ_tux_request_host, STINGY_OBJ_tux_request_input, STINGY_OBJ_tux_request_none_match, STINGY_OBJ_tux_request_target, STINGY_ANY };
static const uint16_t allocates_http_lookup_vhost[] = { STINGY_OBJ_tux_request_body, STINGY_OBJ_tux_request_path, STINGY_ANY };
static const uint16_t allocates_http_send_header[] = { STINGY_OBJ_tux_request_header, STINGY_ANY };
static const uint16_t allocates_flush_request[] = { STINGY_ANY };
static const uint16_t allocates_http_process_message[] = { STINGY_OBJ_tux_request_body, STINGY_OBJ_tux_request_location, STINGY_ANY };
static const uint16_t allocates_http_send_body[] = { STINGY_ANY };
static const uint16_t allocates_http_dirlist_head[] = { STINGY_OBJ_tux_request_body, STINGY_ANY };
static const uint16_t allocates_linger_request[] = { STINGY_ANY };
static const uint16_t allocates_list_directory[] = { STINGY_OBJ_tux_request_body, STINGY_ANY };
static const uint16_t allocates_http_dirlist_tail[] = { STINGY_OBJ_tux_request_body, STINGY_ANY };

const struct stingy_gen_stage stingy_gen_stages[STINGY_STAGES] = {
	[STINGY_STAGE_accept_requests] = { "accept_requests", allocates_accept_requests, true },
	[STINGY_STAGE_parse_request] = { "parse_request", allocates_parse_request, false },
	[STINGY_STAGE_http_lookup_vhost] = { "http_lookup_vhost", allocates_http_lookup_vhost, false },
	[STINGY_STAGE_http_send_header] = { "http_send_header", allocates_http_send_header, false },
	[STINGY_STAGE_flush_request] = { "flush_request", allocates_flush_request, false },
	[STINGY_STAGE_http_process_message] = { "http_process_message", allocates_http_process_message, false },
	[STINGY_STAGE_http_send_body] = { "http_send_body", allocates_http_send_body, false },
	[STINGY_STAGE_http_dirlist_head] = { "http_dirlist_head", allocates_http_dirlist_head, false },
	[STINGY_STAGE_linger_request] = { "linger_request", allocates_linger_request, false },
	[STINGY_STAGE_list_directory] = { "list_directory", allocates_list_directory, false },
	[STINGY_STAGE_http_dirlist_tail] = { "http_dirlist_tail", allocates_http_dirlist_tail, false },
};

/* Before main, so that no allocation of the server comes earlier. */
__attribute__((constructor)) static void begin(void)
{
	int error = stingy_init(&stingy_gen_map, NULL);
	if (error)
		fprintf(stderr, "stingy: the memory map cannot be used (%d); malloc is\n", error);
}
