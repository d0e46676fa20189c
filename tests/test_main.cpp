// The doctest main. `tests -tc="the op table*" -sc="layer_norm*"` runs some rows of the op table.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
