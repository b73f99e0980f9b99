#include "tensor/cuda/kernels.h"

namespace pg::cuda {

std::string family_source(std::string_view family, const std::string& types) {
  return "namespace pg::kernels {\nusing namespace formulas;\n" + types + "\n}\n" +
         std::string(family_text("arguments")) + std::string(family_text("common")) +
         std::string(family_text(std::string(family) + "_arguments")) + std::string(family_text(family));
}

}  // namespace pg::cuda
