/* Made by stingygen; do not edit. */
#ifndef STINGY_GEN_H
#define STINGY_GEN_H

#include <stingy/runtime.h>

/* Layout pool: 238 requests of 2112 bytes in a cache slab of 524288 bytes. */
enum { STINGY_REQUESTS = 238 };

enum stingy_gen_object {
	STINGY_OBJ_tux_request = 0,
	STINGY_OBJ_tux_request_body,
	STINGY_OBJ_tux_request_header,
	STINGY_OBJ_tux_request_host,
	STINGY_OBJ_tux_request_input,
	STINGY_OBJ_tux_request_location,
	STINGY_OBJ_tux_request_none_match,
	STINGY_OBJ_tux_request_path,
	STINGY_OBJ_tux_request_target,
	STINGY_OBJECTS
};

/* In order of treatment. */
enum stingy_gen_stage_number {
	STINGY_STAGE_accept_requests = 0,
	STINGY_STAGE_parse_request,
	STINGY_STAGE_http_lookup_vhost,
	STINGY_STAGE_http_send_header,
	STINGY_STAGE_flush_request,
	STINGY_STAGE_http_process_message,
	STINGY_STAGE_http_send_body,
	STINGY_STAGE_http_dirlist_head,
	STINGY_STAGE_linger_request,
	STINGY_STAGE_list_directory,
	STINGY_STAGE_http_dirlist_tail,
	STINGY_STAGES
};

struct stingy_gen_stage {
	const char *name;
	const uint16_t *allocates; /* objects, as often as a request holds them; STINGY_ANY ends them */
	bool lets_requests_in;
};
extern const struct stingy_gen_stage stingy_gen_stages[STINGY_STAGES];
extern const struct stingy_map stingy_gen_map;

/* How many more requests this thread can let through the stage without a spill; UINT32_MAX where it takes no slot. At a
 * stage that lets requests in: through all their stages, unless one is evicted. */
uint32_t stingy_room(unsigned stage);

#endif
