/* Where the other programs of sbxsv are. */
#pragma once
/* Beside this program (a build tree), in libexec/sbxsv or sbin of its prefix, or `installed_dir`/name, where it was
 * to be installed; that one is not looked at. Owned by caller. */
char *program_find(const char *name, const char *installed_dir);
