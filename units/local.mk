# units: the shipped profiles and templates
unitsdir = $(pkgdatadir)/units
dist_units_DATA = units/strict.conf
