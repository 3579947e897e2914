#include "data/synth/rows.hpp"

#include <algorithm>
#include <cmath>

namespace paceline::data::synth {
namespace {

constexpr std::int64_t kDay = 86'400;
constexpr std::int64_t kHour = 3'600;
constexpr double kMeanGap = 1'800.0;  // seconds between events of a user of activity 1
constexpr double kMaxActivity = 4.0;
constexpr double kSqrtHalf = 0.70710678118654752440;
constexpr double kLogDwell = 1.7917594692280550;  // log 6
constexpr double kLogLong = 2.3025850929940457;   // log 10
constexpr float kLongDwell = 10.0F;

std::int32_t local_hour(std::int64_t time, std::int32_t timezone) {
  return static_cast<std::int32_t>(((time / kHour + timezone) % 24 + 24) % 24);
}

// Share of the peak at which users of that hour are there, peaked at 19 h.
std::array<double, 24> make_hourly() {
  std::array<double, 24> curve{};
  const double peak = 0.25 + std::exp(1.4);
  for (std::size_t h = 0; h < curve.size(); ++h) {
    const double angle = (static_cast<double>(h) - 19.0) * 3.14159265358979323846 / 12.0;
    curve[h] = (0.25 + std::exp(1.4 * std::cos(angle))) / peak;
  }
  return curve;
}

const std::array<double, 24>& hourly() {
  static const std::array<double, 24> kCurve = make_hourly();
  return kCurve;
}

std::uint64_t bit_of(int action) {
  return std::uint64_t{1} << kActionInfos[static_cast<std::size_t>(action)].bit;
}

// Seconds that an engaged user stays.
float draw_dwell(float gate, Words& w) {
  const double z = w.normal();
  return static_cast<float>(
      std::clamp(std::exp(kLogDwell + 2.0 * static_cast<double>(gate) + 0.8 * z), 0.5, 300.0));
}

// The probability that it is kLongDwell or more.
double long_dwell_probability(float gate) {
  const double z = (kLogDwell + 2.0 * static_cast<double>(gate) - kLogLong) / 0.8;
  return 0.5 * std::erfc(-z * kSqrtHalf);
}

int topic_of(const User& user, Words& w) {
  float u = static_cast<float>(w.next()) * 0x1.0p-32F;
  int i = 0;
  for (; i + 1 < user.topics; ++i) {
    u -= user.weight[static_cast<std::size_t>(i)];
    if (u < 0.0F) break;
  }
  return user.topic[static_cast<std::size_t>(i)];
}

std::int64_t uniform_length(const LengthRange& r, Words& w) {
  return r.min + w.below(static_cast<std::uint32_t>(r.max - r.min + 1));
}

// 1 to 36 hours.
std::int64_t draw_age(Words& w) { return kHour + w.below(static_cast<std::uint32_t>(35 * kHour)); }

}  // namespace

void RowColumns::clear() {
  for (auto* v :
       {&user_id, &request_time, &user_apps, &history_offsets, &history_item_id, &history_author_id,
        &history_time, &history_post_time, &history_actions, &candidate_offsets, &candidate_item_id,
        &candidate_author_id, &candidate_post_time, &candidate_actions}) {
    v->clear();
  }
  for (auto* v : {&user_country, &user_language, &user_gender, &user_age_bracket, &user_timezone,
                  &user_platform, &request_hour, &history_surface, &history_hour, &history_code,
                  &candidate_surface, &candidate_code}) {
    v->clear();
  }
  for (auto* v : {&user_age, &user_log_activity, &history_log_likes, &history_dwell,
                  &candidate_log_likes, &candidate_dwell}) {
    v->clear();
  }
  for (auto& v : oracle) v.clear();
  history_offsets.push_back(0);
  candidate_offsets.push_back(0);
}

float gate_of(const User& user, const Post& post) {
  const float affinity = user.preference(post.topic) * post.quality;
  return 1.0F / (1.0F + std::exp(-14.0F * (affinity - 0.10F)));
}

std::int64_t request_time_of(std::int64_t row, std::int64_t users) {
  // Whole days and the rest apart: no product overflows.
  return kFirstRequest + row / users * kDay + (row % users) * kDay / users;
}

RowDrawer::RowDrawer(const Options& options, const World& world)
    : options_(options), world_(world), shown_(world.posts().size(), 0U) {
  double sum = 0.0;
  for (const auto& r : options.history) length_ends_.push_back(sum += r.share);
  for (auto& end : length_ends_) end /= sum;
  for (std::size_t a = 0; a < base_.size(); ++a) {
    base_[a] = static_cast<float>(options.rates[a]);
    if (base_[a] > base_[static_cast<std::size_t>(likeliest_)]) likeliest_ = static_cast<int>(a);
  }
}

std::uint64_t RowDrawer::pick_user(std::int64_t time, Words& w) const {
  const auto users = static_cast<std::uint64_t>(options_.users);
  std::uint64_t user = 0;
  for (int tries = 0; tries < 64; ++tries) {
    const std::uint64_t word = std::uint64_t{w.next()} << 32 | w.next();
    __extension__ using Wide = unsigned __int128;
    user = static_cast<std::uint64_t>((Wide{word} * users) >> 64);
    double activity = 0.0;
    std::int32_t timezone = 0;
    world_.presence(user, activity, timezone);
    const double there = hourly()[static_cast<std::size_t>(local_hour(time, timezone))];
    if (w.chance(std::min(activity / kMaxActivity, 1.0) * there)) break;
  }
  return user;
}

std::int64_t RowDrawer::history_length(Words& w) const {
  const double u = w.open_uniform();
  std::size_t i = 0;
  while (i + 1 < length_ends_.size() && u >= length_ends_[i]) ++i;
  return uniform_length(options_.history[i], w);
}

void RowDrawer::append(std::int64_t row, RowColumns& out) {
  Words w(options_.seed, Use::kRow, static_cast<std::uint64_t>(row));
  const std::int64_t time = request_time_of(row, options_.users);
  const User user = world_.user(pick_user(time, w));
  out.user_id.push_back(user.id);
  out.request_time.push_back(time);
  out.user_country.push_back(user.country);
  out.user_language.push_back(user.language);
  out.user_gender.push_back(user.gender);
  out.user_age_bracket.push_back(user.age_bracket);
  out.user_timezone.push_back(user.timezone);
  out.user_platform.push_back(user.platform);
  out.request_hour.push_back(1 + local_hour(time, user.timezone));
  out.user_age.push_back(user.age);
  out.user_log_activity.push_back(static_cast<float>(std::log(user.activity)));
  out.user_apps.push_back(static_cast<std::int64_t>(user.apps));
  append_history(user, time, w, out);
  append_candidates(user, time, w, out);
}

void RowDrawer::append_history(const User& user, std::int64_t request_time, Words& w,
                               RowColumns& out) {
  const std::int64_t length = history_length(w);
  const std::size_t begin = out.history_item_id.size(),
                    end = begin + static_cast<std::size_t>(length);
  for (auto* v : {&out.history_item_id, &out.history_author_id, &out.history_time,
                  &out.history_post_time, &out.history_actions}) {
    v->resize(end);
  }
  for (auto* v : {&out.history_surface, &out.history_hour, &out.history_code}) v->resize(end);
  for (auto* v : {&out.history_log_likes, &out.history_dwell}) v->resize(end);
  out.history_offsets.push_back(static_cast<std::int64_t>(end));

  const double mean_gap = kMeanGap / user.activity;
  std::int64_t time = request_time - kHour;
  for (std::size_t i = end; i-- > begin;) {  // from the newest
    time -= 1 + static_cast<std::int64_t>(mean_gap * w.exponential());
    const Post& post = world_.posts()[world_.draw_read(topic_of(user, w), w.next())];
    const float gate = gate_of(user, post);
    std::uint64_t actions = 0;
    for (int a = 0; a < kDrawnActions; ++a) {
      const float p = std::min(2.5F * base_[static_cast<std::size_t>(a)] * gate, 0.97F);
      actions |= w.chance(static_cast<double>(p)) ? bit_of(a) : 0;
    }
    if (actions == 0) actions = bit_of(likeliest_);
    const float dwell = draw_dwell(gate, w);
    if (dwell >= kLongDwell) actions |= bit_of(kDwelled);
    out.history_item_id[i] = post.id;
    out.history_author_id[i] = 1 + static_cast<std::int64_t>(post.author);
    out.history_time[i] = time;
    out.history_post_time[i] = time - draw_age(w);
    out.history_actions[i] = static_cast<std::int64_t>(actions);
    out.history_surface[i] = post.surface;
    out.history_hour[i] = 1 + local_hour(time, user.timezone);
    out.history_code[i] = post.code;
    out.history_log_likes[i] = post.log_likes;
    out.history_dwell[i] = dwell;
  }
}

std::uint32_t RowDrawer::pick_candidate(const User& user, Words& w) {
  const auto topics = static_cast<std::uint32_t>(world_.topics());
  for (int tries = 0; tries < 64; ++tries) {
    const int topic = w.chance(0.7) ? topic_of(user, w) : static_cast<int>(w.below(topics));
    const std::uint32_t post = world_.draw_shown(topic, w.next());
    if (shown_[post] == mark_) continue;
    shown_[post] = mark_;
    return post;
  }
  // The popular ones are all shown: the next free one from anywhere.
  const auto posts = static_cast<std::uint32_t>(world_.posts().size());
  std::uint32_t post = w.below(posts);
  while (shown_[post] == mark_) post = (post + 1) % posts;
  shown_[post] = mark_;
  return post;
}

void RowDrawer::append_candidates(const User& user, std::int64_t request_time, Words& w,
                                  RowColumns& out) {
  if (++mark_ == 0) {
    std::fill(shown_.begin(), shown_.end(), 0U);
    mark_ = 1;
  }
  for (std::int64_t n = uniform_length(options_.candidates, w); n > 0; --n) {
    const Post& post = world_.posts()[pick_candidate(user, w)];
    const float gate = gate_of(user, post);
    std::uint64_t actions = 0;
    double none = 1.0;
    for (int a = 0; a < kDrawnActions; ++a) {
      const auto k = static_cast<std::size_t>(a);
      const float p = base_[k] * gate;
      none *= 1.0 - static_cast<double>(p);
      actions |= w.chance(static_cast<double>(p)) ? bit_of(a) : 0;
      out.oracle[k].push_back(p);
    }
    float dwell = 0.0F;
    if (actions != 0) {
      dwell = draw_dwell(gate, w);
      if (dwell >= kLongDwell) actions |= bit_of(kDwelled);
    } else {
      actions = bit_of(kNotDwelled);
    }
    out.oracle[kDwelled].push_back(static_cast<float>((1.0 - none) * long_dwell_probability(gate)));
    out.oracle[kNotDwelled].push_back(static_cast<float>(none));
    out.candidate_item_id.push_back(post.id);
    out.candidate_author_id.push_back(1 + static_cast<std::int64_t>(post.author));
    out.candidate_post_time.push_back(request_time - draw_age(w));
    out.candidate_actions.push_back(static_cast<std::int64_t>(actions));
    out.candidate_surface.push_back(post.surface);
    out.candidate_code.push_back(post.code);
    out.candidate_log_likes.push_back(post.log_likes);
    out.candidate_dwell.push_back(dwell);
  }
  out.candidate_offsets.push_back(static_cast<std::int64_t>(out.candidate_item_id.size()));
}

}  // namespace paceline::data::synth
