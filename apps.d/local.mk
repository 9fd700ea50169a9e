# apps.d: example apps. contrib/quickstart copies the programs, and makes the units by filling in where they are.
EXAMPLE_UNITS = apps.d/static.app.in apps.d/notes.app.in apps.d/ticker.app.in apps.d/onesite.app.in apps.d/mcp.app.in
EXAMPLE_FILES = apps.d/static/public/index.html apps.d/notes/server.js apps.d/ticker/README apps.d/onesite/server.py \
	apps.d/mcp/server.py
nobase_dist_pkgdata_DATA = $(EXAMPLE_UNITS) $(EXAMPLE_FILES)
