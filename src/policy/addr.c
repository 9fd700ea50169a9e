/*
 * Addresses: text, sockaddr and class. The two tables are the IANA special-purpose registries (v4: RFC 6890
 * and its updates, v6 likewise, as of 2025), read in order, first match wins. What is globally reachable
 * there but no place an app has business with (AS112, AMT and PCP anycast) is reserved too. IPv6 outside
 * 2000::/3 is not allocated as global unicast (RFC 4291 2.4), so it needs no table to be refused.
 */
#include "policy/rules.h"
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

struct block4 {
	uint8_t net[4];
	unsigned bits;
	enum addr_class class;
};
static const struct block4 blocks4[] = {
	{{0, 0, 0, 0}, 32, ADDR_UNSPECIFIED},
	{{0, 0, 0, 0}, 8, ADDR_RESERVED},          /* RFC 791: this network */
	{{10, 0, 0, 0}, 8, ADDR_PRIVATE},          /* RFC 1918 */
	{{100, 100, 100, 200}, 32, ADDR_METADATA}, /* Alibaba Cloud */
	{{100, 64, 0, 0}, 10, ADDR_PRIVATE},       /* RFC 6598 */
	{{127, 0, 0, 0}, 8, ADDR_LOOPBACK},        /* RFC 1122 */
	{{168, 63, 129, 16}, 32, ADDR_METADATA},   /* Azure wire server */
	{{169, 254, 0, 0}, 16, ADDR_LINK_LOCAL},   /* RFC 3927 */
	{{172, 16, 0, 0}, 12, ADDR_PRIVATE},       /* RFC 1918 */
	{{192, 0, 0, 192}, 32, ADDR_METADATA},     /* Oracle Cloud */
	{{192, 0, 0, 0}, 24, ADDR_RESERVED},       /* RFC 6890: IETF protocol assignments */
	{{192, 0, 2, 0}, 24, ADDR_RESERVED},       /* RFC 5737: TEST-NET-1 */
	{{192, 31, 196, 0}, 24, ADDR_RESERVED},    /* RFC 7535: AS112 */
	{{192, 52, 193, 0}, 24, ADDR_RESERVED},    /* RFC 7450: AMT */
	{{192, 88, 99, 0}, 24, ADDR_RESERVED},     /* RFC 7526: 6to4 relay anycast, deprecated */
	{{192, 168, 0, 0}, 16, ADDR_PRIVATE},      /* RFC 1918 */
	{{192, 175, 48, 0}, 24, ADDR_RESERVED},    /* RFC 7534: AS112 */
	{{198, 18, 0, 0}, 15, ADDR_RESERVED},      /* RFC 2544: benchmarking */
	{{198, 51, 100, 0}, 24, ADDR_RESERVED},    /* RFC 5737: TEST-NET-2 */
	{{203, 0, 113, 0}, 24, ADDR_RESERVED},     /* RFC 5737: TEST-NET-3 */
	{{224, 0, 0, 0}, 4, ADDR_MULTICAST},       /* RFC 5771 */
	{{240, 0, 0, 0}, 4, ADDR_RESERVED},        /* RFC 1112, and the limited broadcast address */
};

struct block6 {
	uint8_t net[16];
	unsigned bits;
	enum addr_class class;
};
static const struct block6 blocks6[] = {
	{{0}, 128, ADDR_UNSPECIFIED},
	{{[15] = 1}, 128, ADDR_LOOPBACK},
	{{0xfd, 0x00, 0x0e, 0xc2}, 32, ADDR_METADATA},               /* AWS: fd00:ec2::254 and its siblings */
	{{0xfd, 0x20, 0x00, 0xce, [15] = 0}, 32, ADDR_METADATA},     /* Google Cloud: fd20:ce::254 */
	{{0xfd, 0x00, 0x00, 0x42, [15] = 0x42}, 128, ADDR_METADATA}, /* Scaleway: fd00:42::42 */
	{{0xfc}, 7, ADDR_PRIVATE},                                   /* RFC 4193 */
	{{0xfe, 0x80}, 10, ADDR_LINK_LOCAL},                         /* RFC 4291 */
	{{0xff}, 8, ADDR_MULTICAST},                                 /* RFC 4291 */
	{{0x20, 0x01, 0x00}, 23, ADDR_RESERVED},             /* RFC 2928: Teredo, ORCHID, benchmarking... */
	{{0x20, 0x01, 0x0d, 0xb8}, 32, ADDR_RESERVED},       /* RFC 3849: documentation */
	{{0x26, 0x20, 0x00, 0x4f, 0x80}, 48, ADDR_RESERVED}, /* RFC 7534: AS112 */
	{{0x3f, 0xff}, 20, ADDR_RESERVED},                   /* RFC 9637: documentation */
	{{0x20}, 3, ADDR_PUBLIC},                            /* RFC 4291 2.4: global unicast in use */
};

static const uint8_t prefix_mapped[16] = {[10] = 0xff, [11] = 0xff}; /* RFC 4291 2.5.5.2: ::ffff:0:0/96 */
static const uint8_t prefix_nat64[16] = {0x00, 0x64, 0xff, 0x9b};    /* RFC 6052 2.1: 64:ff9b::/96 */
static const uint8_t prefix_6to4[16] = {0x20, 0x02};                 /* RFC 3056: 2002::/16 */
static const uint8_t prefix_compat[16] = {0};                        /* RFC 4291 2.5.5.1: ::/96, deprecated */

bool addr_bits_match(const uint8_t *a, const uint8_t *net, unsigned bits)
{
	unsigned whole = bits / 8, rest = bits % 8;

	if (memcmp(a, net, whole) != 0)
		return false;
	return rest == 0 || ((a[whole] ^ net[whole]) >> (8 - rest)) == 0;
}

static enum addr_class classify4(const uint8_t a[4])
{
	for (size_t i = 0; i < ELEMENTS(blocks4); i++)
		if (addr_bits_match(a, blocks4[i].net, blocks4[i].bits))
			return blocks4[i].class;
	return ADDR_PUBLIC;
}

static bool is_mapped(const struct addr *a)
{
	return a->family == AF_INET6 && addr_bits_match(a->v6.s6_addr, prefix_mapped, 96);
}

static bool is_compat(const struct addr *a)
{
	struct addr one = {.family = AF_INET6, .v6 = IN6ADDR_LOOPBACK_INIT};
	struct addr any = {.family = AF_INET6, .v6 = IN6ADDR_ANY_INIT};

	return a->family == AF_INET6 && addr_bits_match(a->v6.s6_addr, prefix_compat, 96) &&
	       !addr_equal(a, &one) && !addr_equal(a, &any);
}

bool addr_embedded(const struct addr *a, struct addr *ret)
{
	struct addr in = {.family = AF_INET};
	const uint8_t *b = a->v6.s6_addr;

	if (a->family != AF_INET6)
		return false;
	if (is_mapped(a) || is_compat(a) || addr_bits_match(b, prefix_nat64, 96))
		memcpy(&in.v4, b + 12, 4);
	else if (addr_bits_match(b, prefix_6to4, 16))
		memcpy(&in.v4, b + 2, 4);
	else
		return false;
	*ret = in;
	return true;
}

enum addr_class addr_classify(const struct addr *a)
{
	struct addr in;

	if (a->family == AF_INET)
		return classify4((const uint8_t *)&a->v4);
	if (a->family != AF_INET6)
		return ADDR_RESERVED;
	if (addr_embedded(a, &in)) {
		enum addr_class c = classify4((const uint8_t *)&in.v4);

		return c == ADDR_PUBLIC && is_compat(a) ? ADDR_RESERVED : c;
	}
	for (size_t i = 0; i < ELEMENTS(blocks6); i++)
		if (addr_bits_match(a->v6.s6_addr, blocks6[i].net, blocks6[i].bits))
			return blocks6[i].class;
	return ADDR_RESERVED;
}

const char *addr_class_name(enum addr_class c)
{
	static const char *const names[] = {
		[ADDR_PUBLIC] = "public",           [ADDR_PRIVATE] = "private",
		[ADDR_LOOPBACK] = "loopback",       [ADDR_LINK_LOCAL] = "link-local",
		[ADDR_UNSPECIFIED] = "unspecified", [ADDR_MULTICAST] = "multicast",
		[ADDR_RESERVED] = "reserved",       [ADDR_METADATA] = "metadata",
	};

	return (size_t)c < ELEMENTS(names) ? names[c] : "reserved";
}

/* Only the canonical dotted quad: inet_aton()'s octal, hex and short forms are how filters are got round. */
static int parse4(const char *text, size_t len, struct addr *ret)
{
	struct addr a = {.family = AF_INET};
	uint8_t *out = (uint8_t *)&a.v4;
	size_t i = 0;

	for (unsigned part = 0; part < 4; part++) {
		unsigned v = 0;
		size_t digits = 0;

		if (part > 0 && (i >= len || text[i++] != '.'))
			return -1;
		for (; i < len && text[i] >= '0' && text[i] <= '9' && digits < 4; i++, digits++)
			v = v * 10 + (unsigned)(text[i] - '0');
		if (digits == 0 || v > 255 || (digits > 1 && text[i - digits] == '0'))
			return -1;
		out[part] = (uint8_t)v;
	}
	if (i != len)
		return -1;
	*ret = a;
	return 0;
}

int host_parse_addr(const char *text, size_t len, struct addr *ret)
{
	struct addr a = {.family = AF_INET6};
	char buf[INET6_ADDRSTRLEN];

	if (!memchr(text, ':', len))
		return parse4(text, len, ret);
	if (len >= sizeof buf)
		return -1;
	for (size_t i = 0; i < len; i++) /* a NUL, a zone or a space must not reach inet_pton() */
		if (!memchr("0123456789abcdefABCDEF:.", text[i], 24))
			return -1;
	memcpy(buf, text, len);
	buf[len] = 0;
	if (inet_pton(AF_INET6, buf, &a.v6) != 1)
		return -1;
	if (!is_mapped(&a) || !addr_embedded(&a, ret))
		*ret = a;
	return 0;
}

/* inet_ntop() of glibc is a sprintf(), and every connection to an address needs the text. */
static void format4(const struct in_addr *v4, char *out)
{
	const uint8_t *b = (const uint8_t *)v4;

	for (int i = 0; i < 4; i++) {
		if (i)
			*out++ = '.';
		if (b[i] >= 100)
			*out++ = (char)('0' + b[i] / 100);
		if (b[i] >= 10)
			*out++ = (char)('0' + b[i] / 10 % 10);
		*out++ = (char)('0' + b[i] % 10);
	}
	*out = 0;
}

void addr_format(const struct addr *a, char out[INET6_ADDRSTRLEN])
{
	if (a->family == AF_INET)
		format4(&a->v4, out);
	else if (!inet_ntop(a->family, &a->v6, out, INET6_ADDRSTRLEN))
		snprintf(out, INET6_ADDRSTRLEN, "?");
}

void addr_from_sockaddr(struct addr *ret, const struct sockaddr_storage *sa)
{
	struct addr a = {.family = AF_UNSPEC};

	if (sa->ss_family == AF_INET) {
		a.family = AF_INET;
		a.v4 = ((const struct sockaddr_in *)(const void *)sa)->sin_addr;
	} else if (sa->ss_family == AF_INET6) {
		a.family = AF_INET6;
		a.v6 = ((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr;
		if (is_mapped(&a))
			(void)addr_embedded(&a, &a);
	}
	*ret = a;
}

socklen_t addr_to_sockaddr(const struct addr *a, uint16_t port, struct sockaddr_storage *ret)
{
	memset(ret, 0, sizeof *ret);
	if (a->family == AF_INET) {
		struct sockaddr_in *in = (struct sockaddr_in *)(void *)ret;

		in->sin_family = AF_INET;
		in->sin_port = htons(port);
		in->sin_addr = a->v4;
		return sizeof *in;
	} else {
		struct sockaddr_in6 *in = (struct sockaddr_in6 *)(void *)ret;

		in->sin6_family = AF_INET6;
		in->sin6_port = htons(port);
		in->sin6_addr = a->v6;
		return sizeof *in;
	}
}

bool addr_equal(const struct addr *a, const struct addr *b)
{
	if (a->family != b->family)
		return false;
	return a->family == AF_INET ? memcmp(&a->v4, &b->v4, sizeof a->v4) == 0
				    : memcmp(&a->v6, &b->v6, sizeof a->v6) == 0;
}
