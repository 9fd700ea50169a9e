# src/sandbox
noinst_LIBRARIES += libsandbox.a
libsandbox_a_SOURCES =
# what the supervisor and the command both need to know of a unit
libsandbox_a_SOURCES += src/sandbox/identity.c src/sandbox/identity.h src/sandbox/rules.c src/sandbox/rules.h
# backends: how a plan becomes a jail
libsandbox_a_SOURCES += src/sandbox/backend.c src/sandbox/backend.h src/sandbox/child.c src/sandbox/jail.h \
	src/sandbox/landlock.c src/sandbox/landlock.h src/sandbox/launch.c src/sandbox/linux.c \
	src/sandbox/linux_ids.c src/sandbox/linux_mounts.c src/sandbox/none.c src/sandbox/seccomp.c \
	src/sandbox/seccomp.h src/sandbox/sys.h
SANDBOX_LIBS = libsandbox.a $(SECCOMP_LIBS)
