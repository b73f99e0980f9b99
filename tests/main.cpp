#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include "tensor/settings.h"

int main(int argc, char** argv) {
  pg::settings_kept = true;
  return doctest::Context(argc, argv).run();
}
