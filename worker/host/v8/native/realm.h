// A guest isolate with one context and the kernel inside it.
//
// A realm is either snapshotable (it interprets only, and ends as a blob) or plain (full JIT).
// It holds no native function: host and guest talk only by calls into the kernel, which is why
// a blob needs no external references.
#pragma once

#include <v8-context.h>
#include <v8-function.h>
#include <v8-isolate.h>
#include <v8-persistent-handle.h>
#include <v8-snapshot.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "platform.h"
#include "watchdog.h"

namespace hop {

// Why a realm can't be used any more.
enum class End : uint8_t {
  kNone = 0,
  // Its guest used too much processor time or memory.
  kLimit = 1,
  // Memory ran out, but it was nearly gone before this activation: nobody in particular is to blame.
  kCrowded = 2,
  // The kernel itself failed.
  kFault = 3,
};

// Bytes of a base blob. Only blobs made by this process are opened: V8 does not check them, and
// a damaged one is undefined behaviour.
using Blob = std::shared_ptr<const std::string>;

struct RealmOptions {
  Blob blob = nullptr;
  bool snapshotable = false;
  uint32_t heap_mb = 64;
};

class Realm {
 public:
  Realm(node::MultiIsolatePlatform* platform, const RealmOptions& options);
  ~Realm();
  Realm(const Realm&) = delete;

  // Runs the kernel's script, whose value is `boot(natives) → api`. False sets `error`.
  bool Boot(std::string_view source, std::string* error);
  // Runs a script and hands its value to api[method]; the answer is that call's string.
  bool Pass(const char* method, std::string_view source, std::string_view name, Watchdog* watchdog, uint32_t limit_ms,
            std::string* answer);
  // Makes the blob; the realm is unusable afterwards.
  std::string Snapshot();

  v8::Isolate* isolate() const { return isolate_; }
  v8::Local<v8::Context> context() const { return context_.Get(isolate_); }
  v8::Local<v8::Function> deliver() const { return deliver_.Get(isolate_); }
  v8::Local<v8::Function> collect() const { return collect_.Get(isolate_); }
  bool snapshotable() const { return creator_ != nullptr; }
  size_t UsedHeap() const;
  // Who is to blame for a terminated activation; `before` is what the heap held shortly before.
  End Verdict(size_t before) const;
  std::string LimitText(uint32_t limit_ms) const;

 private:
  static size_t NearHeapLimit(void* data, size_t current, size_t initial);
  void SetStackTraceLimit(bool present);
  bool Adopt(v8::Local<v8::Context> context, v8::Local<v8::Value> api);

  node::MultiIsolatePlatform* platform_;
  v8::Isolate* isolate_ = nullptr;
  IsolateHooks hooks_;
  CappedAllocator allocator_;
  // The blob must outlive the isolate.
  Blob blob_;
  v8::StartupData startup_{nullptr, 0};
  std::unique_ptr<v8::SnapshotCreator> creator_;
  v8::Global<v8::Context> context_;
  v8::Global<v8::Object> api_;
  v8::Global<v8::Function> deliver_;
  v8::Global<v8::Function> collect_;
  size_t heap_bytes_max_;
  bool heap_exceeded_ = false;
  int unwinds_ = 0;
};

// The UTF-8 text of a value, "?" when it has none.
std::string TextOf(v8::Isolate* isolate, v8::Local<v8::Value> value);
v8::Local<v8::String> StringOf(v8::Isolate* isolate, std::string_view text);

}  // namespace hop
