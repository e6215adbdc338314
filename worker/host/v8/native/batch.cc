#include "batch.h"

#include <v8-exception.h>
#include <v8-primitive.h>

#include <cstring>

namespace hop {

using v8::Context;
using v8::HandleScope;
using v8::Isolate;
using v8::Local;
using v8::Value;

namespace {
constexpr size_t kHeaderBytes = 28;
constexpr size_t kAnswerHeaderBytes = 16;
constexpr uint8_t kLastFlag = 1, kSilentFlag = 4;
constexpr uint8_t kStatusOk = 0, kStatusLimit = 1, kStatusLost = 2, kStatusCrowded = 3, kStatusFault = 4, kStatusUsage = 5;
// Measuring a heap takes half a microsecond, so it is done now and then.
constexpr uint32_t kDeliveriesPerMeasure = 16;
// The host hears of a heap when it passes a multiple of 4 MiB.
constexpr int kReportShift = 22;
constexpr size_t kAnswersKept = size_t(4) << 20;

template <typename T>
T Read(const char* at) {
  T value;
  memcpy(&value, at, sizeof value);
  return value;
}

template <typename T>
void Put(std::string* out, size_t at, T value) {
  memcpy(out->data() + at, &value, sizeof value);
}

void AppendUtf8(Isolate* isolate, Local<v8::String> text, std::string* out) {
  const size_t bytes = text->Utf8LengthV2(isolate);
  const size_t at = out->size();
  out->resize(at + bytes);
  text->WriteUtf8V2(isolate, out->data() + at, bytes);
}
}  // namespace

bool Batch::Next(std::string_view* rest, Frame* frame) {
  if (rest->size() < kHeaderBytes) return false;
  const char* at = rest->data();
  const size_t length = size_t(4) + Read<uint32_t>(at);
  if (length < kHeaderBytes || length > rest->size()) return false;
  *frame = {.kind = uint8_t(at[4]),
            .flags = uint8_t(at[5]),
            .realm = Read<uint32_t>(at + 8),
            .key = Read<uint32_t>(at + 12),
            .op = Read<uint32_t>(at + 16),
            .now_ms = Read<double>(at + 20),
            .text = rest->substr(kHeaderBytes, length - kHeaderBytes)};
  rest->remove_prefix(length);
  return true;
}

bool Batch::Run(std::string_view frames) {
  // An answer that was begun stays.
  answers_.erase(0, answers().size());
  answer_at_ = 0;
  if (answers_.capacity() > kAnswersKept && answers_.size() < kAnswersKept) answers_.shrink_to_fit();
  std::string_view rest = frames;
  while (!rest.empty()) {
    std::string_view ahead = rest;
    Frame frame;
    if (!Next(&ahead, &frame)) return false;
    auto found = realms_->find(frame.realm);
    Entry* entry = found == realms_->end() ? nullptr : &found->second;
    if (entry != nullptr && entry->realm != nullptr) {
      if (!RunRealm(entry, frame.realm, &rest)) return false;
      continue;
    }
    Refuse(entry, frame);
    rest = ahead;
  }
  return true;
}

bool Batch::RunRealm(Entry* entry, uint32_t id, std::string_view* rest) {
  {
    Isolate* isolate = entry->realm->isolate();
    Isolate::Scope isolate_scope(isolate);
    HandleScope handles(isolate);
    Context::Scope inside(entry->realm->context());
    while (entry->end == End::kNone && !rest->empty()) {
      std::string_view ahead = *rest;
      Frame frame;
      if (!Next(&ahead, &frame)) return false;
      if (frame.realm != id) break;
      *rest = ahead;
      Deliver(entry, frame);
    }
  }
  if (entry->end != End::kNone) {
    entry->realm.reset();
  } else if (entry->heap_changed && !answering_) {
    Report(entry, id);
  }
  return true;
}

void Batch::Deliver(Entry* entry, const Frame& frame) {
  Realm* realm = entry->realm.get();
  Isolate* isolate = realm->isolate();
  HandleScope handles(isolate);
  v8::TryCatch caught(isolate);
  Local<Context> context = isolate->GetCurrentContext();
  const bool silent = (frame.flags & kSilentFlag) != 0;
  if (!answering_ && !silent) BeginAnswer(frame.realm, frame.key);
  if (++entry->deliveries % kDeliveriesPerMeasure == 0) Measure(entry);
  marker_->Set(frame.key);
  watchdog_->Begin(isolate, entry->limit_ms);
  Local<Value> self = v8::Undefined(isolate), result;
  Local<Value> arguments[] = {v8::Integer::NewFromUnsigned(isolate, frame.kind), v8::Integer::NewFromUnsigned(isolate, frame.key),
                              v8::Integer::NewFromUnsigned(isolate, frame.op),   v8::Number::New(isolate, frame.now_ms),
                              v8::Integer::NewFromUnsigned(isolate, frame.flags), StringOf(isolate, frame.text)};
  bool ok = realm->deliver()->Call(context, self, 6, arguments).ToLocal(&result);
  // The run must go dry before the next delivery: which run is current is known to the kernel
  // only between these calls, and what a guest does must not depend on batching.
  if (ok) isolate->PerformMicrotaskCheckpoint();
  ok = ok && realm->collect()->Call(context, self, 0, nullptr).ToLocal(&result);
  const bool late = watchdog_->End();
  marker_->Set(0);
  if (late || caught.HasTerminated() || isolate->IsExecutionTerminating()) {
    entry->end = realm->Verdict(entry->heap_bytes);
    entry->reason = realm->LimitText(entry->limit_ms);
    isolate->CancelTerminateExecution();
  } else if (!ok) {
    entry->end = End::kFault;
    entry->reason = "The guest kernel failed: " + (caught.HasCaught() ? TextOf(isolate, caught.Exception()) : std::string("?"));
  } else if (!silent && result->IsString()) {
    AppendUtf8(isolate, result.As<v8::String>(), &answers_);
  }
  if (entry->end != End::kNone) {
    entry->culprit = frame.key;
    Refuse(entry, frame);
  } else if ((frame.flags & kLastFlag) != 0) {
    EndAnswer(kStatusOk);
  }
}

// Answers an activation of a realm that is gone, once: at its last frame.
void Batch::Refuse(const Entry* entry, const Frame& frame) {
  if (answering_) answers_.resize(answer_at_);
  answering_ = false;
  if ((frame.flags & kLastFlag) == 0) return;
  BeginAnswer(frame.realm, frame.key);
  uint8_t status = kStatusLost;
  if (entry == nullptr) {
    answers_.append("The realm is not open");
  } else if (entry->culprit == frame.key) {
    answers_.append(entry->reason);
    status = entry->end == End::kLimit ? kStatusLimit : entry->end == End::kCrowded ? kStatusCrowded : kStatusFault;
  } else {
    answers_.append("The realm was ended by another run: ").append(entry->reason);
  }
  EndAnswer(status);
}

void Batch::Measure(Entry* entry) {
  entry->heap_bytes = entry->realm->UsedHeap();
  const uint32_t now = uint32_t(entry->heap_bytes >> kReportShift);
  entry->heap_changed = now != entry->heap_reported;
}

void Batch::Report(Entry* entry, uint32_t id) {
  entry->heap_changed = false;
  entry->heap_reported = uint32_t(entry->heap_bytes >> kReportShift);
  BeginAnswer(id, uint32_t(entry->heap_bytes >> 10));
  EndAnswer(kStatusUsage);
}

void Batch::BeginAnswer(uint32_t realm, uint32_t key) {
  answering_ = true;
  answer_at_ = answers_.size();
  answers_.resize(answer_at_ + kAnswerHeaderBytes);
  Put<uint32_t>(&answers_, answer_at_ + 4, 0);
  Put<uint32_t>(&answers_, answer_at_ + 8, realm);
  Put<uint32_t>(&answers_, answer_at_ + 12, key);
}

void Batch::EndAnswer(uint8_t status) {
  answering_ = false;
  Put<uint32_t>(&answers_, answer_at_, uint32_t(answers_.size() - answer_at_ - 4));
  Put<uint8_t>(&answers_, answer_at_ + 4, status);
}

}  // namespace hop
