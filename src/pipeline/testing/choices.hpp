// What decides in a Schedule whenever more than one thing may happen next.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "core/error.hpp"

namespace paceline::pipeline::testing {

class Choices {
 public:
  virtual ~Choices() = default;
  // Must the running thread, which could go on, give way to another one here?
  virtual bool interrupts() = 0;
  // One of `options` (>= 1): a number below it.
  virtual std::size_t pick(std::size_t options) = 0;
};

// Follows from a seed, the density of interruptions too.
class RandomChoices final : public Choices {
 public:
  explicit RandomChoices(std::uint64_t seed) : random_(seed), one_in_(2 + random_() % 4) {}
  bool interrupts() override { return random_() % one_in_ == 0; }
  std::size_t pick(std::size_t options) override { return random_() % options; }

 private:
  std::mt19937_64 random_;
  const std::uint64_t one_in_;
};

// Every schedule with at most `interruptions` of them, one per run, depth first:
//
//   EveryChoice choices(2);
//   do run(choices); while (choices.next());
//
// What runs must depend on nothing but the choices.
class EveryChoice final : public Choices {
 public:
  explicit EveryChoice(int interruptions) : interruptions_(interruptions), left_(interruptions) {}

  bool interrupts() override {
    if (left_ == 0 || pick(2) == 0) return false;
    --left_;
    return true;
  }
  std::size_t pick(std::size_t options) override {
    if (options == 1) return 0;
    if (at_ == path_.size()) path_.push_back({0, options});
    PL_CHECK(path_[at_].options == options, "the same choices lead to the same place");
    return path_[at_++].taken;
  }

  // To the next schedule; false when all were run.
  bool next() {
    path_.resize(at_);
    while (!path_.empty() && path_.back().taken + 1 == path_.back().options) path_.pop_back();
    at_ = 0;
    left_ = interruptions_;
    if (path_.empty()) return false;
    ++path_.back().taken;
    return true;
  }

  // The schedule under way, for a report: "0 2 1".
  std::string text() const {
    std::string all;
    for (const Choice& choice : path_) all += std::to_string(choice.taken) + " ";
    return all;
  }

 private:
  struct Choice {
    std::size_t taken;
    std::size_t options;
  };
  const int interruptions_;
  int left_;
  std::size_t at_ = 0;
  std::vector<Choice> path_;
};

}  // namespace paceline::pipeline::testing
