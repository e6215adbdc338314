// What V8 asks of its embedder for each isolate: a task runner and a bounded allocator.
//
// Guest isolates have no event loop. Foreground tasks that V8 posts for them are dropped; all
// they could do is finish optional work such as finalization, which guests can't observe.
#pragma once

#include <node.h>
#include <v8-array-buffer.h>
#include <v8-isolate.h>
#include <v8-platform.h>

#include <atomic>
#include <memory>

namespace hop {

class NoTasks final : public v8::TaskRunner {
 public:
  bool IdleTasksEnabled() override { return false; }
  bool NonNestableTasksEnabled() const override { return true; }
  bool NonNestableDelayedTasksEnabled() const override { return true; }

 private:
  using Where = const v8::SourceLocation&;
  void PostTaskImpl(std::unique_ptr<v8::Task>, Where) override {}
  void PostNonNestableTaskImpl(std::unique_ptr<v8::Task>, Where) override {}
  void PostDelayedTaskImpl(std::unique_ptr<v8::Task>, double, Where) override {}
  void PostNonNestableDelayedTaskImpl(std::unique_ptr<v8::Task>, double, Where) override {}
  void PostIdleTaskImpl(std::unique_ptr<v8::IdleTask>, Where) override {}
};

class IsolateHooks final : public node::IsolatePlatformDelegate {
 public:
  std::shared_ptr<v8::TaskRunner> GetForegroundTaskRunner() override { return runner_; }
  bool IdleTasksEnabled() override { return false; }

 private:
  std::shared_ptr<v8::TaskRunner> runner_ = std::make_shared<NoTasks>();
};

// Array buffers live outside V8's heap limit, so they get a limit of their own. A request beyond
// it fails in the guest and raises `exceeded`, upon which the realm ends the activation: a guest
// must not be able to observe how much memory its neighbours left.
class CappedAllocator final : public v8::ArrayBuffer::Allocator {
 public:
  explicit CappedAllocator(size_t bytes_max) : bytes_max_(bytes_max) {}

  void* Allocate(size_t length) override { return Take(length) ? Checked(inner_->Allocate(length), length) : nullptr; }
  void* AllocateUninitialized(size_t length) override {
    return Take(length) ? Checked(inner_->AllocateUninitialized(length), length) : nullptr;
  }
  void Free(void* data, size_t length) override {
    inner_->Free(data, length);
    used_.fetch_sub(length, std::memory_order_relaxed);
  }

  void Watch(v8::Isolate* isolate) { isolate_ = isolate; }
  bool exceeded() const { return exceeded_; }

 private:
  bool Take(size_t length) {
    // A guest can ask for anything: compare without adding, which could overflow.
    const size_t used = used_.load(std::memory_order_relaxed);
    if (length > bytes_max_ || used > bytes_max_ - length) {
      exceeded_ = true;
      if (isolate_ != nullptr) isolate_->TerminateExecution();
      return false;
    }
    used_.fetch_add(length, std::memory_order_relaxed);
    return true;
  }
  void* Checked(void* data, size_t length) {
    if (data == nullptr) used_.fetch_sub(length, std::memory_order_relaxed);
    return data;
  }

  const size_t bytes_max_;
  // Buffers may be freed by V8's background threads.
  std::atomic<size_t> used_{0};
  std::atomic<bool> exceeded_{false};
  v8::Isolate* isolate_ = nullptr;
  std::unique_ptr<v8::ArrayBuffer::Allocator> inner_{v8::ArrayBuffer::Allocator::NewDefaultAllocator()};
};

}  // namespace hop
