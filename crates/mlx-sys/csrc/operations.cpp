#include "operations.h"

#include <cstdint>
#include <unordered_set>
#include <utility>

namespace mx = mlx::core;

// Not recursive: chains are as long as loops are.
std::vector<mx::array> ortmlx::operations_of(const std::vector<mx::array>& outputs) {
  std::vector<mx::array> operations;
  std::unordered_set<std::uintptr_t> done;
  auto waits = [&](const mx::array& a) { return is_computed(a) && done.count(a.id()) == 0; };
  for (const auto& root : outputs) {
    std::vector<mx::array> stack{root};
    while (!stack.empty()) {
      auto a = stack.back();
      if (!waits(a)) {
        stack.pop_back();
        continue;
      }
      size_t waiting = stack.size();
      for (const auto& in : a.inputs()) {
        if (waits(in)) {
          stack.push_back(in);
        }
      }
      if (stack.size() == waiting) {
        stack.pop_back();
        for (const auto& made : a.outputs()) {
          done.insert(made.id());
        }
        operations.push_back(std::move(a));
      }
    }
  }
  return operations;
}
