# worker@NAME: keeps ~/workers/NAME/run running, without a port and without network.
#
#   ln -s /usr/share/sbxsv/units/worker@.app ~/.config/sbxsv/apps.d/worker@backup.app

[App]
Description=Worker %i
Exec=~/workers/%i/run
WorkingDirectory=~/workers/%i

[Sandbox]
Profile=shell-worker
