// A threadgroup: one thread of the system for every thread of the GPU, and what they meet at.
#pragma once
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <unistd.h>
#include <vector>
#include "types.h"

namespace metal_host {

constexpr uint width = 32;  // of a SIMD group

[[noreturn]] inline void fail(const char* what, const char* detail = "") {
  std::fprintf(stderr, "metal-host: %s%s\n", what, detail);
  std::fflush(stderr);
  _exit(3);
}

// What the lanes of a SIMD group hand to each other. Two sets take turns: by the time one is written again, every lane has
// met the others once more, so has read it.
struct Slots {
  alignas(16) unsigned char value[width][64];
  uint active;
};

class SimdGroup {
  std::mutex mutex;
  std::condition_variable all_here;
  uint present = 0, waiting = 0, parked = 0, rounds = 0;
  const char* function = nullptr;

  void diverged() {
    if (waiting > 0 && waiting + parked >= uint(__builtin_popcount(present)) && parked > 0)
      fail("lanes wait for others that wait at a threadgroup_barrier, in ", function);
  }
  void release(Slots& slots) {
    slots.active = present;
    waiting = 0;
    ++rounds;
    all_here.notify_all();
  }

 public:
  Slots slots[2];

  void begin(uint lanes) {
    present = lanes >= width ? ~0u : (1u << lanes) - 1;
    waiting = parked = rounds = 0;
  }
  // Waits for all lanes that have not returned; they must call the same function.
  Slots& meet(uint round, const char* name) {
    std::unique_lock lock(mutex);
    if (waiting > 0 && function != name) fail("lanes of one SIMD group call different functions, one of them ", name);
    function = name;
    Slots& mine = slots[round & 1];
    if (waiting + 1 == uint(__builtin_popcount(present))) {
      release(mine);
    } else {
      ++waiting;
      diverged();
      uint before = rounds;
      all_here.wait(lock, [&] { return rounds != before; });
    }
    return mine;
  }
  // A lane is about to wait at the group's barrier; `unpark` when that opens.
  void park() {
    std::lock_guard lock(mutex);
    ++parked;
    diverged();
  }
  void unpark() {
    std::lock_guard lock(mutex);
    parked = 0;
  }
  // A lane returned: the others no longer wait for it.
  void leave(uint lane) {
    std::lock_guard lock(mutex);
    present &= ~(1u << lane);
    if (waiting > 0 && waiting == uint(__builtin_popcount(present))) release(slots[rounds & 1]);
    diverged();
  }
};

class Barrier {
  std::mutex mutex;
  std::condition_variable all_here;
  uint members = 0, waiting = 0, left = 0, rounds = 0;

  static void missed() { fail("threads returned before a threadgroup_barrier that others of their group wait at"); }

 public:
  void begin(uint count) {
    members = count;
    waiting = left = rounds = 0;
  }
  // `open` is called once, before anyone goes on.
  template <class F>
  void wait(F open) {
    std::unique_lock lock(mutex);
    if (left > 0) missed();
    if (++waiting == members) {
      open();
      waiting = 0;
      ++rounds;
      all_here.notify_all();
    } else {
      uint before = rounds;
      all_here.wait(lock, [&] { return rounds != before; });
    }
  }
  void leave() {
    std::lock_guard lock(mutex);
    ++left;
    if (waiting > 0) missed();
  }
};

// The calling thread's place.
struct Lane {
  std::vector<SimdGroup>* simds;  // of the threadgroup
  Barrier* barrier;
  SimdGroup* simd;
  uint index;      // in the SIMD group
  uint round = 0;  // of exchanges
};
inline thread_local Lane* lane = nullptr;

}  // namespace metal_host
