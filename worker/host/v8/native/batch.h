// Runs a batch of deliveries, each to its run, and gathers the answers.
//
// The layout of frames is defined in worker/host/v8/frames.ts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "marker.h"
#include "realm.h"
#include "watchdog.h"

namespace hop {

// A realm as the host knows it. Once it ended, the isolate is gone and each activation is
// answered with the reason until the host closes the entry.
struct Entry {
  std::unique_ptr<Realm> realm;
  uint32_t limit_ms = 0;
  End end = End::kNone;
  // The run that ended it, and why.
  uint32_t culprit = 0;
  std::string reason;
  // As last measured.
  size_t heap_bytes = 0;
  // In steps, as the host knows it.
  uint32_t heap_reported = 0;
  bool heap_changed = false;
  uint32_t deliveries = 0;
};

using Realms = std::unordered_map<uint32_t, Entry>;

class Batch {
 public:
  Batch(Realms* realms, Watchdog* watchdog, Marker* marker) : realms_(realms), watchdog_(watchdog), marker_(marker) {}

  // Runs whole frames. False when they are malformed. An activation may reach over several calls.
  bool Run(std::string_view frames);
  // What was answered since the last call of Run, in whole frames.
  std::string_view answers() const { return std::string_view(answers_).substr(0, answering_ ? answer_at_ : answers_.size()); }

 private:
  struct Frame {
    uint8_t kind;
    uint8_t flags;
    uint32_t realm;
    uint32_t key;
    uint32_t op;
    double now_ms;
    std::string_view text;
  };
  static bool Next(std::string_view* rest, Frame* frame);
  // A run of frames for one realm, with its isolate entered once.
  bool RunRealm(Entry* entry, uint32_t id, std::string_view* rest);
  void Deliver(Entry* entry, const Frame& frame);
  void Refuse(const Entry* entry, const Frame& frame);
  void Measure(Entry* entry);
  void Report(Entry* entry, uint32_t id);
  void BeginAnswer(uint32_t realm, uint32_t key);
  void EndAnswer(uint8_t status);

  Realms* realms_;
  Watchdog* watchdog_;
  Marker* marker_;
  std::string answers_;
  size_t answer_at_ = 0;
  bool answering_ = false;
};

}  // namespace hop
