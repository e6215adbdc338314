// hopv8.node: guest isolates for a Node process that does nothing else.
//
// JavaScript sees: protect(parentPid, markerPath), base(base, kernel, dependencies, main, heapMb,
// limitMs) → text, open(realm, base, heapMb, limitMs), run(frames) → frames, close(realm),
// forget(base), closeAll(). Realms and bases are numbered by the caller.
#include <node.h>
#include <node_buffer.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <signal.h>
#include <unistd.h>

#include <string>

#include "batch.h"

namespace hop {
namespace {

using v8::FunctionCallbackInfo;
using v8::Isolate;
using v8::Local;
using v8::Object;
using v8::String;
using v8::Value;
using Arguments = FunctionCallbackInfo<Value>;

// All of it belongs to the one thread that loaded the addon.
struct Host {
  node::MultiIsolatePlatform* platform = nullptr;
  Watchdog watchdog;
  Marker marker;
  Realms realms;
  Batch batch{&realms, &watchdog, &marker};
  std::unordered_map<uint32_t, Blob> bases;
};
Host* host = nullptr;

void Throw(Isolate* isolate, const std::string& message) {
  isolate->ThrowException(v8::Exception::Error(StringOf(isolate, message)));
}

uint32_t Number(const Arguments& args, int index) {
  return args[index]->Uint32Value(args.GetIsolate()->GetCurrentContext()).FromMaybe(0);
}

std::string_view Bytes(Local<Value> value) { return {node::Buffer::Data(value), node::Buffer::Length(value)}; }

// Death of the parent kills this process, even inside a guest's endless loop; a death of this
// process leaves no core file with users' data.
void Protect(const Arguments& args) {
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (uint32_t(getppid()) != Number(args, 0)) _exit(0);
  if (!host->marker.Map(TextOf(args.GetIsolate(), args[1]).c_str())) Throw(args.GetIsolate(), "Cannot map the marker file");
}

void Base(const Arguments& args) {
  Isolate* isolate = args.GetIsolate();
  const uint32_t limit_ms = Number(args, 5);
  std::string answer, dependencies;
  {
    Realm realm(host->platform, {.snapshotable = true, .heap_mb = Number(args, 4)});
    if (!realm.Boot(TextOf(isolate, args[1]), &answer)) return Throw(isolate, "Cannot start the guest kernel: " + answer);
    if (!realm.Pass("dependencies", TextOf(isolate, args[2]), "dependencies.js", &host->watchdog, limit_ms, &dependencies)) {
      return Throw(isolate, "Cannot evaluate the dependencies: " + dependencies);
    }
    if (!realm.Pass("main", TextOf(isolate, args[3]), "workflow.js", &host->watchdog, limit_ms, &answer)) {
      return Throw(isolate, "Cannot load the workflow code: " + answer);
    }
    host->bases.insert_or_assign(Number(args, 0), std::make_shared<const std::string>(realm.Snapshot()));
  }
  args.GetReturnValue().Set(StringOf(isolate, dependencies));
}

void Open(const Arguments& args) {
  const auto base = host->bases.find(Number(args, 1));
  if (base == host->bases.end()) return Throw(args.GetIsolate(), "The base is not made");
  Entry entry;
  entry.realm = std::make_unique<Realm>(host->platform, RealmOptions{.blob = base->second, .heap_mb = Number(args, 2)});
  entry.limit_ms = Number(args, 3);
  std::string answer;
  // Done at opening: V8 re-adds properties of these two when it opens a blob.
  if (!entry.realm->Pass("seal", "0", "hop:seal", &host->watchdog, 0, &answer)) return Throw(args.GetIsolate(), "Cannot seal the realm: " + answer);
  host->realms.insert_or_assign(Number(args, 0), std::move(entry));
}

void Run(const Arguments& args) {
  Isolate* isolate = args.GetIsolate();
  if (!host->batch.Run(Bytes(args[0]))) return Throw(isolate, "Malformed frame");
  const std::string_view answers = host->batch.answers();
  Local<Object> bytes;
  if (node::Buffer::Copy(isolate, answers.data(), answers.size()).ToLocal(&bytes)) args.GetReturnValue().Set(bytes);
}

void Close(const Arguments& args) { host->realms.erase(Number(args, 0)); }

void Forget(const Arguments& args) { host->bases.erase(Number(args, 0)); }

void CloseAll(const Arguments&) { host->realms.clear(); }

}  // namespace
}  // namespace hop

NODE_MODULE_INIT() {
  v8::Isolate* isolate = v8::Isolate::GetCurrent();
  hop::host = new hop::Host();
  hop::host->platform = node::GetMultiIsolatePlatform(node::GetCurrentEnvironment(context));
  NODE_SET_METHOD(exports, "protect", hop::Protect);
  NODE_SET_METHOD(exports, "base", hop::Base);
  NODE_SET_METHOD(exports, "open", hop::Open);
  NODE_SET_METHOD(exports, "run", hop::Run);
  NODE_SET_METHOD(exports, "close", hop::Close);
  NODE_SET_METHOD(exports, "forget", hop::Forget);
  NODE_SET_METHOD(exports, "closeAll", hop::CloseAll);
  (void)module;
  // V8 aborts when the process ends with isolates alive.
  node::AddEnvironmentCleanupHook(isolate, [](void*) { delete hop::host; }, nullptr);
}
