/*
 * Host names. There is one canonical form, made once at the edge; what is matched, resolved, logged and
 * compared with an SNI is that form and nothing else, so no two parts can read one name differently. Nothing
 * is decoded or mapped: a byte outside the grammar refuses the name.
 */
#include "policy/rules.h"
#include <errno.h>
#include <string.h>

#define LABEL_MAX 63 /* RFC 1035 2.3.4 */

static char ascii_lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_host_byte(char c)
{
	return is_digit(c) || (c >= 'a' && c <= 'z') || c == '-' || c == '_';
}

/* WHATWG URL 3.5: a host whose last label is a number is an IPv4 address in one of inet_aton()'s spellings.
 */
static bool number_like(const char *label, size_t n)
{
	if (n >= 2 && label[0] == '0' && label[1] == 'x')
		return true;
	for (size_t i = 0; i < n; i++)
		if (!is_digit(label[i]))
			return false;
	return true;
}

static int bad_byte(unsigned char c, struct err **e)
{
	if (c >= 0x80)
		return err_set(e, EINVAL,
			       "a host name is ASCII: write an international name in its xn-- form");
	if (c > 0x20 && c < 0x7f)
		return err_set(e, EINVAL, "'%c' cannot be part of a host name%s", c,
			       c == ',' ? ": separate hosts by spaces" : "");
	return err_set(e, EINVAL, "byte 0x%02x cannot be part of a host name", c);
}

int host_canon(const char *text, size_t len, char out[HOST_MAX], struct err **e)
{
	char name[HOST_MAX];
	size_t start = 0;

	if (len > 0 && text[len - 1] == '.')
		len--;
	if (len == 0)
		return err_set(e, EINVAL, "the host name is empty");
	if (len >= HOST_MAX)
		return err_set(e, EINVAL, "a host name has at most %d characters", HOST_MAX - 1);
	for (size_t i = 0; i <= len; i++) {
		if (i < len && text[i] != '.') {
			name[i] = ascii_lower(text[i]);
			if (!is_host_byte(name[i]))
				return bad_byte((unsigned char)text[i], e);
			continue;
		}
		if (i == start)
			return err_set(e, EINVAL,
				       "the host name has an empty label (two dots, or one at an end)");
		if (i - start > LABEL_MAX)
			return err_set(e, EINVAL, "a label of a host name has at most %d characters",
				       LABEL_MAX);
		if (name[start] == '-' || name[i - 1] == '-')
			return err_set(e, EINVAL, "a label of a host name neither begins nor ends with '-'");
		if (i == len && number_like(name + start, i - start))
			return err_set(
				e, EINVAL,
				"it ends in a number, so it is an address: write it as four decimal numbers");
		name[i] = i < len ? '.' : 0;
		start = i + 1;
	}
	memcpy(out, name, len + 1);
	return 0;
}

/* Names that mean this machine or a metadata service wherever they are resolved; RFC 6761 6.3, /etc/hosts of
 * the distributions, and the vendors' documentation. Addresses are judged as well: this list only makes the
 * answer quick and clear. */
enum addr_class host_closed_class(const char *host)
{
	static const char *const loopback[] = {"localhost",
					       "localhost.localdomain",
					       "localhost4",
					       "localhost6",
					       "localhost4.localdomain4",
					       "localhost6.localdomain6",
					       "ip6-localhost",
					       "ip6-loopback"},
				 *const metadata[] = {"metadata.google.internal", "metadata.goog",
						      "instance-data.ec2.internal", "instance-data"};

	for (size_t i = 0; i < ELEMENTS(loopback); i++)
		if (str_eq(host, loopback[i]))
			return ADDR_LOOPBACK;
	if (str_ends(host, ".localhost"))
		return ADDR_LOOPBACK;
	for (size_t i = 0; i < ELEMENTS(metadata); i++)
		if (str_eq(host, metadata[i]))
			return ADDR_METADATA;
	return ADDR_PUBLIC;
}
