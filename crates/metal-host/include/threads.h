// A threadgroup: one thread of the system for every thread of the GPU, and what they meet at.
#pragma once
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <unistd.h>
#include <vector>
#include "types.h"

#if defined(__SANITIZE_THREAD__)
#define METAL_HOST_RACES 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define METAL_HOST_RACES 1
#endif
#endif

#ifdef METAL_HOST_RACES
extern "C" {
void AnnotateIgnoreSyncBegin(const char*, int);
void AnnotateIgnoreSyncEnd(const char*, int);
void AnnotateIgnoreReadsBegin(const char*, int);
void AnnotateIgnoreReadsEnd(const char*, int);
void AnnotateIgnoreWritesBegin(const char*, int);
void AnnotateIgnoreWritesEnd(const char*, int);
void __tsan_acquire(void*);
void __tsan_release(void*);
}
#endif

namespace metal_host {

constexpr uint width = 32;  // of a SIMD group

[[noreturn]] inline void fail(const char* what, const char* detail = "") {
  std::fprintf(stderr, "metal-host: %s%s\n", what, detail);
  std::fflush(stderr);
  _exit(3);
}

// How threads come to meet is hidden from the thread sanitizer: a mutex that an early thread leaves and a late one then
// takes would order what they do in between, and hide its races by chance of scheduling.
class Unseen {
 public:
#ifdef METAL_HOST_RACES
  Unseen() {
    AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~Unseen() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
  }
#else
  Unseen() {}
  ~Unseen() {}
#endif
  Unseen(const Unseen&) = delete;
};

// What the thread sanitizer knows instead: whatever comes before a meeting happens before whatever comes after it. Two take
// turns, as nobody reaches the meeting after the next before all have gone on from this one.
class Meetings {
  alignas(8) unsigned char tokens[2][8] = {};

 public:
#ifdef METAL_HOST_RACES
  void arrive(uint round) { __tsan_release(tokens[round & 1]); }
  void go_on(uint round) { __tsan_acquire(tokens[round & 1]); }
#else
  void arrive(uint) {}
  void go_on(uint) {}
#endif
};

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
  Meetings meetings;

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

  Slots& gather(uint round, const char* name) {
    Unseen unseen;
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

 public:
  Slots slots[2];

  void begin(uint lanes) {
    present = lanes >= width ? ~0u : (1u << lanes) - 1;
    waiting = parked = rounds = 0;
  }
  // Waits for all lanes that have not returned; they must call the same function.
  Slots& meet(uint round, const char* name) {
    meetings.arrive(round);
    Slots& mine = gather(round, name);
    meetings.go_on(round);
    return mine;
  }
  // A lane is about to wait at the group's barrier; `unpark` when that opens.
  void park() {
    Unseen unseen;
    std::lock_guard lock(mutex);
    ++parked;
    diverged();
  }
  void unpark() {
    Unseen unseen;
    std::lock_guard lock(mutex);
    parked = 0;
  }
  // A lane returned: the others no longer wait for it.
  void leave(uint lane) {
    Unseen unseen;
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
  Meetings meetings;

  static void missed() { fail("threads returned before a threadgroup_barrier that others of their group wait at"); }

  // It stays until this thread has arrived, too.
  uint current() {
    Unseen unseen;
    std::lock_guard lock(mutex);
    return rounds;
  }
  template <class F>
  void gather(F open) {
    Unseen unseen;
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

 public:
  void begin(uint count) {
    members = count;
    waiting = left = rounds = 0;
  }
  // `open` is called once, before anyone goes on.
  template <class F>
  void wait(F open) {
    uint round = current();
    meetings.arrive(round);
    gather(open);
    meetings.go_on(round);
  }
  void leave() {
    Unseen unseen;
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
