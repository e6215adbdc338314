// One thread that ends guest code which runs too long.
//
// The thread that runs guests brackets each stretch with Begin and End, which cost two atomic
// operations. The watchdog samples: it looks at the bracket every few tens of milliseconds and
// measures the processor time of the guests' thread, so that a busy machine does not make a
// guest look slow.
#pragma once

#include <v8-isolate.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <ctime>
#include <mutex>
#include <thread>

namespace hop {

class Watchdog {
 public:
  // To be made on the thread that runs guests.
  Watchdog();
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;

  // Guest code of `isolate` begins, with so much processor time to spend; 0 = no limit.
  void Begin(v8::Isolate* isolate, uint32_t limit_ms);
  // It ended. True when the watchdog terminated it.
  bool End();

 private:
  void Loop();
  // Returns whether a stretch was running.
  bool Sample();
  uint64_t CpuNanos() const;

  clockid_t clock_;
  // Number of the stretch that runs, shifted left by one; 0 = none. The low bit is set by the
  // watchdog to claim the stretch before it terminates it.
  std::atomic<uint64_t> stretch_{0};
  std::atomic<v8::Isolate*> isolate_{nullptr};
  std::atomic<uint32_t> limit_ms_{0};
  std::atomic<bool> parked_{false};
  uint64_t count_ = 0;
  // The watchdog's memory of the stretch it saw last.
  uint64_t seen_ = 0;
  uint64_t seen_cpu_ = 0;

  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace hop
