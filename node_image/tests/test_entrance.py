"""Which addresses of a name are this node's own: it does not ask itself to be admitted."""

import pytest
from walrus_node.address import Address
from walrus_node.entrance import _is_own


@pytest.mark.parametrize(
    ("address", "bound", "expected"),
    [
        ("127.0.0.1:6000", Address("0.0.0.0", 6000), True),
        ("127.0.0.1:6001", Address("0.0.0.0", 6000), False),
        # This address is from a block that is reserved for documentation, so no machine has it.
        ("192.0.2.1:6000", Address("0.0.0.0", 6000), False),
        ("127.0.0.1:6000", Address("127.0.0.1", 6000), True),
        ("127.0.0.2:6000", Address("127.0.0.1", 6000), False),
        ("[2001:db8::1]:6000", Address("::", 6000), False),
    ],
)
def test_an_address_of_this_machine_with_the_bound_port_is_its_own(
    address: str, bound: Address, expected: bool
) -> None:
    assert _is_own(address, bound) == expected
