// The annotations of the paper's Figure 3: a request is queued at functions ("atoms"), the scheduler runs them.
#include <stddef.h>
#include <stingy/annotate.h>

typedef struct STINGY_REQUEST tux_req tux_req_t;
typedef void atom_func_t(tux_req_t *req, int cachemiss);
struct STINGY_REQUEST tux_req { atom_func_t *atoms[8]; int atom_idx; char *abuf; char log[64] STINGY_COLD; int status; };

void add_tux_atom(tux_req_t *req, atom_func_t *atom) STINGY_QUEUE_STAGE(0, 1);
void tux_schedule_atom(tux_req_t *req, int cachemiss) STINGY_SCHEDULE_STAGE(0, 1);
tux_req_t *kmalloc_req(void) STINGY_MALLOC_OBJECT;
void kfree_req(tux_req_t *req) STINGY_FREE(0);
char *get_abuf(tux_req_t *req, size_t size) STINGY_MALLOC(1);
void free_abuf(char *abuf) STINGY_FREE(0);
static int event_loop(void) STINGY_SCHEDULER;
tux_req_t *accepted(void);
int readable(tux_req_t *);

void add_tux_atom(tux_req_t *req, atom_func_t *atom)
{
	req->atoms[req->atom_idx++] = atom;
}

void tux_schedule_atom(tux_req_t *req, int cachemiss)
{
	atom_func_t *atom = req->atoms[--req->atom_idx];
	atom(req, cachemiss);
}

static void flush_request(tux_req_t *req, int cachemiss)
{
	(void)cachemiss;
	free_abuf(req->abuf);
	kfree_req(req);
}

static void http_send_body(tux_req_t *req, int cachemiss)
{
	(void)cachemiss;
	add_tux_atom(req, flush_request);
}

static void list_directory(tux_req_t *req, int cachemiss)
{
	(void)cachemiss;
	req->status = 200;
	add_tux_atom(req, flush_request);
}

static void parse_request(tux_req_t *req, int cachemiss)
{
	req->abuf = get_abuf(req, 2000);
	if (cachemiss)
		add_tux_atom(req, list_directory);
	else
		add_tux_atom(req, http_send_body);
}

static void accept_requests(void)
{
	tux_req_t *req = kmalloc_req();
	req->status = 0;
	add_tux_atom(req, parse_request);
	tux_schedule_atom(req, 0);
}

static int event_loop(void)
{
	for (;;) {
		accept_requests();
		tux_req_t *req = accepted();
		if (readable(req))
			tux_schedule_atom(req, 1);
	}
}

int main(void) { return event_loop(); }
