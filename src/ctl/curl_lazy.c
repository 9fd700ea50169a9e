/*
 * The part of libcurl that client.c uses, loaded when it is first needed.
 *
 * libcurl brings some thirty shared libraries (TLS, Kerberos, LDAP, HTTP/2) of which a request over a Unix
 * socket needs none. Linking it made every start of the command 10 ms slower, `sbxsv exec` too, which never
 * talks to a supervisor and is to be faster than the alternatives. Same names and types as in <curl/curl.h>,
 * so client.c is written as if it were linked.
 */
#include <curl/curl.h>
#include <dlfcn.h>
#include <stdarg.h>
#include <stddef.h>

/* The macros of curl/curl.h check argument types at compile time; here the functions themselves are defined.
 */
#undef curl_easy_setopt
#undef curl_easy_getinfo

static struct {
	CURL *(*init)(void);
	void (*cleanup)(CURL *);
	void (*reset)(CURL *);
	CURLcode (*setopt)(CURL *, CURLoption, ...);
	CURLcode (*getinfo)(CURL *, CURLINFO, ...);
	CURLcode (*perform)(CURL *);
	const char *(*strerror)(CURLcode);
	struct curl_slist *(*append)(struct curl_slist *, const char *);
	void (*free_all)(struct curl_slist *);
} real;

/* A data pointer becomes a function pointer the way dlsym(3) says. */
static int find(void *lib, const char *name, void *where)
{
	void *p = dlsym(lib, name);

	*(void **)where = p;
	return p ? 0 : -1;
}

static int load(void)
{
	/* The ABI's name since 2006; Debian's GnuTLS build has another. */
	static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl.so", NULL};
	void *lib = NULL;

	if (real.free_all)
		return 0;
	for (const char *const *n = names; *n && !lib; n++)
		lib = dlopen(*n, RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		return -1;
	if (find(lib, "curl_easy_init", &real.init) || find(lib, "curl_easy_cleanup", &real.cleanup) ||
	    find(lib, "curl_easy_reset", &real.reset) || find(lib, "curl_easy_setopt", &real.setopt) ||
	    find(lib, "curl_easy_getinfo", &real.getinfo) || find(lib, "curl_easy_perform", &real.perform) ||
	    find(lib, "curl_easy_strerror", &real.strerror) || find(lib, "curl_slist_append", &real.append) ||
	    find(lib, "curl_slist_free_all", &real.free_all)) {
		real.free_all = NULL;
		(void)dlclose(lib);
		return -1;
	}
	return 0;
}

/* Every other function is reached through a handle or a list that only a loaded library gives. */
CURL *curl_easy_init(void)
{
	return load() < 0 ? NULL : real.init();
}

struct curl_slist *curl_slist_append(struct curl_slist *list, const char *text)
{
	return load() < 0 ? NULL : real.append(list, text);
}

void curl_slist_free_all(struct curl_slist *list)
{
	if (list)
		real.free_all(list);
}

void curl_easy_cleanup(CURL *h)
{
	if (h)
		real.cleanup(h);
}

void curl_easy_reset(CURL *h)
{
	real.reset(h);
}

CURLcode curl_easy_setopt(CURL *h, CURLoption option, ...)
{
	CURLcode code;
	va_list ap;

	va_start(ap, option);
	if (option >= CURLOPTTYPE_OFF_T && option < CURLOPTTYPE_BLOB)
		code = real.setopt(h, option, va_arg(ap, curl_off_t));
	else if (option < CURLOPTTYPE_OBJECTPOINT)
		code = real.setopt(h, option, va_arg(ap, long));
	else
		code = real.setopt(h, option, va_arg(ap, void *));
	va_end(ap);
	return code;
}

CURLcode curl_easy_getinfo(CURL *h, CURLINFO info, ...)
{
	CURLcode code;
	va_list ap;

	va_start(ap, info);
	code = real.getinfo(h, info, va_arg(ap, void *)); /* always a pointer to the result */
	va_end(ap);
	return code;
}

CURLcode curl_easy_perform(CURL *h)
{
	return real.perform(h);
}

const char *curl_easy_strerror(CURLcode code)
{
	return real.strerror ? real.strerror(code) : "libcurl is not there";
}
