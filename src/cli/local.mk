# src/cli: the sbxsv command, one file a command
noinst_LIBRARIES += libcli.a
libcli_a_SOURCES = \
	src/cli/cli.h src/cli/args.c src/cli/commands.c src/cli/help.c src/cli/say.c src/cli/version.c
