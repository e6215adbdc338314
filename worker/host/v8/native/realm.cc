#include "realm.h"

#include <v8-exception.h>
#include <v8-primitive.h>
#include <v8-script.h>
#include <unistd.h>
#include <v8-statistics.h>

#include <cstdio>

namespace hop {

using v8::Context;
using v8::Function;
using v8::HandleScope;
using v8::Isolate;
using v8::Local;
using v8::MaybeLocal;
using v8::Object;
using v8::String;
using v8::Value;

namespace {
// After the limit was hit, V8 needs room to unwind the guest. A guest that uses that up several
// times over is not unwinding, and V8 may end the process.
constexpr size_t kUnwindBytes = size_t(64) << 20;
constexpr int kUnwindsMax = 2;
constexpr int kStackTraceLimit = 10;
constexpr int kFatalExitCode = 71;

// V8 can't go on after these. Its own handlers print a native stack first, for seconds.
[[noreturn]] void Die(const char* what, const char* location) {
  fprintf(stderr, "Fatal V8 error: %s (%s)\n", what, location == nullptr ? "?" : location);
  fflush(stderr);
  _exit(kFatalExitCode);
}
void OnFatalError(const char* location, const char* message) { Die(message, location); }
void OnOutOfMemory(const char* location, const v8::OOMDetails&) { Die("out of memory", location); }
}  // namespace

std::string TextOf(Isolate* isolate, Local<Value> value) {
  String::Utf8Value text(isolate, value);
  return *text == nullptr ? "?" : std::string(*text, size_t(text.length()));
}

Local<String> StringOf(Isolate* isolate, std::string_view text) {
  Local<String> string;
  if (String::NewFromUtf8(isolate, text.data(), v8::NewStringType::kNormal, int(text.size())).ToLocal(&string)) return string;
  return String::Empty(isolate);
}

Realm::Realm(node::MultiIsolatePlatform* platform, const RealmOptions& options)
    : platform_(platform), allocator_(size_t(options.heap_mb) << 20), blob_(options.blob), heap_bytes_max_(size_t(options.heap_mb) << 20) {
  if (blob_ != nullptr) {
    startup_ = {blob_->data(), int(blob_->size())};
  }
  Isolate::CreateParams params;
  params.array_buffer_allocator = &allocator_;
  if (blob_ != nullptr) params.snapshot_blob = &startup_;
  params.constraints.ConfigureDefaultsFromHeapSize(0, heap_bytes_max_);
  isolate_ = Isolate::Allocate();
  platform_->RegisterIsolate(isolate_, &hooks_);
  if (options.snapshotable) {
    creator_ = std::make_unique<v8::SnapshotCreator>(isolate_, params);  // enters the isolate
  } else {
    Isolate::Initialize(isolate_, params);
    isolate_->Enter();
  }
  isolate_->SetMicrotasksPolicy(v8::MicrotasksPolicy::kExplicit);
  isolate_->AddNearHeapLimitCallback(NearHeapLimit, this);
  isolate_->SetFatalErrorHandler(OnFatalError);
  isolate_->SetOOMErrorHandler(OnOutOfMemory);
  allocator_.Watch(isolate_);
  {
    HandleScope handles(isolate_);
    Local<Context> context = Context::New(isolate_);
    context_.Reset(isolate_, context);
    Context::Scope inside(context);
    // Not removable by a flag in this build; bootstrapping adds it again at each opening.
    (void)context->Global()->Delete(context, String::NewFromUtf8Literal(isolate_, "WebAssembly"));
    if (snapshotable()) SetStackTraceLimit(true);
    MaybeLocal<Object> kept;
    if (blob_ != nullptr) kept = context->GetDataFromSnapshotOnce<Object>(0);
    Local<Object> api;
    if (kept.ToLocal(&api)) (void)Adopt(context, api);
  }
  isolate_->Exit();
}

Realm::~Realm() {
  context_.Reset();
  api_.Reset();
  deliver_.Reset();
  collect_.Reset();
  if (creator_ != nullptr) {
    isolate_->Enter();
    creator_.reset();
  }
  isolate_->Dispose();
  platform_->UnregisterIsolate(isolate_);
}

size_t Realm::NearHeapLimit(void* data, size_t current, size_t) {
  auto* realm = static_cast<Realm*>(data);
  realm->heap_exceeded_ = true;
  realm->isolate_->TerminateExecution();
  return realm->unwinds_++ < kUnwindsMax ? current + kUnwindBytes : current;
}

// V8 leaves Error.stackTraceLimit out of snapshotable contexts (errors then have no stack), and
// adds it itself when a plain isolate opens a blob, which fails if the blob has it already.
void Realm::SetStackTraceLimit(bool present) {
  Local<Context> context = isolate_->GetCurrentContext();
  Local<Value> error;
  if (!context->Global()->Get(context, String::NewFromUtf8Literal(isolate_, "Error")).ToLocal(&error) || !error->IsObject()) return;
  Local<String> name = String::NewFromUtf8Literal(isolate_, "stackTraceLimit");
  if (present) {
    (void)error.As<Object>()->Set(context, name, v8::Integer::New(isolate_, kStackTraceLimit));
  } else {
    (void)error.As<Object>()->Delete(context, name);
  }
}

bool Realm::Adopt(Local<Context> context, Local<Value> api) {
  if (!api->IsObject()) return false;
  const auto method = [&](const char* name, v8::Global<Function>* into) {
    Local<Value> value;
    if (!api.As<Object>()->Get(context, StringOf(isolate_, name)).ToLocal(&value) || !value->IsFunction()) return false;
    into->Reset(isolate_, value.As<Function>());
    return true;
  };
  api_.Reset(isolate_, api.As<Object>());
  return method("deliver", &deliver_) && method("collect", &collect_);
}

bool Realm::Boot(std::string_view source, std::string* error) {
  Isolate::Scope isolate_scope(isolate_);
  HandleScope handles(isolate_);
  Local<Context> context = context_.Get(isolate_);
  Context::Scope inside(context);
  v8::TryCatch caught(isolate_);
  v8::ScriptOrigin origin(String::NewFromUtf8Literal(isolate_, "hop:kernel"));
  Local<v8::Script> script;
  Local<Value> boot, api;
  // V8's extras hold two built-in functions that read and set the value which promise reactions
  // carry along; they are builtins, so a blob can hold them.
  Local<Value> natives[1] = {context->GetExtrasBindingObject()};
  const bool ok = v8::Script::Compile(context, StringOf(isolate_, source), &origin).ToLocal(&script) &&
                  script->Run(context).ToLocal(&boot) && boot->IsFunction() &&
                  boot.As<Function>()->Call(context, v8::Undefined(isolate_), 1, natives).ToLocal(&api) && Adopt(context, api);
  if (!ok) *error = caught.HasCaught() ? TextOf(isolate_, caught.Exception()) : "the kernel's script has no boot function";
  return ok;
}

bool Realm::Pass(const char* method, std::string_view source, std::string_view name, Watchdog* watchdog, uint32_t limit_ms,
                 std::string* answer) {
  Isolate::Scope isolate_scope(isolate_);
  HandleScope handles(isolate_);
  Local<Context> context = context_.Get(isolate_);
  Context::Scope inside(context);
  v8::TryCatch caught(isolate_);
  v8::ScriptOrigin origin(StringOf(isolate_, name));
  Local<v8::Script> script;
  Local<Value> value, function, result;
  watchdog->Begin(isolate_, limit_ms);
  const bool ok = !api_.IsEmpty() && v8::Script::Compile(context, StringOf(isolate_, source), &origin).ToLocal(&script) &&
                  script->Run(context).ToLocal(&value) && api_.Get(isolate_)->Get(context, StringOf(isolate_, method)).ToLocal(&function) &&
                  function->IsFunction() && function.As<Function>()->Call(context, v8::Undefined(isolate_), 1, &value).ToLocal(&result);
  if (ok) isolate_->PerformMicrotaskCheckpoint();
  const bool late = watchdog->End();
  const bool ended = late || heap_exceeded_ || allocator_.exceeded();
  if (ended) isolate_->CancelTerminateExecution();
  if (ok && !ended) {
    *answer = TextOf(isolate_, result);
    return true;
  }
  if (ended) {
    *answer = LimitText(limit_ms);
  } else if (caught.HasCaught() && !caught.Message().IsEmpty()) {
    const int line = caught.Message()->GetLineNumber(context).FromMaybe(0);
    *answer = TextOf(isolate_, caught.Exception()) + " (" + std::string(name) + ":" + std::to_string(line) + ")";
  } else {
    *answer = "the script could not be run";
  }
  return false;
}

std::string Realm::Snapshot() {
  std::string bytes;
  isolate_->Enter();
  {
    HandleScope handles(isolate_);
    Local<Context> context = context_.Get(isolate_);
    {
      Context::Scope inside(context);
      SetStackTraceLimit(false);
    }
    creator_->SetDefaultContext(context);
    creator_->AddData(context, api_.Get(isolate_));
  }
  context_.Reset();
  api_.Reset();
  deliver_.Reset();
  collect_.Reset();
  v8::StartupData data = creator_->CreateBlob(v8::SnapshotCreator::FunctionCodeHandling::kKeep);
  isolate_->Exit();
  bytes.assign(data.data, size_t(data.raw_size));
  delete[] data.data;
  return bytes;
}

size_t Realm::UsedHeap() const {
  v8::HeapStatistics statistics;
  isolate_->GetHeapStatistics(&statistics);
  return statistics.used_heap_size() + statistics.external_memory();
}

End Realm::Verdict(size_t before) const {
  const bool memory = heap_exceeded_ || allocator_.exceeded();
  return memory && before > heap_bytes_max_ / 10 * 6 ? End::kCrowded : End::kLimit;
}

std::string Realm::LimitText(uint32_t limit_ms) const {
  if (heap_exceeded_) return "Memory limit exceeded: the heap is above " + std::to_string(heap_bytes_max_ >> 20) + " MB";
  if (allocator_.exceeded()) return "Memory limit exceeded: array buffers are above " + std::to_string(heap_bytes_max_ >> 20) + " MB";
  return "Processor time limit exceeded: one delivery ran for more than " + std::to_string(limit_ms) + " ms";
}

}  // namespace hop
