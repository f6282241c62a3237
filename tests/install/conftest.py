# SPDX-License-Identifier: MIT
import pytest
from installation import Installation, install


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    return install(tmp_path_factory.mktemp("install"))
