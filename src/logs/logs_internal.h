/* One app's log as logs.c and logs_keep.c know it. */
#pragma once
#include "logs/back.h"
#include "logs/logs.h"
#include "logs/sink.h"

struct pipe_in {
	struct pipe_in *next;
	struct logs *logs;
	struct loop_io io;
	int fd;
	char *mark;         /* before each of its lines */
	struct strbuf half; /* a line that has not ended */
};

struct logs_follow {
	struct logs_follow *next;
	struct logs *logs;
	logs_line_fn *fn; /* NULL: stopped while lines are handed out */
	void *data;
};

struct logs {
	struct loop *loop;
	struct linefile *file;
	enum logs_target target;
	struct sink *sink;               /* another target than the file */
	uint64_t sunk_lines, sunk_bytes; /* dropped by sinks that are gone */
	struct ring ring;
	struct times times;
	unsigned max_files;
	bool timestamps;
	uint64_t lines, bytes;
	struct pipe_in *pipes;
	struct logs_follow *followers;
	unsigned handing_out;
	struct strbuf out; /* lines of this chunk */
	struct loop_timer retry, soon;
	logs_trouble_fn *trouble;
	void *trouble_data;
};

void logs_readable(struct loop_io *w, unsigned events); /* of a struct pipe_in */
