# static@PORT: the files of ~/sites/PORT on http://127.0.0.1:PORT/
#
#   mkdir -p ~/sites/8090
#   ln -s /usr/share/sbxsv/units/static@.app ~/.config/sbxsv/apps.d/static@8090.app
#
# Drop-ins: static@.app.d/ for all of them, static@8090.app.d/ for one.

[App]
Description=Files of ~/sites/%i
Exec=/usr/bin/python3 -m http.server $PORT --directory .
WorkingDirectory=~/sites/%i

[Sandbox]
Profile=python-web

[Network]
Listen=%i
