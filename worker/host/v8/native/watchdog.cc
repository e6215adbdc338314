#include "watchdog.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>

namespace hop {
namespace {
constexpr int kStuckExitCode = 70;
constexpr std::chrono::milliseconds kSampleInterval{20};
// Samples without work after which the thread sleeps until it is woken.
constexpr int kIdleSamples = 50;
// A guest that does not stop this long after it was told to is stuck inside V8: only the end of
// the process helps. All runs wait meanwhile, so it is not waited for long; those that were
// innocent come back by replay.
constexpr uint64_t kStuckNanos = 1'000'000'000;
}  // namespace

Watchdog::Watchdog() {
  pthread_getcpuclockid(pthread_self(), &clock_);
  // Signals belong to Node's threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { Loop(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Watchdog::~Watchdog() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Watchdog::Begin(v8::Isolate* isolate, uint32_t limit_ms) {
  isolate_.store(isolate, std::memory_order_relaxed);
  limit_ms_.store(limit_ms, std::memory_order_relaxed);
  stretch_.store(++count_ << 1);
  if (parked_.load()) {
    std::lock_guard<std::mutex> lock(mutex_);
    wake_.notify_one();
  }
}

bool Watchdog::End() {
  if ((stretch_.exchange(0) & 1) == 0) return false;
  // The watchdog claimed the stretch and holds the mutex until the termination is requested, so
  // that the request can't reach the next stretch.
  std::lock_guard<std::mutex> lock(mutex_);
  return true;
}

uint64_t Watchdog::CpuNanos() const {
  timespec now;
  if (clock_gettime(clock_, &now) != 0) return 0;
  return uint64_t(now.tv_sec) * 1'000'000'000 + uint64_t(now.tv_nsec);
}

bool Watchdog::Sample() {
  uint64_t stretch = stretch_.load();
  if (stretch == 0) return false;
  const uint64_t cpu = CpuNanos();
  if (stretch >> 1 != seen_ >> 1) {
    seen_ = stretch;
    seen_cpu_ = cpu;
    return true;
  }
  const uint64_t limit = uint64_t(limit_ms_.load(std::memory_order_relaxed)) * 1'000'000;
  const uint64_t used = cpu - seen_cpu_;
  if (limit == 0 || used < limit) return true;
  if (used > limit + kStuckNanos) _exit(kStuckExitCode);
  if ((stretch & 1) != 0) return true;
  v8::Isolate* isolate = isolate_.load(std::memory_order_relaxed);
  // Fails when the stretch ended meanwhile.
  if (stretch_.compare_exchange_strong(stretch, stretch | 1)) isolate->TerminateExecution();
  return true;
}

void Watchdog::Loop() {
  std::unique_lock<std::mutex> lock(mutex_);
  int idle = 0;
  while (!stop_) {
    idle = Sample() ? 0 : idle + 1;
    if (idle < kIdleSamples) {
      wake_.wait_for(lock, kSampleInterval);
      continue;
    }
    parked_.store(true);
    // A stretch that began before `parked_` was visible would not wake this thread: look again.
    if (stretch_.load() == 0) wake_.wait(lock);
    parked_.store(false);
    idle = 0;
  }
}

}  // namespace hop
