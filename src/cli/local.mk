# src/cli: the sbxsv command, one file a command
noinst_LIBRARIES += libcli.a
libcli_a_SOURCES = \
	src/cli/cli.h src/cli/args.c src/cli/commands.c src/cli/say.c \
	src/cli/lines.c src/cli/lines.h src/cli/remote.c src/cli/remote.h src/cli/table.c src/cli/table.h \
	src/cli/allow.c src/cli/autostart.c src/cli/allow_path.c src/cli/allow_path.h src/cli/cat.c src/cli/check.c src/cli/completion.c src/cli/completion.h src/cli/down.c src/cli/edit.c src/cli/enable.c src/cli/events.c src/cli/help.c src/cli/import.c src/cli/kill.c src/cli/logs.c \
	src/cli/live.c src/cli/live.h src/cli/new.c src/cli/ports.c src/cli/reload.c src/cli/remove.c src/cli/units.c src/cli/units.h src/cli/start.c src/cli/status.c src/cli/status.h src/cli/status_app.c src/cli/subject.c src/cli/subject.h \
	src/cli/top.c src/cli/up.c src/cli/upgrade.c src/cli/version.c src/cli/violation.c src/cli/violation.h src/cli/violations.c
bin_PROGRAMS += sbxsv
sbxsv_SOURCES = src/cli/main.c
sbxsv_LDADD = libcli.a $(CTLCLIENT_LIBS) libsandbox.a libnet.a libtrace.a $(UNIT_LIBS) libpolicy.a $(BASE_LIBS) $(FILTER_LIBS) $(MNL_LIBS) -lpthread
# commands that build jails without a daemon
libcli_a_SOURCES += src/cli/doctor.c src/cli/exec.c src/cli/exec_unit.c src/cli/exec_unit.h \
	src/cli/member.c src/cli/member.h src/cli/refusals.c src/cli/refusals.h src/cli/relay.c src/cli/relay.h src/cli/run.c src/cli/run_net.c src/cli/run_net.h
# what [Limits] can rely on
libcli_a_SOURCES += src/cli/limits_view.c src/cli/limits_view.h
# commands that go on
libcli_a_SOURCES += src/cli/keys.c src/cli/keys.h src/cli/watch.c src/cli/watch.h
libcli_a_SOURCES += src/cli/syntax.c
