// Says in shared memory which run is executing, so that the parent can tell after this process
// died on a guest (a V8 out-of-memory abort can't be caught).
#pragma once

#include <atomic>
#include <cstdint>

namespace hop {

class Marker {
 public:
  // Maps the first page of the file, which the parent made. False when it can't.
  bool Map(const char* path);
  void Set(uint32_t key) {
    if (key_ != nullptr) key_->store(key, std::memory_order_relaxed);
  }

 private:
  std::atomic<uint32_t>* key_ = nullptr;
};

}  // namespace hop
