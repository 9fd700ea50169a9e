#include "base/program.h"
#include "base/file.h"
#include <limits.h>
#include <unistd.h>

char *program_find(const char *name, const char *installed_dir)
{
	static const char *const places[] = {"", "../libexec/sbxsv", "../sbin"};
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	CLEANUP_FREE char *dir = NULL;

	if (n > 0) {
		self[n] = 0;
		dir = path_dirname(self);
	}
	for (size_t i = 0; dir && i < ELEMENTS(places); i++) {
		CLEANUP_FREE char *there = path_join(dir, places[i]);
		char *path = path_join(there, name);

		if (access(path, X_OK) == 0)
			return path;
		free(path);
	}
	return path_join(installed_dir, name);
}
