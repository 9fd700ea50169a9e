# src: the supervisor's main
sbin_PROGRAMS += sbxsvd
sbxsvd_SOURCES = src/main.c src/main_args.c src/main_args.h src/main_notify.c src/main_notify.h
sbxsvd_LDADD = libctl.a libsup.a libsandbox.a libnet.a libports.a liblogs.a libmonitor.a libtrace.a libunit.a libpolicy.a \
	$(MHD_LIBS) $(FILTER_LIBS) $(INIH_LIBS) $(MNL_LIBS) $(BASE_LIBS)
