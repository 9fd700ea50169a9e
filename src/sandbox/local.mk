# src/sandbox
noinst_LIBRARIES += libsandbox.a
libsandbox_a_SOURCES =
# plan: a unit and a view of the disk -> everything about one jail; pure
libsandbox_a_SOURCES += src/sandbox/plan.h src/sandbox/plan_internal.h src/sandbox/plan.c src/sandbox/plan_grants.c src/sandbox/plan_locks.c \
	src/sandbox/plan_memo.c src/sandbox/plan_mounts.c src/sandbox/plan_paths.c src/sandbox/plan_places.c src/sandbox/plan_search.c src/sandbox/plan_shut.c src/sandbox/plan_sockets.c src/sandbox/plan_print.c \
	src/sandbox/judge.c src/sandbox/judge.h src/sandbox/plan_fs.c src/sandbox/toolchain.c src/sandbox/guard.c src/sandbox/environment.c
# what the supervisor and the command both need to know of a unit
libsandbox_a_SOURCES += src/sandbox/identity.c src/sandbox/identity.h src/sandbox/needs.c src/sandbox/needs.h src/sandbox/rules.c src/sandbox/rules.h src/sandbox/version.c src/sandbox/version.h
# backends: how a plan becomes a jail
libsandbox_a_SOURCES += src/sandbox/audit.c src/sandbox/audit.h src/sandbox/backend.c src/sandbox/backend.h src/sandbox/child.c src/sandbox/explain.c src/sandbox/isolation.c src/sandbox/jail.h \
	src/sandbox/landlock.c src/sandbox/landlock.h src/sandbox/launch.c src/sandbox/launch_internal.h src/sandbox/launch_keep.c src/sandbox/linux.c \
	src/sandbox/linux_ids.c src/sandbox/linux_mounts.c src/sandbox/linux_resolv.c src/sandbox/linux_shut.c src/sandbox/none.c src/sandbox/probe.c src/sandbox/seccomp.c \
	src/sandbox/seccomp.h src/sandbox/sys.h
# control groups
libsandbox_a_SOURCES += src/sandbox/cgroup.c src/sandbox/cgroup.h src/sandbox/cgroup_group.c src/sandbox/cgroup_internal.h \
	src/sandbox/cgroup_text.c src/sandbox/mountinfo.c src/sandbox/mountinfo.h src/sandbox/limits.c src/sandbox/limits.h

# The system call filters are built by libseccomp while the project is built, see seccomp.c.
FILTER_SOURCES = src/sandbox/seccomp_rules.c src/sandbox/seccomp.h
if FILTERS_BUILT
noinst_PROGRAMS += filtergen
filtergen_SOURCES = src/sandbox/filtergen.c $(FILTER_SOURCES)
filtergen_LDADD = $(SECCOMP_LIBS) $(BASE_LIBS)
src/sandbox/filters.gen.h: filtergen$(EXEEXT)
	@$(MKDIR_P) src/sandbox
	$(AM_V_GEN)./filtergen$(EXEEXT) >$@.tmp && mv -f $@.tmp $@
src/sandbox/seccomp.$(OBJEXT): src/sandbox/filters.gen.h
CLEANFILES += src/sandbox/filters.gen.h
FILTER_LIBS =
else
libsandbox_a_SOURCES += $(FILTER_SOURCES)
FILTER_LIBS = $(SECCOMP_LIBS)
endif
SANDBOX_LIBS = libsandbox.a $(FILTER_LIBS)
