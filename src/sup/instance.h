/*
 * One supervisor a runtime directory, and what the last one left.
 *
 * The lock is an flock on RUNTIME/sbxsvd.lock, held by this process for its life; the file holds its pid for
 * people. A second one on STATE/sbxsvd.lock, for runtime directories vanish under those who use them: with the last session of the user, and
 * with whoever tidies up. Without it the next `up` would run each app twice. STATE/run.json names every init and the proxy with pid and start time, and the boot. It is replaced
 * by rename and not fsynced: it is of use only as long as the kernel that wrote it runs, and an fsync per
 * launch would stall the loop. After an unclean end the inits are dying already (PDEATHSIG); the next
 * supervisor makes sure: a recorded process whose start time still is the recorded one gets SIGKILL by pidfd,
 * and is waited for.
 */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define INSTANCE_WAIT_MS 2000

struct instance_process {
	char *app; /* NULL: the proxy */
	pid_t pid;
	uint64_t start; /* /proc/PID/stat field 22 */
	bool jailed;    /* pid 1 of a pid namespace: when it is gone, all is gone */
};
struct instance_record {
	struct instance_process *v;
	size_t n, cap;
	char *group; /* its control groups; NULL */
};
void instance_record_add(struct instance_record *r, const char *app, pid_t pid, uint64_t start, bool jailed);
void instance_record_finish(struct instance_record *r);

/* The lock's fd, owned by caller. -1 with *e; err_code EWOULDBLOCK and *ret_holder (pid, or 0) when another
 * has it. */
int instance_lock(const char *runtime_dir, pid_t *ret_holder, struct err **e);
/* -1 with *e: another supervisor has it. 0: *ret_fd is the lock's, owned by caller, or -1 where there can be none (full disk). */
int instance_lock_state(const char *state_dir, int *ret_fd, struct err **e);
/* Writes STATE/run.json. */
int instance_write(const char *state_dir, const struct instance_record *r, struct err **e);
/* Reads it; what belongs to another boot, or is gone, is left out. A broken or missing file is an empty
 * record. */
void instance_read(const char *state_dir, struct instance_record *ret);
/* Ends and awaits what a predecessor left, at most wait_ms, or until a signal is pending. Returns how many
 * are left. */
size_t instance_await(const struct instance_record *r, int wait_ms);
