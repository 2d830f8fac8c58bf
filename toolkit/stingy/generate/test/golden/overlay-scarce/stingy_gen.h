/* Made by stingygen; do not edit. */
#ifndef STINGY_GEN_H
#define STINGY_GEN_H

#include <stingy/runtime.h>

/* 40 requests of 1296 bytes in a cache slab of 262144 bytes. */
enum { STINGY_REQUESTS = 40 };

enum stingy_gen_object {
	STINGY_OBJ_request = 0,
	STINGY_OBJ_line,
	STINGY_OBJ_field,
	STINGY_OBJ_header,
	STINGY_OBJ_tiny,
	STINGY_OBJ_listing,
	STINGY_OBJ_log_line,
	STINGY_OBJECTS
};

/* In order of treatment. */
enum stingy_gen_stage_number {
	STINGY_STAGE_accept = 0,
	STINGY_STAGE_parse,
	STINGY_STAGE_a_list,
	STINGY_STAGE_send,
	STINGY_STAGE_flush,
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
