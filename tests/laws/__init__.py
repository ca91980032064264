"""Laws over random inputs."""

import pytest

pytest.register_assert_rewrite("tests.laws.checks")
