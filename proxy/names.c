#include "proxy/names.h"
#include "base/clock.h"
#include "base/str.h"
#include "base/wire.h"
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>

#define FAKE_NET  0xc6120000u /* 198.18.0.0/15 */
#define FAKE_BITS 17          /* host bits */
#define FIRST     0xc6120100u /* 198.18.1.0: the /24 before it is the jail's own */
#define TURNS     31          /* addresses a slot has: 31 x 4096 fit below 198.20.0.0 */
#define KEEP_MS   (2 * NAMES_TTL_S * 1000)
#define END       UINT32_MAX
#define MAP_MAGIC 0x3173656d616e7873ULL /* "sxnames1": the 1 is the version of the layout */
#define HEADS_MIN 16u

/* The shared memory: a header, then the entries. Nothing in it is believed. */
struct map_entry {
	uint64_t check; /* of slot, turn and host; 0: being written */
	uint32_t turn;
	char host[HOST_MAX];
};
struct map_header {
	uint64_t magic;
	uint32_t n; /* slots that were ever used, so that a small map is not read (and made) to its end */
};
struct map {
	struct map_header header;
	struct map_entry v[NAMES_MAX] __attribute__((aligned(64)));
};
_Static_assert(sizeof(struct map) <= WIRE_NAMES_BYTES, "the memory that the supervisor makes is too small");
_Static_assert(FIRST + TURNS * NAMES_MAX - 1 < FAKE_NET + (1u << FAKE_BITS), "the range is too small");

struct slot {
	char *host; /* NULL: free */
	uint32_t turn, holds;
	uint32_t chain;      /* next with the same hash */
	uint32_t prev, next; /* in the order of use; not while it is held */
	int64_t used_ms;
};

struct names {
	struct map *map;
	bool shared;
	struct slot *v;
	size_t n, cap;
	uint32_t *heads;
	size_t n_heads;      /* a power of two */
	uint32_t head, tail; /* most and least recently used */
	uint64_t key[2];
};

/* --- hashes --- */

static uint64_t rotl(uint64_t x, unsigned b)
{
	return x << b | x >> (64 - b);
}

static void sip_round(uint64_t v[4])
{
	v[0] += v[1];
	v[1] = rotl(v[1], 13) ^ v[0];
	v[0] = rotl(v[0], 32);
	v[2] += v[3];
	v[3] = rotl(v[3], 16) ^ v[2];
	v[0] += v[3];
	v[3] = rotl(v[3], 21) ^ v[0];
	v[2] += v[1];
	v[1] = rotl(v[1], 17) ^ v[2];
	v[2] = rotl(v[2], 32);
}

/* SipHash-1-3 (Aumasson and Bernstein) with a secret key: an app picks the names, and must not be able to
 * pick ones that all share a chain. */
static uint64_t sip_hash(const uint64_t key[2], const char *s)
{
	uint64_t v[4] = {key[0] ^ 0x736f6d6570736575ULL, key[1] ^ 0x646f72616e646f6dULL,
			 key[0] ^ 0x6c7967656e657261ULL, key[1] ^ 0x7465646279746573ULL};
	size_t len = strlen(s), left = len;
	uint64_t m;

	for (; left >= 8; left -= 8, s += 8) {
		memcpy(&m, s, 8);
		v[3] ^= m;
		sip_round(v);
		v[0] ^= m;
	}
	m = (uint64_t)len << 56;
	for (size_t i = 0; i < left; i++)
		m |= (uint64_t)(uint8_t)s[i] << (8 * i);
	v[3] ^= m;
	sip_round(v);
	v[0] ^= m;
	v[2] ^= 0xff;
	for (int i = 0; i < 3; i++)
		sip_round(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* FNV-1a: against accidents, not against somebody who writes the map. Never 0. */
static uint64_t entry_check(uint32_t slot, uint32_t turn, const char *host)
{
	uint64_t h = 14695981039346656037ULL;

	h = (h ^ slot) * 1099511628211ULL;
	h = (h ^ turn) * 1099511628211ULL;
	for (const char *s = host; *s; s++)
		h = (h ^ (uint8_t)*s) * 1099511628211ULL;
	return h ? h : 1;
}

/* --- the index by name --- */

static uint32_t *chain_of(struct names *n, const char *host)
{
	return &n->heads[sip_hash(n->key, host) & (n->n_heads - 1)];
}

static void index_add(struct names *n, uint32_t i)
{
	uint32_t *head = chain_of(n, n->v[i].host);

	n->v[i].chain = *head;
	*head = i;
}

static void index_remove(struct names *n, uint32_t i)
{
	uint32_t *at = chain_of(n, n->v[i].host);

	while (*at != i)
		at = &n->v[*at].chain;
	*at = n->v[i].chain;
}

static uint32_t index_find(struct names *n, const char *host)
{
	uint32_t i = *chain_of(n, host);

	while (i != END && strcmp(n->v[i].host, host) != 0)
		i = n->v[i].chain;
	return i;
}

static void index_grow(struct names *n)
{
	n->n_heads *= 2;
	n->heads = xrealloc(n->heads, n->n_heads * sizeof *n->heads);
	for (size_t i = 0; i < n->n_heads; i++)
		n->heads[i] = END;
	for (uint32_t i = 0; i < n->n; i++)
		if (n->v[i].host)
			index_add(n, i);
}

/* --- the order of use --- */

static void lru_unlink(struct names *n, uint32_t i)
{
	struct slot *s = &n->v[i];

	*(s->prev != END ? &n->v[s->prev].next : &n->head) = s->next;
	*(s->next != END ? &n->v[s->next].prev : &n->tail) = s->prev;
}

static void lru_front(struct names *n, uint32_t i)
{
	struct slot *s = &n->v[i];

	s->prev = END;
	s->next = n->head;
	*(n->head != END ? &n->v[n->head].prev : &n->tail) = i;
	n->head = i;
	s->used_ms = clk_mono_ms();
}

/* A free slot is the first to be taken. */
static void lru_back(struct names *n, uint32_t i)
{
	struct slot *s = &n->v[i];

	s->next = END;
	s->prev = n->tail;
	*(n->tail != END ? &n->v[n->tail].next : &n->head) = i;
	n->tail = i;
}

/* --- the shared memory --- */

/* The order of these writes is what makes a kill harmless: the entry counts only with its checksum. */
static void entry_write(struct names *n, uint32_t i)
{
	const struct slot *s = &n->v[i];
	struct map_entry *e = &n->map->v[i];

	__atomic_store_n(&e->check, 0, __ATOMIC_SEQ_CST);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	e->turn = s->turn;
	memcpy(e->host, s->host, strlen(s->host) + 1);
	__atomic_store_n(&e->check, entry_check(i, s->turn, s->host), __ATOMIC_SEQ_CST);
	if (i >= n->map->header.n)
		__atomic_store_n(&n->map->header.n, i + 1, __ATOMIC_SEQ_CST);
}

static void slot_new(struct names *n)
{
	VEC_GROW(n->v, n->n, n->cap);
	n->v[n->n++] = (struct slot){.chain = END, .prev = END, .next = END};
	if (n->n > n->n_heads)
		index_grow(n);
}

/* Entry i as it is now, if it is one. */
static char *entry_host(const struct map_entry *e, uint32_t i)
{
	char canon[HOST_MAX];

	if (e->turn >= TURNS || !memchr(e->host, 0, sizeof e->host) ||
	    e->check != entry_check(i, e->turn, e->host) ||
	    host_canon(e->host, strlen(e->host), canon, NULL) < 0 || strcmp(canon, e->host) != 0)
		return NULL;
	return xstrdup(canon);
}

static void entry_read(struct names *n, uint32_t i)
{
	struct map_entry e;
	char *host;

	memcpy(&e, &n->map->v[i], sizeof e); /* another process may still write: look at a copy */
	host = entry_host(&e, i);
	if (host && index_find(n, host) != END) {
		free(host);
		host = NULL;
	}
	slot_new(n);
	n->v[i].turn = e.turn % TURNS;
	n->v[i].host = host;
	if (host) {
		index_add(n, i);
		lru_front(n, i); /* as if used now: when it was used is not known */
	} else {
		lru_back(n, i);
	}
}

static void map_read(struct names *n)
{
	struct map_header h;

	memcpy(&h, &n->map->header, sizeof h);
	if (h.magic != MAP_MAGIC || h.n > NAMES_MAX) {
		n->map->header.n = 0;
		__atomic_store_n(&n->map->header.magic, MAP_MAGIC, __ATOMIC_SEQ_CST);
		return;
	}
	for (uint32_t i = 0; i < h.n; i++)
		entry_read(n, i);
}

/* --- interface --- */

struct names *names_open(int fd_given, struct err **e)
{
	CLEANUP_FD int fd = fd_given;
	struct names *n;
	struct stat st;
	void *map;

	if (fd >= 0 && fstat(fd, &st) < 0)
		return err_sys(e, errno, "the name map"), NULL;
	if (fd >= 0 && st.st_size < (off_t)sizeof(struct map))
		return err_set(e, EINVAL, "the name map has %lld bytes, not %zu", (long long)st.st_size,
			       sizeof(struct map)),
		       NULL;
	map = fd < 0 ? xcalloc(1, sizeof(struct map))
		     : mmap(NULL, sizeof(struct map), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return err_sys(e, errno, "the name map cannot be mapped"), NULL;
	n = xcalloc(1, sizeof *n);
	n->map = map;
	n->shared = fd >= 0;
	n->head = n->tail = END;
	if (getrandom(n->key, sizeof n->key, 0) != sizeof n->key) /* not before the kernel has a seed: then */
		n->key[0] = (uint64_t)clk_mono_us();              /* it is a boot, and nobody attacks yet */
	n->n_heads = HEADS_MIN / 2;
	index_grow(n);
	map_read(n);
	return n;
}

void names_close(struct names *n)
{
	if (!n)
		return;
	if (n->shared)
		(void)munmap(n->map, sizeof *n->map);
	else
		free(n->map);
	for (size_t i = 0; i < n->n; i++)
		free(n->v[i].host);
	free(n->v);
	free(n->heads);
	free(n);
}

static uint32_t address_of(const struct names *n, uint32_t i)
{
	return htonl(FIRST + n->v[i].turn * NAMES_MAX + i);
}

/* A slot for another name, off the order of use; END: all are in use. */
static uint32_t slot_take(struct names *n)
{
	uint32_t i = n->tail;
	struct slot *s = i != END ? &n->v[i] : NULL;

	if (!s || s->host) { /* nothing free among those in use so far */
		if (n->n < NAMES_MAX) {
			slot_new(n);
			return (uint32_t)n->n - 1;
		}
		if (!s || clk_mono_ms() - s->used_ms < KEEP_MS)
			return END;
		index_remove(n, i);
		free(s->host);
	}
	lru_unlink(n, i);
	s->host = NULL;
	s->turn = (s->turn + 1) % TURNS;
	return i;
}

int names_assign(struct names *n, const char *host, struct in_addr *ret)
{
	uint32_t i = index_find(n, host);

	if (i == END) {
		i = slot_take(n);
		if (i == END)
			return -1;
		n->v[i].host = xstrdup(host);
		index_add(n, i);
		lru_front(n, i);
		entry_write(n, i);
	} else if (n->v[i].holds == 0) {
		lru_unlink(n, i);
		lru_front(n, i);
	}
	ret->s_addr = address_of(n, i);
	return 0;
}

static uint32_t slot_of(const struct names *n, struct in_addr a)
{
	uint32_t at = ntohl(a.s_addr) - FIRST, i = at % NAMES_MAX;

	if (at >= TURNS * NAMES_MAX || i >= n->n || !n->v[i].host || n->v[i].turn != at / NAMES_MAX)
		return END;
	return i;
}

const char *names_find(const struct names *n, struct in_addr a)
{
	uint32_t i = slot_of(n, a);

	return i == END ? NULL : n->v[i].host;
}

void names_hold(struct names *n, struct in_addr a)
{
	uint32_t i = slot_of(n, a);

	if (i == END)
		return;
	if (n->v[i].holds++ == 0)
		lru_unlink(n, i);
}

void names_release(struct names *n, struct in_addr a)
{
	uint32_t i = slot_of(n, a);

	if (i == END || n->v[i].holds == 0)
		return;
	if (--n->v[i].holds == 0)
		lru_front(n, i);
}

bool names_is_fake(const struct addr *a)
{
	return a->family == AF_INET && ntohl(a->v4.s_addr) >> FAKE_BITS == FAKE_NET >> FAKE_BITS;
}
