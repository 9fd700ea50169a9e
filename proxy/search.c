#include "proxy/search.h"
#include "base/clock.h"
#include "base/str.h"
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHECK_MS    1000
#define LINE_MAX_   1024
#define LINES_MAX   4096
#define RESOLV_CONF "/etc/resolv.conf"
#define BLANK       " \t\r\n"

/* One file, so one list for all apps. */
static struct {
	char v[SEARCH_MAX][HOST_MAX];
	size_t n;
	struct stat from;
	int64_t checked_ms;
	bool known;
} list;

static void add(const char *domain)
{
	if (list.n < SEARCH_MAX && host_canon(domain, strlen(domain), list.v[list.n], NULL) == 0)
		list.n++;
}

/* "search A B" or "domain A"; the last of them counts. */
static void read_line(char *line)
{
	char *rest = NULL, *word = strtok_r(line, BLANK, &rest);

	if (!str_eq(word, "search") && !str_eq(word, "domain"))
		return;
	list.n = 0;
	while ((word = strtok_r(NULL, BLANK, &rest)))
		add(word);
}

static void read_file(const char *path)
{
	CLEANUP_FILE FILE *f = fopen(path, "re");
	char line[LINE_MAX_], host[HOST_MAX + 1];
	const char *dot;

	list.n = 0;
	/* without either line: what follows the first dot of the host's own name */
	if (gethostname(host, sizeof host - 1) == 0) {
		host[sizeof host - 1] = 0;
		dot = strchr(host, '.');
		if (dot)
			add(dot + 1);
	}
	for (unsigned i = 0; f && i < LINES_MAX && fgets(line, sizeof line, f); i++)
		read_line(line);
}

static void refresh(const char *path)
{
	int64_t now = clk_mono_ms();
	struct stat st;

	if (list.known && now - list.checked_ms < CHECK_MS)
		return;
	list.checked_ms = now;
	if (stat(path, &st) < 0)
		memset(&st, 0, sizeof st);
	if (list.known && st.st_ino == list.from.st_ino && st.st_dev == list.from.st_dev &&
	    st.st_size == list.from.st_size && st.st_mtim.tv_sec == list.from.st_mtim.tv_sec &&
	    st.st_mtim.tv_nsec == list.from.st_mtim.tv_nsec)
		return;
	list.from = st;
	list.known = true;
	read_file(path);
}

bool search_strip(const struct proxy *p, const char *host, char ret[HOST_MAX])
{
	size_t len = strlen(host), best = 0;

	refresh(p->resolv_conf ? p->resolv_conf : RESOLV_CONF);
	for (size_t i = 0; i < list.n; i++) {
		size_t n = strlen(list.v[i]);

		if (n > best && len > n + 1 && host[len - n - 1] == '.' &&
		    strcmp(host + len - n, list.v[i]) == 0)
			best = n;
	}
	if (!best)
		return false;
	memcpy(ret, host, len - best - 1);
	ret[len - best - 1] = 0;
	return true;
}
