#include "data/synth/world.hpp"

#include <algorithm>
#include <numeric>

namespace paceline::data::synth {
namespace {

constexpr std::uint32_t kStyles = 16;
constexpr std::int64_t kFirstUserId = 1'000'000'001;
// Ids that look like time stamps with a counter below them.
constexpr std::int64_t kFirstPostTick = 1'750'000'000'000;
constexpr std::int64_t kTicksBetweenPosts = 211;
constexpr int kCounterBits = 20;
constexpr std::int32_t kHome = 1, kGallery = 10;

struct Author {
  std::uint8_t primary = 0, secondary = 0;
  std::uint8_t style = 0;
  float quality = 0.0F;
};

std::vector<Author> make_authors(const Options& o) {
  const auto topics = static_cast<std::uint32_t>(o.topics);
  std::vector<Author> authors(static_cast<std::size_t>(o.authors));
  for (std::size_t i = 0; i < authors.size(); ++i) {
    Words w(o.seed, Use::kAuthor, i);
    auto& a = authors[i];
    const std::uint32_t primary = w.below(topics);
    a.primary = static_cast<std::uint8_t>(primary);
    a.secondary = static_cast<std::uint8_t>((primary + 1 + w.below(topics - 1)) % topics);
    a.style = static_cast<std::uint8_t>(w.below(kStyles));
    a.quality = static_cast<float>(w.beta22());
  }
  return authors;
}

// The popularity rank of each post: a permutation.
std::vector<std::uint32_t> make_ranks(const Options& o) {
  std::vector<std::uint32_t> ranks(static_cast<std::size_t>(o.items));
  std::iota(ranks.begin(), ranks.end(), 0U);
  Words w(o.seed, Use::kPopularity, 0);
  for (std::size_t i = ranks.size(); i > 1; --i) {
    std::swap(ranks[i - 1], ranks[w.below(static_cast<std::uint32_t>(i))]);
  }
  return ranks;
}

}  // namespace

World::World(const Options& o) : seed_(o.seed) {
  struct Drawn {
    Post post;
    double popularity = 0.0;
    double quality = 0.0;  // the post's own
  };
  const auto authors = make_authors(o);
  const auto ranks = make_ranks(o);
  std::vector<Drawn> drawn(static_cast<std::size_t>(o.items));
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    Words w(o.seed, Use::kPost, i);
    auto& [post, popularity, quality] = drawn[i];
    post.author = w.below(static_cast<std::uint32_t>(o.authors));
    const Author& author = authors[post.author];
    post.topic = w.chance(0.8) ? author.primary : author.secondary;
    quality = w.beta22();
    post.surface = static_cast<std::uint8_t>(w.chance(0.85) ? kHome : kGallery);
    popularity = std::pow(static_cast<double>(ranks[i]) + 1.0, -1.05);
    post.quality = author.quality * static_cast<float>(quality);
    post.log_likes = static_cast<float>(std::log10(1.0 + 1e6 * popularity * quality) - 2.0);
    post.code = static_cast<std::uint16_t>(1 + post.topic * kStyles + author.style);
    const std::int64_t tick = kFirstPostTick + static_cast<std::int64_t>(i) * kTicksBetweenPosts;
    post.id = tick << kCounterBits | w.below(1U << kCounterBits);
  }
  std::stable_sort(drawn.begin(), drawn.end(),
                   [](const Drawn& a, const Drawn& b) { return a.post.topic < b.post.topic; });

  topics_.resize(static_cast<std::size_t>(o.topics));
  std::vector<double> read, shown;
  for (std::size_t t = 0, i = 0; t < topics_.size(); ++t) {
    topics_[t].first = static_cast<std::uint32_t>(i);
    read.clear();
    shown.clear();
    for (; i < drawn.size() && drawn[i].post.topic == t; ++i) {
      shown.push_back(drawn[i].popularity);
      read.push_back(drawn[i].popularity * (0.1 + 0.9 * drawn[i].quality));
    }
    topics_[t].shown = AliasTable(shown);
    topics_[t].read = AliasTable(read);
  }
  posts_.reserve(drawn.size());
  for (const auto& d : drawn) posts_.push_back(d.post);
}

void World::presence(std::uint64_t index, double& activity, std::int32_t& timezone) const {
  Words w(seed_, Use::kUser, index);
  timezone = static_cast<std::int32_t>(w.below(32));
  activity = std::exp(0.6 * w.normal());
}

User World::user(std::uint64_t index) const {
  User u;
  u.id = kFirstUserId + static_cast<std::int64_t>(index);
  Words w(seed_, Use::kUser, index);
  u.timezone = static_cast<std::int32_t>(w.below(32));
  u.activity = std::exp(0.6 * w.normal());
  const auto topics = static_cast<std::uint32_t>(topics_.size());
  u.topics = std::min(2 + static_cast<int>(w.below(3)), static_cast<int>(topics));
  double sum = 0.0;
  std::array<double, kMaxUserTopics> gamma{};
  for (int i = 0; i < u.topics; ++i) {
    const auto k = static_cast<std::size_t>(i);
    const auto end = u.topic.begin() + i;
    do {
      u.topic[k] = static_cast<std::uint8_t>(w.below(topics));
    } while (std::find(u.topic.begin(), end, u.topic[k]) != end);
    const double z = w.normal();
    gamma[k] = w.exponential() + 0.5 * z * z;  // Gamma(1) + Gamma(1/2)
    sum += gamma[k];
  }
  for (std::size_t k = 0; k < gamma.size(); ++k) u.weight[k] = static_cast<float>(gamma[k] / sum);
  u.country = static_cast<std::int32_t>(1 + w.below(30));
  u.language = static_cast<std::int32_t>(1 + w.below(20));
  u.gender = static_cast<std::int32_t>(w.below(3));
  const std::uint32_t age = 13 + w.below(77);
  u.age = static_cast<float>(age);
  u.age_bracket = static_cast<std::int32_t>(std::min(1 + (age - 13) / 11, 7U));
  u.platform = w.chance(0.6) ? 1 : 2;
  for (std::uint32_t apps = 2 + w.below(7); apps > 0;) {
    const std::uint64_t bit = std::uint64_t{1} << w.below(64);
    if ((u.apps & bit) == 0) --apps;
    u.apps |= bit;
  }
  return u;
}

std::uint32_t World::draw_read(int topic, std::uint32_t word) const {
  const auto& t = topics_[static_cast<std::size_t>(topic)];
  if (t.read.size() == 0)
    return static_cast<std::uint32_t>(std::uint64_t{word} * posts_.size() >> 32);
  return t.first + t.read.draw(word);
}

std::uint32_t World::draw_shown(int topic, std::uint32_t word) const {
  const auto& t = topics_[static_cast<std::size_t>(topic)];
  if (t.shown.size() == 0)
    return static_cast<std::uint32_t>(std::uint64_t{word} * posts_.size() >> 32);
  return t.first + t.shown.draw(word);
}

}  // namespace paceline::data::synth
