/* Shell completions, written from the table of commands: `sbxsv help --completion SHELL`. The words of an option's
 * value and of an operand are the shell's own file names, or the names of units where an app is named. */
#include "cli/completion.h"
#include <stdio.h>
#include <string.h>

/* Does the first operand of its usage name an app? */
static bool takes_apps(const struct command *cmd)
{
	return strstr(cmd->usage, "APP") || strstr(cmd->usage, "cat NAME");
}

/* An operand may be a file, or an option's value a path. */
static bool takes_files(const struct command *cmd)
{
	return strstr(cmd->usage, "FILE");
}

/* In single quotes of the shell. */
static void quoted(const char *s)
{
	putchar('\'');
	for (; *s; s++)
		(void)fputs(*s == '\'' ? "'\\''" : (char[]){*s, 0}, stdout);
	putchar('\'');
}

static void bash_options(const struct cli_option *o)
{
	for (; o && o->name; o++) {
		printf(" --%s", o->name);
		if (o->id < CLI_LONG)
			printf(" -%c", o->id);
	}
}

/* "--config|--apps": the options that take a value. */
static void options_with_value(const struct cli_option *o, const char *between)
{
	for (const char *bar = ""; o && o->name; o++) {
		if (!o->arg)
			continue;
		printf("%s--%s", bar, o->name);
		bar = between;
		if (o->id < CLI_LONG)
			printf("%s-%c", bar, o->id);
	}
}

static const char apps_function[] =
	"_sbxsv_apps() {\n"
	"\tlocal d=${SBXSV_APPS_DIR:-${XDG_CONFIG_HOME:-$HOME/.config}/sbxsv/apps.d} f\n"
	"\t[ -n \"${SBXSV_APPS_DIR:-}\" ] || [ \"$(id -u)\" != 0 ] || d=/etc/sbxsv/apps.d\n"
	"\tfor f in \"$d\"/*.app; do\n"
	"\t\t[ -e \"$f\" ] || continue\n"
	"\t\tf=${f##*/}\n"
	"\t\tprintf '%s\\n' \"${f%.app}\"\n"
	"\tdone\n"
	"}\n";

static void bash(void)
{
	(void)fputs("# bash completion of sbxsv; written by sbxsv help --completion bash\n", stdout);
	(void)fputs(apps_function, stdout);
	(void)fputs("_sbxsv() {\n\tlocal cur=${COMP_WORDS[COMP_CWORD]} cmd= i words= apps= files= values='",
		    stdout);
	options_with_value(cli_globals, " ");
	(void)fputs("'\n\tlocal before=${COMP_WORDS[COMP_CWORD - 1]}\n"
		    "\tfor ((i = 1; i < COMP_CWORD; i++)); do\n"
		    "\t\tcase ${COMP_WORDS[i]} in\n\t\t",
		    stdout);
	options_with_value(cli_globals, "|");
	(void)fputs(") i=$((i + 1)) ;;\n\t\t-*) ;;\n\t\t*) cmd=${COMP_WORDS[i]}; break ;;\n\t\tesac\n\tdone\n"
		    "\tcase $cmd in\n\t'') words='",
		    stdout);
	for (const struct command *const *c = cli_commands; *c; c++)
		printf("%s ", (*c)->name);
	(void)fputs("' ;;\n", stdout);
	for (const struct command *const *c = cli_commands; *c; c++) {
		printf("\t%s) words='", (*c)->name);
		bash_options((*c)->options);
		printf("'%s%s values+=' ", takes_apps(*c) ? " apps=yes" : "",
		       takes_files(*c) ? " files=yes" : "");
		options_with_value((*c)->options, " ");
		(void)fputs("' ;;\n", stdout);
	}
	(void)fputs("\t*) ;;\n\tesac\n\twords=\"$words", stdout);
	bash_options(cli_globals);
	(void)fputs("\"\n\tif [[ \" $values \" == *\" $before \"* ]]; then\n"
		    "\t\tmapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
		    "\telif [[ $cur != -* && $apps ]]; then\n"
		    "\t\tmapfile -t COMPREPLY < <(compgen -W \"$(_sbxsv_apps)\" -- \"$cur\"\n"
		    "\t\t\t[[ ! $files ]] || compgen -f -- \"$cur\")\n"
		    "\telif [[ $cur != -* && $cmd ]]; then\n"
		    "\t\tmapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
		    "\telse\n\t\tmapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n\tfi\n}\n"
		    "complete -o filenames -F _sbxsv sbxsv\n",
		    stdout);
}

/* A description stands in brackets in a spec of _arguments(zshcompsys(1)). */
static void zsh_spec(const char *dashes, const char *name, const struct cli_option *o)
{
	CLEANUP_STRBUF struct strbuf b = STRBUF_INIT;

	strbuf_addf(&b, "*%s%s[", dashes, name);
	for (const char *s = o->help; *s; s++) {
		if (strchr("[]:\\", *s))
			strbuf_addc(&b, '\\');
		strbuf_addc(&b, *s);
	}
	strbuf_adds(&b, "]");
	if (o->arg)
		strbuf_addf(&b, ":%s:_files", o->arg);
	(void)fputs(" \\\n\t\t\t", stdout);
	quoted(b.p);
}

static void zsh_options(const struct cli_option *o)
{
	for (; o && o->name; o++) {
		zsh_spec("--", o->name, o);
		if (o->id < CLI_LONG)
			zsh_spec("-", (char[]){(char)o->id, 0}, o);
	}
}

static void zsh(void)
{
	(void)fputs("#compdef sbxsv\n# zsh completion of sbxsv; written by sbxsv help --completion zsh\n",
		    stdout);
	(void)fputs(apps_function, stdout);
	(void)fputs("_sbxsv() {\n\tlocal -a commands names\n\tlocal cmd i\n\tcommands=(\n", stdout);
	for (const struct command *const *c = cli_commands; *c; c++) {
		CLEANUP_FREE char *text = xasprintf("%s:%s", (*c)->name, (*c)->help);

		(void)fputs("\t\t", stdout);
		quoted(text);
		putchar('\n');
	}
	(void)fputs("\t)\n\tfor ((i = 2; i < CURRENT; i++)); do\n"
		    "\t\tcase $words[i] in\n\t\t",
		    stdout);
	options_with_value(cli_globals, "|");
	(void)fputs(
		") i=$((i + 1)) ;;\n\t\t-*) ;;\n\t\t*) cmd=$words[i]; break ;;\n\t\tesac\n\tdone\n"
		"\tnames=(${(f)\"$(_sbxsv_apps)\"})\n\tcase $cmd in\n\t'') _describe command commands ;;\n",
		stdout);
	for (const struct command *const *c = cli_commands; *c; c++) {
		printf("\t%s)\n\t\t_arguments", (*c)->name);
		zsh_options((*c)->options);
		zsh_options(cli_globals);
		(void)fputs(!takes_apps(*c)   ? " \\\n\t\t\t'*:file:_files'\n\t\t;;\n"
			    : takes_files(*c) ? " \\\n\t\t\t'*:app:{compadd -a names; _files}'\n\t\t;;\n"
					      : " \\\n\t\t\t'*:app:($names)'\n\t\t;;\n",
			    stdout);
	}
	(void)fputs("\tesac\n}\n_sbxsv \"$@\"\n", stdout);
}

static void fish_options(const struct cli_option *o, const char *command)
{
	for (; o && o->name; o++) {
		(void)fputs("complete -c sbxsv", stdout);
		if (command)
			printf(" -n '__fish_seen_subcommand_from %s'", command);
		printf(" -l %s", o->name);
		if (o->id < CLI_LONG)
			printf(" -s %c", o->id);
		(void)fputs(o->arg ? " -r -d " : " -d ", stdout);
		quoted(o->help);
		putchar('\n');
	}
}

static void fish(void)
{
	(void)fputs("# fish completion of sbxsv; written by sbxsv help --completion fish\n"
		    "function __sbxsv_apps\n"
		    "\tset -l d $SBXSV_APPS_DIR\n"
		    "\ttest -n \"$d\"; or set d (test (id -u) = 0; and echo /etc/sbxsv/apps.d; or echo "
		    "(test -n \"$XDG_CONFIG_HOME\"; and echo $XDG_CONFIG_HOME; or echo "
		    "$HOME/.config)/sbxsv/apps.d)\n"
		    "\tfor f in $d/*.app\n\t\tbasename $f .app\n\tend\nend\n",
		    stdout);
	fish_options(cli_globals, NULL);
	for (const struct command *const *c = cli_commands; *c; c++) {
		printf("complete -c sbxsv -f -n __fish_use_subcommand -a %s -d ", (*c)->name);
		quoted((*c)->help);
		putchar('\n');
		fish_options((*c)->options, (*c)->name);
		if (takes_apps(*c))
			printf("complete -c sbxsv%s -n '__fish_seen_subcommand_from %s' -a "
			       "'(__sbxsv_apps)'\n",
			       takes_files(*c) ? "" : " -f", (*c)->name);
	}
}

int completion_print(const char *shell)
{
	if (str_eq(shell, "bash"))
		bash();
	else if (str_eq(shell, "zsh"))
		zsh();
	else if (str_eq(shell, "fish"))
		fish();
	else if (str_eq(shell, "vim"))
		syntax_print_vim();
	else
		return cli_usage(&cmd_help, "help --completion: bash, zsh, fish or vim");
	return CLI_OK;
}
