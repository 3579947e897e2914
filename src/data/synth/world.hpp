// The world that rows are drawn from: posts with their authors and topics, users with their tastes.
// A pure function of the options' seed and sizes. Immutable, so threads share it. Posts take about
// 40 bytes each; users are computed when asked for and take none.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "data/synth/alias_table.hpp"
#include "data/synth/options.hpp"
#include "data/synth/words.hpp"

namespace paceline::data::synth {

inline constexpr int kMaxUserTopics = 4;

struct User {
  std::int64_t id = 0;
  int topics = 0;
  std::array<std::uint8_t, kMaxUserTopics> topic{};
  std::array<float, kMaxUserTopics> weight{};  // sums to 1
  double activity = 1.0;                       // lognormal(0, 0.6)
  std::int32_t country = 0, language = 0, gender = 0, age_bracket = 0, timezone = 0, platform = 0;
  float age = 0.0F;
  std::uint64_t apps = 0;

  float preference(std::uint8_t wanted) const {
    float w = 0.0F;
    for (int i = 0; i < topics; ++i) {
      if (topic[static_cast<std::size_t>(i)] == wanted) w = weight[static_cast<std::size_t>(i)];
    }
    return w;
  }
};

struct Post {
  std::int64_t id = 0;
  std::uint32_t author = 0;  // author_id - 1
  float quality = 0.0F;      // author's times post's
  float log_likes = 0.0F;
  std::uint16_t code = 0;  // of its content: topic and style of the author
  std::uint8_t topic = 0;
  std::uint8_t surface = 0;
};

class World {
 public:
  explicit World(const Options& options);

  User user(std::uint64_t index) const;
  // Only what decides whether the user is there: lognormal activity and timezone.
  void presence(std::uint64_t index, double& activity, std::int32_t& timezone) const;

  // Grouped by topic.
  const std::vector<Post>& posts() const { return posts_; }
  int topics() const { return static_cast<int>(topics_.size()); }
  // Index of a post of the topic, by popularity x (0.1 + 0.9 quality), or by popularity alone. A
  // topic without posts gives any post.
  std::uint32_t draw_read(int topic, std::uint32_t word) const;
  std::uint32_t draw_shown(int topic, std::uint32_t word) const;

 private:
  struct Topic {
    std::uint32_t first = 0;  // of its posts
    AliasTable read, shown;
  };
  std::uint64_t seed_;
  std::vector<Post> posts_;
  std::vector<Topic> topics_;
};

}  // namespace paceline::data::synth
