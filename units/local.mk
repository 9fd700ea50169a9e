# units: the shipped profiles (NAME.conf) and templates (NAME@.app)
unitsdir = $(pkgdatadir)/units
dist_units_DATA = \
	units/allowlist.conf units/local-model.conf units/mcp-server.conf units/node-web.conf units/open.conf \
	units/python-web.conf units/shell-worker.conf units/strict.conf units/static@.app units/worker@.app
