# src/net: what is inside an app's network namespace
noinst_LIBRARIES += libnet.a
libnet_a_SOURCES =
# inside: routes, listeners, sockets on demand
libnet_a_SOURCES += src/net/net.c src/net/net.h src/net/netlink.c src/net/netlink.h src/net/sockets.c src/net/diag.c
libnet_a_SOURCES += src/net/capture.c src/net/capture.h src/net/nft.c src/net/nft.h
libnet_a_SOURCES += src/net/proxyctl.c src/net/proxyctl_internal.h src/net/proxyctl_keep.c src/net/proxyctl.h src/net/proxyctl_app.c src/net/proxyctl_app.h
libnet_a_SOURCES += src/net/proxyctl_in.c src/net/proxyctl_in.h src/net/proxyctl_say.c src/net/proxyctl_say.h src/net/proxyctl_sync.c src/net/proxyctl_sync.h src/net/proxyctl_loopback.c src/net/proxyctl_tally.c src/net/proxyctl_tally.h
