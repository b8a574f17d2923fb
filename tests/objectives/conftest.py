import pytest
import torch


@pytest.fixture(autouse=True, scope="package")
def one_thread():
    """Threads that wait for each other on busy cores make small networks many times slower."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
