# src/sandbox
noinst_LIBRARIES += libsandbox.a
libsandbox_a_SOURCES =
# backends: how a plan becomes a jail
libsandbox_a_SOURCES += src/sandbox/backend.c src/sandbox/backend.h src/sandbox/child.c src/sandbox/jail.h \
	src/sandbox/landlock.c src/sandbox/landlock.h src/sandbox/launch.c src/sandbox/linux.c \
	src/sandbox/linux_ids.c src/sandbox/linux_mounts.c src/sandbox/none.c src/sandbox/seccomp.c \
	src/sandbox/seccomp.h src/sandbox/sys.h
SANDBOX_LIBS = libsandbox.a $(SECCOMP_LIBS)
