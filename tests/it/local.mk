# tests/it
EXTRA_DIST += tests/lib/netlab.py tests/lib/proxydrv.py tests/lib/sites.py tests/it/test_proxy_egress.py tests/it/test_proxy_forward.py
EXTRA_DIST += tests/it/test_check.py tests/it/test_cli.py tests/it/test_ctl.py
EXTRA_DIST += tests/it/test_logs.py tests/it/test_ports.py
EXTRA_DIST += tests/it/test_broken_units.py
EXTRA_DIST += tests/it/test_sup.py tests/it/test_sup_many.py
EXTRA_DIST += tests/it/test_attack_files.py tests/it/test_attack_supervisor.py
EXTRA_DIST += tests/it/test_jail_hidden.py
EXTRA_DIST += tests/it/test_chaos.py
