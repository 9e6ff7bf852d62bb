// The threads of one step: a barrier that costs less than a microsecond, and shares of work that they claim.
#pragma once

#include <omp.h>
#include <sched.h>

#include <atomic>
#include <cstdint>

namespace motet {

inline void breathe() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

class Team {
  public:
    // Called by each thread of a parallel region first: there may be fewer than were asked for.
    void join() {
#pragma omp single
        threads_ = omp_get_num_threads();
    }
    int threads() const { return threads_; }

    // Until all are here. Whoever comes last starts a new account of claims.
    void meet() {
        if (threads_ == 1) {
            claimed_.store(0, std::memory_order_relaxed);
            return;
        }
        uint32_t round = round_.load(std::memory_order_acquire);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) == threads_ - 1) {
            arrived_.store(0, std::memory_order_relaxed);
            claimed_.store(0, std::memory_order_relaxed);
            round_.store(round + 1, std::memory_order_release);
            return;
        }
        for (int spins = 0; round_.load(std::memory_order_acquire) == round; spins++) {
            if (spins < MOST_SPINS) breathe();
            else sched_yield();  // more threads than processors: let the others come
        }
    }

    // The next of `total` units: big shares first, then smaller ones, each a multiple of `unit`, `most` at most.
    bool claim(int64_t total, int64_t unit, int64_t most, int64_t* low, int64_t* high) {
        int64_t at = claimed_.load(std::memory_order_relaxed);
        for (;;) {
            if (at >= total) return false;
            int64_t share = (total - at) / (2 * threads_) / unit * unit;
            if (share > most) share = most / unit * unit;
            if (share < unit) share = unit;
            int64_t end = at + share < total ? at + share : total;
            if (claimed_.compare_exchange_weak(at, end, std::memory_order_relaxed)) {
                *low = at;
                *high = end;
                return true;
            }
        }
    }

  private:
    static constexpr int MOST_SPINS = 2000;
    int threads_ = 1;
    alignas(64) std::atomic<int> arrived_{0};
    alignas(64) std::atomic<uint32_t> round_{0};
    alignas(64) std::atomic<int64_t> claimed_{0};
};

}  // namespace motet
