/* Any bytes in the shared memory: what is taken from them is canonical names, one address each, and the map works. */
#include "proxy/names.h"
#include "base/wire.h"
#include <arpa/inet.h>
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct names *open_again(int fd)
{
	struct names *n = names_open(dup(fd), NULL);

	assert(n);
	return n;
}

/* Every address of the range that can matter: of the slots the input may reach, all turns. */
static unsigned look(struct names *n, struct names *other)
{
	unsigned found = 0;

	for (uint32_t at = 0xc6120100; at < 0xc6140000;
	     at += (at - 0xc6120100) % NAMES_MAX == 63 ? NAMES_MAX - 63 : 1) {
		struct in_addr a = {htonl(at)}, again;
		const char *host = names_find(n, a);
		char canon[HOST_MAX], copy[HOST_MAX];

		if (!host)
			continue;
		found++;
		assert(host_canon(host, strlen(host), canon, NULL) == 0 && strcmp(host, canon) == 0);
		memcpy(copy, host, strlen(host) + 1);
		assert(names_assign(n, copy, &again) == 0 && again.s_addr == a.s_addr);
		if (other)
			assert(names_find(other, a) && strcmp(names_find(other, a), copy) == 0);
	}
	return found;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int fd = -1;
	struct in_addr a = {0}, b = {0};
	struct names *n, *second;
	char host[32];
	unsigned found;

	if (fd < 0)
		fd = memfd_create("names", MFD_CLOEXEC);
	if (size > 20000)
		return 0;
	assert(ftruncate(fd, 0) == 0 && ftruncate(fd, WIRE_NAMES_BYTES) == 0);
	assert(pwrite(fd, data, size, 0) == (ssize_t)size);
	n = open_again(fd);
	found = look(n, NULL);
	for (unsigned i = 0; i < 5; i++) {
		(void)snprintf(host, sizeof host, "fuzz%u.example", i);
		if (names_assign(n, host, &a) == 0) /* all slots may be taken, and all are as if just used */
			assert(names_find(n, a) && strcmp(names_find(n, a), host) == 0);
		names_hold(n, a);
		names_release(n, a);
	}
	second = open_again(fd); /* what was taken from it is what stands in it now */
	assert(look(n, second) >= found);
	assert(names_assign(second, host, &b) != 0 || b.s_addr == a.s_addr);
	names_close(second);
	names_close(n);
	return 0;
}
