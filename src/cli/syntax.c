/* Syntax of unit files for vim, written from the key table, so that it cannot be stale. */
#include "cli/completion.h"
#include <stdio.h>
#include <string.h>

static bool first_of_section(const struct unit_key *k, size_t i)
{
	for (size_t j = 0; j < i; j++)
		if (strcmp(k[j].section, k[i].section) == 0)
			return false;
	return true;
}

static void words_of(const struct unit_key *k)
{
	const char *bar = "";

	printf("syn match sbxsvWord%s /\\%%(^%s=\\)\\@<=\\%%(", k->section, k->name);
	for (const char *const *w = k->words; *w; w++, bar = "\\|")
		printf("%s%s", bar, **w == '!' ? *w + 1 : *w);
	puts("\\)$/ contained");
}

static void section_of(const struct unit_key *k, size_t n, const char *name)
{
	const char *bar = "";

	printf("syn region sbxsvIn%s matchgroup=sbxsvSection start=/^\\[%s\\]\\s*$/ end=/^\\[/me=e-2 "
	       "contains=sbxsvComment,sbxsvUnknown,sbxsvKey%s,sbxsvWord%s,sbxsvExpand\n",
	       name, name, name, name);
	printf("syn match sbxsvKey%s /^\\%%(", name);
	for (size_t i = 0; i < n; i++)
		if (strcmp(k[i].section, name) == 0) {
			printf("%s%s", bar, k[i].name);
			bar = "\\|";
		}
	puts("\\)\\ze=/ contained");
	for (size_t i = 0; i < n; i++)
		if (strcmp(k[i].section, name) == 0 && k[i].words)
			words_of(&k[i]);
	printf("hi def link sbxsvKey%s Identifier\nhi def link sbxsvWord%s Constant\n", name, name);
}

void syntax_print_vim(void)
{
	size_t n = 0;
	const struct unit_key *k = unit_keys(&n);

	/* the section decides what a key is: a look at the middle of a file needs its beginning */
	puts("\" Vim syntax of sbxsv units, drop-ins and profiles, see sbxsv.app(5).\n"
	     "\" Written by `sbxsv help --completion vim` from the table of keys.\n"
	     "if exists(\"b:current_syntax\")\n  finish\nendif\nsyn case match\nsyn sync fromstart\n"
	     "syn match sbxsvWrong /^\\[.*/\n"
	     "syn match sbxsvComment /^[#;].*/\n"
	     "syn match sbxsvUnknown /^[^#;=\\[]\\+\\ze=/ contained\n"
	     "syn match sbxsvExpand /%[%hnitS]\\|\\$PORT\\>/ contained");
	for (size_t i = 0; i < n; i++)
		if (first_of_section(k, i))
			section_of(k, n, k[i].section);
	puts("hi def link sbxsvComment Comment\nhi def link sbxsvSection Statement\nhi def link sbxsvWrong "
	     "Error\n"
	     "hi def link sbxsvUnknown Error\nhi def link sbxsvExpand Special\nlet b:current_syntax = "
	     "\"sbxsv\"");
}
