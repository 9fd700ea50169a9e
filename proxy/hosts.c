#include "proxy/hosts.h"
#include "base/log.h"
#include "base/str.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct {
	char *text; /* every line with its newline, and a NUL */
	size_t len;
	struct stat from;
	bool known;
} file;

static bool same(const struct stat *a, const struct stat *b)
{
	return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
	       a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static size_t read_all(int fd, char *p, size_t cap)
{
	size_t len = 0;

	while (len < cap) {
		ssize_t n = read(fd, p + len, cap - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		len += (size_t)n;
	}
	return len;
}

static void load(const char *path)
{
	CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;

	free(file.text);
	file.text = NULL;
	file.len = 0;
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return;
	if (st.st_size > HOSTS_BYTES_MAX) {
		log_warning("%s has more than %u bytes and is not used", path, HOSTS_BYTES_MAX);
		return;
	}
	file.text = xmalloc((size_t)st.st_size + 2);
	file.len = read_all(fd, file.text, (size_t)st.st_size);
	for (size_t i = 0; i < file.len; i++)
		if (file.text[i] >= 'A' && file.text[i] <= 'Z')
			file.text[i] += 'a' - 'A';
	file.text[file.len++] = '\n';
	file.text[file.len] = 0;
}

static void refresh(const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0)
		memset(&st, 0, sizeof st);
	if (file.known && same(&st, &file.from))
		return;
	file.from = st;
	file.known = true;
	load(path);
}

static bool blank(char c)
{
	return c == ' ' || c == '\t';
}

/* `at` is where the name stands in the text: is it a word of a line's names, and of which address? */
static bool address_of(const char *at, size_t len, struct addr *ret)
{
	const char *line = at, *end;
	char after = at[len];

	if (at == file.text || !blank(at[-1]) ||
	    !(blank(after) || after == '\n' || after == '\r' || after == '#'))
		return false;
	while (line > file.text && line[-1] != '\n')
		line--;
	if (memchr(line, '#', (size_t)(at - line)) || memchr(line, 0, (size_t)(at - line)))
		return false;
	while (blank(*line))
		line++;
	for (end = line; !blank(*end);)
		end++;
	return end < at && host_parse_addr(line, (size_t)(end - line), ret) == 0;
}

size_t hosts_find(const char *path, const char *host, struct addr *v, size_t max)
{
	size_t len = strlen(host), n = 0;
	const char *at, *end;
	struct addr a;

	refresh(path);
	if (!file.text)
		return 0;
	end = file.text + file.len;
	for (at = file.text; (at = memmem(at, (size_t)(end - at), host, len)); at += len) {
		bool twice = false;

		if (!address_of(at, len, &a))
			continue;
		for (size_t i = 0; i < n && i < max; i++)
			twice = twice || addr_equal(&v[i], &a);
		if (twice)
			continue;
		if (n < max)
			v[n] = a;
		n++;
	}
	return n;
}
