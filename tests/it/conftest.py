"""Fixtures of the integration tests; what they offer is in tests/README.md."""
import os
import signal
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib"))
import harness  # noqa: E402

# ip, dnsmasq and others live where Debian does not put an ordinary user's PATH.
os.environ["PATH"] = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/local/sbin:/usr/sbin:/sbin"

# A shell starts what it puts into the background with SIGINT ignored, and so would be every program started here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    config.addinivalue_line("markers", "root: needs root (taken out of an ordinary user's run)")
    config.addinivalue_line("markers", "user: needs an ordinary user (taken out of root's run)")


def pytest_collection_modifyitems(config, items):
    """Tests for the other kind of user are not skipped but taken out: contrib/check runs the tests as both."""
    wrong = "user" if harness.ROOT else "root"
    out = [i for i in items if i.get_closest_marker(wrong)]
    if out:
        config.hook.pytest_deselected(items=out)
        items[:] = [i for i in items if not i.get_closest_marker(wrong)]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.when == "call":
        item.failed_in_call = report.failed


def pytest_terminal_summary(terminalreporter):
    """Tables that tests recorded (record_property("table", text)) are shown though they passed."""
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, value in report.user_properties:
            if name == "table" and report.when == "call":
                terminalreporter.write_line(value)


def _finish(request, instances):
    problems = []
    for i in instances:
        failed = getattr(request.node, "failed_in_call", True)
        if failed:
            i.report()
        problems += i.close()
    if problems:
        pytest.fail("after the test: " + "; ".join(problems), pytrace=False)


@pytest.fixture
def make_instance(request):
    """Makes instances: make_instance(env={...}). All are closed and checked for leaks after the test."""
    made = []

    def make(**kw):
        i = harness.Instance(**kw)
        made.append(i)
        return i
    yield make
    _finish(request, made)


@pytest.fixture
def inst(make_instance):
    """One private instance that is not up yet."""
    return make_instance()


@pytest.fixture
def write_unit(inst):
    return inst.write_unit


@pytest.fixture
def sbxsv(inst):
    """sbxsv(*args) -> (code, out, err)"""
    return inst.sbxsv


@pytest.fixture
def wait_state(inst):
    return inst.wait_state


@pytest.fixture
def free_port():
    """free_port() -> a port of 127.0.0.1 that nobody has"""
    return harness.free_port
