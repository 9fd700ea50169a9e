# proxy: sbxsv-proxy, the data plane
sbin_PROGRAMS += sbxsv-proxy
noinst_LIBRARIES += libproxy.a
libproxy_a_SOURCES = \
	proxy/accept.c proxy/accept.h \
	proxy/access.c proxy/access.h proxy/accesslog.c proxy/accesslog.h \
	proxy/alone.c proxy/alone.h proxy/alone_listen.c proxy/alone_listen.h proxy/alone_log.c proxy/alone_log.h \
	proxy/app.c proxy/app.h \
	proxy/control.c proxy/control.h \
	proxy/denied.c proxy/denied.h \
	proxy/dial.c proxy/dial.h \
	proxy/dns.c proxy/dns.h proxy/dns_internal.h proxy/dns_report.c proxy/dns_tcp.c \
	proxy/egress.c proxy/egress.h \
	proxy/forward.c proxy/forward.h \
	proxy/hang.c proxy/hang.h \
	proxy/harden.c proxy/harden.h proxy/harden_seccomp.c \
	proxy/hosts.c proxy/hosts.h \
	proxy/http.c \
	proxy/idle.c proxy/idle.h \
	proxy/inner.c proxy/inner.h \
	proxy/loopback.c proxy/loopback.h \
	proxy/outgoing.c proxy/outgoing.h proxy/upstream.c proxy/upstream.h \
	proxy/pool.c proxy/pool.h \
	proxy/portholder.c proxy/portholder.h \
	proxy/relay.c proxy/relay.h \
	proxy/reply.c \
	proxy/resolve.c proxy/resolve.h \
	proxy/socks.c \
	proxy/tally.c proxy/tally.h \
	proxy/transparent.c \
	proxy/tunnel.c
PROXY_LIBS = libproxy.a libproxyparse.a libpolicy.a $(CARES_LIBS) $(MNL_LIBS) $(SECCOMP_LIBS)
sbxsv_proxy_SOURCES = proxy/main.c
sbxsv_proxy_LDADD = $(PROXY_LIBS) $(BASE_LIBS)

# the parsers of hostile bytes; apart, so that tests and fuzzers link nothing else
noinst_LIBRARIES += libproxyparse.a
libproxyparse_a_SOURCES = \
	proxy/chunk.c \
	proxy/dnsanswer.c proxy/dnsanswer.h \
	proxy/dnsmsg.c proxy/dnsmsg.h \
	proxy/first.c proxy/first.h \
	proxy/names.c proxy/names.h \
	proxy/policyfile.c proxy/policyfile.h \
	proxy/request.c proxy/request.h proxy/request_build.c \
	proxy/sni.c proxy/sni.h \
	proxy/socks_msg.c proxy/socks_msg.h \
	proxy/target.h
