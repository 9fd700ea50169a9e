# contrib
EXTRA_DIST += contrib/quickstart contrib/check contrib/apparmor/sbxsv contrib/systemd/sbxsv.service \
	contrib/systemd/sbxsv-user.service contrib/debian/control contrib/debian/changelog contrib/debian/copyright \
	contrib/debian/rules contrib/debian/postinst contrib/debian/source/format contrib/desktop/start contrib/desktop/stop \
	contrib/desktop/sbxsv.desktop contrib/launchd/org.sbxsv.sbxsvd.plist .ci/run tests/lib/tally.py

# completions, written by the program that was just built; a cross compilation has none
bashcompdir = $(datadir)/bash-completion/completions
zshcompdir = $(datadir)/zsh/site-functions
fishcompdir = $(datadir)/fish/vendor_completions.d
vimsyntaxdir = $(datadir)/vim/vimfiles/syntax
vimftdetectdir = $(datadir)/vim/vimfiles/ftdetect
dist_vimftdetect_DATA = contrib/vim/ftdetect/sbxsv.vim
if FILTERS_BUILT
nodist_bashcomp_DATA = contrib/completions/sbxsv
nodist_zshcomp_DATA = contrib/completions/_sbxsv
nodist_fishcomp_DATA = contrib/completions/sbxsv.fish
nodist_vimsyntax_DATA = contrib/vim/sbxsv.vim
CLEANFILES += $(nodist_bashcomp_DATA) $(nodist_zshcomp_DATA) $(nodist_fishcomp_DATA) $(nodist_vimsyntax_DATA)
endif
completion = $(AM_V_GEN)$(MKDIR_P) contrib/completions && ./sbxsv$(EXEEXT) help --completion
contrib/completions/sbxsv: sbxsv$(EXEEXT)
	$(completion) bash >$@.tmp && mv $@.tmp $@
contrib/completions/_sbxsv: sbxsv$(EXEEXT)
	$(completion) zsh >$@.tmp && mv $@.tmp $@
contrib/completions/sbxsv.fish: sbxsv$(EXEEXT)
	$(completion) fish >$@.tmp && mv $@.tmp $@
contrib/vim/sbxsv.vim: sbxsv$(EXEEXT)
	$(AM_V_GEN)$(MKDIR_P) contrib/vim && ./sbxsv$(EXEEXT) help --completion vim >$@.tmp && mv $@.tmp $@
