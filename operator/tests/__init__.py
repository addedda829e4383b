"""A package, so that pytest calls it `tests`: as `operator.tests` it would hide the standard library's operator."""
