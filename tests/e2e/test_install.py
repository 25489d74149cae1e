"""What is installed fits the program: man pages, completions, the example of a config file, the service, the image."""
import functools
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import BUILD
from test_cli import USAGE, radish

MANUAL = Path(BUILD, "manual")


@functools.cache
def commands():
    names = re.findall(r"^  ([a-z]+) {2,}", radish("--help").stdout.decode(), re.MULTILINE)
    assert "serve" in names and "quantize" in names
    return names


def options_of(command):
    """The long options that --help lists."""
    text = radish(command, "--help").stdout.decode()
    names = re.findall(r"^  (?:-\w+, |    )--([a-z][a-z0-9-]*)", text, re.MULTILINE)
    assert names, "--help was not understood"
    return names


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


def needs(program):
    if not shutil.which(program):
        pytest.skip(f"there is no {program}")


def test_the_man_pages_have_every_option():
    for command in commands():
        page = (MANUAL / f"man/man1/radish-{command}.1").read_text().replace("\\-", "-")
        assert [o for o in options_of(command) if not re.search(rf"--{o}\b(?!-)", page)] == [], command


def test_the_man_pages_are_without_warnings():
    needs("man")
    for page in sorted((MANUAL / "man/man1").iterdir()):
        status, _, warnings = run("man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", str(page))
        assert status == 0 and not warnings, page


def bash_offers(*words):
    """What bash offers for the last of these words."""
    script = (f"source {MANUAL}/completions/radish.bash; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _radish 2>/dev/null; "
              "printf '%s\\n' \"${COMPREPLY[@]}\"")
    status, stdout, stderr = run("bash", "-c", script, "bash", *words)
    assert status == 0 and not stderr, stderr
    return stdout.split()


def test_bash_completes_commands_options_and_values():
    assert set(commands()) <= set(bash_offers("radish", ""))
    assert bash_offers("radish", "ser") == ["serve"]
    for command in commands():
        offered = bash_offers("radish", command, "--")
        assert not {f"--{o}" for o in options_of(command)} - set(offered), command
    assert bash_offers("radish", "serve", "--log-format", "") == ["text", "json"]
    assert bash_offers("radish", "serve", "--log-format", "=", "j") == ["json"]
    assert bash_offers("radish", "serve", "--model", "READ") == ["README.md"]


def test_zsh_completes_options_and_values():
    needs("zsh")
    script = (f"_arguments() {{ print -rl -- \"$@\" }}; compdef() {{ }}; source {MANUAL}/completions/_radish; "
              "words=(radish $1 --) CURRENT=3; _radish")
    for command in commands():
        status, stdout, stderr = run("zsh", "-f", "-c", script, "zsh", command)
        assert status == 0 and not stderr, stderr
        missing = [o for o in options_of(command) if not re.search(rf"--{o}[=\[]", stdout)]
        assert not missing, command
    assert "(text json)" in run("zsh", "-f", "-c", script, "zsh", "serve")[1]


def test_fish_completes_options_and_values():
    needs("fish")

    def offers(line):
        script = f"source {MANUAL}/completions/radish.fish; complete -C '{line}'"
        status, stdout, stderr = run("fish", "--no-config", "-c", script)
        assert status == 0 and not stderr, stderr
        return [row.split("\t")[0] for row in stdout.splitlines()]

    for command in commands():
        assert not {f"--{o}" for o in options_of(command)} - set(offers(f"radish {command} --")), command
    assert sorted(offers("radish serve --log-format ")) == ["json", "text"]


def test_the_example_config_has_every_option():
    text = (MANUAL / "radish.conf").read_text()
    missing = [o for o in options_of("serve") if not re.search(rf"^#{o}( =|$)", text, re.MULTILINE)]
    assert set(missing) <= {"config", "help"}


def test_the_defaults_of_the_example_config_are_accepted(start, tmp_path):
    defaults = re.findall(r"^#([a-z][a-z-]* = [^A-Z\n]*)$", (MANUAL / "radish.conf").read_text(), re.MULTILINE)
    assert len(defaults) > 15
    path = tmp_path / "radish.conf"
    path.write_text("\n".join(d for d in defaults if not d.startswith("socket-mode ")))  # needs a Unix socket
    server = start("--config", str(path), "--engine", "mock")
    assert server.get("/health")[0] == 200


def unit_lines(key):
    return re.findall(rf"^{key}=(.*)$", Path("packaging/radish.service").read_text(), re.MULTILINE)


def test_the_services_command_is_understood(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # has no default model
    [command], [final] = unit_lines("ExecStart"), unit_lines("RestartPreventExitStatus")
    program, *args = command.split()
    config = tmp_path / "radish.conf"
    config.write_text("")
    assert program == "/usr/bin/radish" and "/etc/radish/radish.conf" in args
    done = radish(*[str(config) if arg == "/etc/radish/radish.conf" else arg for arg in args])
    assert done.returncode == int(final) == USAGE, "without a model the service stays down"
    assert "no model given" in done.stderr.decode()


def test_the_services_sandbox_stays_tight():
    needs("systemd-analyze")
    if int(run("systemd-analyze", "--version")[1].split()[1]) < 250:
        pytest.skip("this systemd-analyze cannot read a unit offline")
    status, _, stderr = run("systemd-analyze", "security", "--offline=true", "--threshold=20", "packaging/radish.service")
    assert status == 0, stderr


def test_the_image_is_built_and_run_with_what_exists():
    text = Path("packaging/Containerfile").read_text()
    for names in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE):
        assert all(os.path.exists(name) for name in names.split())
    arguments = [json.loads(a) for a in re.findall(r"^(?:ENTRYPOINT|CMD) (\[.*\])$", text, re.MULTILINE)]
    program, command, *options = sum(arguments, [])
    assert (program, command) == ("radish", "serve")
    help_text = radish("serve", "--help").stdout.decode()
    assert all(re.search(rf"(^|[ ,]){o}[ ,]", help_text) for o in options if o.startswith("-"))
    bases = re.findall(r"^(?:ARG DEBIAN=|FROM )(\S+)", text, re.MULTILINE)
    assert bases and not any("." in base or "/" in base for base in bases), "a base image without a registry's host"


def test_binaries_that_need_too_much_are_named():
    plain = f"{BUILD}/fakes/libcuda.so.1"  # links with the C library alone
    assert run("packaging/needs.sh", "9.99", plain) == (0, "", "")
    status, _, stderr = run("packaging/needs.sh", "2.2", plain)
    assert status == 1 and re.search(r"needs a newer glibc than 2\.2, for: \S+@GLIBC_2\.", stderr)
    program = f"{BUILD}/radish-debug"  # links with the shared libraries
    status, _, stderr = run("packaging/needs.sh", "9.99", program)
    assert status == 1 and "libssl.so" in stderr and "libc.so" not in stderr
