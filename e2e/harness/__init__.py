"""What the tests of whole clusters share: records that prove themselves, waits with names. No test library in here."""
