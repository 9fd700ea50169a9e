# src/ctl: the control API, server (libmicrohttpd) and client (libcurl)
noinst_LIBRARIES += libctl.a libctlclient.a
libctl_a_SOURCES = \
	src/ctl/ctl.h src/ctl/internal.h src/ctl/answer.c src/ctl/join.c src/ctl/peer.c src/ctl/peer.h src/ctl/protocol.h src/ctl/route.c src/ctl/route.h \
	src/ctl/server.c src/ctl/stream.c
libctlclient_a_SOURCES = src/ctl/client.c src/ctl/client.h src/ctl/curl_lazy.c
CTL_LIBS = libctl.a $(MHD_LIBS)
CTLCLIENT_LIBS = libctlclient.a -ldl
