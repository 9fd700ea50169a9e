/* Where the other programs of sbxsv are: beside this one (a build tree), in libexec below its prefix, or where they were to be
 * installed. Owned by caller. */
#pragma once
char *program_find(const char *name, const char *installed_dir);
