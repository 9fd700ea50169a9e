/*
 * Control groups, version 2 only: what limits and accounts all processes of an app together (cgroups(7); Linux,
 * Documentation/admin-guide/cgroup-v2.rst, "the document" below).
 *
 * Theory of operation. Groups are somebody's: systemd's, a container manager's, or nobody's. We use the group that we were
 * started in, and only what lies below it, when it is ours to divide: systemd has said so (Delegate=, an attribute on the
 * directory), or no systemd runs here (container, small machine) and the kernel lets us make a group. Then there is
 *
 *     OWN/sbxsv-TAG/supervisor     this process and the proxy
 *     OWN/sbxsv-TAG/app.NAME.N     one app, its launch N: what is still dying in an earlier group is in nobody's way
 *
 * TAG is made of the runtime directory, so that instances do not meet, and the next run finds what a killed one left. A
 * group with processes of its own cannot give controllers to its children ("no internal processes", the root excepted), so
 * where there are controllers to be had this process moves into `supervisor`, before it has children. Nobody else is ever
 * moved: when other processes share OWN with us the kernel says EBUSY, we go back, and limits fall back to rlimits. Groups
 * that we did not make are not written to, but for OWN/cgroup.subtree_control, which a delegation is for; what we enabled there
 * is disabled at the end.
 *
 * Without controllers (those of version 1 have them, or they are not delegated) a group still kills all of an app at once
 * (cgroup.kill) and counts its processor time. It is made then for apps without a pid namespace only, which alone gain by it.
 *
 * No group is a matter of isolation, so nothing here ever keeps an app from starting. What is missing has a reason in words.
 */
#pragma once
#include "base/err.h"
#include "base/keep.h"
#include "base/str.h"

enum { CGROUP_MEMORY = 1, CGROUP_CPU = 2, CGROUP_PIDS = 4, CGROUP_ALL = 7 };
const char *cgroup_controller_name(unsigned one);

/* --- pure, cgroup_text.c --- */
/* The path of the line "0::PATH" of /proc/PID/cgroup; owned by caller; NULL: no version 2. */
char *cgroup_path_of(const char *proc_cgroup);
/* Where that group is in the file system, from /proc/PID/mountinfo; owned by caller; NULL: it is not mounted. */
char *cgroup_directory_of(const char *mountinfo, const char *path);
unsigned cgroup_controllers(const char *text); /* "cpuset cpu memory": those of the enum */
/* A flat keyed file ("oom_kill 3\n"); -1 when the key is not there. */
int cgroup_value(const char *text, const char *key, uint64_t *ret);
unsigned cgroup_lines(const char *text);
/* CGROUP_TAG and 16 digits. The inode is there for containers that have the same paths and share the groups. */
#define CGROUP_TAG "sbxsv-"
char *cgroup_tag(const char *runtime_dir, uint64_t device, uint64_t inode);
bool cgroup_is_tag(const char *name);

/* --- the tree of one supervisor --- */
struct cgroup_world { /* where things are; all 0: this machine */
	const char *proc_cgroup, *mountinfo;
	const char *systemd; /* exists where systemd divides the groups, sd_booted(3) */
	bool any_fs;         /* a tree of a test, which is an ordinary directory: */
	int (*make)(int dir, const char *name);
	int (*remove)(int dir, const char *name);
	int (*write)(int dir, const char *name, const char *text);
};
struct cgroup_tree;
/* Never NULL. `w` stays the caller's. What an earlier run left below the tag is killed and removed. */
struct cgroup_tree *cgroup_open(const struct cgroup_world *w, const char *runtime_dir);
/* Removes the groups, kills who is left in them, and takes this process back to where it was started. */
void cgroup_close(struct cgroup_tree *t);
/* The tree of an earlier run, where its record says: killed, awaited for `wait_ms`, removed. Whatever is not a group with
 * such a tag, owned by us, is left alone. */
void cgroup_reap(struct cgroup_tree *t, const char *base, int wait_ms);
const char *cgroup_base(const struct cgroup_tree *t); /* NULL: no groups here */
unsigned cgroup_has(const struct cgroup_tree *t);     /* the controllers that work */
/* Why one of them is not among them; NULL when it is. */
const char *cgroup_why_not(const struct cgroup_tree *t, unsigned one);
/* Across an exec of the supervisor; nothing is done but to write down and read. `o` NULL: an earlier version wrote it. */
struct js *cgroup_save(struct keep *k, const struct cgroup_tree *t);
struct cgroup_tree *cgroup_restore(struct keep *k, const struct js *o);
/* A trial for doctor and check: a tree that leaves no trace, of a supervisor that would be started here. */
struct cgroup_tree *cgroup_try(const struct cgroup_world *w);

/* --- the group of an app --- */
struct cgroup_limits { /* 0: none */
	uint64_t memory, tasks;
	unsigned cpu_percent;
};
struct cgroup_count {    /* UINT64_MAX: not known */
	uint64_t memory; /* bytes, without file cache that can be dropped at once */
	uint64_t cpu_us; /* of all processes there ever were in it */
	uint64_t processes;
	uint64_t oom_kills; /* processes killed for want of memory, its own limit's or the machine's */
	uint64_t oom;       /* its own limit was reached and nothing could be reclaimed */
};
/* A descriptor of its directory, for the launch, owned by caller; -1. *ret_limits: what it enforces (CGROUP_*). */
int cgroup_group_make(struct cgroup_tree *t, const char *app, const struct cgroup_limits *l,
		      unsigned *ret_limits, struct err **e);
bool cgroup_group_there(const struct cgroup_tree *t, const char *app);
/* No process in it, a zombie apart; true also when there is no group. */
bool cgroup_group_is_empty(const struct cgroup_tree *t, const char *app);
/* Every process in it, at once. False: this kernel cannot (before 5.14), or there is none. */
bool cgroup_group_kill(const struct cgroup_tree *t, const char *app);
void cgroup_group_count(const struct cgroup_tree *t, const char *app, struct cgroup_count *ret);
/* 0, or -1: something is in it still (EBUSY). */
int cgroup_group_remove(struct cgroup_tree *t, const char *app);
