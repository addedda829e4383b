"""Finding Java, or saying how to get it."""

from inspect import signature

import pytest
from pyspark_walrus.session import JavaMissingError, check_java, create_session


@pytest.fixture
def no_java(monkeypatch, tmp_path):
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    return tmp_path / "bin" / "java"


def test_the_java_of_this_machine_will_do():
    check_java()


def test_a_session_uses_all_cores_and_allows_a_task_four_tries():
    # An archive took two cores of any machine.
    assert signature(create_session).parameters["master"].default == "local[*,4]"


def test_a_missing_java_is_said_with_what_to_install(no_java):
    with pytest.raises(JavaMissingError, match="openjdk-17-jre-headless"):
        check_java()


@pytest.mark.parametrize("version", ["1.8.0_292", "11.0.2"])
def test_an_old_java_is_refused(no_java, version):
    no_java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    no_java.chmod(0o755)
    with pytest.raises(JavaMissingError, match=r"too old.*openjdk-17-jre-headless"):
        check_java()
